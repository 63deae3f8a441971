"""The society's engines under Ray: generate, update, sync, save, and restart after a death."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import builders
import psutil
import pytest
import ray
import torch
from peft import PeftModel
from tiny_models import distributions, save_tiny_model
from transformers import AutoModelForCausalLM

from comas.config.schema import Config
from comas.engines.cluster.agents import Agents
from comas.engines.cluster.supervision import LostEngineError
from comas.engines.rollout.workers import SHARED_MEMORY
from comas.preflight.configuration import load_config
from comas.types import Generation, TrainingSample
from comas.utils.processes import command_line, is_alive

pytestmark = pytest.mark.stack

PROMPTS = ["What is 1 + 1?", "Say something.", "x" * 40]
MAX_LOGPROB_DIFFERENCE = 1e-3


def society_config(*settings: str) -> Config:
    """One engine and one rank for each policy, unless set otherwise."""
    shared = (
        *("rollout.dtype=float32", "rollout.engines_per_policy=1", "rollout.cpu_kv_cache_mib=32"),
        *("rollout.max_prompt_tokens=200", "rollout.max_response_tokens=16", "cluster.device=cpu"),
        *("policy.dtype=float32", "policy.ranks_per_policy=1", "policy.zero_stage=3"),
        *("policy.adam_offload=false", "policy.gradient_checkpointing=false"),
        *("optimization.learning_rate=1e-2", "optimization.warmup_steps=0"),
        *("optimization.train_batch_size=null", "cluster.call_timeout_s=300"),
    )
    return load_config(None, [*shared, *settings])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A Qwen2-style model with tied embeddings, and a Llama-style one with untied ones and another
    tokenizer."""
    folder = tmp_path_factory.mktemp("models")
    return [
        save_tiny_model(folder / family, family, backwards=family == "untied")
        for family in ("tied", "untied")
    ]


def generate(agents: Agents, agent: int, *, seed: int = 0) -> list[Generation]:
    async def all_prompts() -> list[Generation | None]:
        asked = (
            builders.request(prompt, agent=agent, turn_id=f"r{i}.s0", seed=seed + i)
            for i, prompt in enumerate(PROMPTS)
        )
        return await asyncio.gather(*map(agents.generate, asked))

    generations = asyncio.run(all_prompts())
    assert all(generation is not None for generation in generations)
    return generations  # type: ignore[return-value]


def buffers_of(agents: Agents, num_agents: int) -> dict[int, list[TrainingSample]]:
    """What each agent generates, with the rewards 0, 1, 0."""
    tokens = ("prompt_token_ids", "response_token_ids", "rollout_logprobs")
    return {
        agent: [
            builders.sample(
                agent_index=agent,
                reward=float(i % 2),
                **{key: getattr(said, key) for key in tokens},
            )
            for i, said in enumerate(generate(agents, agent))
        ]
        for agent in range(num_agents)
    }


def logprobs_of(model_folder: Path, generation: Generation, *, adapter: Any = None) -> torch.Tensor:
    """Log-probs of the sampled tokens by transformers, and PEFT."""
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter)
    with torch.no_grad():
        response = torch.tensor([*generation.response_token_ids])
        return distributions(model, generation).log_prob(response)


def largest_difference(agents: Agents, model_of_agent: list[Path]) -> float:
    differences = [
        logprobs_of(folder, generation) - torch.tensor(generation.rollout_logprobs)
        for agent, folder in enumerate(model_of_agent)
        for generation in generate(agents, agent, seed=100)
    ]
    return float(torch.cat(differences).abs().max())


def test_engines_serve_the_policies_weights_after_every_sync(models, tmp_path):
    """Two ranks (ZeRO-3) and one engine per policy, tied and untied embeddings, a policy that two
    agents share: before training, after an update, after a checkpoint is loaded, and when engines
    died."""
    config = society_config(
        *("policy.ranks_per_policy=2", "society.num_agents=3", "society.policy_of_agent=[0,1,0]"),
        "society.learning_rates=[1e-2,2e-2]",
    )
    untrained = [Path(models[policy]) for policy in (0, 1, 0)]
    with Agents(config, models=models, device="cpu") as agents:
        agents.sync_weights()
        assert largest_difference(agents, untrained) < MAX_LOGPROB_DIFFERENCE
        agents.save_checkpoint(tmp_path / "checkpoint")
        buffers = buffers_of(agents, 3)
        stats = agents.begin_update({0: [*buffers[0], *buffers[2]], 1: buffers[1]}, step=1)()
        agents.sync_weights()
        agents.save_models(tmp_path / "trained")
        trained = [tmp_path / f"trained/agent_{agent}" for agent in range(3)]
        assert largest_difference(agents, trained) < MAX_LOGPROB_DIFFERENCE
        assert largest_difference(agents, untrained) > 10 * MAX_LOGPROB_DIFFERENCE
        num_samples = {policy: result.num_samples for policy, result in stats.items()}
        assert num_samples == {0: 2 * len(PROMPTS), 1: len(PROMPTS)}
        assert all(s.mismatch_max < MAX_LOGPROB_DIFFERENCE for s in stats.values())
        assert [stats[policy].learning_rate for policy in (0, 1)] == [1e-2, 2e-2]

        assert all(generation.policy_version == 2 for generation in generate(agents, 0))
        peaks = [peak for peaks in agents.memory_peaks().values() for peak in peaks]
        assert len(peaks) == 2 + 4 and all(peak.host_bytes > 1 << 27 for peak in peaks)
        agents.load_checkpoint(tmp_path / "checkpoint", step=7)
        agents.sync_weights()
        # Seven updates before the checkpoint, and the sync after it.
        assert {g.policy_version for g in generate(agents, 0)} == {8}
        assert largest_difference(agents, untrained) < MAX_LOGPROB_DIFFERENCE

        _kill(_rollout_processes())
        with pytest.raises(LostEngineError, match=r"rollout engine \d of policy 1 failed"):
            generate(agents, 1)
        with pytest.raises(LostEngineError, match=r"rank \d of policy [01] failed while sending"):
            agents.sync_weights()
    assert not ray.is_initialized()


def _rollout_processes() -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if "RolloutActor" in " ".join(command_line(process))
    ]


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        process.kill()
    psutil.wait_procs(processes)


@pytest.mark.slow
def test_a_sharded_engine_serves_its_policys_weights_and_ends_with_its_workers(models, tmp_path):
    """Two workers: after an update; after a worker was killed; and after the engine was, with a
    frozen worker."""
    memory = set(SHARED_MEMORY.iterdir())
    config = society_config("rollout.tensor_parallel=2", "society.num_agents=1")
    for loses_engine in (False, True):
        with Agents(config, models=models[:1], device="cpu") as agents:
            agents.begin_update(buffers_of(agents, 1), step=1)()
            agents.sync_weights()
            agents.save_models(tmp_path)
            assert largest_difference(agents, [tmp_path / "agent_0"]) < MAX_LOGPROB_DIFFERENCE
            [engine] = _rollout_processes()
            workers = [p for p in engine.children() if "Worker_TP" in " ".join(command_line(p))]
            assert len(workers) == 2
            if loses_engine:
                workers[0].suspend()
                _kill([engine])
            else:
                _kill(workers[1:])
            with pytest.raises(LostEngineError):
                generate(agents, 0)
        assert not any(map(is_alive, [engine, *workers]))
    left = {path.name for path in set(SHARED_MEMORY.iterdir()) - memory}
    assert not [name for name in left if name.startswith("vllm_dist_")]


def test_adapters_of_one_base_share_its_engines_and_each_is_served_to_its_agent(models, tmp_path):
    """Agents 0 and 1 adapt the model that the frozen agent 2 keeps; two engines, one rank."""
    config = society_config(
        *("rollout.engines_per_policy=2", "society.num_agents=3", "society.update_every=[1,1,0]"),
        *("policy.zero_stage=2", "policy.lora.rank=4", f"society.models=[{models[0]}]"),
    )
    bases = [models[0]] * 3
    with Agents(config, models=bases, device="cpu") as agents:
        assert len(_rollout_processes()) == 2
        agents.sync_weights()
        assert largest_difference(agents, [Path(base) for base in bases]) < MAX_LOGPROB_DIFFERENCE
        spoken = [generate(agents, agent) for agent in range(3)]
        said = [[g.response_token_ids for g in spoken[agent]] for agent in range(3)]
        assert said[0] == said[1] == said[2]  # B is 0 as yet

        buffers = buffers_of(agents, 2)
        agents.sync_weights(agents.begin_update({1: buffers[1]}, step=1)())
        assert generate(agents, 0) == spoken[0]
        assert generate(agents, 1) != spoken[1]
        agents.sync_weights(agents.begin_update({0: buffers[0]}, step=2)())
        agents.save_checkpoint(tmp_path / "checkpoint")
        checkpoint = {folder.name for folder in (tmp_path / "checkpoint").glob("policy_*")}
        assert checkpoint == {"policy_0", "policy_1"}
        agents.save_models(tmp_path / "trained")
        saved = sorted(folder.name for folder in (tmp_path / "trained").iterdir())
        assert saved == ["agent_0", "agent_1"]
        _check_adapters(agents, bases[:2], tmp_path / "trained")
        later = [generate(agents, agent) for agent in range(3)]
        assert [said[0].policy_version for said in later] == [2, 2, 0]
        assert later[2] == spoken[2]
        agents.begin_update(buffers, step=3)()
        agents.load_checkpoint(tmp_path / "checkpoint", step=2)
        agents.sync_weights()
        _check_adapters(agents, bases[:2], tmp_path / "trained")


def _check_adapters(agents: Agents, bases: Sequence[str], trained: Path) -> None:
    """Each agent samples with its own adapter."""
    for agent, base in enumerate(bases):
        for generation in generate(agents, agent, seed=100):
            sampled = torch.tensor(generation.rollout_logprobs)
            adapted = logprobs_of(Path(base), generation, adapter=trained / f"agent_{agent}")
            assert (adapted - sampled).abs().max() < MAX_LOGPROB_DIFFERENCE
            plain = logprobs_of(Path(base), generation)
            assert (plain - sampled).abs().max() > 10 * MAX_LOGPROB_DIFFERENCE
