"""Programs of configs/programs, without engines."""

from collections.abc import Iterator

import pytest
from builders import discuss
from scripted_server import ScriptedServer, status
from small_runs import REPOSITORY

from comas.preflight.configuration import load_config
from comas.reward_formulation import REWARD_SCHEMES
from comas.types import Generation, Question, Request, RewardedDiscussion


@pytest.mark.stack
def test_the_team_asks_its_tester_with_what_the_sandbox_says_of_a_program():
    asked: list[Request] = []

    async def generate(request: Request) -> Generation:
        asked.append(request)
        text = "<score>3</score>" if request.role == "scoring" else "```python\nlen(7)\n```"
        return Generation((1, 2), (3, 0), text, (-0.5, -0.1), "stop", 7)

    roles = {"plan": "helps", "test": "helps"}
    program = {"function": "configs/programs/team.py:solve", "roles": roles}
    discuss([Question("q", "coding", "What?")], generate, program=program, prompt_reuse=1)
    [tester] = [request.prompt for request in asked if request.role == "test"]
    assert "len(7)\n```\nTypeError: object of type 'int' has no len()" in tester


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
