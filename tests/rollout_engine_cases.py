"""Cases on real vLLM engines; test_rollout.py runs them in a process of their own.

vLLM changes process-wide state of torch, and reads its environment when the process starts. To run
them alone, set the variables of ``engine_environment("cpu")`` first.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count, cycle
from types import SimpleNamespace
from typing import Any, TypeVar

import builders
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict
from tiny_models import END_OF_TURN, OTHER_END, distributions, random_model, save_tiny_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from comas.config.schema import Lora, Rollout
from comas.engines.cluster.engine_client import EngineClient
from comas.engines.policy.weights import named_weights
from comas.engines.rollout.cpu.shared_weights import send_in_memory
from comas.engines.rollout.engine import RolloutEngine
from comas.engines.rollout.engine_thread import RolloutEngineError
from comas.engines.rollout.vllm_options import Adapters
from comas.types import Generation

pytestmark = pytest.mark.stack

Result = TypeVar("Result")

ROLLOUT = Rollout(
    dtype="float32",
    max_prompt_tokens=300,
    max_response_tokens=24,
    max_num_seqs=64,
    cpu_kv_cache_mib=32,
)
LONG_PROMPT = "x" * 260
"""Fills two blocks of the prefix cache (128 tokens each)."""


class Bench:
    def __init__(self, folder, family, *, adapters=None, tensor_parallel=1) -> None:
        save_tiny_model(folder, family)
        self.folder = folder
        self.family = family
        self.runner = asyncio.Runner()
        self.engine = RolloutEngine(
            str(folder),
            rollout=replace(ROLLOUT, tensor_parallel=tensor_parallel),
            device="cpu",
            weight_transfer="shared_memory",
            seed=0,
            adapters=adapters,
        )
        # In place of the actor, which calls an engine of another process.
        actor = SimpleNamespace(name="the engine", call=self.call)
        self.client = EngineClient(actor)  # type: ignore[arg-type]

    def call(self, method: str, *arguments: Any) -> Awaitable[Any]:
        return getattr(self.engine, method)(*arguments)

    async def ask(self, prompt: str, **asked: Any) -> Generation | None:
        """Ask as the driver does, over a connection."""
        return await self.client.ask(builders.request(prompt, **asked))

    async def until_in_flight(self, num: int) -> None:
        while len(self.engine._asked) < num:
            await asyncio.sleep(0.001)

    def run(self, awaitable: Awaitable[Result]) -> Result:
        async def awaited() -> Result:
            return await awaitable

        return self.runner.run(awaited())

    def generate(self, prompt: str, **asked: Any) -> Generation:
        generation = self.run(self.ask(prompt, **asked))
        assert generation is not None
        return generation

    def generate_all(self, prompts: list[str], *, adapters=(None,)) -> list[Generation]:
        """Ask at once; request i has seed i and, cyclically, one of the adapters."""

        async def together() -> list[Any]:
            asked = zip(count(), prompts, cycle(adapters), strict=False)
            return await asyncio.gather(*(self.ask(p, seed=i, adapter=a) for i, p, a in asked))

        return self.run(together())

    def num_unfinished(self) -> int:
        return self.run(self.engine._thread.call(lambda e: e.get_num_unfinished_requests()))

    def close(self) -> None:
        with suppress(RolloutEngineError):  # of one that broke
            self.run(self.engine._thread.call(lambda e: e.engine_core.shutdown()))
        self.runner.close()


only_tied = pytest.mark.parametrize("bench", ["tied"], indirect=True)


@pytest.fixture(scope="module", params=["untied", "tied"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp(request.param), request.param)
    bench.run(bench.engine.start())
    yield bench
    bench.close()


def send(bench: Bench, model: PreTrainedModel, *, left_out: str | None = None) -> None:
    """Run a weight update as a trainer does, without the parameter ``left_out``."""
    weights = (named for named in named_weights(model) if named[0] != left_out)

    def load(path: str) -> None:
        bench.run(bench.engine.load_weights(path))

    send_in_memory(load, weights, is_first=True)


def largest_difference(model: PreTrainedModel, generation: Generation, t: float = 1.0) -> float:
    """Largest difference to transformers' log-probs of the sampled tokens."""
    with torch.no_grad():
        response = torch.tensor([*generation.response_token_ids])
        reference = distributions(model, generation, t).log_prob(response)
    return (reference - torch.tensor(generation.rollout_logprobs)).abs().max().item()


def load(bench: Bench) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(bench.folder, dtype=torch.float32)


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_logprobs_are_those_of_the_distribution_sampled_from(bench, temperature):
    model = load(bench)
    for seed in range(8):
        generation = bench.generate("What is 48 + 23?", seed=seed, temperature=temperature)
        assert largest_difference(model, generation, temperature) < 1e-4


@only_tied
def test_temperature_zero_takes_the_likeliest_token(bench):
    greedy = bench.generate("What is 48 + 23?", seed=0, temperature=0.0)
    assert greedy == bench.generate("What is 48 + 23?", seed=1, temperature=0.0)
    assert largest_difference(load(bench), greedy) < 1e-4


@only_tied
def test_a_prompt_over_the_limit_gives_none_and_one_at_the_limit_is_answered(bench):
    longest = "x" * (ROLLOUT.max_prompt_tokens - len(bench.generate("", seed=0).prompt_token_ids))
    assert len(bench.generate(longest, seed=0).prompt_token_ids) == ROLLOUT.max_prompt_tokens
    assert bench.run(bench.ask(longest + "x", seed=0)) is None


@only_tied
def test_a_response_stops_at_any_stop_token_of_the_model_or_at_the_limit(bench):
    generations = bench.generate_all(["Say something."] * 200)
    stopped = [g for g in generations if g.finish_reason == "stop"]
    cut_off = [g for g in generations if g.finish_reason == "length"]
    assert len(stopped) + len(cut_off) == 200
    assert {g.response_token_ids[-1] for g in stopped} == {END_OF_TURN, OTHER_END}
    assert {len(g.response_token_ids) for g in cut_off} == {ROLLOUT.max_response_tokens}
    for generation in generations:
        assert not {END_OF_TURN, OTHER_END} & set(generation.response_token_ids[:-1])


@only_tied
def test_no_response_stops_before_the_shortest_length(bench, monkeypatch):
    monkeypatch.setattr(bench.engine, "_rollout", replace(ROLLOUT, min_response_tokens=9))
    generations = bench.generate_all(["Say something."] * 100)
    assert min(len(g.response_token_ids) for g in generations) == 9 + 1
    # The first 9 are sampled from the distribution without stop tokens.
    [one, *_] = (g for g in generations if g.finish_reason == "stop")
    with torch.no_grad():
        logits = distributions(load(bench), one).logits
    logits[:9, [END_OF_TURN, OTHER_END]] = -torch.inf
    response = torch.tensor(list(one.response_token_ids))[:, None]
    expected = logits.log_softmax(-1).gather(1, response)[:, 0]
    assert (expected - torch.tensor(one.rollout_logprobs)).abs().max() < 1e-4


@only_tied
def test_a_response_depends_on_its_seed_and_not_on_its_company(bench):
    # 100 prompts of about 280 tokens: 7 times what a step prefills, twice what it decodes.
    prompts = [f"{i} {LONG_PROMPT}" for i in range(100)]
    together = bench.generate_all(prompts)
    alone = [bench.generate(prompts[i], seed=i) for i in (99, 50, 0)]
    assert alone == [together[99], together[50], together[0]]
    assert bench.generate(prompts[0], seed=1).response_token_ids != alone[2].response_token_ids


def test_after_an_update_the_engine_serves_the_new_weights_only(bench):
    before = bench.generate(LONG_PROMPT, seed=0)
    new, sent = (random_model(bench.family, seed=1) for _ in range(2))
    send(bench, sent)
    for parameter in sent.parameters():  # the engine keeps no view of what it was sent
        parameter.data.zero_()

    after = bench.generate(LONG_PROMPT, seed=0)
    assert largest_difference(new, after) < 1e-4
    assert largest_difference(load(bench), after) > 0.1
    send(bench, load(bench))
    assert bench.generate(LONG_PROMPT, seed=0) == before


@only_tied
def test_cancelling_leaves_no_request_behind(bench):
    async def cancel_all() -> None:
        tasks = [asyncio.create_task(bench.ask("Hello", seed=seed)) for seed in range(50)]
        await bench.until_in_flight(50)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert any(isinstance(result, asyncio.CancelledError) for result in results)
        while bench.engine._asked:
            await asyncio.sleep(0.001)

    bench.run(cancel_all())
    assert bench.num_unfinished() == 0
    assert bench.client.num_asked == 0


def test_what_breaks_an_engine_fails_every_waiting_and_every_later_call(bench):
    """The last test with ``bench``: an error breaks one engine, a lost parameter the other."""

    def break_it(engine: Any) -> None:
        raise OSError("no memory left")

    async def together() -> list[Any]:
        asked = [asyncio.ensure_future(bench.ask("Hello", seed=seed)) for seed in range(5)]
        await bench.until_in_flight(5)
        broken = bench.engine._thread.call(break_it)
        return await asyncio.gather(*asked, broken, return_exceptions=True)

    if bench.family == "untied":
        named, results = "OSError: no memory left", bench.run(together())
        assert [type(result) for result in results] == [RolloutEngineError] * 6
    else:
        named, lost = r"layers\.1\.mlp\.down_proj", "model.layers.1.mlp.down_proj.weight"
        with pytest.raises(RolloutEngineError, match="down_proj"):
            send(bench, random_model("tied", seed=1), left_out=lost)
    for call in (
        bench.ask("Hello", seed=0),
        bench.ask("x" * 1000, seed=0),
        bench.engine.update("start_weight_update"),
    ):
        with pytest.raises(RolloutEngineError, match=named):
            bench.run(call)


def test_a_model_that_does_not_load_is_one_clear_error(tmp_path):
    bench = Bench(tmp_path, "tied")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(RolloutEngineError, match=str(tmp_path)):
        bench.run(bench.engine.start())
    bench.close()


LORA = Lora(rank=4, alpha=12)
PROMPTS = [f"What is {i} + 23?" for i in range(24)]


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)])
def adapted_bench(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Bench]:
    """An engine with adapters of policies 0, 2 and 3, in one and two shards."""
    folder = tmp_path_factory.mktemp("adapted")
    bench = Bench(folder, "tied", adapters=Adapters(LORA, (0, 2, 3)), tensor_parallel=request.param)
    bench.run(bench.engine.start())
    yield bench
    bench.close()


@pytest.fixture
def adapted(adapted_bench: Bench) -> PeftModel:
    """PEFT's random adapters of the three policies, which the engine has loaded."""
    layers = {"target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    config = LoraConfig(r=LORA.rank, lora_alpha=LORA.alpha, **layers)
    model = PeftModel(load(adapted_bench), config, adapter_name="policy_0")
    for policy in ("policy_2", "policy_3"):
        model.add_adapter(policy, config)
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    for policy in (0, 2, 3):
        adapted_bench.run(adapted_bench.engine.load_adapter(policy, adapter_weights(model, policy)))
    return model


def adapter_weights(model: PeftModel, policy: int) -> dict[str, torch.Tensor]:
    state = get_peft_model_state_dict(model, adapter_name=f"policy_{policy}")
    return {name: weight.detach() for name, weight in state.items()}


def difference(model: PeftModel, generation: Generation, adapter: int | None) -> float:
    if adapter is None:
        with model.disable_adapter():
            return largest_difference(model, generation)
    model.set_adapter(f"policy_{adapter}")
    return largest_difference(model, generation)


def test_requests_of_one_batch_are_answered_by_their_own_adapters(adapted_bench, adapted):
    owners: list[int | None] = [0, 2, None, 3]
    together = adapted_bench.generate_all(PROMPTS, adapters=owners)
    for i, generation in enumerate(together):
        assert difference(adapted, generation, owners[i % 4]) < 1e-4
        assert difference(adapted, generation, owners[(i + 1) % 4]) > 1e-2
    alone = [
        adapted_bench.generate(prompt, seed=i, adapter=owners[i % 4])
        for i, prompt in enumerate(PROMPTS[:8])
    ]
    assert alone == together[:8]  # to the last bit


def test_adapters_share_no_prefix(adapted_bench, adapted):
    for adapter in (0, 2, None):
        generation = adapted_bench.generate(LONG_PROMPT, seed=1, adapter=adapter)
        assert difference(adapted, generation, adapter) < 1e-4


def test_a_sent_adapter_replaces_that_of_its_policy_alone(adapted_bench, adapted):
    ask = partial(adapted_bench.generate_all, PROMPTS[:4])
    before = {policy: ask(adapters=[policy]) for policy in (0, 2)}
    adapted_bench.run(adapted_bench.engine.load_adapter(2, adapter_weights(adapted, 3)))
    after = {policy: ask(adapters=[policy]) for policy in (0, 2)}
    assert after[0] == before[0]
    assert all(difference(adapted, generation, 3) < 1e-4 for generation in after[2])
