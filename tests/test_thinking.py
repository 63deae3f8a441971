"""What a model thinks is told from what it answers, in one place, by its marks."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders import discuss, discussion, generation, turn
from chat_styles import STYLES
from small_runs import make_run
from tables import cases

from comas.reward_formulation.interaction_reward import interaction_reward
from comas.run.metrics.step import rollout_metrics
from comas.types import Generation, Question, Request, RewardedDiscussion
from comas.utils.chat import ChatEncoder
from comas.utils.client import Endpoint, read_reply
from comas.utils.thinking import Said, ThinkingMarks
from evaluation.models import find_target

LEFT_TO_MODEL = ThinkingMarks("<think>", "</think>")
OPENED = replace(LEFT_TO_MODEL, opens=True)
NOT_ONCE = "<think>a</think>b<think>c</think>d"
NESTED = "<think>a<think>b</think>c</think>"


def encoder(style: str, **rules) -> ChatEncoder:
    return ChatEncoder(STYLES[style].tokenizer(), folder=Path("folder"), **rules)


@cases(
    "marks, response, thinking, answer, is_unfinished",
    (LEFT_TO_MODEL, "71", "", "71", False),
    (LEFT_TO_MODEL, " 71 \n", "", " 71 \n", False),
    (LEFT_TO_MODEL, "<think>8 + 3</think>\n\n71", "<think>8 + 3</think>\n\n", "71", False),
    (LEFT_TO_MODEL, "<think>8 + 3", "<think>8 + 3", "", True),
    (LEFT_TO_MODEL, "8 + 3</think>71", "8 + 3</think>", "71", False),
    # Where the answer is no end of the response, all of that is kept as thinking.
    (LEFT_TO_MODEL, NOT_ONCE, NOT_ONCE, "bd", False),
    (LEFT_TO_MODEL, f"{NESTED}d", NESTED, "d", False),
    (OPENED, "8 + 3</think>71", "8 + 3</think>", "71", False),
    (OPENED, "8 + 3", "8 + 3", "", True),
    (OPENED, "8</think>7<think>", "8</think>7<think>", "7", True),
    (OPENED, "<think>8 + 3</think>71", "<think>8 + 3</think>", "71", False),
    (OPENED, "", "", "", True),
    (OPENED, "8 + 3</think>", "8 + 3</think>", "", False),
)
def test_an_answer_stands_outside_of_the_marks(marks, response, thinking, answer, is_unfinished):
    assert marks.split(response) == Said(thinking, answer)
    assert marks.is_unfinished(response) == is_unfinished


@cases(
    "style, kwargs, marks",
    ("qwen 3", {}, LEFT_TO_MODEL),
    ("qwen 3", {"enable_thinking": False}, LEFT_TO_MODEL),
    ("qwen", {}, OPENED),
    ("deepseek", {}, OPENED),
    ("special marks", {}, ThinkingMarks("[THINK]", "[/THINK]")),
    ("gemma", {}, None),
    ("llama 3", {}, None),
)
def test_the_marks_are_those_of_tokenizer_and_template(style, kwargs, marks):
    assert encoder(style, template_kwargs=kwargs).thinking == marks


def test_a_variable_of_the_template_changes_the_prompt_and_another_is_refused():
    chat = [{"role": "user", "content": "48 + 23?"}]
    off = encoder("qwen 3", template_kwargs={"enable_thinking": False})
    [prompt], [plain] = off.encode([chat]), encoder("qwen 3").encode([chat])
    assert off.decode([prompt[len(plain) :]]) == ["<think>\n\n</think>\n\n"]
    for name in ("enable_thought", "tokenize", "messages"):
        with pytest.raises(ValueError, match=rf"chat_template_kwargs: .* reads no {name}"):
            encoder("qwen 3", template_kwargs={name: False})


@pytest.mark.parametrize("style", ["qwen 3", "special marks"])
def test_marks_stay_in_the_text_and_thinking_is_counted_to_its_end(style):
    chats = encoder(style)
    start, end = chats.thinking.start, chats.thinking.end

    def ids(text: str) -> list[int]:
        return STYLES[style].tokenizer().encode(text, add_special_tokens=False)

    thinking, answer = ids(f"{start}48 + 23{end}"), ids("71")
    [text] = chats.decode([thinking + answer])
    assert chats.thinking.split(text).answer.strip() == "71"
    assert chats.num_thinking_tokens(thinking + answer, text) == len(thinking)
    assert chats.num_thinking_tokens(thinking[:-1], chats.decode([thinking[:-1]])[0]) == (
        len(thinking) - 1
    )
    assert chats.num_thinking_tokens(answer, chats.decode([answer])[0]) == 0
    assert encoder("llama 3").num_thinking_tokens([5, 6], "71") is None  # has no marks


def thought(text: str, *, thinking: int, whole: int, ended: str = "stop"):
    said = generation(text, num_tokens=whole, finish_reason=ended)
    return replace(said, thinking_text="<think>8</think>", num_thinking_tokens=thinking)


async def think(request: Request) -> Generation:
    """A reasoning model as the engine answers for it: its text is the answer alone."""
    turn_id = request.turn[1]
    said = generation(f"{turn_id} <score>3</score>")
    return replace(said, thinking_text=f"<think>secret {turn_id} <score>1</score></think>")


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_no_prompt_no_score_and_no_history_holds_what_was_thought(schedule):
    [held] = discuss(
        [Question("a", "math", "1 + 1?")], think, schedule=schedule, num_rounds=3, prompt_reuse=1
    )
    assert not any("secret" in turn.prompt for turn in held.turns)
    assert any("r0.s0 <score>3" in turn.prompt for turn in held.turns)
    [rewarded] = interaction_reward([held]).discussions
    scored = [r for t, r in zip(held.turns, rewarded.rewards, strict=True) if t.role == "solution"]
    assert scored == [1.0] * len(scored)  # all scores are 3


def test_the_lengths_of_thinking_and_answer_are_metrics_of_models_that_think():
    said = [
        thought("71", thinking=6, whole=10),
        thought("", thinking=8, whole=8, ended="length"),  # cut off before its answer
        thought("7", thinking=1, whole=8, ended="length"),  # and within it
        generation("71", num_tokens=4),  # of another model, which has no marks
    ]
    turns = [replace(turn(f"r0.s{i}", agent=i // 3), generation=s) for i, s in enumerate(said)]
    item = RewardedDiscussion(discussion(*turns), (1.0,) * 4)
    metrics = rollout_metrics([item], num_agents=2)
    assert metrics["thinking_length"] == metrics["agent_0/thinking_length"] == 5  # (6 + 8 + 1) / 3
    assert metrics["thinking_truncated_rate"] == pytest.approx(1 / 3)
    assert metrics["interaction/truncated_rate"] == 0.5
    assert "agent_1/thinking_length" not in metrics


def reply(text: object, **message: str) -> bytes:
    choice = {"message": {"content": text, **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    return json.dumps({"choices": [choice], "usage": usage}).encode()


@cases(
    "body, text, thinking",
    (reply("<think>8</think>71"), "71", "<think>8</think>"),
    (reply("71", reasoning="8"), "71", "8"),
    (reply(None, reasoning_content="8"), "", "8"),
    (reply("71"), "71", ""),
)
def test_a_reply_is_what_was_answered(body, text, thinking):
    read = read_reply(body, Endpoint("u", "m", thinking=LEFT_TO_MODEL))
    assert (read.response, read.thinking) == (text, thinking)


def test_the_agents_of_a_run_are_evaluated_with_their_own_chats(tmp_path):
    run = str(make_run(tmp_path, "society.chat_template_kwargs=[{enable_thinking: false}, {}]"))
    models = find_target(run, weights="trained").models
    assert [model.identity.get("template_kwargs") for model in models] == [
        {"enable_thinking": False},
        None,
    ]
    over = {"enable_thinking": True}
    models = find_target(run, weights="trained", template_kwargs=over).models
    assert [model.template_kwargs for model in models] == [over] * 2
