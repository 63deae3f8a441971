"""The machines of a Ray cluster, as the preflight sees them from the driver."""

import dataclasses
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from comas.config.schema import Config
from comas.engines.cluster.nodes import alive_nodes, joined, on_nodes
from comas.engines.cluster.placement import Node
from comas.preflight.machine import Machine, choose_device, describe_machine
from comas.utils.files import PARTIAL, explaining_errors


def cluster_machine(config: Config, address: str) -> Machine:
    """Return the resources that every node of the Ray cluster at ``address`` has for engines.

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
        return least_of(on_nodes(holders, describe_machine, device))


def check_shared(saves: Path, nodes: Sequence[Node]) -> None:
    """Raise ValueError unless every node can read what this machine writes into ``saves``, where
    ranks write checkpoints and engines read models."""
    token, path = secrets.token_hex(16), saves.absolute() / f"{PARTIAL}token-{os.getpid()}"
    with explaining_errors(path):
        saves.mkdir(parents=True, exist_ok=True)
        path.write_text(token)
    try:
        seen = on_nodes(nodes, read_token, path)
    finally:
        path.unlink()
    blind = [node.address for node, read in zip(nodes, seen, strict=True) if read != token]
    if blind:
        raise ValueError(
            f"saves={saves.absolute()} is not the same folder on every node of the Ray cluster: "
            f"{', '.join(blind)} cannot read there what is written here. Name a folder of a file "
            "system that all nodes share, at the same path"
        )


def read_token(path: Path) -> str | None:
    """Return the content of the file, or None if there is none."""
    return path.read_text() if path.is_file() else None


def least_of(machines: Sequence[Machine]) -> Machine:
    """Return the machine to assume if an engine may get any of these: the least of each resource,
    but the most GPUs, since they share a host's memory."""
    first = machines[0]
    return dataclasses.replace(
        first,
        num_gpus=max(machine.num_gpus for machine in machines),
        gpu_bytes=min(machine.gpu_bytes for machine in machines),
        host_bytes=min(machine.host_bytes for machine in machines),
        has_cuda_compiler=all(machine.has_cuda_compiler for machine in machines),
        num_cores=min(machine.num_cores for machine in machines),
    )
