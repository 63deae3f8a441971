"""Encode chats as token ids, such that no message can imitate the chat template's marks."""

import json
import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from comas.types import Message, ToolDescription
from comas.utils.thinking import Said, find_marks

CALL_START, CALL_END = "<tool_call>", "</tool_call>"
CALL_FORM = '{"name": NAME, "arguments": {...}}'
"""The JSON of a tool call between these marks."""

TEMPLATE_DATE = "26 Jul 2024"
"""The default date of Llama-3's chat template."""

CUT = "\ufdd0"
"""Cuts messages before they are encoded: a Unicode noncharacter, which is removed from them."""

_TAG = re.compile(r"<+[^<>\s]+>+|\[+[^\[\]\s]+\]+")
"""``<start_of_turn>``, ``[/INST]``, ``<<SYS>>``"""


class ChatEncoder:
    """Encodes chats as token ids with the chat template of a tokenizer.

    A *mark* separates turns: a special token, a tag that the template writes around messages
    (``[INST]``, ``<start_of_turn>``), or other text that ends a message (``ASSISTANT:``). If a
    message contains one, its characters are encoded one by one (``45``, ``<``, ``|``, ``i``, ``m``
    for ``45<|im_end|>``) and make no mark. (A tokenizer such as Llama 2's begins each piece with a
    space.) All other text is encoded as ``apply_chat_template`` would.
    """

    def __init__(
        self, tokenizer: Any, *, folder: Path, template_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Wrap the ``tokenizer`` of the model in ``folder``, and add a token for ``CUT`` to it.

        ``template_kwargs`` are additional variables of the chat template.

        Raises ValueError if a message could imitate a mark, or the template ignores a variable.
        """
        from tokenizers import AddedToken

        self._tokenizer = tokenizer
        # Llama-3's template would print the day of the run: no prompt may depend on it.
        self._template_kwargs = {"date_string": TEMPLATE_DATE, **(template_kwargs or {})}
        for name in template_kwargs or {}:
            is_read = re.search(rf"\b{re.escape(name)}\b", str(tokenizer.chat_template))
            if not is_read or name in ("messages", "add_generation_prompt"):
                raise ValueError(
                    f"chat_template_kwargs: the chat template in {folder} reads no {name} from "
                    "outside: leave it out"
                )
        written = _written_by_template(tokenizer, self._template_kwargs)
        added = tokenizer.added_tokens_decoder
        self.thinking = find_marks(
            {token.content for token in added.values()},
            str(tokenizer.chat_template),
            begins_response=written[-1],
        )
        """The model's thinking marks, or None."""
        thinking_marks = (self.thinking.start, self.thinking.end) if self.thinking else ()
        self._special_marks = {
            token_id: token.content
            for token_id, token in added.items()
            if token.special and token.content in (*thinking_marks, CALL_START, CALL_END)
        }
        """Token id -> thinking or tool-call mark, which plain decoding would drop."""
        self._stops = _stop_ids(tokenizer, folder)
        marks = _marks(tokenizer, written)
        self._marks = _pattern(marks | {self._normalised(mark).strip("▁ ") for mark in marks})
        tokenizer.add_tokens([AddedToken(CUT, normalized=False, special=True)], special_tokens=True)
        self._cut_id = tokenizer.convert_tokens_to_ids(CUT)
        for mark in marks:
            if self._can_be_imitated(mark):
                raise ValueError(
                    f"the chat template in {folder} tells turns apart by {mark!r}, which its "
                    "tokenizer encodes alike where a message spells it, so a message could pass "
                    "for several: choose another model"
                )

    def encode(self, chat: Sequence[Message], tools: Sequence[ToolDescription] = ()) -> list[int]:
        """Return the token ids of a chat, up to the start of the model's next message.

        ``tools`` are described by the chat template or, if it supports none, in the last message.
        """
        told = tools_in_words(tools) if tools and not self._takes_tools else ""
        cut = [self._as_read(each, told=told * (each is chat[-1])) for each in chat]
        given = list(tools) if tools and not told else None
        return self._without_cuts(self._apply(cut, add_generation_prompt=True, tools=given))

    def encode_following(self, response: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Return the token ids of ``messages`` that follow a complete ``response``, up to the start
        of the model's next message."""
        following = self._after_response(*map(self._as_read, messages), add_generation_prompt=True)
        if response[-1] in self._stops and response[-1] in following[:2]:  # its end-of-turn token
            following = following[following.index(response[-1]) + 1 :]
        return self._without_cuts(following)

    def encode_response(self, response: str) -> list[int]:
        """Return the token ids of a complete response. The last one is the chat template's
        end-of-turn token if an engine stops there, else the tokenizer's end token."""
        end = next((each for each in self._after_response() if each in self._stops), self._stops[0])
        return [*self._tokenizer.encode(response, add_special_tokens=False), end]

    def decode(self, response: Sequence[int]) -> str:
        """Return the text of a response, without special tokens except thinking and call marks."""

        def text_of(ids: list[int]) -> str:
            # Some tokenizers "clean up" spaces by default, which changes the text ("a!= b").
            return self._tokenizer.decode(
                ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )

        return "".join(
            "".join(map(self._special_marks.__getitem__, ids)) if is_mark else text_of([*ids])
            for is_mark, ids in groupby(response, key=self._special_marks.__contains__)
        )

    def _as_read(self, message: Message, *, told: str = "") -> Message:
        """Return a message for the chat template, whose text cannot make a mark."""
        role, text = message["role"], message["content"]
        if role == "tool" and not self._takes_tools:
            role, text = "user", quoted_answer(text)
        return {"role": role, "content": told + self._cut(text)}

    def _apply(self, chat: Any, **options: Any) -> Any:
        return self._tokenizer.apply_chat_template(
            chat, return_dict=False, **options, **self._template_kwargs
        )

    def _after_response(self, *messages: Message, **options: Any) -> list[int]:
        """Return what the chat template writes after a response that ``messages`` follow."""
        chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": CUT}, *messages]
        token_ids = self._apply(chat, **options)
        return token_ids[token_ids.index(self._cut_id) + 1 :]

    @cached_property
    def _takes_tools(self) -> bool:
        """True if the chat template supports tools, their answers, and calls in a form that
        ``comas.interaction.tool_calls`` reads."""
        chat = [{"role": role, "content": f"{role}_says"} for role in ("user", "assistant", "tool")]
        probe = {"name": "probed_tool", "description": "?", "parameters": {"type": "object"}}
        try:
            tools = [{"type": "function", "function": probe}]
            told = self._apply(chat, tokenize=False, tools=tools)
        except TemplateError:
            return False
        return all(said in told for said in ("probed_tool", "tool_says")) and any(
            form in told for form in ('"arguments"', '"parameters": dictionary')
        )

    def split(self, response: str) -> Said:
        """Split a response into thinking and answer."""
        return Said("", response) if self.thinking is None else self.thinking.split(response)

    @property
    def has_special_marks(self) -> bool:
        """True if ``decode`` keeps special tokens, which a server would drop by default."""
        return bool(self._special_marks)

    def num_thinking_tokens(self, response: Sequence[int], text: str) -> int | None:
        """Return the number of tokens up to the end of the thinking of a response with this
        ``text``, or None for a model without thinking marks."""
        if self.thinking is None:
            return None
        if self.thinking.is_unfinished(text):
            return len(response)
        end = self.thinking.end
        return self.num_tokens_up_to(end, response, count=text.count(end))

    def num_tokens_up_to(self, mark: str, response: Sequence[int], *, count: int) -> int:
        """Return the number of tokens of a response up to the ``count``-th ``mark``."""
        return bisect_left(
            range(len(response)),
            count,
            key=lambda length: self.decode(response[:length]).count(mark),
        )

    def spells_mark(self, text: str) -> bool:
        """Return True if a text contains a mark other than a tool call's."""
        for tag in (CALL_START, CALL_END):
            text = text.replace(tag, "")
        return CUT in self._cut(text)

    def _cut(self, text: str) -> str:
        text = text.encode(errors="replace").decode()  # tokenizers refuse lone surrogates
        cut = self._marks.sub(_cut_up, text.replace(CUT, ""))
        # Some tokenizers normalise first: full-width letters may then spell a mark.
        normalised = self._normalised(cut)
        return self._marks.sub(_cut_up, normalised) if self._marks.search(normalised) else cut

    def _normalised(self, text: str) -> str:
        normalizer = self._tokenizer.is_fast and self._tokenizer.backend_tokenizer.normalizer
        return normalizer.normalize_str(text) if normalizer else text

    def _without_cuts(self, token_ids: list[int]) -> list[int]:
        return [token_id for token_id in token_ids if token_id != self._cut_id]

    def _can_be_imitated(self, mark: str) -> bool:
        whole, cut = (
            self._without_cuts(self._tokenizer.encode(text, add_special_tokens=False))
            for text in (mark, self._cut(mark))
        )
        return whole == cut


def with_system_prompt(messages: Sequence[Message], text: str | None) -> Sequence[Message]:
    """Return the chat, with ``text`` as system prompt unless it has one of its own."""
    if text is None or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": text}, *messages]


def chat_messages(prompt: str, *, system_prompt: str | None) -> Sequence[Message]:
    """Return the chat that asks for a turn: ``prompt`` as user message, after the system prompt."""
    return with_system_prompt([{"role": "user", "content": prompt}], system_prompt)


def tools_in_words(tools: Sequence[ToolDescription]) -> str:
    """Describe tools in words, for a chat template that does not support them."""
    listed = "\n".join(json.dumps(tool["function"]) for tool in tools)
    return f"You may call one of these tools, and then read what it answers:\n{listed}\n" + (
        f"To call it, end your turn with {CALL_START}{CALL_FORM}{CALL_END}\n\n"
    )


def quoted_answer(answer: str) -> str:
    """Return a tool's answer as other agents read it."""
    return f"<tool_response>\n{answer}\n</tool_response>"


def check_system_prompt(tokenizer: Any, system_prompt: str, *, folder: Path) -> None:
    """Raise ValueError unless the chat template of ``folder`` supports system messages."""
    messages = chat_messages("?", system_prompt=system_prompt)
    if (error := template_error(tokenizer, messages)) is not None:
        raise ValueError(
            f"rollout.system_prompt: the chat template in {folder} takes no system message "
            f"({error}): write null, or choose another model"
        )


def template_error(
    tokenizer: Any, chat: Sequence[Message], template_kwargs: Mapping[str, Any] | None = None
) -> str | None:
    """Return why the chat template cannot render ``chat``: its own error, or the message that it
    drops. Return None if it can."""
    try:
        rendered = tokenizer.apply_chat_template(
            list(chat), tokenize=False, **(template_kwargs or {})
        )
    except TemplateError as error:
        return str(error)
    dropped = [each["role"] for each in chat if each["content"].strip() not in rendered]
    return f"it leaves out the {dropped[0]} message" if dropped else None


def _stop_ids(tokenizer: Any, folder: Path) -> list[int]:
    """Return the tokens at which an engine stops: of the tokenizer and of the generation config."""
    files = (folder / name for name in ("generation_config.json", "config.json"))  # as vLLM does
    path = next((file for file in files if file.is_file()), None)
    said = json.loads(path.read_text()).get("eos_token_id") if path else None
    stated = said if isinstance(said, list) else [said]
    return [each for each in (tokenizer.eos_token_id, *stated) if each is not None]


def _marks(tokenizer: Any, pieces: Sequence[str]) -> set[str]:
    """Return the special tokens, and the marks in what the template writes (``pieces``)."""
    added = tokenizer.added_tokens_decoder.values()
    marks = {token.content for token in added if token.special} - {CUT}
    # What it writes last may begin the answer, as <think> does: that is no mark.
    marks |= {tag for piece in pieces[:-1] for tag in _TAG.findall(piece)}
    return marks | {_pattern(marks).split(piece)[0].strip() for piece in pieces[1:]} - {""}


def _written_by_template(tokenizer: Any, template_kwargs: Mapping[str, Any]) -> list[str]:
    """Return the texts that the chat template writes before, between and after messages.

    Example: ``["<s>[INST] ", " [/INST] ", "</s><s>[INST] ", " [/INST]"]`` for three messages.
    """
    roles = ("system", "user", "assistant", "user")
    for first in (0, 1):  # some templates refuse a system message
        chat = [{"role": role, "content": CUT} for role in roles[first:]]
        with suppress(TemplateError):
            return tokenizer.apply_chat_template(
                chat, tokenize=False, add_generation_prompt=True, **template_kwargs
            ).split(CUT)
    return [""]


def _pattern(marks: Collection[str]) -> re.Pattern[str]:
    """Return a pattern for any of the marks, with any white space between their words."""
    spelt = (r"[\s▁]+".join(map(re.escape, mark.split())) for mark in marks)
    # Longest first: one mark may begin with another.
    return re.compile("|".join(sorted(filter(None, spelt), key=len, reverse=True)) or "(?!)")


def _cut_up(mark: re.Match[str]) -> str:
    return CUT + CUT.join(mark[0]) + CUT
