"""The door: OpenAI's protocol, as clients of it see it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
from anyio.from_thread import start_blocking_portal
from scripted_server import ScriptedServer, status
from tables import case_file, cases

from comas.commands.serve import ServedAgents
from comas.interaction.door import MAX_BODY_BYTES, Asked, Choice, Door, RefusalError, choice_of
from comas.interaction.tool_calls import first_call, name_and_arguments
from comas.types import Generation
from comas.utils.chat import CALL_FORM
from comas.utils.client import Client, Endpoint, RequestOptions

CALL = '<tool_call>{"name": "add", "arguments": {"a": 48, "b": 23}}</tool_call>'
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


class Parrot:
    """A guest that answers a message with itself."""

    models: Sequence[str] = ("agent_0", "agent_1")

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    async def complete(self, asked: Asked) -> list[Choice]:
        self.asked.append(asked)
        text = asked.messages[-1].content
        logprobs = () if text == "untrained" else (-0.5, -0.25)
        said = Generation((5, 8), (7, 9), text, logprobs, "stop", 3)
        return [choice_of(f"r{number}.s0", said, asked) for number in range(asked.n)]


@pytest.fixture(scope="module")
def parrot() -> Iterator[tuple[Parrot, openai.OpenAI, str, str]]:
    """A guest that is asked in the event loop of another thread, a client, the address, the key."""
    guest, door, http = Parrot(), Door(), httpx.Client(trust_env=False)

    @asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        with door.open(guest) as key:
            yield key

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(opened()) as key,
        http,
    ):
        url = f"{door.url}/{key}/v1"
        client = openai.OpenAI(base_url=url, api_key="any", http_client=http, max_retries=0)
        yield guest, client, url, key


@pytest.fixture
def client(parrot: Any) -> openai.OpenAI:
    return parrot[1]


def chat(text: str, **body: Any) -> dict[str, Any]:
    return {"model": "agent_0", "messages": [{"role": "user", "content": text}]} | body


def test_a_completion_has_each_choice_its_log_probs_and_what_was_used(client):
    said = client.chat.completions.create(**chat("71", n=2, logprobs=True))
    assert [choice.message.content for choice in said.choices] == ["71", "71"]
    assert (said.id, said.choices[1].index, said.choices[0].finish_reason) == ("r0.s0", 1, "stop")
    tokens = said.choices[0].logprobs.content
    assert [(t.token, t.logprob) for t in tokens] == [("token_id:7", -0.5), ("token_id:9", -0.25)]
    assert said.usage.prompt_tokens == 2 and said.usage.total_tokens == 2 + 2 * 2
    ids = client.chat.completions.create(**chat("71"), extra_body={"return_token_ids": True})
    assert ids.prompt_token_ids == [5, 8] and ids.choices[0].token_ids == [7, 9]


def test_a_streamed_completion_is_the_same(client):
    options = {"include_usage": True}
    chunks = [*client.chat.completions.create(**chat("71", stream=True, stream_options=options))]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "71"
    ends = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert ends == [None, "stop"] and chunks[-1].usage.completion_tokens == 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_call_in_an_answer_is_one_of_the_protocol(client, stream):
    said = client.chat.completions.create(**chat(f"Sum: {CALL}", tools=[ADD], stream=stream))
    choices = [c.choices[0] for c in said] if stream else said.choices
    content = (choices[0].delta if stream else choices[0].message).content
    [call] = choices[1].delta.tool_calls if stream else choices[0].message.tool_calls
    assert content == "Sum: " and choices[-1].finish_reason == "tool_calls"
    assert call.function.name == "add" and json.loads(call.function.arguments) == {"a": 48, "b": 23}


def test_without_tools_a_call_is_text_and_so_is_one_that_cannot_be_read(client):
    broken = CALL.replace("}}", "}")
    for text, options in ((CALL, {}), (CALL, {"tools": [ADD], "tool_choice": "none"})):
        said = client.chat.completions.create(
            **chat(text, top_p=1.0, extra_body={"top_k": 0}, **options)
        )
        assert said.choices[0].message.content == text
    said = client.chat.completions.create(**chat(broken, tools=[ADD]))
    assert said.choices[0].message.content == broken and not said.choices[0].message.tool_calls


def called(arguments: str, name: str = "add") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


@cases(
    "text, arguments",
    (f"First {called('{}')} then {called('[]')}", {}),
    ('{"name": "add", "parameters": {"a": 1}}', {"a": 1}),  # as Llama 3 calls
    (called('{"a": "</tool_call>"}'), {"a": "</tool_call>"}),
    (called(r'"{\"a\": \"1\n2\"}"'), {"a": "1\n2"}),  # JSON within a string
    ('{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}', {"a": 1}),
)
def test_calls_are_read_in_every_form_that_models_write(text, arguments):
    call = first_call(text, ["add"])
    assert call is not None and name_and_arguments(call.text) == ("add", arguments)


@cases(
    "said",
    "No call.",
    "<tool_call>not closed",
    "{}",
    '{"name": ["add"], "arguments": {}}',
    '{"name": "other", "arguments": {}}',
    f'{{"name": {"[" * 50_000}',
)
def test_what_is_no_call_is_text(said):
    assert first_call(said, ["add"]) is None


@cases(
    "text, why",
    (called("[]"), "arguments: Input should be a valid dictionary, not []"),
    ("<tool_call>add()</tool_call>", "Expecting value: line 1 column 1 (char 0)"),
    (called("{}}"), "Extra data: line 1 column 33 (char 32)"),
    (f"<tool_call>{'[' * 50_000}</tool_call>", None),
)
def test_a_call_that_cannot_be_read_says_why(text, why):
    call = first_call(text)
    assert call is not None
    with pytest.raises(ValueError) as error:
        name_and_arguments(call.text)
    said = "it is nested too deeply" if why is None else f"{why}; write {CALL_FORM}"
    assert str(error.value) == f"the call cannot be read: {said}"


def test_an_answer_ends_before_the_first_stop_sequence(client):
    said = client.chat.completions.create(**chat("one END two STOP", stop=["STOP", " END", "?"]))
    assert said.choices[0].message.content == "one"


def test_contents_may_be_parts_and_calls_become_what_agents_write(parrot):
    guest, client, *_ = parrot
    function = {"name": "add", "arguments": '{"a": 48, "b": 23}'}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "Add."}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "71", "tool_call_id": "1"},
    ]
    client.chat.completions.create(model="agent_0", messages=messages)
    assert [message.in_words() for message in guest.asked[-1].messages] == [
        {"role": "system", "content": "Add."},
        {"role": "assistant", "content": CALL},
        {"role": "tool", "content": "71"},
    ]


def test_the_role_of_a_turn_stands_in_the_metadata_or_in_a_header(parrot):
    guest, client, *_ = parrot
    client.chat.completions.create(**chat("x", metadata={"role": "plan"}))
    client.chat.completions.create(**chat("x"), extra_headers={"X-Comas-Role": "check"})
    client.chat.completions.create(**chat("x"))
    assert [asked.role for asked in guest.asked[-3:]] == ["plan", "check", None]


def test_the_key_may_stand_in_the_address_or_be_the_api_key(parrot):
    _, client, url, key = parrot
    assert [model.id for model in client.models.list()] == ["agent_0", "agent_1"]
    assert client.with_options(base_url=url.replace(f"/{key}", ""), api_key=key).models.list().data


def test_agents_that_are_served_answer_within_the_limits_of_a_request():
    def model(body: dict[str, Any]) -> str:
        return f"{body['model']}: {body['messages'][-1]['content'][-4:]}"

    async def complete(base_url: str, **body: Any) -> list[Choice]:
        models = [Endpoint(base_url, f"served_{i}") for i in range(2)]
        async with Client(models, RequestOptions(num_retries=0, max_tokens=99)) as client:
            return await ServedAgents(client).complete(Asked(**chat("Why?", **body)))

    asked = {"model": "agent_1", "n": 2, "seed": 5, "max_completion_tokens": 7, "stop": "END"}
    with ScriptedServer(model) as server:
        choices = asyncio.run(complete(server.base_url, **asked, tools=[ADD], temperature=0))
        assert [choice.message["content"] for choice in choices] == ["served_1: Why?"] * 2
        said = [choice.generation for choice in choices]
        tokens = [(len(each.prompt_token_ids), len(each.response_token_ids)) for each in said]
        assert tokens == [(7, 3)] * 2
        bodies = sorted(server.requests, key=lambda body: body["seed"])
    assert [body["seed"] for body in bodies] == [5, 6]
    sent = {name: bodies[0][name] for name in ("max_tokens", "stop", "temperature")}
    assert sent == {"max_tokens": 7, "stop": ["END"], "temperature": 0}
    assert bodies[0]["messages"][0]["content"].startswith("You may call one of these tools")
    for code, said in ((400, "too long"), (500, "no answer")):
        refuses = ScriptedServer(model, fault_of=lambda *_, c=code, s=said: status(c, s))
        with refuses as server, pytest.raises(RefusalError, match=said) as refused:
            asyncio.run(complete(server.base_url))
        assert refused.value.status == {400: 400, 500: 502}[code]


REFUSED: dict[str, tuple[Any, int, str]] = {
    **{name: (chat("x", **body), *told) for name, body, *told in case_file("door")["REFUSED"]},
    "no JSON": (b"{", 400, "Invalid JSON"),
    "depth": (b'{"model":' + b"[" * 10**5, 400, ""),
    "a long body": (b" " * (MAX_BODY_BYTES + 1), 413, "at most"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_that_cannot_be_answered_is_refused_in_the_protocols_form(parrot, case):
    *_, url, _ = parrot
    body, status, said = REFUSED[case]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = httpx.post(f"{url}/chat/completions", content=content, trust_env=False, timeout=60)
    error = reply.json()["error"]
    assert reply.status_code == status and said in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


def test_whoever_has_no_key_is_refused_before_the_body_is_read(parrot):
    _, client, url, key = parrot
    for other in (url.replace(key, "x" * len(key)), url.replace(f"/{key}", "")):
        with pytest.raises(
            openai.AuthenticationError, match="a wrong key, or its discussion has ended"
        ):
            client.with_options(base_url=other).chat.completions.create(**chat("x"))
        lengthy = httpx.post(f"{other}/chat/completions", content=b" ", trust_env=False)
        assert lengthy.status_code == 401
    unknown = httpx.post(f"{url}/embeddings", json={}, trust_env=False)
    assert unknown.status_code == 404 and unknown.json()["error"]["code"] == "not_found"
