"""The machines of a Ray cluster, as the preflight sees them from the driver."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile

from comas.config.schema import Config
from comas.engines.cluster.nodes import alive_nodes, joined, on_nodes
from comas.engines.cluster.placement import Node
from comas.preflight.machine import Machine, choose_device, describe_machine
from comas.utils.files import PARTIAL, explaining_errors


def cluster_machine(config: Config, address: str) -> Machine:
    """Return the resources to plan with on the Ray cluster at ``address``: the least that a node
    with engines has, but the most GPUs, since they share a host's memory.

    Raises ValueError if "cuda" is wanted and no node has a GPU, the cluster cannot be joined, or
    its nodes do not share the folder ``saves``.
    """
    with joined(address):
        nodes = alive_nodes()
        most = max(node.num_gpus for node in nodes)
        device = choose_device(config.cluster.device, num_gpus=int(most))
        if device == "cuda" and not most:
            raise ValueError(
                "cluster.device=cuda, but no node of the Ray cluster has GPUs. Start Ray where "
                "there are some (`ray start --address=...`), or set cluster.device=cpu"
            )
        # A head node without GPUs holds no engines.
        holders = [node for node in nodes if (node.num_gpus if device == "cuda" else node.num_cpus)]
        check_shared(Path(config.saves), holders)
        machines = on_nodes(holders, describe_machine, device)
    return dataclasses.replace(
        machines[0],
        num_gpus=max(machine.num_gpus for machine in machines),
        gpu_bytes=min(machine.gpu_bytes for machine in machines),
        host_bytes=min(machine.host_bytes for machine in machines),
        has_cuda_compiler=all(machine.has_cuda_compiler for machine in machines),
        num_cores=min(machine.num_cores for machine in machines),
    )


def check_shared(saves: Path, nodes: Sequence[Node]) -> None:
    """Raise ValueError unless every node sees what this machine writes into ``saves``, where ranks
    write checkpoints and engines read models."""
    with explaining_errors(saves):
        saves.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(prefix=PARTIAL, dir=saves.absolute()) as file:
            seen = on_nodes(nodes, Path.is_file, Path(file.name))
    blind = [node.address for node, is_seen in zip(nodes, seen, strict=True) if not is_seen]
    if blind:
        raise ValueError(
            f"saves={saves.absolute()} is not the same folder on every node of the Ray cluster: "
            f"{', '.join(blind)} cannot read there what is written here. Name a folder of a file "
            "system that all nodes share, at the same path"
        )
