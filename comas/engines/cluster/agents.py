"""The society's engines behind one interface: generate, update, sync, save."""

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import ray

from comas.config.schema import Config
from comas.engines.cluster.actors import Engine, MemoryPeak, serving
from comas.engines.cluster.engine_client import EngineClient
from comas.engines.cluster.launch import Launch
from comas.engines.cluster.supervision import LostEngineError, wait_for_all
from comas.policy_optimization.update_stats import UpdateStats
from comas.types import Device, Generation, Request, TrainingSample

log = logging.getLogger(__name__)


class Agents:
    """All policies and their rollout engines, which run under Ray inside the context.

    All policies generate, train and sync at once. On shared GPUs, rollout engines sleep during
    training, and training states leave the GPU during generation. A frozen policy has only
    engines, which serve its base model and never sleep.

    Example::

        with Agents(config, models=["models/qwen2", "models/llama"], device="cpu") as agents:
            agents.sync_weights()
            request = Request(0, "What is 1 + 1?", ("d", "r0.s0"), "solution", seed=7)
            generation = await agents.generate(request)
    """

    def __init__(
        self,
        config: Config,
        *,
        models: Sequence[str],
        device: Device,
        num_optimizer_steps: Sequence[int | None] | None = None,
    ) -> None:
        """``num_optimizer_steps`` are those expected of the whole run for each policy, which some
        learning-rate schedules need."""
        self._config = config
        self._num_optimizer_steps = num_optimizer_steps or [None] * config.num_policies
        self._models = models
        self._device = device
        self._shares_gpus = device == "cuda" and config.cluster.placement == "colocated"
        self._versions = Counter[int]()
        """Policy -> the version of its weights."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._launch = Launch(self._config, models=self._models, device=self._device)
            stack.callback(self._launch.stop)
            self._start()
            stack.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, LostEngineError):
            self._report(error)
        self._launch.stop()

    async def generate(self, request: Request) -> Generation | None:
        """Sample one response of an agent; None if the prompt is over the prompt limit. Raises
        EngineError when the engine fails or is lost."""
        policy = self._config.policy_of_agent[request.agent_index]
        if policy in self._config.adapter_policies:
            request = request._replace(adapter=policy)
        clients = (client for client in self._clients if policy in client.engine.policies)
        least_busy = min(clients, key=lambda client: client.num_asked)
        generation = await least_busy.ask(request)
        if generation is None:
            return None
        return replace(generation, policy_version=self._versions[policy])

    def begin_update(
        self, buffers: Mapping[int, Sequence[TrainingSample]], *, step: int
    ) -> Callable[[], dict[int, UpdateStats]]:
        """Begin to update the policies of ``buffers``; return a function that waits for the end and
        returns policy -> result.

        Until ``sync_weights``, engines that share no GPU may go on sampling with their weights.
        """
        ranks = serving(buffers, self._ranks)
        if self._shares_gpus:
            self._call_all(serving(buffers, self._rollouts), "going to sleep", "sleep")
            self._call_all(ranks, "returning to the GPU", "reload_states")
        # Put into Ray's store once for all ranks of a family.
        sent = {
            family: ray.put({policy: buffers[policy] for policy in family if policy in buffers})
            for family in {rank.policies: None for rank in ranks}
        }
        calls = {rank: rank.call("update", sent[rank.policies], step=step) for rank in ranks}

        def wait() -> dict[int, UpdateStats]:
            firsts = self._wait(calls, "updating")[:: self._config.policy.ranks_per_policy]
            return {policy: updated for family in firsts for policy, updated in family.items()}

        return wait

    def sync_weights(self, policies: Collection[int] | None = None) -> None:
        """Make rollout engines serve the weights of ``policies`` (default: all trained ones)."""
        policies = self._config.trained_policies if policies is None else policies
        self._versions.update(list(policies))
        ranks, rollouts = serving(policies, self._ranks), serving(policies, self._rollouts)
        if self._shares_gpus:
            # After an update the allocator caches tens of GB that no other process can use.
            self._call_all(ranks, "releasing its cache", "release_cache")
            # Weights, sync, KV cache: waking both at once needs memory for everything.
            self._call_all(rollouts, "waking up", "wake", "weights")
        calls = {
            rank: rank.actor.send_weights.remote([p for p in rank.policies if p in policies])
            for rank in ranks
        }
        self._wait(calls, "sending its weights")
        if self._shares_gpus:
            self._call_all(ranks, "leaving the GPU", "offload_states")
            self._call_all(rollouts, "waking up", "wake", "kv_cache")

    def save_checkpoint(self, folder: Path) -> None:
        """Write weights, optimiser and scheduler of every trained policy."""
        self._call_all(self._ranks, "writing a checkpoint", "save_checkpoint", folder)

    def load_checkpoint(self, folder: Path, *, step: int) -> None:
        """Restore what ``save_checkpoint`` wrote after ``step``, policy versions included. Raises
        ValueError when a policy that is now frozen was trained."""
        every = self._config.update_every
        for policy in range(self._config.num_policies):
            if every[policy] == 0 and (folder / f"policy_{policy}").exists():
                raise ValueError(
                    f"resume: policy {policy} was trained, and society.update_every={every} would "
                    "go on with its base model. Set it above 0, or start a new run in which "
                    "society.models names the trained model"
                )
        self._call_all(self._ranks, "loading a checkpoint", "load_checkpoint", folder)
        trained = self._config.trained_policies
        # The last step always has an update.
        self._versions = Counter({policy: -(-step // every[policy]) for policy in trained})

    def save_models(self, folder: Path) -> None:
        """Save every trained agent's model in Hugging Face format as ``folder/agent_<i>``."""
        for agent, policy in enumerate(self._config.policy_of_agent):
            ranks, model = serving([policy], self._ranks), folder / f"agent_{agent}"
            if policy in self._config.trained_policies:
                self._call_all(ranks, "saving its model", "save_model", policy, model)

    def memory_peaks(self) -> dict[str, list[MemoryPeak]]:
        """Return the peak memory of every rollout engine and every rank."""
        parts = {"rollout engines": self._rollouts, "ranks": self._ranks}
        asked = "being asked for its memory"
        return {
            part: self._wait({e: e.actor.memory_peak.remote() for e in engines}, asked)
            for part, engines in parts.items()
        }

    def _call_all(
        self, engines: Sequence[Engine], doing: str, method: str, *arguments: Any
    ) -> list[Any]:
        """Return the results of ``method`` on all ``engines`` at once."""
        return self._wait({engine: engine.call(method, *arguments) for engine in engines}, doing)

    def _wait(self, calls: Mapping[Engine, ray.ObjectRef], doing: str) -> list[Any]:
        return wait_for_all(
            {engine.name: call for engine, call in calls.items()},
            doing=doing,
            timeout_s=self._config.cluster.call_timeout_s,
            check=self._launch.check_ray,
        )

    def _start(self) -> None:
        started = time.monotonic()
        self._rollouts = self._launch.rollouts()
        # A starting engine measures its GPU's free memory, so the engines of one GPU start one
        # after another, and sleep before the policies load.
        *waves, last_wave = self._launch.start_waves(self._rollouts)
        for engines in waves:
            self._launch.wait_for_start(_begin_start(engines))
        starting = _begin_start(last_wave)
        if self._shares_gpus:
            self._launch.wait_for_start(starting)
            rollouts = serving(self._config.trained_policies, self._rollouts)
            self._call_all(rollouts, "going to sleep", "sleep")
        self._ranks = self._launch.ranks(num_optimizer_steps=self._num_optimizer_steps)
        firsts = self._ranks[:: self._config.policy.ranks_per_policy]
        rendezvous = {rank.policies: rank.actor.open_rendezvous.remote() for rank in firsts}
        for rank in self._ranks:
            starting[rank] = rank.actor.start.remote(rendezvous[rank.policies])
        self._launch.wait_for_start(starting)
        calls = {}
        for rank in self._ranks:
            actors = [engine.actor for engine in serving(rank.policies, self._rollouts)]
            calls[rank] = rank.actor.connect.remote(actors)
        self._wait(calls, "connecting to its rollout engines")
        self._clients = [
            EngineClient(
                engine,
                address=self._launch.address,
                timeout_s=self._config.cluster.call_timeout_s,
                check_ray=self._launch.check_ray,
            )
            for engine in self._rollouts
        ]
        log.info("engines up after %.0f s", time.monotonic() - started)

    def _report(self, error: LostEngineError) -> None:
        """Log a description of every engine that the error names."""
        for engine in (*self._rollouts, *self._ranks):
            # "rank 0 of policy 1" is not named in "rank 0 of policy 12 failed".
            if re.search(rf"\b{re.escape(engine.name)}\b", str(error)):
                log.warning(self._launch.describe(engine))


def _begin_start(rollouts: Iterable[Engine]) -> dict[Engine, ray.ObjectRef]:
    return {engine: engine.actor.start.remote() for engine in rollouts}
