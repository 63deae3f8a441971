"""Every YAML under configs/ parses, resolves into a run, and makes a step with scripted agents."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest
from builders import advantages_of, discuss
from scripted_server import ScriptedServer
from small_runs import FAMILIES, REPOSITORY, record, write_records
from tables import case_file
from tiny_models import save_tiny_model

from comas.config import Config
from comas.config.schema import Dpo
from comas.engines.cluster.placement import check_gpus, plan_policy
from comas.policy_optimization.batching import response_mask
from comas.policy_optimization.preferences import preference_pairs
from comas.policy_optimization.samples import Buffers, collect_samples
from comas.policy_optimization.update_stats import UpdateStats
from comas.preflight.checks import errors_of
from comas.preflight.configuration import load_config
from comas.preflight.preparation import check_run
from comas.preflight.sizes import derive_sizes, describe_sizes
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.guards import lost_signals
from comas.run.metrics.step import step_metrics
from comas.types import Generation, Question, Request, TrainingSample, TurnKey
from comas.verification.forms import Verdict

CONFIGS = REPOSITORY / "configs"
NO_RUNS = {*CONFIGS.glob("studies/*"), *CONFIGS.glob("prompts/*")}
FILES = sorted(set(CONFIGS.rglob("*.yaml")) - NO_RUNS)
SMALL = case_file("shipped_configs")["SMALL"]
"""Replaces all sizes, and keeps the method."""


@cache
def shipped(file: Path) -> Config:
    """A configuration, which nobody may change."""
    return load_config(file, [])


def name_of(file: Path) -> str:
    return str(file.relative_to(CONFIGS).with_suffix(""))


@pytest.fixture(scope="module", autouse=True)
def outside_judge() -> Iterator[None]:
    """The server that configs/programs/outside_judge.py asks; it has no opinion of its own."""
    judge = ScriptedServer(lambda body: str(Random(repr(body)).randint(0, 10)))
    with judge as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGE_URL", server.base_url)
        yield


every_config = pytest.mark.parametrize("file", FILES, ids=name_of)


@every_config
def test_every_config_resolves_into_a_run_on_eight_gpus(file):
    config = shipped(file)
    check_gpus(plan_policy(config, device="cuda"), num_policies=config.num_policies, node_gpus=[8])
    sizes = derive_sizes(config, num_questions=2400)
    copies = config.rollout.batch_size * config.interaction.prompt_reuse
    assert sizes.num_discussions == copies
    num_samples = copies * sum(sizes.turns_per_discussion.values())
    if isinstance(config.algorithm, Dpo):
        num_samples = 2 * config.rollout.batch_size * config.society.num_agents
    assert sum(sizes.samples_per_policy) == pytest.approx(num_samples, abs=config.num_policies)
    assert [i for i, num in enumerate(sizes.num_optimizer_steps) if num] == config.trained_policies
    text = "\n".join(describe_sizes(config, sizes))
    assert f"{config.society.num_agents} agents with {config.num_policies} policies" in text


def updated(samples: list[TrainingSample], config: Config) -> UpdateStats:
    if isinstance(config.algorithm, Dpo):
        samples = [sample for pair in preference_pairs(samples) for sample in pair]
        assert samples
        return UpdateStats(learning_rate=1e-6, num_samples=len(samples))
    advantages = advantages_of(samples, config.algorithm)
    assert advantages.shape == response_mask(samples).shape and advantages.isfinite().all()
    assert len({sample.reward for sample in samples}) == 1 or advantages.abs().max() > 0
    rows = tuple(map(tuple, advantages.tolist()))
    return UpdateStats(learning_rate=1e-6, num_samples=len(samples), advantages=rows)


@pytest.mark.parametrize("file", [f for f in FILES if f.stem != "counting_game"], ids=name_of)
def test_every_config_turns_scripted_discussions_into_advantages_or_pairs(file):
    async def read_from_script(request: Request) -> Generation:
        """A response that is readable in every role, and depends on the seed."""
        drawn = Random(request.seed)
        text = (
            rf"So \boxed{{{drawn.randint(2, 3)}}} <score>{drawn.randint(1, 3)}</score> "
            f"<judgment>{drawn.choice(['correct', 'incorrect'])}</judgment> "
            f"<rating>{drawn.randint(0, 5)}</rating>"
        )
        return Generation((1, 2), (3, 4, 5), text, (-0.5,) * 3, "stop", policy_version=1)

    # (counting_game plays on with right sums alone, and the script has none.)
    num_copies = max(4, shipped(file).interaction.prompt_reuse)
    config = load_config(file, [f"interaction.prompt_reuse={num_copies}"])
    questions = [Question(f"q{i}", "math", f"What is {i} + 1?") for i in range(3)]
    num, rules = config.society.num_agents, vars(config.interaction)
    discussions = discuss(questions, read_from_script, num_agents=num, seed=config.seed, **rules)
    rng = Random(0)
    verdicts: dict[TurnKey, Verdict] = {
        (talk.discussion_id, turn.turn_id): rng.choice(("correct", "wrong"))
        for talk in discussions
        for turn in talk.solutions()
    }
    formulate = REWARD_SCHEMES[config.reward.scheme]
    rewards = formulate(discussions, lambda: verdicts, seed=config.seed, step=1)
    buffers = Buffers(config.update_every)
    owners, masks = config.policy_of_agent, config.algorithm.mask_truncated
    buffers.add(collect_samples(rewards.discussions, policy_of_agent=owners, mask_truncated=masks))
    due = buffers.take_due(1, num_steps=1)
    assert list(due) == config.trained_policies
    stats = {policy: updated(own, config) for policy, own in due.items()}
    assert lost_signals(step_metrics(rewards, stats, verdicts, config=config)) == []


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    mixed = [record(i, task=("math", "science")[i // 2]) for i in range(4)]
    write_records(folder / "questions.jsonl", mixed)
    for number, family in enumerate(FAMILIES):
        long = {"backwards": number == 1, "max_position_embeddings": 4096}
        save_tiny_model(folder / str(number), family, **long)
    return folder


@every_config
def test_every_config_has_all_that_it_needs_once_its_models_and_questions_are_here(file, tiny):
    named = shipped(file).models
    models = [f"{tiny}/{list(dict.fromkeys(named)).index(model)}" for model in named]
    files = [f"data.{key}={tiny}/questions.jsonl" for key in ("train", "validation")]
    models_and_saves = [f"society.models=[{','.join(models)}]", f"saves={tiny / 'saves'}"]
    found = check_run(load_config(file, [*SMALL, *files, *models_and_saves]))
    assert errors_of(found.checks) == []
    assert found.sizes is not None and found.sizes.num_steps == 1
