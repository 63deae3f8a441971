"""Which weights the rollout engines of a society serve, and how they get there."""

from collections import Counter
from collections.abc import Collection, Sequence
from operator import methodcaller

from comas.config.schema import Config
from comas.engines.cluster.actors import Engine, serving
from comas.engines.cluster.supervision import Supervisor


class ServedWeights:
    """The weights that engines serve, those of their policies.

    On shared GPUs engines sleep while their policies train, and the policies' states leave the GPU
    while the engines generate: what sends weights puts everybody in their place.
    """

    def __init__(
        self,
        config: Config,
        supervisor: Supervisor,
        *,
        rollouts: Sequence[Engine],
        ranks: Sequence[Engine],
        shares_gpus: bool,
    ) -> None:
        """``rollouts`` and ``ranks`` fill as engines start, and change as they are replaced."""
        self._trained = config.trained_policies
        self._adapters = config.adapter_policies
        self._call_all = supervisor.call_all
        self._rollouts = rollouts
        self._ranks = ranks
        self._shares_gpus = shares_gpus
        self._versions = Counter[int]()
        """Policy -> the version of its weights."""
        self.are_behind = False
        """Whether ranks may hold other weights than their engines, until ``sync``."""

    def sync(self, policies: Collection[int] | None = None) -> None:
        """Make the engines of ``policies`` (all that are trained) serve their present weights."""
        updated = self._trained if policies is None else policies
        self._versions.update(list(updated))
        self.are_behind = False
        self._send(updated)

    def make_room(self, policies: Collection[int]) -> None:
        """On shared GPUs, put engines to sleep and bring the ranks' states back."""
        if self._shares_gpus:
            rollouts, ranks = serving(policies, self._rollouts), serving(policies, self._ranks)
            self._call_all(rollouts, "going to sleep", lambda engine: engine.call("sleep"))
            self._call_all(ranks, "returning to the GPU", lambda rank: rank.call("reload_states"))

    def send(self, policies: Collection[int]) -> None:
        """Have ranks, for which there is room, send their weights, and engines learn the version,
        which a weight update counts up by itself."""
        self._send(policies)
        self._tell_versions(policies)

    def count_from(self, versions: Counter[int]) -> None:
        """Go on counting the versions of weights after these."""
        self._versions = versions
        self._tell_versions(self._trained)

    def _send(self, policies: Collection[int]) -> None:
        ranks, rollouts = serving(policies, self._ranks), serving(policies, self._rollouts)
        if self._shares_gpus:
            # An update leaves tens of GB in its allocator, which no other process can use.
            self._call_all(ranks, "releasing its cache", lambda rank: rank.call("release_cache"))
            # Weights, then sync, then cache: waking all at once needs memory for everything.
            self._call_all(rollouts, "waking up", lambda engine: engine.call("wake_weights"))
        own = {rank: [p for p in rank.policies if p in policies] for rank in ranks}
        self._call_all(
            ranks,
            "sending its weights",
            lambda rank: rank.actor.send_weights.remote(own[rank]),
            watched=rollouts,
        )
        if self._shares_gpus:
            self._call_all(ranks, "leaving the GPU", lambda rank: rank.call("offload_states"))
            self._call_all(rollouts, "waking up", lambda engine: engine.call("wake_kv_cache"))

    def _tell_versions(self, policies: Collection[int]) -> None:
        for policy in policies:
            adapter = policy if policy in self._adapters else None
            told = methodcaller("call", "count_updates_from", self._versions[policy], adapter)
            self._call_all(serving([policy], self._rollouts), "learning its policy version", told)
