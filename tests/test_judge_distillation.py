"""The judge teaches all agents by its log-probs of what they said; numbers by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from builders import discussion, turn
from config_errors import only_error
from scripted_server import ScriptedServer
from small_runs import QUICKSTART
from test_judge import KEY, client_of

from comas.engines.cluster.supervision import JudgeError
from comas.ideas.judge_distillation import distilled_from_judge
from comas.types import Generation, ToolCall, TrainingSample
from comas.utils.chat import quoted_answer


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("JUDGES_KEY", KEY)


SPELLED = {5: "Is", 6: " it?", 7: "Ye", 8: "s\u00e9", 9: "<end>"}
"""The judge's tokenizer."""


def echo(**changes: Any) -> ScriptedServer:
    """A judge whose log-prob of the i-th token is -i/4."""

    async def score(request: web.Request) -> web.Response:
        ids = [*(await request.json())["prompt"], 9]  # and one that it says itself
        logprobs = {
            "tokens": [SPELLED[i] for i in ids],
            "token_logprobs": [None, *(-i / 4 for i in range(1, len(ids)))],
        }
        return web.json_response({"choices": [{"logprobs": logprobs} | changes]})

    return ScriptedServer(lambda _: "", fault_of=lambda *_: score)


SAID = Generation((5, 6), (7, 8, 9), "Yes\u00e9", (-0.1,) * 3, "stop", 0)


def test_its_log_probs_are_those_of_a_responses_tokens_after_the_prompt():
    # The chat template writes the answer in another form than others read.
    quoted = f"Yes<tool_call>...</tool_call>\n{quoted_answer('71')}"
    calls, sampled = (ToolCall(3, len(quoted), False),), (True, False, True)
    called = replace(SAID, response_text=f"{quoted}\nYes", calls=calls, sampled=sampled)
    with echo() as server:
        client = client_of(server.base_url)
        assert client.logprobs([SAID, called]) == [[-0.5, -0.75, -1.0], [-0.5, 0.0, -1.0]]
    counted = client.take_metrics()
    assert (counted["judge/requests"], counted["judge/prompt_tokens"]) == (2, 2 * 5)
    assert counted["judge/truncated_rate"] is None
    body = server.requests[0]
    assert body["prompt"] == [5, 6, 7, 8, 9]
    assert (body["echo"], body["logprobs"], body["max_tokens"]) == (True, 1, 1)


@pytest.mark.parametrize(
    ("changes", "said", "fault"),
    [
        ({}, replace(SAID, response_text="No"), r"has another tokenizer .* it reads 'Yesé<end>'"),
        ({"logprobs": None}, SAID, "no log-probs of a prompt"),
    ],
)
def test_another_tokenizer_or_no_log_probs_is_an_error(changes, said, fault):
    expected = (ValueError, JudgeError)
    with echo(**changes) as server, pytest.raises(expected, match=f"society.judge.*{fault}"):
        client_of(server.base_url).logprobs([said])


def test_agents_are_paid_what_the_judge_finds_likelier_and_the_judge_is_not():
    judged = turn("r0.s0.e0", agent=1)
    judged = replace(judged, generation=replace(judged.generation, author="judge"))
    solved = [replace(turn(f"r0.s{i}", agent=i), generation=SAID) for i in range(2)]

    def policies(samples: Sequence[TrainingSample]) -> list[Sequence[float]]:
        return [((-1.0,) * 3, (-0.25,) * 3)[sample.agent_index] for sample in samples]

    with echo() as server:
        found = distilled_from_judge(
            [discussion(*solved, judged)],
            evidence={
                "response_logprobs": lambda: policies,
                "judge_logprobs": lambda: client_of(server.base_url).logprobs,
            },
        )
    # -0.5 - 0.75 - 1 = -2.25, less -3, and less -0.75.
    assert found.discussions[0].rewards == (0.75, -1.5, None)
    assert found.metrics == {"distillation/kl": 0.75 / 6}


def test_without_a_judge_it_is_refused():
    said = only_error(
        "reward.scheme=comas.ideas.judge_distillation:distilled_from_judge", file=QUICKSTART
    )
    assert "there is no judge" in said and "set society.judge to its base_url and model" in said
