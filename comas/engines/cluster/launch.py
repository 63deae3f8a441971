"""Starts Ray, and the engines' processes on their planned slots."""

import logging
import os
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import cycle
from typing import Any

import psutil
import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from comas.config.plugins import texts_read
from comas.config.schema import Config
from comas.engines.cluster.actors import (
    Engine,
    PolicyActor,
    ProcessLocation,
    RolloutActor,
    visible_gpus,
)
from comas.engines.cluster.nodes import alive_nodes, cluster_address, connect, leave, own_address
from comas.engines.cluster.placement import (
    CPU_SHARE,
    Device,
    PolicyPlacement,
    Slot,
    check_gpus,
    family_in_words,
    plan_policy,
)
from comas.engines.cluster.supervision import STARTING, LostEngineError, wait_for_all
from comas.engines.policy.deepspeed_options import process_environment
from comas.engines.rollout.vllm_options import (
    QUIET_VLLM,
    Adapters,
    WeightTransfer,
    engine_environment,
)
from comas.utils.processes import end_processes, is_alive, name
from comas.utils.terminal import deferred_signals

log = logging.getLogger(__name__)

SEES_ALL_GPUS = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
"""Environment variable, of a shell or a cluster, by which Ray leaves each actor all GPUs."""
MARK = "COMAS_LAUNCH"
"""Environment variable that marks the processes of a Ray that we started."""
ESSENTIAL = ("gcs_server", "raylet")
"""Processes of Ray without which it does not answer, or ends connected processes after a minute."""
SHOWN_LINES = 10
"""Log lines shown of a lost engine."""


class Launch:
    """Starts the engines of a society under Ray, and stops all that it started. Raises ValueError,
    with the numbers, when the policies do not fit on the GPUs."""

    def __init__(self, config: Config, *, models: Sequence[str], device: Device) -> None:
        self._config = config
        self._models = models
        self._device = device
        self._placement: PolicyPlacement = plan_policy(config, device=device)
        self._mark = secrets.token_hex(8)
        self._engines: list[Engine] = []
        self._locations: dict[str, ProcessLocation] = {}
        self._ray_processes: list[psutil.Process] = []
        with ExitStack() as stack:
            stack.callback(self.stop)
            self._start_ray()
            self.address = own_address()
            self._groups = self._placement_groups()
            stack.pop_all()

    def rollouts(self) -> list[Engine]:
        """Create the rollout engines, family by family, without loading anything."""
        remote = ray.remote(RolloutActor)
        threads = self._config.cluster.cpu_threads or 1
        environment = engine_environment(self._device, threads=threads)
        return [
            self._engine(
                f"rollout engine {index} of {family_in_words(family)}",
                remote,
                family,
                slot,
                environment,
                rollout=replace(
                    self._config.rollout,
                    chat_template_kwargs=self._config.chat_template_kwargs[family[0]],
                ),
                adapters=Adapters(self._config.policy.lora, adapted) if adapted else None,
                gpus=self._gpus_of(family, slot),
            )
            for family in self._config.families
            for adapted in [tuple(p for p in family if p in self._config.adapter_policies)]
            for index, slot in enumerate(self._placement.rollout_slots)
        ]

    def start_waves(self, engines: Sequence[Engine]) -> list[list[Engine]]:
        """Divide ``engines`` into groups that may start at once, as they share no GPU."""
        families, sharers = self._config.families, self._placement.policies_per_group
        return [
            [engine for engine in engines if families.index(engine.policies) % sharers == wave]
            for wave in range(sharers)
        ]

    def ranks(self, *, num_optimizer_steps: Sequence[int | None]) -> list[Engine]:
        """Create the ranks of trained policies, family by family, without loading anything."""
        config = self._config
        remote = ray.remote(PolicyActor)
        shares = [node.num_cpus // node.num_gpus for node in self._nodes if node.num_gpus]
        per_gpu = min(shares, default=1) // self._placement.policies_per_group
        threads = config.cluster.cpu_threads or max(1, per_gpu)
        # On GPUs a rank also imports vLLM, to send its weights.
        environment = process_environment(self._device, threads=threads) | QUIET_VLLM
        return [
            self._engine(
                f"rank {rank} of {family_in_words(family)}",
                remote,
                family,
                slot,
                environment,
                policies=[policy for policy in family if policy in config.trained_policies],
                rank=rank,
                num_optimizer_steps=num_optimizer_steps,
                plugin_texts=texts_read(),
            )
            for family in config.trained_families
            for rank, slot in enumerate(self._placement.policy_slots)
        ]

    def wait_for_start(self, starting: Mapping[Engine, ray.ObjectRef]) -> None:
        """Wait until engines have started, and keep their locations."""
        found = wait_for_all(
            {engine.name: call for engine, call in starting.items()},
            doing=STARTING,
            timeout_s=self._config.cluster.start_timeout_s,
            check=self.check_nodes,
        )
        for engine, where in zip(starting, found, strict=True):
            self._locations[engine.name] = where

    def describe(self, engine: Engine) -> str:
        """Describe an engine: its agents, process and node, and the end of its log if it can be
        read from here."""
        policies = self._config.policy_of_agent
        agents = [str(agent) for agent, policy in enumerate(policies) if policy in engine.policies]
        title = f"{engine.name} (agents {', '.join(agents)})"
        where = self._locations.get(engine.name)
        if where is None:
            return f"{title} had not started"
        lines = [f"{title} was process {where.pid} on node {where.address}; its log is {where.log}"]
        with suppress(OSError), where.log.open(errors="replace") as log_file:
            lines += [line.rstrip()[:200] for line in deque(log_file, maxlen=SHOWN_LINES)]
        return "\n  ".join(lines)

    def check_nodes(self) -> None:
        """Raise LostEngineError when Ray, or a node that it had at the start, is gone."""
        self.check_ray()
        gone = set(self._nodes) - set(alive_nodes())
        if gone:
            addresses = ", ".join(node.address for node in gone)
            raise LostEngineError(f"nodes of the Ray cluster are gone: {addresses}")

    def check_ray(self) -> None:
        """Raise LostEngineError when the Ray that was started here is gone, which Ray itself
        reports much later."""
        for process in self._ray_processes:
            if not is_alive(process):
                raise LostEngineError(f"Ray is lost: its process {process.pid} is gone")

    def stop(self) -> None:
        """End every engine, and the Ray that was started for them."""
        with deferred_signals("ending the engines"):
            if not all(map(is_alive, self._ray_processes)):
                # ray.shutdown() would wait for processes that have lost Ray until it ends this one.
                end_processes(variable=MARK, value=self._mark)
            for engine in self._engines:
                ray.kill(engine.actor)
            leave()
            # Frozen processes, and those that had lost Ray, are still running.
            end_processes(variable=MARK, value=self._mark)

    def _start_ray(self) -> None:
        address = cluster_address()
        if address:
            connect(address)
        else:
            store_bytes = self._config.cluster.object_store_mib << 20
            os.environ[MARK] = self._mark
            try:
                connect(None, include_dashboard=False, object_store_memory=store_bytes)
            finally:
                del os.environ[MARK]
            started = psutil.Process().children(recursive=True)
            self._ray_processes = [process for process in started if name(process) in ESSENTIAL]
        self._nodes = alive_nodes()
        node_gpus = [node.num_gpus for node in self._nodes]
        check_gpus(self._placement, num_policies=len(self._config.families), node_gpus=node_gpus)

    def _placement_groups(self) -> dict[tuple[int, ...], PlacementGroup]:
        """Create a group for each family, or for those that share GPUs. Ray chooses the nodes of
        groups with GPUs; those on CPUs, which ask it for almost nothing, take turns on the nodes.
        """
        labels: list[dict[str, str]] = [{}]
        if self._device == "cpu":
            labels = [{"ray.io/node-id": node.node_id} for node in self._nodes if node.num_cpus]
        bundles, turns = list(self._placement.bundles), cycle(labels)
        groups = dict[tuple[int, ...], PlacementGroup]()
        for number, family in enumerate(self._config.families):
            if number % self._placement.policies_per_group == 0:
                selector = [next(turns)] * len(bundles)
                group = ray.util.placement_group(
                    bundles, strategy="STRICT_PACK", bundle_label_selector=selector
                )
            groups[family] = group
        return groups

    def _gpus_of(self, family: tuple[int, ...], slot: Slot) -> str | None:
        """Return the GPUs of a sharded engine, ``"0,1"``, in the order of its bundles; None for any
        other. (Ray assigns an actor GPUs of one bundle only.)"""
        if len(slot.bundles) == 1:
            return None
        ask = ray.remote(visible_gpus)
        calls = {
            f"bundle {bundle} of {family_in_words(family)}": ask.options(
                num_cpus=0, num_gpus=slot.num_gpus, scheduling_strategy=self._within(family, bundle)
            ).remote()
            for bundle in slot.bundles
        }
        limit = self._config.cluster.start_timeout_s
        doing = "being asked for its GPU"
        return ",".join(wait_for_all(calls, doing=doing, timeout_s=limit, check=self.check_nodes))

    def _within(self, family: tuple[int, ...], bundle: int) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(
            placement_group=self._groups[family], placement_group_bundle_index=bundle
        )

    def _engine(
        self,
        name: str,
        remote: Any,
        family: tuple[int, ...],
        slot: Slot,
        environment: dict[str, str],
        **arguments: Any,
    ) -> Engine:
        """Create an actor of class ``remote`` for ``family`` on ``slot``."""
        backend: WeightTransfer = "shared_memory"
        if self._device == "cuda":
            backend = "ipc" if self._config.cluster.placement == "colocated" else "nccl"
        actor = remote.options(
            num_cpus=CPU_SHARE,
            num_gpus=slot.num_gpus if len(slot.bundles) == 1 else 0,
            runtime_env={"env_vars": environment | {SEES_ALL_GPUS: "0"}},
            scheduling_strategy=self._within(family, slot.bundles[0]),
        )
        model, config, device = self._models[family[0]], self._config, self._device
        handle = actor.remote(model, config, device=device, backend=backend, **arguments)
        self._engines.append(Engine(name, family, handle))
        return self._engines[-1]
