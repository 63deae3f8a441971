"""The rollout engine: answers requests, and receives new weights in between."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from jinja2 import TemplateError
from vllm import EngineArgs, RequestOutput, SamplingParams
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.llm_engine import LLMEngine

from comas.config.schema import Rollout, for_agent
from comas.engines.rollout.adapters import adapter_request, load_adapter
from comas.engines.rollout.connection import Answers, Endpoint, receive, send
from comas.engines.rollout.engine_thread import EngineThread, RolloutEngineError
from comas.engines.rollout.vllm_options import Adapters, WeightTransfer, engine_arguments
from comas.engines.rollout.workers import end_together
from comas.interaction.tool_calls import first_call
from comas.types import Chat, Device, Generation, Request
from comas.utils.chat import CALL_END, ChatEncoder, chat_messages, with_system_prompt
from comas.utils.concurrency import run_all
from comas.utils.model_folder import folder_of, has_recurrent_layers, load_tokenizer


class RolloutEngine:
    """An asynchronous interface to the vLLM engine of this process, which must have been started
    with ``engine_environment(device)``. (With ``rollout.tensor_parallel`` above 1 the model is in
    child processes.)

    A response depends only on weights, prompt, seed and temperature: on a CPU to the last bit,
    whatever the batch, the order of requests, prefix-cache hits and threads. On a GPU, kernels
    change with the batch, so rounding may differ.
    """

    def __init__(
        self,
        model_path: str,
        *,
        rollout: Rollout,
        device: Device,
        weight_transfer: WeightTransfer,
        seed: int,
        adapters: Adapters | None = None,
    ) -> None:
        """With ``adapters``, requests may name one, and the engine's own weights never change."""
        self._model_path = model_path
        self._rollout = rollout
        self._device = device
        self._weight_transfer = weight_transfer
        self._seed = seed
        self._adapters = adapters
        self._asked: dict[int, Request] = {}  # in flight
        self._conversation = asyncio.Lock()
        # None ends a conversation.
        self._results = asyncio.Queue[list[RequestOutput] | RolloutEngineError | None]()
        self._thread = EngineThread(
            self._load,
            name=f"The rollout engine of {model_path}",
            on_result=lambda result: self._results.put_nowait(result),
        )

    async def start(self) -> None:
        """Load the model and warm up.

        Raises RolloutEngineError when vLLM refuses the model or the settings, ValueError when the
        model does not exist or its tokenizer cannot be used.
        """
        self._folder = await asyncio.to_thread(folder_of, self._model_path)
        self._chats = ChatEncoder(
            load_tokenizer(self._folder),
            folder=self._folder,
            template_kwargs=self._rollout.chat_template_kwargs,
        )
        await self._thread.start()

    async def serve(self, endpoint: Endpoint) -> None:
        """Answer requests over a connection to the driver until it is closed; unanswered requests
        are then aborted. Raises RolloutEngineError when the engine breaks."""
        async with self._conversation:
            self._thread.check()
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.write(endpoint.password)
            self._results = asyncio.Queue()
            try:
                await run_all([self._receive_requests(reader, writer), self._send_answers(writer)])
            finally:
                self._forget(list(self._asked))
                writer.close()

    # ---- New weights and adapters ----

    async def update(self, method: str | Callable[..., None], **arguments: Any) -> None:
        """Run one method of a weight update on vLLM's workers, with no request in flight, and reset
        the prefix cache."""
        assert not self._asked, f"{method} was called with requests in flight"
        await self._thread.call(lambda engine: engine.collective_rpc(method, kwargs=arguments))
        await self._thread.call(_reset_prefix_cache)

    async def check_layers(self) -> None:
        """Raise RolloutEngineError for a model whose layers cannot be updated on a CPU."""
        from comas.engines.rollout.cpu.weights import check_layers  # of vLLM for CPUs

        await self.update(check_layers)

    async def load_weights(self, path: str) -> None:
        """Serve the weights in a file, on a CPU."""
        from comas.engines.rollout.cpu.weights import load_weights

        await self.update(load_weights, path=path)

    async def load_adapter(self, policy: int, weights: Mapping[str, torch.Tensor]) -> None:
        """Serve ``weights`` (PEFT's names) as the adapter of ``policy``."""
        assert self._adapters is not None and policy in self._adapters.policies
        await self.update(load_adapter, policy=policy, weights=weights, lora=self._adapters.lora)

    # ---- Sharing a GPU with training ----

    async def sleep(self) -> None:
        """Free the GPU memory of weights and KV cache, with no request in flight.

        The weights are dropped: wake them, sync, then wake the KV cache. The base of adapters is
        kept in host memory, since no sync would restore it.
        """
        assert not self._asked, "the engine was sent to sleep with requests in flight"
        level = 2 if self._adapters is None else 1
        await self._thread.call(lambda engine: engine.sleep(level=level))

    async def wake(self, part: Literal["weights", "kv_cache"]) -> None:
        """Allocate the weights, undefined until their next update; after that, the KV cache."""
        await self._thread.call(lambda engine: engine.wake_up([part]))

    def _load(self) -> LLMEngine:
        arguments = engine_arguments(
            str(self._folder),
            rollout=self._rollout,
            device=self._device,
            weight_transfer=self._weight_transfer,
            seed=self._seed,
            adapters=self._adapters,
            is_recurrent=has_recurrent_layers(self._folder),
        )
        engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        if self._rollout.tensor_parallel > 1:
            end_together(engine)
        params = _sampling_params(temperature=1.0, seed=0, max_tokens=2)
        for request_id in ("warm-up of one", "warm-up of several"):
            engine.add_request(request_id, tokens_input([0]), params)
        while engine.has_unfinished_requests():
            engine.step()
        _reset_prefix_cache(engine)
        return engine

    async def _receive_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while orders := await receive(reader):
            overlong = self._start(orders.requests)
            self._forget(orders.cancelled)
            if overlong:
                await send(writer, dict.fromkeys(overlong))
        self._results.put_nowait(None)

    async def _send_answers(self, writer: asyncio.StreamWriter) -> None:
        while finished := await self._results.get():
            if isinstance(finished, RolloutEngineError):
                raise finished
            if answers := self._answers(finished):
                await send(writer, answers)

    def _start(self, requests: dict[int, Request]) -> list[int]:
        """Start requests that fit the limits of prompt and response; return the others."""
        fitting = {}
        for number, request in requests.items():
            prompt = self._encode(request)
            if 0 < len(prompt) <= self._rollout.max_prompt_tokens:
                fitting[str(number)] = self._engine_request(request, prompt)
                self._asked[number] = request
        self._thread.add(fitting)
        return list(requests.keys() - self._asked.keys())

    def _forget(self, cancelled: Sequence[int]) -> None:
        in_flight = [key for key in cancelled if self._asked.pop(key, None) is not None]
        if in_flight:
            self._thread.abort([str(key) for key in in_flight])

    def _engine_request(self, request: Request, prompt: list[int]) -> dict[str, Any]:
        temperature = request.temperature
        if temperature is None:
            temperature = for_agent(self._rollout.temperature, request.agent_index)
        max_tokens = for_agent(self._rollout.max_response_tokens, request.agent_index)
        if request.chat is not None and request.chat.max_tokens is not None:
            max_tokens = min(max_tokens, request.chat.max_tokens)
        return {
            "prompt": tokens_input(prompt),
            "params": _sampling_params(
                temperature=temperature,
                seed=request.seed,
                max_tokens=max_tokens,
                min_tokens=min(self._rollout.min_response_tokens, max_tokens),
            ),
            "lora_request": None if request.adapter is None else adapter_request(request.adapter),
        }

    def _answers(self, finished: Iterable[RequestOutput]) -> Answers:
        answers: Answers = {}
        for output in finished:
            number = int(output.request_id)
            request = self._asked.pop(number, None)
            if request is not None:  # else it was cancelled just before it finished
                answers[number] = self._as_generation(output, request)
        return answers

    def _encode(self, request: Request) -> list[int]:
        """Return the token ids of the prompt, as a chat of one user message, or of the request's
        ``chat``; empty if the chat template refuses that."""
        chat, system_prompt = request.chat, self._rollout.system_prompt
        if chat is None:
            return self._chats.encode(chat_messages(request.prompt, system_prompt=system_prompt))
        try:
            if chat.follows:
                following = chat.messages[chat.num_followed :]
                return [*chat.follows, *self._chats.encode_following(chat.follows, following)]
            return self._chats.encode(with_system_prompt(chat.messages, system_prompt), chat.tools)
        except TemplateError:
            return []

    def _as_generation(self, output: RequestOutput, request: Request) -> Generation:
        [completion] = output.outputs
        assert completion.finish_reason in ("stop", "length"), completion.finish_reason
        assert len(completion.logprobs.logprobs) == len(completion.token_ids)
        token_ids, finish_reason = completion.token_ids, completion.finish_reason
        text = self._chats.decode(token_ids)
        if num_kept := self._num_up_to_end(request.chat, token_ids, text):
            token_ids, finish_reason = token_ids[:num_kept], "stop"
            text = self._chats.decode(token_ids)
        thinking, answer = self._chats.split(text)
        return Generation(
            prompt_token_ids=array("i", output.prompt_token_ids),
            response_token_ids=array("i", token_ids),
            response_text=answer,
            rollout_logprobs=array("d", completion.logprobs.logprobs[: len(token_ids)]),
            finish_reason=finish_reason,
            policy_version=0,  # the driver knows it
            spells_mark=self._chats.spells_mark(answer),
            thinking_text=thinking,
            num_thinking_tokens=self._chats.num_thinking_tokens(token_ids, text),
        )

    def _num_up_to_end(self, chat: Chat | None, token_ids: Sequence[int], text: str) -> int | None:
        """Return the number of tokens up to a chat's first stop sequence, or the end of the first
        tool call, after which an agent would invent the tool's answer; None if a response has
        none, or nothing follows it."""
        if chat is None:
            return None
        if found := [stop for stop in chat.stop if stop in text]:
            return self._chats.num_tokens_up_to(min(found, key=text.index), token_ids, count=1)
        answer = self._chats.split(text).answer
        call = first_call(answer) if chat.tools else None
        if call is None or not (following := answer[call.end :]).strip():
            return None
        count = text.count(CALL_END) - following.count(CALL_END)
        return self._chats.num_tokens_up_to(CALL_END, token_ids, count=count)


def _sampling_params(
    *, temperature: float, seed: int, max_tokens: int, min_tokens: int = 0
) -> SamplingParams:
    """Sample from the whole distribution, so that importance ratios are unbiased."""
    return SamplingParams(
        temperature=temperature,
        seed=seed,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        top_p=1.0,
        top_k=0,
        logprobs=0,  # of the sampled token only
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,  # used for one request only
    )


def _reset_prefix_cache(engine: LLMEngine) -> None:
    if not engine.reset_prefix_cache():
        raise RuntimeError("the prefix cache was not reset because requests still hold its blocks")
