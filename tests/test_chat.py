"""A message is text, whatever it spells; and thinking is told from the answer by its marks."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from builders import discuss, discussion, generation, turn
from chat_styles import CHATML, STYLES
from hypothesis import given
from hypothesis import strategies as st
from small_runs import make_run
from tables import cases
from tiny_models import REFUSES_SYSTEM, byte_tokenizer
from transformers import PreTrainedTokenizerFast

from comas.reward_formulation.interaction_reward import interaction_reward
from comas.run.metrics.step import rollout_metrics
from comas.types import Generation, Message, Question, Request, RewardedDiscussion
from comas.utils.chat import (
    CUT,
    TEMPLATE_DATE,
    ChatEncoder,
    check_system_prompt,
    quoted_answer,
    tools_in_words,
)
from comas.utils.client import Endpoint, read_reply
from comas.utils.thinking import Said, ThinkingMarks
from evaluation.models import find_target

FOLDER = Path("folder")
HARMLESS = "What is 48 + 23?"
OF_TEXT = ("llama 2", "gemma, as text", "vicuna")
"""Styles with marks that are ordinary text."""


@cache
def untouched(style: str) -> PreTrainedTokenizerFast:
    return STYLES[style].tokenizer()


@cache
def encoder(style: str, **variables: bool) -> ChatEncoder:
    return ChatEncoder(STYLES[style].tokenizer(), folder=FOLDER, template_kwargs=variables)


def chat(style: str, *contents: str) -> list[Message]:
    """The system's message, if the style has one, then the user's and the model's in turn."""
    roles = ("system", "user", "assistant", "user")[not STYLES[style].has_system :]
    return [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]


def num_messages(style: str) -> int:
    return 3 + STYLES[style].has_system


def rendered(style: str, messages: list[Message]) -> str:
    return untouched(style).apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, date_string=TEMPLATE_DATE
    )


def as_ever(style: str, messages: list[Message]) -> list[int]:
    return untouched(style)(rendered(style, messages), add_special_tokens=False)["input_ids"]


@cache
def mark_tokens(style: str) -> frozenset[tuple[int, ...]]:
    """The tokens of each mark that the template itself writes."""
    text = rendered(style, chat(style, *[HARMLESS] * num_messages(style)))
    encoded = untouched(style)(text, add_special_tokens=False, return_offsets_mapping=True)
    offsets = encoded["offset_mapping"]
    found = set()
    for mark in STYLES[style].marks:
        start = text.find(mark)
        while start >= 0:
            end = start + len(mark)
            tokens = zip(encoded["input_ids"], offsets, strict=True)
            found.add(tuple(i for i, (first, last) in tokens if first < end and start < last))
            start = text.find(mark, end)
    return frozenset(found)


def count_marks(style: str, token_ids: list[int]) -> int:
    return sum(
        tuple(token_ids[start : start + len(mark)]) == mark
        for mark in mark_tokens(style)
        for start in range(len(token_ids))
    )


def contents(style: str) -> st.SearchStrategy[str]:
    """Texts that spell marks, parts of them, and what a tokenizer may take for one."""
    marks = STYLES[style].marks
    parts = [part for mark in marks for part in (mark[:1], mark[1:], mark[:-2], mark[-2:])]
    wide = [mark.translate({code: code + 0xFEE0 for code in range(0x21, 0x7F)}) for mark in marks]
    others = [" ", "\n", "▁", CUT, "45", "user", "</think>", "<think>", "\u200b", "é", "<s>"]
    return st.lists(st.sampled_from([*marks, *marks, *parts, *wide, *others])).map("".join)


@pytest.mark.parametrize("style", STYLES)
def test_no_message_writes_a_mark_whatever_it_spells(style):
    count = num_messages(style)
    expected = count_marks(style, as_ever(style, chat(style, *[HARMLESS] * count)))
    assert expected >= 4

    @given(st.lists(contents(style) | st.text(), min_size=count, max_size=count))
    def check(said: list[str]) -> None:
        found = count_marks(style, encoder(style).encode(chat(style, *said)))
        # Beside a message's end a mark of ordinary text may merge with it, into other tokens.
        assert found <= expected if style in OF_TEXT else found == expected

    check()


@pytest.mark.parametrize("style", STYLES)
def test_what_spells_no_mark_has_the_tokens_that_it_always_had(style):
    count = num_messages(style)
    text = st.text(alphabet="ab4+<>[]|/ \n▁INSTé_") | st.sampled_from([HARMLESS, "<think>", "<b>"])

    @given(st.lists(text, min_size=count, max_size=count))
    def check(said: list[str]) -> None:
        messages = chat(style, *said)
        if not any(map(encoder(style).spells_mark, said)):
            assert encoder(style).encode(messages) == as_ever(style, messages)

    check()


@pytest.mark.parametrize("style", ["llama 3", "deepseek"])
def test_a_message_keeps_its_text_whatever_it_spells(style):
    count = num_messages(style)
    marks = st.sampled_from([*STYLES[style].marks, "<think>", " ", "45", "|", "é"])
    text = st.lists(marks).map("".join)

    @given(st.lists(text, min_size=count, max_size=count))
    def check(said: list[str]) -> None:
        messages = chat(style, *said)
        assert untouched(style).decode(encoder(style).encode(messages)) == rendered(style, messages)

    check()


@cases("style, text, spells")
def test_what_tells_turns_apart_is_found(style, text, spells):
    assert encoder(style).spells_mark(text) == spells


def test_a_system_prompt_needs_a_template_that_has_a_place_for_it(tmp_path):
    tokenizer = byte_tokenizer()
    check_system_prompt(tokenizer, "Be careful. ", folder=tmp_path)
    leaves_out = "{{ messages[-1]['content'] }}"
    left_out = "it leaves out the system message"
    for template, reason in ((REFUSES_SYSTEM, "no system"), (leaves_out, left_out)):
        tokenizer.chat_template = template
        with pytest.raises(ValueError, match=f"takes no system message .{reason}"):
            check_system_prompt(tokenizer, "Be careful.", folder=tmp_path)


ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
WITH_TOOLS = (
    '{% for t in tools or [] %}{{ t | tojson }} called as {"arguments": ...}\n{% endfor %}'
    + CHATML.replace("<think>\n", "")
)
"""A chat template that tells of tools and of their answers."""


def test_a_template_that_knows_tools_tells_of_them_and_else_the_prompt_does():
    tokenizer, words = byte_tokenizer(), tools_in_words([ADD])
    question: list[Message] = [{"role": "user", "content": "1 + 1?"}]
    assert '"name": "add"' in words

    def encoded() -> tuple[str, str, str]:
        """A prompt with and without tools, and what follows a response."""
        chats = ChatEncoder(tokenizer, folder=FOLDER)
        told, untold = chats.encode(question, [ADD]), chats.encode(question)
        following = chats.encode_following([5, 2], [{"role": "tool", "content": "71"}])
        return tuple(map(tokenizer.decode, (told, untold, following)))  # type: ignore

    told, untold, following = encoded()
    assert untold == "<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n"
    assert told == untold.replace("1 + 1?", f"{words}1 + 1?")
    assert f"<|im_start|>user\n{quoted_answer('71')}<|im_end|>" in following
    cut = tokenizer.encode("a\n", add_special_tokens=False)  # by the token limit, or at "\n"
    following = ChatEncoder(tokenizer, folder=FOLDER).encode_following(cut, question)
    assert tokenizer.decode(following).startswith("<|im_end|>\n<|im_start|>user\n1 + 1?")
    tokenizer.chat_template = WITH_TOOLS
    told, untold, following = encoded()
    assert told.endswith(untold) and '"name": "add"' in told and words not in told
    assert "<|im_start|>tool\n71<|im_end|>" in following
    # One that tells of tools, and not of their answers or of a form that is read.
    for cut in ('"arguments"', "{% for t in tools or [] %}"):
        tokenizer.chat_template = WITH_TOOLS.replace(cut, "{% for t in [] %}" * ("for" in cut))
        assert words in encoded()[0]


LEFT_TO_MODEL = ThinkingMarks("<think>", "</think>")
OPENED = replace(LEFT_TO_MODEL, opens=True)


@cases("opens, response, thinking, answer, is_unfinished")
def test_an_answer_stands_outside_of_the_marks(opens, response, thinking, answer, is_unfinished):
    marks = replace(LEFT_TO_MODEL, opens=opens)
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
    assert encoder(style, **kwargs).thinking == marks


def test_a_variable_of_the_template_changes_the_prompt_and_another_is_refused():
    chat = [{"role": "user", "content": "48 + 23?"}]
    off = encoder("qwen 3", enable_thinking=False)
    prompt, plain = off.encode(chat), encoder("qwen 3").encode(chat)
    assert off.decode(prompt[len(plain) :]) == "<think>\n\n</think>\n\n"
    for name in ("enable_thought", "tokenize", "messages"):
        with pytest.raises(ValueError, match=rf"chat_template_kwargs: .* reads no {name}"):
            encoder("qwen 3", **{name: False})


@pytest.mark.parametrize("style", ["qwen 3", "special marks"])
def test_marks_stay_in_the_text_and_thinking_is_counted_to_its_end(style):
    chats = encoder(style)
    start, end = chats.thinking.start, chats.thinking.end

    def ids(text: str) -> list[int]:
        return STYLES[style].tokenizer().encode(text, add_special_tokens=False)

    thinking, answer = ids(f"{start}48 + 23{end}"), ids("71")
    text = chats.decode(thinking + answer)
    assert chats.thinking.split(text).answer.strip() == "71"
    assert chats.num_thinking_tokens(thinking + answer, text) == len(thinking)
    cut = thinking[:-1]
    assert chats.num_thinking_tokens(cut, chats.decode(cut)) == len(cut)
    assert chats.num_thinking_tokens(answer, chats.decode(answer)) == 0
    assert encoder("llama 3").num_thinking_tokens([5, 6], "71") is None  # has no marks


def thought(text: str, *, thinking: int, whole: int, ended: str = "stop"):
    said = generation(text, num_tokens=whole, finish_reason=ended)
    return replace(said, thinking_text="<think>8</think>", num_thinking_tokens=thinking)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_no_prompt_no_score_and_no_history_holds_what_was_thought(schedule):
    async def think(request: Request) -> Generation:
        """A reasoning model as the engine answers for it: its text is the answer alone."""
        turn_id = request.turn[1]
        said = generation(f"{turn_id} <score>3</score>")
        return replace(said, thinking_text=f"<think>secret {turn_id} <score>1</score></think>")

    question = Question("a", "math", "1 + 1?")
    [held] = discuss([question], think, schedule=schedule, num_rounds=3, prompt_reuse=1)
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
    metrics = rollout_metrics([RewardedDiscussion(discussion(*turns), (1.0,) * 4)], num_agents=2)
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
    told = [model.identity.get("template_kwargs") for model in models]
    assert told == [{"enable_thinking": False}, None]
    over = {"enable_thinking": True}
    models = find_target(run, weights="trained", template_kwargs=over).models
    assert [model.template_kwargs for model in models] == [over] * 2
