"""Programs of configs/programs and of the benchmark, without engines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import discuss, sample
from scripted_agents import Buffers, ScriptedAgents
from scripted_server import ScriptedServer, status
from small_runs import REPOSITORY
from tables import cases

from comas.config.loading import load
from comas.config.schema import Config
from comas.policy_optimization.samples import collect_samples
from comas.policy_optimization.update_stats import UpdateStats
from comas.preflight.configuration import load_config
from comas.reward_formulation import REWARD_SCHEMES
from comas.types import Generation, Question, Request, RewardedDiscussion, TrainingSample
from scripts.benchmarks import programs

SAID = Generation((1, 2), (3, 0), "3", (-0.5, -0.1), "stop", 7)
SAMPLE = sample(response_token_ids=[3, 0], rollout_logprobs=[-0.5, -0.1])


@cases("changes, num_differing")
def test_a_sample_differs_if_any_id_or_log_prob_does_or_nobody_was_asked(changes, num_differing):
    found = programs.differing({("d", "r0.s0"): SAID}, [replace(SAMPLE, **changes)])
    assert len(found) == num_differing


class Agents(ScriptedAgents):
    """Answers with the number of the request, and notes what it is trained on."""

    trained: Mapping[int, Sequence[TrainingSample]] = {}
    num_asked = 0

    async def generate(self, request: Request) -> Generation:
        self.num_asked += 1
        text = "<score>3</score>" if request.role == "scoring" else str(self.num_asked)
        return replace(SAID, response_token_ids=(self.num_asked, 0), response_text=text)

    def begin_update(self, buffers: Buffers, *, step: int) -> Callable[[], dict[int, UpdateStats]]:
        self.trained = buffers
        return lambda: {0: UpdateStats(learning_rate=0.1, mismatch_max=2e-5)}


def shown(program: str, agents: Any) -> programs.Row:
    settings = [f"interaction.program={program}", "interaction.prompt_reuse=1"]
    config = load(Config, REPOSITORY / "configs/quickstart.yaml", settings)
    questions = [Question(f"q{i}", "math", f"What is {i} + 1?") for i in range(30)]
    return programs.show(config, agents, questions, num_requests=50, size=10, step=1)


def test_requests_are_made_until_enough_are_answered_and_each_is_trained():
    agents = Agents()
    row = shown("scripts.benchmarks.door:solve", agents)
    # 10 discussions of 2 requests make 20 a batch, so 60 in three, besides evaluation and scoring.
    assert (row.requests, row.discussions, row.samples) == (60, 30, 120)
    assert agents.num_asked == 120
    assert (row.differing, row.failed, row.policy) == (0, 0, 2e-5)
    assert {len(buffer) for buffer in agents.trained.values()} == {programs.UPDATED}


@pytest.mark.stack
def test_the_team_asks_its_tester_with_what_the_sandbox_says_of_a_program():
    asked: list[Request] = []

    async def generate(request: Request) -> Generation:
        asked.append(request)
        text = "<score>3</score>" if request.role == "scoring" else "```python\nlen(7)\n```"
        return replace(SAID, response_text=text)

    roles = {"plan": "helps", "test": "helps"}
    program = {"function": "configs/programs/team.py:solve", "roles": roles}
    discuss([Question("q", "coding", "What?")], generate, program=program, prompt_reuse=1)
    [tester] = [request.prompt for request in asked if request.role == "test"]
    assert "len(7)\n```\nTypeError: object of type 'int' has no len()" in tester


def test_samples_that_are_changed_or_left_out_on_the_way_are_counted(monkeypatch):
    def spoilt(*arguments: Any, **settings: Any) -> list[list[TrainingSample]]:
        first, second, *others = collect_samples(*arguments, **settings)
        return [[replace(first[0], rollout_logprobs=[-0.5, -0.2]), *first[2:]], second, *others]

    monkeypatch.setattr(programs, "collect_samples", spoilt)
    assert shown("scripts.benchmarks.door:solve", Agents()).differing == 3 * 2


def test_a_program_that_asks_nothing_is_an_error(tmp_path: Path):
    (tmp_path / "idle.py").write_text("def solve(question, base_url):\n    return 1 / 0\n")
    with pytest.raises(RuntimeError, match="no request was answered; ZeroDivisionError"):
        shown(f"{tmp_path}/idle.py:solve", Agents())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """The outside model, which refuses every request once."""

    verdicts = {"seventy-one": "9", "seventy": "I would say 0.", "who knows": "No idea"}

    def judge(body):
        asked = body["messages"][0]["content"]
        return next(said for text, said in verdicts.items() if f"Answer:\n{text}\n" in asked)

    def fault_of(body, attempt):
        return None if attempt else status(503, **{"Retry-After": "0.01"})

    with ScriptedServer(judge, fault_of=fault_of) as server:
        monkeypatch.setenv("JUDGE_URL", server.base_url)
        monkeypatch.setenv("JUDGE_KEY", "sesame")
        monkeypatch.setenv("JUDGE_MODEL", "scripted")
        yield server


def rewarded(*texts: str) -> RewardedDiscussion:
    """A discussion in which agents answer with ``texts``."""
    config = load_config(REPOSITORY / "configs/programs/outside_judge.yaml", [])
    assert config.reward.scheme == "program"

    async def generate(request: Request) -> Generation:
        return Generation((1,), (2, 3), texts[request.agent_index], (-0.1, -0.2), "stop", 0)

    questions = [Question("q", "math", "What is 70 + 1?")]
    held = discuss(questions, generate, num_agents=2, **vars(config.interaction))
    return REWARD_SCHEMES["program"](held, dict, seed=0, step=0).discussions[0]


def test_a_model_outside_the_society_rewards_each_solution(server):
    found = rewarded("seventy-one", "seventy")
    assert [turn.turn_id for turn in found.discussion.turns] == ["r0.s0", "r0.s1"]
    assert found.rewards == (0.9, 0.0)
    asked = server.requests[-1]
    assert asked["model"] == "scripted" and "What is 70 + 1?" in asked["messages"][0]["content"]
    assert {each["Authorization"] for each in server.headers} == {"Bearer sesame"}


def test_a_solution_of_which_it_says_no_number_is_not_trained(server):
    assert rewarded("who knows", "seventy-one").rewards == (None, 0.9)
