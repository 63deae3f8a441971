"""The two Ray actors: one around a vLLM engine, one around a DeepSpeed rank.

Engines are imported in the actors' processes only; the driver calls their methods by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import ray
from ray.actor import ActorHandle

from comas.config.plugins import adopt_texts, blaming_plugins
from comas.config.schema import Config
from comas.engines.rollout.vllm_options import WeightTransfer
from comas.types import Device
from comas.utils.processes import peak_bytes

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Engine:
    """An actor as the driver sees it."""

    name: str
    """Name in messages: "rollout engine 1 of policy 0", "rank 0 of policies 1, 2"."""
    policies: tuple[int, ...]
    """Its family: several policies share an engine as LoRA adapters."""
    actor: ActorHandle

    def call(self, method: str, *arguments: Any, **named: Any) -> ray.ObjectRef:
        """Start ``method`` of the ``RolloutEngine`` or ``FamilyTrainer`` in the actor."""
        return self.actor.call.remote(method, *arguments, **named)


def serving(policies: Collection[int], engines: Sequence[Engine]) -> list[Engine]:
    """Return the engines of at least one of ``policies``."""
    return [engine for engine in engines if not set(policies).isdisjoint(engine.policies)]


class ProcessLocation(NamedTuple):
    """An actor's process and node."""

    node_id: str
    address: str
    pid: int
    log: Path
    """File on its node that holds its stderr."""


class MemoryPeak(NamedTuple):
    """Peak memory of an engine's processes."""

    host_bytes: int
    gpu_bytes: int
    """Reserved by PyTorch in the actor's own process; 0 on a CPU."""


class _MeasuredActor:
    """An actor that reports the memory of its processes."""

    def memory_peak(self) -> MemoryPeak:
        """Return the peak memory of this actor and its child processes; not collective."""
        import torch

        this = psutil.Process()
        host_bytes = sum(map(peak_bytes, (this, *this.children(recursive=True))))
        return MemoryPeak(host_bytes, torch.cuda.max_memory_reserved())


def visible_gpus() -> str:
    """Return the GPUs that Ray has assigned to this process: ``0,1``."""
    return ",".join(ray.get_runtime_context().get_accelerator_ids()["GPU"])


def _own_location() -> ProcessLocation:
    return ProcessLocation(
        ray.get_runtime_context().get_node_id(),
        ray.util.get_node_ip_address(),
        os.getpid(),
        Path("/proc/self/fd/2").readlink(),
    )


class RolloutActor(_MeasuredActor):
    """A vLLM engine; Ray serves its coroutine methods concurrently."""

    def __init__(
        self,
        model: str,
        config: Config,
        *,
        backend: WeightTransfer,
        gpus: str | None = None,
        **others: Any,
    ) -> None:
        """``others`` are arguments of ``RolloutEngine``; ``gpus`` are set for a sharded engine
        (otherwise Ray assigns one)."""
        if gpus is not None:
            os.environ[VISIBLE_GPUS] = gpus
        from comas.engines.rollout.engine import RolloutEngine

        self._engine = RolloutEngine(model, weight_transfer=backend, seed=config.seed, **others)

    async def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call ``method`` of the ``RolloutEngine``."""
        return await getattr(self._engine, method)(*arguments, **named)

    async def start(self) -> ProcessLocation:
        """Load the engine; return its location."""
        await self._engine.start()
        return _own_location()


def call_all(engines: Sequence[ActorHandle], method: str, *arguments: Any, **named: Any) -> None:
    """Call ``method`` of several rollout engines at once, and wait for the end."""
    ray.get([engine.call.remote(method, *arguments, **named) for engine in engines])


class UpdateCalls:
    """Client of vLLM's weight senders: forwards each call to all rollout engines of a policy, which
    have ``workers_each`` GPUs each."""

    def __init__(self, engines: Sequence[ActorHandle], *, workers_each: int = 1) -> None:
        self._engines = engines
        self._workers_each = workers_each

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        calls = []
        for index, engine in enumerate(self._engines):
            info = {**init_info}
            if "rank_offset" in info:
                # For NCCL, vLLM counts ranks within one engine; each needs an offset of its own.
                info["rank_offset"] += index * self._workers_each
            named = {"init_info": info}
            calls.append(engine.call.remote("update", "init_weight_transfer_engine", **named))
        ray.get(calls)

    def start_weight_update(self) -> None:
        call_all(self._engines, "update", "start_weight_update")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        call_all(self._engines, "update", "update_weights", update_info=update_info)

    def finish_weight_update(self) -> None:
        call_all(self._engines, "update", "finish_weight_update")


@dataclass(eq=False, repr=False)  # Ray logs an actor's whole repr
class PolicyActor(_MeasuredActor):
    """One rank of a family's DeepSpeed group. Methods are collective over its ranks unless they say
    otherwise."""

    model: str
    config: Config
    device: Device
    backend: WeightTransfer
    policies: Sequence[int]
    """The trained policies of the family."""
    rank: int
    num_optimizer_steps: Sequence[int | None]
    plugin_texts: Mapping[str, str]
    """Texts of plug-in files, as the driver has read them."""
    _send: Callable[[Collection[int]], None] = field(init=False, repr=False)
    """Runs a whole weight update of the given policies."""

    def open_rendezvous(self) -> Path:
        """Return a file for the ranks to meet at: memory of this process, open to this user only,
        which leaves nothing behind."""
        descriptor = os.memfd_create("rendezvous")
        os.fchmod(descriptor, 0o600)
        return Path(f"/proc/{os.getpid()}/fd/{descriptor}")

    def start(self, rendezvous: Path) -> ProcessLocation:
        """Meet the other ranks at ``rendezvous``, load the model, return this rank's location."""
        from comas.engines.policy.family import FamilyTrainer

        adopt_texts(self.plugin_texts)
        self._trainer = FamilyTrainer(
            self.model,
            self.config,
            policies=self.policies,
            num_optimizer_steps=self.num_optimizer_steps,
            device=self.device,
            rank=self.rank,
            rendezvous=rendezvous,
        )
        return _own_location()

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call ``method`` of the ``FamilyTrainer``."""
        with blaming_plugins():
            return getattr(self._trainer, method)(*arguments, **named)

    def connect(self, engines: Sequence[ActorHandle]) -> None:
        """Prepare the transfer of the family's weights to its rollout engines, which refuse a model
        that they could not update."""
        if self.config.policy.lora.rank is not None:
            self._send = partial(self._send_adapters, engines)
            return
        [trainer] = self._trainer.trainers.values()
        if self.backend == "shared_memory":
            from comas.engines.rollout.cpu.shared_weights import send_in_memory

            if is_first := self.rank == 0:
                call_all(engines, "check_layers")
            load = partial(call_all, engines, "load_weights")
            self._send = lambda policies: send_in_memory(
                load, trainer.named_weights(), is_first=is_first
            )
            return
        from comas.engines.rollout.weight_transfer import PolicyWeights, create_weight_sender

        workers_each = self.config.rollout.tensor_parallel
        send = create_weight_sender(
            self.backend,
            client=UpdateCalls(engines, workers_each=workers_each),
            source=PolicyWeights(trainer.named_weights),
            rank=self.rank,
            num_workers=len(engines) * workers_each,
        )
        self._send = lambda policies: send()

    def _send_adapters(self, engines: Sequence[ActorHandle], policies: Collection[int]) -> None:
        """Send adapters, which are small, through Ray, from host memory on GPUs too."""
        for policy in policies if self.rank == 0 else ():
            call_all(engines, "load_adapter", policy, ray.put(self._trainer.adapter(policy)))

    def send_weights(self, policies: Collection[int]) -> None:
        """Make the connected engines serve the current weights of ``policies``."""
        self._send(policies)
