"""The rollout room: settings, the engine's thread, sending weights; and the real engine.

Cases on real vLLM engines are in rollout_engine_cases.py, which the last test runs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.distributed.weight_transfer import ParamMeta, WeightSource
from vllm.distributed.weight_transfer.base import WeightTransferInitRequest
from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
from vllm.engine.arg_utils import EngineArgs

from comas.config.schema import Rollout
from comas.engines.rollout.engine import RolloutEngine
from comas.engines.rollout.engine_thread import EngineThread, RolloutEngineError
from comas.engines.rollout.vllm_options import (
    Device,
    WeightTransfer,
    engine_arguments,
    engine_environment,
)
from comas.engines.rollout.weight_transfer import (
    ObjectStoreTrainerInitInfo,
    ObjectStoreTrainerWeightTransferEngine,
    chunked,
    create_weight_sender,
    trainer_init_info,
)

ROLLOUT = Rollout(
    dtype="bfloat16",
    max_prompt_tokens=1000,
    max_response_tokens=200,
    gpu_memory_utilization=0.4,
    cpu_kv_cache_mib=64,
    max_num_seqs=32,
)


# ---- Settings ----


def test_the_context_holds_the_longest_prompt_and_the_longest_response() -> None:
    transfers: dict[WeightTransfer, Device] = {"object_store": "cpu", "ipc": "cuda", "nccl": "cuda"}
    for transfer, device in transfers.items():
        arguments = engine_arguments(
            "m", rollout=ROLLOUT, device=device, weight_transfer=transfer, seed=5
        )
        assert arguments["max_model_len"] == 1000 + 200
        assert arguments["max_num_seqs"] == 32
        assert arguments["seed"] == 5
        assert arguments["dtype"] == "bfloat16"
        assert arguments["weight_transfer_config"] == {"backend": transfer}
        assert EngineArgs(**arguments).weight_transfer_config.backend == transfer


def test_a_cpu_engine_runs_eagerly_with_the_configured_cache_and_whole_prompts() -> None:
    arguments = engine_arguments(
        "m", rollout=ROLLOUT, device="cpu", weight_transfer="object_store", seed=0
    )
    assert arguments["enforce_eager"]
    assert arguments["kv_cache_memory_bytes"] == 64 * 1024 * 1024
    assert not arguments["enable_chunked_prefill"]
    assert arguments["max_num_batched_tokens"] == 4096
    long = Rollout(max_prompt_tokens=6000, max_response_tokens=1000)
    arguments = engine_arguments(
        "m", rollout=long, device="cpu", weight_transfer="object_store", seed=0
    )
    assert arguments["max_num_batched_tokens"] == 7000  # the longest prompt fits in one step


def test_only_an_engine_that_shares_its_gpu_can_sleep() -> None:
    expected: dict[WeightTransfer, bool] = {"ipc": True, "nccl": False}
    for transfer, can_sleep in expected.items():
        arguments = engine_arguments(
            "m", rollout=ROLLOUT, device="cuda", weight_transfer=transfer, seed=0
        )
        assert arguments["enable_sleep_mode"] is can_sleep
        assert arguments["gpu_memory_utilization"] == 0.4
        assert not arguments.keys() & {"enforce_eager", "kv_cache_memory_bytes"}


def test_no_engine_starts_processes_and_only_cpu_engines_limit_threads() -> None:
    for device in ("cpu", "cuda"):
        assert engine_environment(device)["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert engine_environment("cpu")["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in engine_environment("cuda")
    assert "TORCHDYNAMO_DISABLE" not in engine_environment("cuda")


# ---- The engine's thread ----


class FakeEngine:
    """Finishes a request when ``release`` is set, all in one step; breaks on the prompt "bad"."""

    def __init__(self) -> None:
        self.requests: dict[str, Any] = {}
        self.release = threading.Event()
        self.aborted: list[str] = []
        self.thread = threading.current_thread()
        self.engine_core = SimpleNamespace(shutdown=lambda: self.aborted.append("shutdown"))

    def add_request(self, key: str, prompt: Any, params: Any) -> None:
        assert threading.current_thread() is self.thread
        self.requests[key] = prompt

    def abort_request(self, keys: list[str]) -> None:
        self.aborted += [key for key in keys if self.requests.pop(key, None) is not None]

    def has_unfinished_requests(self) -> bool:
        return bool(self.requests)

    def step(self) -> list[Any]:
        if "bad" in self.requests.values():
            raise OSError("no memory left")
        if not self.release.wait(0.001):
            return []
        outputs = [
            SimpleNamespace(request_id=key, finished=True, answer=f"answer to {prompt}")
            for key, prompt in self.requests.items()
        ]
        self.requests.clear()
        return outputs


def started(engine_of_thread: list[FakeEngine]) -> EngineThread:
    def build() -> Any:
        engine_of_thread.append(FakeEngine())
        return engine_of_thread[0]

    return EngineThread(build, name="The engine")


async def all_but_finish(thread: EngineThread, prompts: list[Any]) -> list[asyncio.Task]:
    """Requests that the engine holds but has not finished."""
    tasks = [asyncio.create_task(thread.generate(prompt, None)) for prompt in prompts]
    await asyncio.sleep(0)
    await thread.call(lambda engine: None)
    return tasks


def test_requests_finish_in_the_loop_that_asked() -> None:
    async def scenario() -> None:
        engines: list[FakeEngine] = []
        thread = started(engines)
        await thread.start()
        tasks = await all_but_finish(thread, ["a", "b"])
        assert thread.num_waiting == 2
        engines[0].release.set()
        assert [output.answer for output in await asyncio.gather(*tasks)] == [
            "answer to a",
            "answer to b",
        ]
        assert thread.num_waiting == 0
        assert await thread.call(lambda engine: len(engine.requests)) == 0
        await thread.close()
        await thread.close()
        assert engines[0].aborted == ["shutdown"]

    asyncio.run(scenario())


def test_a_cancelled_request_is_aborted_and_the_others_go_on() -> None:
    async def scenario() -> None:
        engines: list[FakeEngine] = []
        thread = started(engines)
        await thread.start()
        first, second = await all_but_finish(thread, ["a", "b"])
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert first.cancelled()
        assert await thread.call(lambda engine: list(engine.requests.values())) == ["b"]
        engines[0].release.set()
        assert (await second).answer == "answer to b"
        await thread.close()

    asyncio.run(scenario())


def test_a_failing_step_fails_every_waiting_and_every_later_call() -> None:
    async def scenario() -> None:
        thread = started([])
        await thread.start()
        calls = [thread.generate(prompt, None) for prompt in ("a", "b", "bad")]
        results = await asyncio.gather(*calls, return_exceptions=True)
        message = "The engine cannot serve: OSError: no memory left"
        assert [(type(r), str(r)) for r in results] == [(RolloutEngineError, message)] * 3
        for later in (thread.generate("a", None), thread.call(lambda engine: None)):
            with pytest.raises(RolloutEngineError, match="no memory left"):
                await later
        await thread.close()
        with pytest.raises(RolloutEngineError, match="no memory left"):
            thread.check()

    asyncio.run(scenario())


def test_an_engine_that_does_not_load_fails_its_start() -> None:
    async def scenario() -> None:
        def build() -> Any:
            raise ValueError("max_model_len is too large")

        thread = EngineThread(build, name="The engine")
        with pytest.raises(RolloutEngineError, match="ValueError: max_model_len is too large"):
            await thread.start()
        with pytest.raises(RolloutEngineError, match="max_model_len"):
            await thread.generate("a", None)

    asyncio.run(scenario())


def test_closing_fails_what_still_waits() -> None:
    async def scenario() -> None:
        thread = started([])
        await thread.start()
        tasks = await all_but_finish(thread, ["a"])
        await thread.close()
        with pytest.raises(RolloutEngineError, match="closed"):
            await tasks[0]

    asyncio.run(scenario())


# ---- Sending weights ----


class RecordingClient:
    """Notes the calls of a sender."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def init_weight_transfer_engine(self, init_info: dict) -> None:
        self.calls.append(("init", init_info))

    def start_weight_update(self) -> None:
        self.calls.append(("start", None))

    def update_weights(self, update_info: dict) -> None:
        self.calls.append(("update", update_info))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.calls.append(("finish", weight_version))


class CountingSource(WeightSource):
    """Three tensors of 8, 8 and 2 bytes; counts how often it was gathered."""

    def __init__(self) -> None:
        self.tensors = {
            "a": torch.tensor([1.0, 2.0]),
            "b": torch.tensor([3.0, 4.0]),
            "c": torch.tensor([5.0], dtype=torch.bfloat16),
        }
        self.num_passes = 0

    def metadata(self) -> list[ParamMeta]:
        return [ParamMeta(n, t.dtype, tuple(t.shape)) for n, t in self.tensors.items()]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.tensors.items()
        self.num_passes += 1


def test_chunks_hold_at_most_the_limit_and_a_larger_tensor_stands_alone() -> None:
    weights = [(str(size), torch.zeros(size, dtype=torch.uint8)) for size in (3, 4, 9, 1)]
    chunks = chunked(weights, max_bytes=8)
    assert [[name for name, _ in chunk] for chunk in chunks] == [["3", "4"], ["9"], ["1"]]
    assert list(chunked([], max_bytes=8)) == []


def test_rank_0_sends_one_whole_update_in_chunks() -> None:
    client = RecordingClient()
    sender = ObjectStoreTrainerWeightTransferEngine.trainer_init(
        ObjectStoreTrainerInitInfo(rank=0, chunk_bytes=10), client=client, source=CountingSource()
    )
    sender.send_weights()
    names = [name for name, _ in client.calls]
    assert names == ["init", "start", "update", "update", "finish"]
    first, second = (info for name, info in client.calls if name == "update")
    assert first["names"] == ["a"]  # 8 bytes; "b" would make 16
    assert second["names"] == ["b", "c"]  # 8 + 2
    assert isinstance(first["tensors"][0], np.ndarray)
    assert first["tensors"][0].tolist() == [1.0, 2.0]
    assert second["tensors"][1].dtype == torch.bfloat16


def test_other_ranks_gather_but_say_nothing() -> None:
    client, source = RecordingClient(), CountingSource()
    sender = create_weight_sender(
        "object_store", client=client, source=source, rank=1, num_engines=1
    )
    sender.send_weights()
    sender.send_weights()
    assert client.calls == []
    assert source.num_passes == 2


def test_a_gpu_buffer_holds_the_largest_tensor_and_one_group_holds_all_engines() -> None:
    class LargeSource(CountingSource):
        def metadata(self) -> list[ParamMeta]:  # the embeddings of a 7B model: 1.02 GiB
            return [*super().metadata(), ParamMeta("embed", torch.bfloat16, (152064, 3584))]

    embedding_bytes = 152064 * 3584 * 2
    ipc = trainer_init_info("ipc", source=LargeSource(), rank=0, num_engines=2)
    assert isinstance(ipc, IPCTrainerInitInfo)
    assert (ipc.packed, ipc.packed_buffer_size_bytes) == (True, embedding_bytes)
    nccl = trainer_init_info("nccl", source=LargeSource(), rank=1, num_engines=2)
    assert isinstance(nccl, NCCLTrainerInitInfo)
    assert (nccl.rank, nccl.world_size, nccl.packed) == (1, 3, True)
    assert nccl.packed_buffer_size_bytes == embedding_bytes
    small = trainer_init_info("ipc", source=CountingSource(), rank=0, num_engines=1)
    assert isinstance(small, IPCTrainerInitInfo)
    assert small.packed_buffer_size_bytes == 1 << 30


# ---- GPU phases, on a stand-in for vLLM ----


def gpu_engine(transfer: WeightTransfer, *, engine_index: int = 0) -> tuple[RolloutEngine, list]:
    """A rollout engine whose calls into vLLM are noted instead of made."""
    engine = RolloutEngine(
        "m",
        rollout=ROLLOUT,
        device="cuda",
        weight_transfer=transfer,
        seed=0,
        engine_index=engine_index,
    )
    calls: list[tuple] = []

    def reset_prefix_cache() -> bool:
        calls.append(("reset_prefix_cache",))
        return True

    vllm_engine = SimpleNamespace(
        sleep=lambda level: calls.append(("sleep", level)),
        wake_up=lambda tags: calls.append(("wake_up", tags)),
        collective_rpc=lambda method, kwargs: calls.append((method, kwargs)),
        reset_prefix_cache=reset_prefix_cache,
    )

    async def call(function: Any) -> Any:
        return function(vllm_engine)

    engine._thread = SimpleNamespace(call=call, num_waiting=0)  # type: ignore[assignment]
    return engine, calls


def test_weights_are_woken_and_synced_before_the_kv_cache() -> None:
    engine, calls = gpu_engine("ipc")

    async def phases() -> None:
        await engine.sleep()
        await engine.wake_weights()
        await engine.start_weight_update()
        await engine.finish_weight_update()
        await engine.wake_kv_cache()

    asyncio.run(phases())
    assert calls == [
        ("sleep", 2),
        ("wake_up", ["weights"]),
        ("start_weight_update", {}),
        ("finish_weight_update", {}),
        ("reset_prefix_cache",),
        ("wake_up", ["kv_cache"]),
    ]


def test_each_engine_joins_the_nccl_group_with_a_rank_of_its_own() -> None:
    request = WeightTransferInitRequest({"rank_offset": 1, "world_size": 3})
    ranks = []
    for engine_index in (0, 1):
        engine, calls = gpu_engine("nccl", engine_index=engine_index)
        asyncio.run(engine.init_weight_transfer_engine(request))
        ranks.append(calls[0][1]["init_info"]["rank_offset"])
    assert ranks == [1, 2]


# ---- The real engine ----


@pytest.mark.stack
def test_the_cases_on_real_engines_hold_in_a_process_of_their_own() -> None:
    cases = Path(__file__).with_name("rollout_engine_cases.py")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "--color=no", str(cases)],
        env=os.environ | engine_environment("cpu"),
        cwd=cases.parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout
