"""A message is text, whatever it spells, for chat templates of every style."""

from functools import cache
from pathlib import Path

import pytest
from chat_styles import CHATML, STYLES
from hypothesis import given
from hypothesis import strategies as st
from tables import cases
from tiny_models import byte_tokenizer
from transformers import PreTrainedTokenizerFast

from comas.types import Message
from comas.utils.chat import (
    CUT,
    TEMPLATE_DATE,
    ChatEncoder,
    check_system_prompt,
    quoted_answer,
    tools_in_words,
)

FOLDER = Path("folder")
HARMLESS = "What is 48 + 23?"
OF_TEXT = ("llama 2", "gemma, as text", "vicuna")
"""Styles with marks that are ordinary text."""


@cache
def untouched(style: str) -> PreTrainedTokenizerFast:
    return STYLES[style].tokenizer()


@cache
def encoder(style: str) -> ChatEncoder:
    return ChatEncoder(STYLES[style].tokenizer(), folder=FOLDER)


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
        messages = chat(style, *said)
        [token_ids] = encoder(style).encode([messages])
        found = count_marks(style, token_ids)
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
            assert encoder(style).encode([messages]) == [as_ever(style, messages)]

    check()


@pytest.mark.parametrize("style", ["llama 3", "deepseek"])
def test_a_message_keeps_its_text_whatever_it_spells(style):
    count = num_messages(style)
    marks = st.sampled_from([*STYLES[style].marks, "<think>", " ", "45", "|", "é"])
    text = st.lists(marks).map("".join)

    @given(st.lists(text, min_size=count, max_size=count))
    def check(said: list[str]) -> None:
        messages = chat(style, *said)
        [token_ids] = encoder(style).encode([messages])
        assert untouched(style).decode(token_ids) == rendered(style, messages)

    check()


@cases("style, text, spells")
def test_what_tells_turns_apart_is_found(style, text, spells):
    assert encoder(style).spells_mark(text) == spells


REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
LEAVES_OUT = "{{ messages[-1]['content'] }}"


def test_a_system_prompt_needs_a_template_that_has_a_place_for_it(tmp_path):
    tokenizer = byte_tokenizer()
    check_system_prompt(tokenizer, "Be careful. ", folder=tmp_path)
    for template, reason in (
        (REFUSES, "no system"),
        (LEAVES_OUT, "it leaves out the system message"),
    ):
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
        [told], [untold] = chats.encode([question], [ADD]), chats.encode([question])
        following = chats.encode_following([5, 2], [{"role": "tool", "content": "71"}])
        return tuple(map(tokenizer.decode, (told, untold, following)))  # type: ignore

    told, untold, following = encoded()
    assert untold == "<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n"
    assert told == untold.replace("1 + 1?", f"{words}1 + 1?")
    assert f"<|im_start|>user\n{quoted_answer('71')}<|im_end|>" in following
    tokenizer.chat_template = WITH_TOOLS
    told, untold, following = encoded()
    assert told.endswith(untold) and '"name": "add"' in told and words not in told
    assert "<|im_start|>tool\n71<|im_end|>" in following
    # One that tells of tools, and not of their answers or of a form that is read.
    for cut in ('"arguments"', "{% for t in tools or [] %}"):
        tokenizer.chat_template = WITH_TOOLS.replace(cut, "{% for t in [] %}" * ("for" in cut))
        assert words in encoded()[0]
