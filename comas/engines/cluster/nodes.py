"""Joining or starting a Ray cluster, watching it, and running functions on its nodes."""

import logging
import os
import secrets
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import ray
from ray._raylet import Config as RayConfig  # type: ignore[attr-defined]
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from comas.engines.cluster.placement import Node
from comas.engines.cluster.supervision import LostEngineError

HEAD_TIMEOUT_S = 5.0
"""Limit for connecting to the head of a cluster. (Ray itself tries for minutes.)"""
ANSWER_TIMEOUT_S = 120.0
"""Limit for a small function on a node, including the start of its process."""

Result = TypeVar("Result")


def cluster_address() -> str | None:
    """Return the Ray cluster to join (RAY_ADDRESS), or None to start one on this machine."""
    return os.environ.get("RAY_ADDRESS") or None


def connect(address: str | None, **settings: Any) -> None:
    """Join the Ray cluster at ``address``, or start one with ``settings`` if it is None."""
    if address is None:
        require_token()
    on_terminate = signal.getsignal(signal.SIGTERM)
    options = {**settings, "log_to_driver": False, "logging_level": logging.ERROR}
    # Trap: Ray passes it to a shell unquoted. In a folder with a space no worker ever starts.
    options["runtime_env"] = {"py_executable": shlex.quote(sys.executable)}
    try:
        ray.init(address=address or "local", **options)
    except SystemExit as exit_of_ray:
        # Ray turns SIGTERM into an immediate exit; the caller decides what it means.
        raise KeyboardInterrupt from exit_of_ray
    except RuntimeError as error:
        # The other lines are raw lines of Ray's logs.
        raise LostEngineError(f"Ray did not start: {str(error).splitlines()[0]}") from error
    except Exception as error:
        if type(error) is not Exception:  # Ray raises a bare Exception if a node takes over 30 s
            raise
        raise LostEngineError(f"Ray did not start: {error}") from error
    finally:
        signal.signal(signal.SIGTERM, on_terminate)


def leave() -> None:
    """End the Ray that ``connect`` started, or leave the one that it joined.

    Trap: ray.shutdown() restores SIGTERM's default action behind Python's back, then takes a second
    to end its processes; a SIGTERM in that second would end this process as well.
    """
    node = ray._private.worker._global_node
    on_terminate = signal.getsignal(signal.SIGTERM)
    if node is not None:
        end_processes = node.kill_all_processes

        def end_processes_with_handler(**options: Any) -> None:
            signal.signal(signal.SIGTERM, on_terminate)
            end_processes(**options)

        node.kill_all_processes = end_processes_with_handler
    ray.shutdown()
    signal.signal(signal.SIGTERM, on_terminate)


def require_token() -> None:
    """Protect a Ray that this process starts by a token: all local users can reach its ports."""
    os.environ["RAY_AUTH_MODE"] = "token"
    # One token per process: Ray caches the first that it finds.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Trap: Ray read its environment when it was imported.
    RayConfig.initialize("")


@contextmanager
def joined(address: str) -> Iterator[None]:
    """Join the Ray cluster at ``address`` for this block. Raises ValueError when there is no such
    cluster, or this machine does not belong to it."""
    try:
        if "://" in address:
            raise ValueError("a Ray client cannot hold engines")
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=HEAD_TIMEOUT_S).close()
        connect(address)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"RAY_ADDRESS={address}: {error}. Give the address of a running Ray cluster, such as "
            "10.0.0.1:6379, on a machine that belongs to it (`ray start`)"
        ) from error
    try:
        yield
    finally:
        leave()


def alive_nodes() -> list[Node]:
    """Return every living node of the cluster that this process has joined."""
    return [
        Node(
            node["NodeID"],
            node["NodeManagerAddress"],
            int(node["Resources"].get("CPU", 0)),
            int(node["Resources"].get("GPU", 0)),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def own_address() -> str:
    """Return the address at which other nodes reach this one; the loopback if there are none."""
    nodes = alive_nodes() if ray.is_initialized() else []
    if len(nodes) < 2:
        return "127.0.0.1"
    own_id = ray.get_runtime_context().get_node_id()
    return next(node.address for node in nodes if node.node_id == own_id)


def on_nodes(
    nodes: Sequence[Node], function: Callable[..., Result], *arguments: Any
) -> list[Result]:
    """Run ``function`` on each of ``nodes``, where it sees all GPUs, and return the results. Raises
    ValueError when it cannot be run on a node, or fails there."""
    remote: Any = ray.remote(max_retries=0)(function)
    answers = [
        remote.options(
            num_cpus=0,
            runtime_env={"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}},
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False),
        ).remote(*arguments)
        for node in nodes
    ]
    return [_answer_of(node, answer) for node, answer in zip(nodes, answers, strict=True)]


def _answer_of(node: Node, answer: ray.ObjectRef) -> Any:
    try:
        return ray.get(answer, timeout=ANSWER_TIMEOUT_S)
    except ray.exceptions.RayError as error:
        cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
        raise ValueError(
            f"node {node.address} of the Ray cluster cannot take part: {type(cause).__name__}: "
            f"{cause}. Every node needs this code and its environment at the same paths"
        ) from error
