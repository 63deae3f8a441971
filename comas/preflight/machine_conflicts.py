"""What the keys of placement must satisfy together: who has which GPUs, and when."""

from collections.abc import Iterator

from comas.config.faults import Conflict
from comas.config.schema import Config


def machine_conflicts(config: Config) -> Iterator[Conflict]:
    """What no placement of engines and ranks can be."""
    for check in (_gpus, _nodes, _shared_gpus, _frozen, _staleness):
        yield from check(config)


def _frozen(config: Config) -> Iterator[Conflict]:
    if config.cluster.device == "cpu" or config.cluster.placement == "colocated":
        return
    if 0 in config.society.update_every:
        yield Conflict(
            ("society.update_every", "cluster.placement"),
            "disaggregated, the GPUs of a frozen policy's trainer would do nothing",
            "set cluster.placement to colocated, where its engines have all of its GPUs",
        )


def _staleness(config: Config) -> Iterator[Conflict]:
    if config.training.max_staleness == 0:
        return
    on_schedule = "set training.max_staleness to 0"
    if config.cluster.device != "cpu" and config.cluster.placement == "colocated":
        yield Conflict(
            ("training.max_staleness", "cluster.placement"),
            "on GPUs that they share, a policy's engines sleep while it is trained",
            f"set cluster.placement to disaggregated, or cluster.device to cpu, or {on_schedule}",
        )
    optimization = config.optimization
    corrects = optimization.rollout_correction != "none" or optimization.old_logprobs == "rollout"
    if optimization.loss == "clipped_surrogate" and not corrects:
        yield Conflict(
            ("training.max_staleness", "optimization.rollout_correction"),
            "nothing would weigh what agents said before their latest updates",
            "set optimization.rollout_correction to tis or icepop, or optimization.old_logprobs "
            f"to rollout, or {on_schedule}",
        )


def _gpus(config: Config) -> Iterator[Conflict]:
    if config.cluster.device == "cpu":
        return
    gpus = config.cluster.gpus_per_policy
    ranks, engines = config.policy.ranks_per_policy, config.rollout.engines_per_policy
    size = config.rollout.tensor_parallel
    keys = [
        "policy.ranks_per_policy",
        "rollout.engines_per_policy",
        "cluster.gpus_per_policy",
        "cluster.placement",
    ]
    asked, has = f"{engines} engines", "a GPU of its own"
    if size > 1:
        keys.insert(2, "rollout.tensor_parallel")
        asked, has = f"{engines} engines of {size} GPUs", "GPUs of its own"
    on_cpu = "or cluster.device=cpu, where the number of GPUs does not matter"
    if config.cluster.placement == "colocated" and not ranks == engines * size == gpus:
        same = "set all three to the same number"
        if size > 1:
            same = (
                "let ranks, GPUs and rollout.engines_per_policy x rollout.tensor_parallel be equal"
            )
        yield Conflict(
            tuple(keys),
            f"colocated, each of the {gpus} GPUs holds one rank and one engine, "
            f"not {ranks} ranks and {asked}",
            f"{same}, {on_cpu}",
        )
    if config.cluster.placement == "disaggregated" and ranks + engines * size != gpus:
        yield Conflict(
            tuple(keys),
            f"disaggregated, each rank and each engine has {has}: "
            f"{ranks} + {engines * size} is not {gpus}",
            f"set cluster.gpus_per_policy to {ranks + engines * size}, {on_cpu}",
        )


def _nodes(config: Config) -> Iterator[Conflict]:
    nodes = config.cluster.nodes_per_policy
    counts = {
        "policy.ranks_per_policy": config.policy.ranks_per_policy,
        "rollout.engines_per_policy": config.rollout.engines_per_policy,
    }
    for key, count in counts.items():
        if count % nodes:
            yield Conflict(
                ("cluster.nodes_per_policy", key),
                f"{count} cannot be divided evenly over {nodes} nodes",
                f"set {key} to a multiple of {nodes}, or cluster.nodes_per_policy to 1",
            )


def _shared_gpus(config: Config) -> Iterator[Conflict]:
    if config.cluster.device == "cpu":
        return
    share, policies = config.rollout.gpu_memory_utilization, config.cluster.policies_per_gpu
    if share * policies > 1:
        yield Conflict(
            ("rollout.gpu_memory_utilization", "cluster.policies_per_gpu"),
            f"the engines of {policies} policies on a GPU would fill {share * policies:.0%} of it",
            f"set rollout.gpu_memory_utilization to less than {1 / policies:.2g}",
        )
