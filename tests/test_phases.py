"""The order and GPU of all calls to engines that share GPUs, with a real Ray that believes in two
GPUs, and engines that only record their calls."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ray

from comas.config.schema import Cluster, Config, Policy, Rollout, Society
from comas.engines.cluster import launch
from comas.engines.cluster.actors import ProcessLocation
from comas.engines.cluster.agents import Agents

pytestmark = pytest.mark.stack

START_S = 0.3
PATIENCE_S = 20.0
SYNC = ["release_cache", "wake weights", "send_weights", "offload_states", "wake kv_cache"]
START = ["start", "sleep", "start", "connect", "load_checkpoint"]


def recording_actors(log: Path) -> tuple[type, type]:
    """Make fakes of both actors, which append (name, call, GPU, start, end) to ``log``; inside a
    function, as Ray's workers cannot import this file."""

    class Recorder:
        name: str

        def record(self, call: str, *, started: float | None = None) -> ProcessLocation:
            now = time.monotonic()
            line = [self.name, call, ray.get_gpu_ids(), started or now, now]
            with log.open("a") as file:
                file.write(json.dumps(line) + "\n")
            return ProcessLocation("node", "127.0.0.1", os.getpid(), log)

    class RecordingRollout(Recorder):
        def __init__(self, model: str, config: Config, *, gpus: str | None, **others: Any) -> None:
            self.name = f"engine of {model}" + (f" on {gpus}" if gpus else "")
            self.is_sharded = gpus is not None

        async def start(self) -> ProcessLocation:
            """Wait until another engine is starting too, for ``PATIENCE_S`` at most."""
            started, starts = time.monotonic(), log.with_name("starts")
            with starts.open("a") as file:
                file.write(f"{self.name}\n")
            while not self.is_sharded and time.monotonic() < started + PATIENCE_S:
                if len(starts.read_text().splitlines()) not in (1, 3):
                    break
                time.sleep(0.01)
            time.sleep(START_S)
            return self.record("start", started=started)

        async def call(self, method: str, *arguments: Any, **named: Any) -> None:
            known = (str(argument) for argument in arguments if argument is not None)
            self.record(" ".join([method, *known]))

    class RecordingPolicy(Recorder):
        def __init__(self, model: str, config: Config, *, rank: int, **others: Any) -> None:
            self.name = f"rank {rank} of {model}"

        def call(self, method: str, *arguments: Any, **named: Any) -> dict[int, None]:
            self.record(method)
            return dict.fromkeys(arguments[0]) if method == "update" else {}

        def open_rendezvous(self) -> Path:
            return log

        def start(self, rendezvous: Path) -> ProcessLocation:
            return self.record("start")

        def connect(self, engines: Any) -> None:
            self.record("connect")

        def send_weights(self, policies: Any) -> None:
            self.record("send_weights")

    return RecordingRollout, RecordingPolicy


class Call(NamedTuple):
    name: str
    call: str
    gpus: list[int]
    begin: float
    end: float


def one_step(log, *, gpus_per_policy, update_every=(1, 1), tensor_parallel=1) -> list[Call]:
    """Return the calls of a run with shared GPUs that is resumed after step 3, up to the sync after
    an update of the policies that are due."""
    num_policies = len(update_every)
    num_engines = gpus_per_policy // tensor_parallel
    config = Config(
        society=Society(num_agents=num_policies, update_every=list(update_every)),
        rollout=Rollout(engines_per_policy=num_engines, tensor_parallel=tensor_parallel),
        policy=Policy(ranks_per_policy=gpus_per_policy),
        cluster=Cluster(policies_per_gpu=2, object_store_mib=80),
    )
    rollout, policy = recording_actors(log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "RolloutActor", rollout)
        patch.setattr(launch, "PolicyActor", policy)
        patch.setattr(ray, "init", partial(ray.init, num_gpus=2, num_cpus=1))
        with Agents(config, models=list("abcd"[:num_policies]), device="cuda") as agents:
            agents.load_checkpoint(log.parent / "checkpoint", step=3)
            agents.sync_weights()
            due = {policy: [] for policy, every in enumerate(update_every) if every == 1}
            agents.sync_weights(agents.begin_update(due, step=5)())
    return [Call(*json.loads(line)) for line in log.read_text().splitlines()]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    return one_step(tmp_path_factory.mktemp("shared") / "calls", gpus_per_policy=2)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """Policies a and b on one GPU, c and d on the other. b is not due, c is frozen."""
    log = tmp_path_factory.mktemp("apart") / "calls"
    return one_step(log, gpus_per_policy=1, update_every=(1, 2, 0, 1))


def start_of(calls: list[Call], name: str, *, gpu: int | None = None) -> Call:
    [start] = (
        call
        for call in calls
        if (call.name, call.call) == (name, "start") and (gpu is None or call.gpus == [gpu])
    )
    return start


def test_policies_that_share_gpus_have_each_rank_on_another_gpu_and_its_engine_beside_it(shared):
    for policy in "ab":
        for index in (0, 1):
            assert start_of(shared, f"rank {index} of {policy}").gpus == [index]
            assert start_of(shared, f"engine of {policy}", gpu=index)


def test_engines_of_one_gpu_start_one_after_another_and_those_of_two_at_once(shared, apart):
    def at_once(one: Call, other: Call) -> bool:
        return one.begin < other.end and other.begin < one.end

    a, b = ([start_of(shared, f"engine of {policy}", gpu=gpu) for gpu in (0, 1)] for policy in "ab")
    assert a[0].end <= b[0].begin
    assert a[1].end <= b[1].begin
    assert at_once(*a)
    assert at_once(*b)
    assert at_once(start_of(apart, "engine of a"), start_of(apart, "engine of c"))


def made(calls: list[Call], policy: str) -> list[str]:
    return [call.call for call in calls if call.name.endswith(f"of {policy}")]


def test_memory_is_given_back_before_the_other_side_of_a_gpu_takes_it(apart):
    assert made(apart, "a") == [*START, *SYNC, "sleep", "reload_states", "update", *SYNC]
    # A policy that is not updated keeps serving; a frozen one is only started.
    assert made(apart, "b") == [*START, *SYNC]
    assert made(apart, "c") == ["start"]


def test_a_sharded_engine_has_the_gpus_of_its_ranks_and_sleeps_while_they_train(tmp_path):
    calls = one_step(tmp_path / "calls", gpus_per_policy=2, tensor_parallel=2)
    for policy in "ab":
        engine = f"engine of {policy} on 0,1"
        assert start_of(calls, engine).gpus == []  # none of Ray's
        for index in (0, 1):
            assert start_of(calls, f"rank {index} of {policy}").gpus == [index]
        names = {call.name for call in calls}
        assert [name for name in names if name.startswith(f"engine of {policy}")] == [engine]
        asked = [call.call for call in calls if call.name == engine]
        assert asked[:2] == ["start", "sleep"]
        wake = ["wake weights", "wake kv_cache"]
        assert asked[2:7] == [*wake, "sleep", *wake]
