"""The society's engines behind one face: generate, update, sync, save."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle

from comas.config.schema import Config
from comas.engines.cluster.launch import Launch
from comas.engines.cluster.supervision import EngineError, engine_error, wait_for_all
from comas.types import Device, Generation, TrainingSample, TurnKey, UpdateStats

log = logging.getLogger(__name__)

Engines = list[list[ActorHandle]]
"""Actors by policy, then by engine or rank."""


class Agents:
    """Every agent's policy with its rollout engines, running under Ray while in the context.

    All policies generate at once, train at once and sync at once. On shared GPUs the rollout
    engines sleep while the policies train, and the policies' states leave the GPU while the
    engines generate.

    Example::

        with Agents(config, models=["models/qwen2", "models/llama"], device="cpu") as agents:
            agents.sync_weights()
            generation = await agents.generate(0, "What is 1 + 1?", turn=("d", "r0.s0"), seed=7)
    """

    def __init__(self, config: Config, *, models: Sequence[str], device: Device) -> None:
        self._config = config
        self._models = models
        self._device = device
        self._shares_gpus = device == "cuda" and config.cluster.placement == "colocated"
        self._rollouts: Engines = []
        self._policies: Engines = []
        self._in_flight: dict[ActorHandle, int] = {}

    def __enter__(self) -> Agents:
        with ExitStack() as stack:
            self._launch = Launch(self._config, models=self._models, device=self._device)
            stack.callback(self._launch.stop)
            self._start()
            stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._launch.stop()

    async def generate(
        self,
        agent_index: int,
        prompt: str,
        *,
        turn: TurnKey,
        seed: int,
        temperature: float | None = None,
    ) -> Generation | None:
        """Sample one response of an agent; None when the prompt is over the prompt limit.

        ``turn`` tells an error's reader what was asked for.

        Raises:
            EngineError: the engine died, failed or exceeded ``cluster.call_timeout_s``.
        """
        policy = self._config.policy_of_agent[agent_index]
        engines = self._rollouts[policy]
        engine = min(engines, key=lambda actor: self._in_flight[actor])
        name = f"rollout engine {engines.index(engine)} of policy {policy}"
        limit = self._config.cluster.call_timeout_s
        self._in_flight[engine] += 1
        try:
            async with asyncio.timeout(limit):
                return await engine.generate.remote(prompt, seed=seed, temperature=temperature)
        except ray.exceptions.RayError as error:
            raise engine_error(name, f"generating {' '.join(turn)}", error) from error
        except TimeoutError as error:
            raise EngineError(
                f"{name} did not answer {' '.join(turn)} within {limit:.0f} s "
                "(cluster.call_timeout_s)"
            ) from error
        finally:
            self._in_flight[engine] -= 1

    def update(
        self, buffers: Sequence[Sequence[TrainingSample]], *, step: int
    ) -> list[UpdateStats]:
        """Update every policy on its own buffer, all at once; one result per policy."""
        if self._shares_gpus:
            self._on_rollouts("going to sleep", lambda actor: actor.sleep.remote())
            self._on_policies("returning to the GPU", lambda actor, _: actor.reload_states.remote())
        stats = self._on_policies(
            "updating", lambda actor, policy: actor.update.remote(buffers[policy], step=step)
        )
        num_ranks = self._config.policy.ranks_per_policy
        return stats[::num_ranks]

    def sync_weights(self) -> None:
        """Make every rollout engine serve its policy's weights."""
        if self._shares_gpus:
            # Weights, then sync, then cache: waking all at once needs memory for everything.
            self._on_rollouts("waking up", lambda actor: actor.wake_weights.remote())
        self._on_policies("sending its weights", lambda actor, _: actor.send_weights.remote())
        if self._shares_gpus:
            self._on_policies("leaving the GPU", lambda actor, _: actor.offload_states.remote())
            self._on_rollouts("waking up", lambda actor: actor.wake_kv_cache.remote())

    def save_checkpoint(self, folder: Path) -> None:
        """Write every policy's weights, optimiser and scheduler under ``folder``."""
        self._on_policies(
            "saving a checkpoint",
            lambda actor, policy: actor.save_checkpoint.remote(folder / f"policy_{policy}"),
        )

    def load_checkpoint(self, folder: Path, *, step: int) -> None:
        """Restore what ``save_checkpoint`` wrote after ``step``.

        The policy version of generations goes on from there, as if nobody had stopped the run.
        """
        self._on_policies(
            "loading a checkpoint",
            lambda actor, policy: actor.load_checkpoint.remote(folder / f"policy_{policy}"),
        )
        self._on_rollouts(
            "learning its policy version", lambda actor: actor.count_updates_from.remote(step)
        )

    def save_models(self, folder: Path) -> None:
        """Save every agent's model in Hugging Face format as ``folder/agent_<i>``."""
        for agent, policy in enumerate(self._config.policy_of_agent):
            calls = {
                f"rank {rank} of policy {policy}": actor.save_model.remote(
                    folder / f"agent_{agent}"
                )
                for rank, actor in enumerate(self._policies[policy])
            }
            self._wait(calls, "saving its model")

    def _start(self) -> None:
        started = time.monotonic()
        limit = self._config.cluster.start_timeout_s
        self._rollouts = self._launch.rollouts()
        self._in_flight = {actor: 0 for engines in self._rollouts for actor in engines}
        starting = self._calls_on_rollouts(lambda actor: actor.start.remote())
        if self._shares_gpus:
            # An engine measures the free memory of its GPU as it starts: engines come first,
            # and sleep before the policies load.
            self._wait(starting, "starting", limit)
            self._on_rollouts("going to sleep", lambda actor: actor.sleep.remote())
        self._policies = self._launch.policies()
        starting |= self._calls_on_policies(lambda actor, _: actor.start.remote())
        self._wait(starting, "starting", limit)
        self._on_policies(
            "connecting to its rollout engines",
            lambda actor, policy: actor.connect.remote(self._rollouts[policy]),
        )
        log.info("engines up after %.0f s", time.monotonic() - started)

    def _on_rollouts(self, doing: str, call: Callable[[ActorHandle], ray.ObjectRef]) -> None:
        self._wait(self._calls_on_rollouts(call), doing)

    def _on_policies(
        self, doing: str, call: Callable[[ActorHandle, int], ray.ObjectRef]
    ) -> list[Any]:
        return self._wait(self._calls_on_policies(call), doing)

    def _calls_on_rollouts(
        self, call: Callable[[ActorHandle], ray.ObjectRef]
    ) -> dict[str, ray.ObjectRef]:
        return {
            f"rollout engine {index} of policy {policy}": call(actor)
            for policy, engines in enumerate(self._rollouts)
            for index, actor in enumerate(engines)
        }

    def _calls_on_policies(
        self, call: Callable[[ActorHandle, int], ray.ObjectRef]
    ) -> dict[str, ray.ObjectRef]:
        return {
            f"rank {rank} of policy {policy}": call(actor, policy)
            for policy, ranks in enumerate(self._policies)
            for rank, actor in enumerate(ranks)
        }

    def _wait(
        self, calls: dict[str, ray.ObjectRef], doing: str, timeout_s: float | None = None
    ) -> list[Any]:
        limit = timeout_s or self._config.cluster.call_timeout_s
        return wait_for_all(calls, doing=doing, timeout_s=limit)
