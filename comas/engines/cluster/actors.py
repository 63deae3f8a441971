"""The two kinds of Ray actor: one around a vLLM engine, one around a DeepSpeed rank.

The engines are imported inside the actors' processes only, so the driver loads neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray.actor import ActorHandle

from comas.config.schema import Config
from comas.engines.rollout.vllm_options import WeightTransfer
from comas.types import Device, Generation, TrainingSample, UpdateStats


class RolloutActor:
    """A vLLM engine; Ray serves its coroutine methods concurrently."""

    def __init__(
        self,
        model: str,
        config: Config,
        *,
        device: Device,
        backend: WeightTransfer,
        engine_index: int,
    ) -> None:
        from comas.engines.rollout.engine import RolloutEngine

        self._engine = RolloutEngine(
            model,
            rollout=config.rollout,
            device=device,
            weight_transfer=backend,
            seed=config.seed,
            engine_index=engine_index,
        )

    async def start(self) -> None:
        await self._engine.start()

    async def generate(
        self, prompt: str, *, seed: int, temperature: float | None
    ) -> Generation | None:
        return await self._engine.generate(prompt, seed=seed, temperature=temperature)

    async def count_updates_from(self, version: int) -> None:
        await self._engine.count_updates_from(version)

    async def sleep(self) -> None:
        await self._engine.sleep()

    async def wake_weights(self) -> None:
        await self._engine.wake_weights()

    async def wake_kv_cache(self) -> None:
        await self._engine.wake_kv_cache()

    # The names and arguments below are those that vLLM's own RayVLLMWeightSyncClient calls.
    async def init_weight_transfer_engine(self, request: Any) -> None:
        await self._engine.init_weight_transfer_engine(request)

    async def start_weight_update(self) -> None:
        await self._engine.start_weight_update()

    async def update_weights(self, request: Any) -> None:
        await self._engine.update_weights(request)

    async def finish_weight_update(self) -> None:
        await self._engine.finish_weight_update()


class PolicyActor:
    """One rank of a policy's DeepSpeed group; every method is collective over its ranks."""

    def __init__(
        self,
        model: str,
        config: Config,
        *,
        device: Device,
        backend: WeightTransfer,
        rank: int,
        rendezvous: Path,
    ) -> None:
        self._model = model
        self._config = config
        self._device = device
        self._backend = backend
        self._rank = rank
        self._rendezvous = rendezvous

    def start(self) -> None:
        from comas.engines.policy.trainer import PolicyTrainer

        self._trainer = PolicyTrainer(
            self._model,
            policy=self._config.policy,
            optimization=self._config.optimization,
            temperature=self._config.rollout.temperature,
            device=self._device,
            rank=self._rank,
            world_size=self._config.policy.ranks_per_policy,
            rendezvous=self._rendezvous,
            seed=self._config.seed,
        )

    def connect(self, engines: Sequence[ActorHandle]) -> None:
        """Prepare the transfer of this policy's weights to its rollout engines."""
        from comas.engines.rollout.weight_transfer import (
            PolicyWeights,
            RayVLLMWeightSyncClient,
            create_weight_sender,
        )

        self._sender = create_weight_sender(
            self._backend,
            client=RayVLLMWeightSyncClient(list(engines)),
            source=PolicyWeights(self._trainer.named_weights, self._trainer.weight_metadata),
            rank=self._rank,
            num_engines=len(engines),
        )

    def send_weights(self) -> None:
        """Make the connected engines serve this policy's present weights."""
        self._sender.send_weights()

    def update(self, samples: Sequence[TrainingSample], *, step: int) -> UpdateStats:
        return self._trainer.update(samples, step=step)

    def offload_states(self) -> None:
        self._trainer.offload_states()

    def reload_states(self) -> None:
        self._trainer.reload_states()

    def save_checkpoint(self, folder: Path) -> None:
        self._trainer.save_checkpoint(folder)

    def load_checkpoint(self, folder: Path) -> None:
        self._trainer.load_checkpoint(folder)

    def save_model(self, folder: Path) -> None:
        self._trainer.save_model(folder)
