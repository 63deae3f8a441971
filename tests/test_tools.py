"""Solvers who call tools: what is run, what they read of it, and what is counted."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from builders import discuss, discussion, generation, turn
from chat_styles import CHATML
from tables import cases
from test_validation import Judge
from tiny_models import byte_tokenizer

from comas.config.schema import Config, Interaction, Society
from comas.data import QuestionSet
from comas.ideas import tools
from comas.ideas.python_tool import PYTHON, sequential_with_python
from comas.ideas.tools import ScheduleWithTools, ToolError, as_tool, with_tools
from comas.interaction.schedules import sequential
from comas.interaction.tool_calls import first_call
from comas.run import validation
from comas.run.metrics.step import rollout_metrics
from comas.types import Generation, Question, Request, RewardedDiscussion, ToolCall, Turn
from comas.utils.chat import CALL_FORM, ChatEncoder, quoted_answer, tools_in_words

CALL = '<tool_call>{{"name": "python", "arguments": {{"program": "print({})"}}}}</tool_call>'
WITH_PYTHON = "comas.ideas.python_tool:sequential_with_python"
WITH_TOOLS = (
    '{% for t in tools or [] %}{{ t | tojson }} called as {"arguments": ...}\n{% endfor %}'
    + CHATML.replace("<think>\n", "")
)
"""A chat template that tells of tools and of their answers."""


def solve(
    *said: str, domain: str = "math", room: int = 9, schedule: str = WITH_PYTHON
) -> tuple[Turn, list[tuple[str, bool]]]:
    """The solution of an agent whose responses are ``said``, and what each was answered."""
    answers: list[tuple[str, bool]] = []

    async def generate(request: Request) -> Generation | None:
        if request.role != "solution":
            assert not request.tools
            return generation("<score>3</score>")
        assert [tool["function"]["name"] for tool in request.tools] == ["python"]
        if request.after is None:
            return replace(generation(said[0]), calls=())
        before, answer, start, failed = request.after
        answers.append((answer, failed))
        if len(answers) > room:
            return None
        quoted = f"{before.response_text}\n{quoted_answer(answer)}"
        made = (*(before.calls or ()), ToolCall(start or 0, len(quoted), failed))
        longer = generation(f"{quoted}\n{said[len(answers)]}", num_tokens=3)
        return replace(longer, sampled=(True, False, True), calls=made)

    asked = [Question("q", domain, "?")]  # type: ignore[arg-type]
    [held] = discuss(asked, generate, schedule=schedule, num_rounds=1, prompt_reuse=1)
    return held.turns[0], answers


@pytest.mark.stack
def test_a_solver_reads_what_its_programs_print_and_goes_on():
    first, second = f"First {CALL.format('48 + 23')}", CALL.format("1 / 0")
    solution, answers = solve(first, second, r"So \boxed{71}.")
    assert answers == [("71", False), ("ZeroDivisionError: division by zero", True)]
    quoted = [quoted_answer(answer) for answer, _ in answers]
    assert solution.text == "\n".join([first, quoted[0], second, quoted[1], r"So \boxed{71}."])
    one, other = solution.generation.calls or ()
    assert solution.text[one.start : one.end] == f"{CALL.format('48 + 23')}\n{quoted[0]}"
    assert solution.text[other.start : other.end] == f"{second}\n{quoted[1]}"
    # As often as it may, as long as there is room.
    assert len(solve(*[CALL.format(1)] * 9)[1]) == 3
    cut_off, answers = solve(*[CALL.format(2)] * 9, room=1)
    assert cut_off.text.endswith(CALL.format(2)) and cut_off.text.count("<tool_response>") == 1
    assert cut_off.generation.finish_reason == "length"  # which mask_truncated leaves out
    assert answers == [("2", False), ("2", False), (tools.NO_ROOM, True)]


@cases(
    "said",
    "No program.",
    r"```python\nprint(1)\n``` \boxed{1}",
    "<tool_call>not closed",
    rf"{CALL.format(2 + 2)} gives 4. So \boxed{{4}}",
    "{}",
    '{"name": ["python"], "arguments": {}}',
    f'{{"name": {"[" * 50_000}',
)
def test_a_solver_who_calls_nothing_is_done(said):
    assert solve(said) == (solve(said)[0], [])


def lookup(key: str, count: int = 1) -> str:
    """Look something up.

    Args:
        key: Its name.
        count: How many are wanted.
    """
    match key:
        case "raise":
            raise KeyError(key)
        case "tell":
            raise ToolError("nothing is known of it")
        case "hang":
            threading.Event().wait()
        case "flood":
            return "a" * 6000 + "b" * 6000
    return f"{key} x {count}"


def asked(arguments: str, name: str = "lookup") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def unread(why: str) -> str:
    return f"error: the call cannot be read: {why}; write {CALL_FORM}"


LOOKUP: ScheduleWithTools = with_tools(sequential, as_tool(lookup, timeout_s=0.2))
HALF = "a" * 500, "b" * 500
DEEP = "[" * 50_000
"""What json.loads does not read to its end."""


@cases(
    "text, answer, failed",
    (asked('{"key": "a", "count": "2"}'), "a x 2", False),  # converted to its type
    ('{"name": "lookup", "parameters": {"key": "a"}}', "a x 1", False),  # as Llama 3 calls
    (asked('{"key": "flood"}'), "\n(11000 characters are left out)\n".join(HALF), False),
    (asked('{"key": "raise"}'), "error: KeyError: 'raise'", True),
    (asked('{"key": "tell"}'), "nothing is known of it", True),
    (asked('{"key": "hang"}'), "error: lookup took longer than 0.2 s", True),
    (asked('{"key": 1}'), "error: key: Input should be a valid string", True),
    (asked("{}", "look"), "error: there is no tool 'look', but lookup", True),
    (asked('{"key": "</tool_call>"}'), "</tool_call> x 1", False),
    (asked(r'"{\"key\": \"a\nb\"}"'), "a\nb x 1", False),  # JSON within a string
    (
        '{"type": "function", "function": {"name": "lookup", "arguments": {"key": "a"}}}',
        "a x 1",
        False,
    ),
    (asked("[]"), unread("arguments: Input should be a valid dictionary, not []"), True),
    ("<tool_call>lookup()</tool_call>", unread("Expecting value: line 1 column 1 (char 0)"), True),
    (asked("{}}"), unread("Extra data: line 1 column 36 (char 35)"), True),
    (
        f"<tool_call>{DEEP}</tool_call>",
        "error: the call cannot be read: it is nested too deeply",
        True,
    ),
)
def test_whatever_comes_of_a_call_is_an_answer(text, answer, failed):
    call = first_call(text, LOOKUP.by_name)
    assert call is not None
    assert asyncio.run(LOOKUP.answer(call)) == (answer, failed)


@pytest.mark.stack
@cases("program, answer, failed")
def test_a_program_runs_in_the_sandbox(program, answer, failed):
    found = asyncio.run(tools._make(PYTHON, {"program": program}))
    assert found[1] == failed and answer in tools.shortened(found[0].strip())


def test_a_template_that_knows_tools_tells_of_them_and_else_the_prompt_does():
    tokenizer, described = byte_tokenizer(), sequential_with_python.tools
    chat = [{"role": "user", "content": "1 + 1?"}]
    words = tools_in_words(described)
    assert '"name": "python", "description": "Run a Python program' in words

    def encoded() -> tuple[str, str, str]:
        """A prompt with and without tools, and what follows a response."""
        chats = ChatEncoder(tokenizer, folder=Path("folder"))
        [told], [untold] = chats.encode([chat], described), chats.encode([chat])
        following = chats.encode_answer([5, 2], "71", by_tool=True)
        return tuple(map(tokenizer.decode, (told, untold, following)))  # type: ignore

    told, untold, following = encoded()
    assert untold == "<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n"
    assert told == untold.replace("1 + 1?", f"{words}1 + 1?")
    assert f"<|im_start|>user\n{quoted_answer('71')}<|im_end|>" in following
    tokenizer.chat_template = WITH_TOOLS
    told, untold, following = encoded()
    assert told.endswith(untold) and '"name": "python"' in told and words not in told
    assert "<|im_start|>tool\n71<|im_end|>" in following
    # One that tells of tools, and not of their answers or of a form that is read.
    for cut in ('"arguments"', "{% for t in tools or [] %}"):
        tokenizer.chat_template = WITH_TOOLS.replace(cut, "{% for t in [] %}" * ("for" in cut))
        assert words in encoded()[0]


def test_held_out_questions_are_answered_with_tools():
    asked: list[Request] = []

    async def generate(request: Request) -> Generation:
        asked.append(request)
        return generation("right")

    validation.validate(
        QuestionSet((Question("q", "math", "?"),), {"q": "right"}),
        Config(society=Society(num_agents=1), interaction=Interaction(schedule=WITH_PYTHON)),
        generate={validation.SAMPLED: generate},
        verifier=Judge(),  # type: ignore[arg-type]
    )
    assert [len(request.tools) for request in asked] == [1]


def called(*failed: bool, text: str = "") -> Turn:
    said = turn("r0.s0", text)
    calls = tuple(ToolCall(2 * i, 2 * i + 1, each) for i, each in enumerate(failed))
    return replace(said, generation=replace(said.generation, calls=calls))


def test_calls_are_counted_by_turn_and_those_that_failed_by_call():
    held = discussion(called(True, False, False), called(), called(True), turn("r0.s0.e0"))
    metrics = rollout_metrics([RewardedDiscussion(held, (None,) * 4)], num_agents=1)
    for prefix in ("", "agent_0/"):  # 4 calls in 3 turns that had tools, 2 failed
        assert metrics[f"{prefix}tools/calls"] == 4 / 3
        assert metrics[f"{prefix}tools/failed"] == 2 / 4
    without = RewardedDiscussion(discussion(turn("r0.s0")), (None,))
    assert not any("tools" in name for name in rollout_metrics([without], num_agents=1))
