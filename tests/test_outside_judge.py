"""configs/programs/outside_judge.yaml: a model that is no agent rewards what agents say."""

from collections.abc import Iterator

import pytest
from scripted_server import ScriptedServer, status
from small_runs import REPOSITORY

from comas.interaction.schedules import run_discussions
from comas.preflight.configuration import load_config
from comas.reward_formulation import REWARD_SCHEMES
from comas.types import Generation, Question, Request, RewardedDiscussion

VERDICTS = {"seventy-one": "9", "seventy": "I would say 0.", "who knows": "No idea"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """The outside model, which refuses every request once."""

    def judge(body):
        asked = body["messages"][0]["content"]
        return next(said for text, said in VERDICTS.items() if f"Answer:\n{text}\n" in asked)

    def fault_of(body, attempt):
        return None if attempt else status(503, retry_after="0.01")

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

    held = run_discussions(
        [Question("q", "math", "What is 70 + 1?")],
        generate=generate,
        num_agents=2,
        rules=config.interaction,
        seed=0,
        step=1,
    )
    return REWARD_SCHEMES["program"](held, evidence={}).discussions[0]


def test_a_model_outside_the_society_rewards_each_solution(server):
    found = rewarded("seventy-one", "seventy")
    assert [turn.turn_id for turn in found.discussion.turns] == ["r0.s0", "r0.s1"]
    assert found.rewards == (0.9, 0.0)
    asked = server.requests[-1]
    assert asked["model"] == "scripted" and "What is 70 + 1?" in asked["messages"][0]["content"]
    assert {each["Authorization"] for each in server.headers} == {"Bearer sesame"}


def test_a_solution_of_which_it_says_no_number_is_not_trained(server):
    assert rewarded("who knows", "seventy-one").rewards == (None, 0.9)
