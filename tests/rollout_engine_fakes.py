"""Settings, requests and sending weights of rollout engines, without a real one;
test_rollout.py runs them, as it does rollout_engine_cases.py."""

import asyncio
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest
import ray
import torch
from builders import request
from tables import cases
from tiny_models import END_OF_TURN, byte_tokenizer
from vllm.distributed.weight_transfer import ParamMeta
from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

from comas.config.schema import Config, Rollout
from comas.engines.allocator import EXPANDABLE, VARIABLES
from comas.engines.cluster import actors
from comas.engines.cluster.actors import PolicyActor, UpdateCalls
from comas.engines.rollout import weight_transfer
from comas.engines.rollout.cpu.shared_weights import send_in_memory
from comas.engines.rollout.cpu.weights import check_layers
from comas.engines.rollout.engine import RolloutEngine
from comas.engines.rollout.vllm_options import Device, WeightTransfer, engine_arguments
from comas.engines.rollout.weight_transfer import PolicyWeights, create_weight_sender
from comas.types import Chat, Generation, Message
from comas.utils.chat import ChatEncoder
from comas.utils.thinking import ThinkingMarks

pytestmark = pytest.mark.stack

ROLLOUT = Rollout(
    dtype="bfloat16",
    max_prompt_tokens=1000,
    max_response_tokens=200,
    gpu_memory_utilization=0.4,
    cpu_kv_cache_mib=64,
    max_num_seqs=32,
)


TOKENIZER = byte_tokenizer()
QUESTION: list[Message] = [{"role": "user", "content": "1 + 1?"}]


class IdleEngine(RolloutEngine):
    """Has no vLLM: keeps the request, and is told the response."""

    def __init__(self, **changes: Any) -> None:
        rollout = replace(ROLLOUT, **changes)
        super().__init__("m", rollout=rollout, device="cpu", weight_transfer="nccl", seed=0)
        self._chats = ChatEncoder(TOKENIZER, folder=Path("folder"))
        self.asked: dict[str, Any] = {}
        self._thread = SimpleNamespace(add=self.asked.update)  # type: ignore[assignment]

    def ask(self, **asked: Any) -> list[int]:
        assert self._start({1: request("1 + 1?", **asked)}) == []
        return self.asked["1"]["prompt"]["prompt_token_ids"]

    def say(self, text: str, finish_reason: str = "stop") -> Generation:
        ids = [*TOKENIZER.encode(text, add_special_tokens=False), END_OF_TURN]
        logprobs = SimpleNamespace(logprobs=[-1.0] * len(ids))
        completion = SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason=finish_reason)
        prompt = self.asked["1"]["prompt"]["prompt_token_ids"]
        output = Mock(request_id="1", outputs=[completion], prompt_token_ids=prompt)
        return self._answers([output])[1]  # type: ignore


def test_the_system_prompt_comes_before_every_prompt_and_none_leaves_no_trace():
    asked = "<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n"
    assert TOKENIZER.decode(IdleEngine().ask()) == asked
    prompt = TOKENIZER.decode(IdleEngine(system_prompt="Be careful.").ask())
    assert prompt == f"<|im_start|>system\nBe careful.<|im_end|>\n{asked}"


def test_what_others_read_is_the_answer_and_all_is_trained():
    engine = IdleEngine()
    engine._chats.thinking = ThinkingMarks("<think>", "</think>")
    engine.ask()
    generation = engine.say("<think>8</think>71")
    assert (generation.response_text, generation.thinking_text) == ("71", "<think>8</think>")
    said = TOKENIZER.decode(list(generation.response_token_ids))
    assert said == "<think>8</think>71<|im_end|>"  # all of it is trained
    assert len(memoryview(generation.response_token_ids).tobytes()) == 4 * 19
    assert generation.num_thinking_tokens == 16  # letters of <think>8</think>


def test_each_agent_is_asked_at_its_temperature_for_a_response_of_its_length():
    engine = IdleEngine(temperature=[1.0, 0.5], max_response_tokens=[200, 30])
    params = []
    for asked in ({}, {"agent": 1}, {"agent": 1, "temperature": 0.0}):
        engine.ask(**asked)
        params.append(engine.asked["1"]["params"])
    assert [(p.temperature, p.max_tokens) for p in params] == [(1.0, 200), (0.5, 30), (0.0, 30)]


@cases("thought, ended", ("", "stop"), ("", "length"), ("<think></tool_call></think>", "stop"))
def test_a_response_ends_with_its_first_call_whatever_is_made_up_after_it(thought, ended):
    engine = IdleEngine()
    engine._chats.thinking = ThinkingMarks("<think>", "</think>")
    call = 'So <tool_call>{"name": "f", "arguments": {"x": "</tool_call>"}}</tool_call>'
    said = rf"{thought}{call} gives 4. So \boxed{{4}}<tool_call></tool_call>"
    engine.ask()
    assert engine.say(said, ended).response_text == said.removeprefix(thought)
    engine.ask(chat=Chat(QUESTION, tools=[{"function": {"name": "f"}}]))
    cut = engine.say(said, ended)
    assert (cut.response_text, cut.finish_reason) == (call, "stop")
    assert TOKENIZER.decode(list(cut.response_token_ids)) == thought + call
    assert len(cut.rollout_logprobs) == len(thought + call)
    assert cut.num_thinking_tokens == len(thought)
    engine.ask(chat=Chat(QUESTION, tools=[{"function": {"name": "f"}}]))
    assert engine.say(f"{call}\n", ended).finish_reason == ended  # nothing follows


def arguments_of(transfer: WeightTransfer, **changes: int) -> dict[str, Any]:
    device: Device = "cpu" if transfer == "shared_memory" else "cuda"
    rollout = replace(ROLLOUT, **changes)
    return engine_arguments("m", rollout=rollout, device=device, weight_transfer=transfer, seed=5)


@cases("transfer, can_sleep", ("shared_memory", None), ("ipc", True), ("nccl", False))
def test_only_an_engine_that_shares_its_gpu_can_sleep_and_a_cpus_has_mib(transfer, can_sleep):
    arguments = arguments_of(transfer)
    on_cpu = transfer == "shared_memory"
    config = EngineArgs(**arguments).weight_transfer_config
    assert config is None if on_cpu else config.backend == transfer
    assert arguments.get("enable_sleep_mode") is can_sleep
    assert arguments.get("gpu_memory_utilization") == (None if on_cpu else 0.4)
    assert arguments.get("kv_cache_memory_bytes") == (64 << 20 if on_cpu else None)
    assert arguments.get("enforce_eager") == (on_cpu or None)
    said = {"max_model_len": 1000 + 200, "max_num_seqs": 32, "seed": 5, "dtype": "bfloat16"}
    assert arguments.items() >= said.items()


@cases("transfer, changes, tokens")
def test_a_step_takes_as_many_tokens(transfer, changes, tokens):
    arguments = arguments_of(transfer, **changes)
    assert arguments["max_num_batched_tokens"] == tokens
    assert EngineArgs(**arguments).max_num_batched_tokens == tokens


def test_a_sharded_engine_starts_a_worker_for_each_gpu_and_divides_the_cache_of_a_cpu():
    for transfer in ("shared_memory", "ipc"):
        plain, sharded = (arguments_of(transfer, tensor_parallel=size) for size in (1, 2))
        changes = {name for name in sharded if sharded[name] != plain.get(name)}
        assert changes - {"kv_cache_memory_bytes"} == {
            "tensor_parallel_size",
            "distributed_executor_backend",
        }
        assert EngineArgs(**sharded).tensor_parallel_size == 2
    assert arguments_of("shared_memory", tensor_parallel=2)["kv_cache_memory_bytes"] == 32 << 20


WEIGHTS = {
    "a": torch.tensor([1.0, 2.0, 3.0]),
    "b": torch.tensor([[4.0], [5.0]]),
    "c": torch.tensor(6.0, dtype=torch.bfloat16),
}


def test_the_first_rank_writes_every_weight_where_the_engines_read_it():
    read = []

    def load(path: str) -> None:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        read.append(torch.load(path, mmap=True))

    send_in_memory(load, WEIGHTS.items(), is_first=True)
    send_in_memory(load, WEIGHTS.items(), is_first=False)
    [found] = read
    assert found.keys() == WEIGHTS.keys()
    for name, weight in WEIGHTS.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=0)


def test_what_is_announced_to_vllm_is_what_is_sent():
    source = PolicyWeights(lambda: iter(WEIGHTS.items()))
    a, b = ParamMeta("a", torch.float32, (3,)), ParamMeta("b", torch.float32, (2, 1))
    assert source.metadata() == [a, b, ParamMeta("c", torch.bfloat16, ())]
    assert [*source] == [*WEIGHTS.items()]


SMALL = PolicyWeights(lambda: iter([("a", torch.zeros(2))]))


def test_a_gpu_buffer_holds_the_largest_tensor_and_one_group_holds_all_engines():
    # The embeddings of a 7B model: 1.02 GiB.
    embeddings = torch.empty(152064, 3584, dtype=torch.bfloat16, device="meta")
    large = PolicyWeights(lambda: iter([("a", torch.zeros(2)), ("embed", embeddings)]))
    embedding_bytes = 152064 * 3584 * 2
    ipc = weight_transfer.trainer_init_info("ipc", source=large, rank=0, num_workers=2)
    assert isinstance(ipc, IPCTrainerInitInfo)
    assert (ipc.packed, ipc.packed_buffer_size_bytes) == (True, embedding_bytes)
    nccl = weight_transfer.trainer_init_info("nccl", source=large, rank=1, num_workers=2)
    assert isinstance(nccl, NCCLTrainerInitInfo)
    assert (nccl.rank, nccl.world_size, nccl.packed) == (1, 3, True)
    assert nccl.packed_buffer_size_bytes == embedding_bytes
    small = weight_transfer.trainer_init_info("ipc", source=SMALL, rank=0, num_workers=1)
    assert isinstance(small, IPCTrainerInitInfo)
    assert small.packed_buffer_size_bytes == 1 << 30


def test_a_gpu_takes_weights_from_the_trainer_of_vllm_026_too(monkeypatch):
    """There, a function of the engine's class sends chunks."""
    client = Mock()
    chunk = {"names": ["a"], "ipc_handles": {"gpu": ()}, "tensor_sizes": [8], "packed": True}

    def trainer_send_weights(iterator: Iterator[Any], trainer_args: dict[str, Any]) -> None:
        send = trainer_args.pop("send_mode")
        client.sent(set(dict(iterator)), trainer_args)
        send(SimpleNamespace(**chunk))

    engine = SimpleNamespace(trainer_send_weights=trainer_send_weights)
    module = SimpleNamespace(IPCWeightTransferEngine=engine)
    monkeypatch.setattr(weight_transfer, "ipc_engine", module)
    create = partial(create_weight_sender, client=client, source=SMALL, num_workers=1)
    create("ipc", rank=0)()
    sent = [
        call.sent({"a"}, {"packed": True, "packed_buffer_size_bytes": 1 << 30}),
        call.update_weights(chunk),
    ]
    first, *rest = client.mock_calls
    assert first == call.init_weight_transfer_engine({})
    assert rest == [call.start_weight_update(), *sent, call.finish_weight_update()]
    client.reset_mock()
    create("ipc", rank=1)()
    assert client.mock_calls == sent  # the first alone talks to engines
    with pytest.raises(ValueError, match=r"cluster\.placement=disaggregated: vllm .* another way"):
        create("nccl", rank=0)


def test_what_engines_open_is_allocated_in_fixed_segments(monkeypatch):
    monkeypatch.setenv(VARIABLES[0], EXPANDABLE)
    settings, seen = torch._C._accelerator_getAllocatorSettings, []
    before = settings()
    sender = SimpleNamespace(send_weights=lambda: seen.append(settings()))
    factory = weight_transfer.WeightTransferTrainerFactory
    monkeypatch.setattr(factory, "trainer_init", lambda *_, **__: sender)
    create_weight_sender("ipc", client=None, source=SMALL, rank=0, num_workers=1)()  # type: ignore[arg-type]
    torch._C._accelerator_setAllocatorSettings(before)
    assert seen == ["expandable_segments:False"]


def test_weights_are_woken_and_synced_before_the_kv_cache():
    engine = RolloutEngine("m", rollout=ROLLOUT, device="cuda", weight_transfer="ipc", seed=0)
    vllm_engine = Mock()

    async def run(function: Any) -> Any:
        return function(vllm_engine)

    async def phases() -> None:
        engine._thread = SimpleNamespace(call=run)  # type: ignore[assignment]
        await engine.sleep()
        await engine.wake("weights")
        await engine.update("start_weight_update")
        await engine.update("finish_weight_update")
        await engine.wake("kv_cache")

    asyncio.run(phases())
    assert vllm_engine.mock_calls == [
        call.sleep(level=2),
        call.wake_up(["weights"]),
        call.collective_rpc("start_weight_update", kwargs={}),
        call.reset_prefix_cache(),
        call.collective_rpc("finish_weight_update", kwargs={}),
        call.reset_prefix_cache(),
        call.wake_up(["kv_cache"]),
    ]


def test_the_workers_of_every_engine_have_ranks_of_their_own(monkeypatch):
    """vLLM adds the worker's number within its engine: 1, 2, 3 and 4, 5, 6."""
    monkeypatch.setattr(ray, "get", waited := Mock())
    actors = [Mock(**{"call.remote.return_value": name}) for name in "ab"]
    UpdateCalls(actors, workers_each=3).init_weight_transfer_engine({"rank_offset": 1})
    for first_rank, actor in zip((1, 4), actors, strict=True):
        said = call("update", "init_weight_transfer_engine", init_info={"rank_offset": first_rank})
        assert actor.call.remote.mock_calls == [said]
    assert waited.mock_calls == [call(["a", "b"])]


def test_layers_that_an_update_does_not_know_are_refused():
    model = torch.nn.ModuleDict({"mlp": torch.nn.Linear(2, 2), "experts": torch.nn.Module()})
    worker = Mock(**{"model_runner.get_model.return_value": model})
    check_layers(worker)
    # Of a layer whose weights vLLM transforms after loading.
    model["experts"].quant_method = Mock(spec=QuantizeMethodBase)
    with pytest.raises(ValueError, match=r"1 layers, first experts, are neither linear nor"):
        check_layers(worker)


def test_engines_on_a_cpu_are_asked_before_any_weights_are_sent(monkeypatch):
    monkeypatch.setattr(actors, "call_all", asked := Mock())
    trainer = SimpleNamespace(trainers={0: Mock()})
    rank = SimpleNamespace(config=Config(), backend="shared_memory", rank=0, _trainer=trainer)
    PolicyActor.connect(rank, ["engine"])
    assert asked.mock_calls == [call(["engine"], "check_layers")]
