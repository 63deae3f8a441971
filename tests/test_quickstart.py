"""The quick-start: its questions, worked discussions, build, and tiny agents."""

import hashlib
import json
import re
from pathlib import Path
from random import Random

import pytest
import torch
from small_runs import contents
from tables import cases
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from comas.data import load_questions
from comas.interaction.prompts import SCORING, SOLUTION, fill
from comas.interaction.setup_prompts import user
from comas.quickstart import build, build_society
from comas.quickstart.examples import SCORINGS, Example, discussion_examples
from comas.quickstart.muon import Muon
from comas.quickstart.probe import probe_records
from comas.quickstart.questions import draw_problem, records
from comas.quickstart.tokenizers import CHAT_FORMATS, build_tokenizer, encode_prompts
from comas.quickstart.warm_start import (
    Recipe,
    batch_loss,
    build_model,
    encode_lessons,
    pad_lessons,
    warm_start,
)
from comas.quickstart.worked import slip, work
from comas.quickstart.world import HABITS, MISTAKES, SLIP, UNSEEN, Mixture
from comas.types import DOMAINS
from comas.utils.files import json_lines, write_text
from comas.verification.verifiers import verify


def test_train_and_validation_are_distinct_and_read_as_real_data(tmp_path):
    train = records(seed=0, held_out=False, num_per_domain=800)
    validation = records(seed=0, held_out=True, num_per_domain=100)
    rows = train + validation
    assert len(train) == 2400 and len(validation) == 300
    assert len({row["prompt"] for row in rows}) == len({row["id"] for row in rows}) == 2700
    write_text(tmp_path / "validation.jsonl", json_lines(validation))
    loaded = load_questions(tmp_path / "validation.jsonl")
    assert [question.text for question in loaded.questions] == [row["prompt"] for row in validation]
    assert validation != records(seed=1, held_out=True, num_per_domain=100)


def test_no_held_out_question_has_a_twin_to_train_on():
    def deciding_content(row: dict[str, str]) -> tuple[str, list[str]]:
        """The numbers in the text in any order, but no units, as all convert by sixty."""
        return row["task"], sorted(re.findall(r"\d+", row["prompt"]))

    train = records(seed=0, held_out=False, num_per_domain=800)
    validation = records(seed=0, held_out=True, num_per_domain=100)
    known = list(map(deciding_content, train))
    assert not [row for row in validation if deciding_content(row) in known]
    # Both sides have twins of their own, so the search works.
    assert any(known.count(content) > 1 for content in known)


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize(("domain", "num"), [("math", 100), ("science", 100), ("coding", 2)])
def test_a_solution_has_a_mistake_exactly_when_its_answer_is_wrong(domain, num, held_out):
    """For all kinds, on both sides of the split; science tolerates 5 %."""
    rng = Random(4)
    kinds = {*MISTAKES[domain], UNSEEN} - {SLIP}
    for _ in range(num):
        problem = draw_problem(rng, domain=domain, held_out=held_out)
        for worked in (slip(rng, problem), *(work(problem, kind) for kind in kinds)):
            verdict = verify(domain, worked.text, problem.answer)
            assert verdict == ("wrong" if worked.mistake else "correct"), (problem, worked)


def test_questions_and_lessons_are_those_that_numbers_were_measured_with():
    """Any change makes another society, with other numbers."""
    digest = hashlib.sha256(repr(probe_records(seed=0)).encode())
    for held_out in (False, True):
        digest.update(repr(records(seed=0, held_out=held_out, num_per_domain=100)).encode())
    for model in HABITS:
        rng = Random(0)
        for _ in range(400):
            for example in discussion_examples(rng, Mixture(), model):
                digest.update(repr((example.messages, example.response)).encode())
    assert digest.hexdigest()[:12] == "3f6d0beea664"


def test_the_fingerprint_changes_with_seed_and_code_and_not_with_words(tmp_path):
    code = 'class Recipe:\n    """A recipe."""\n    steps = 1  # few\n'
    sources = [tmp_path / f"{number}/recipe.py" for number in range(3)]
    changed = (code, code.replace("A ", "The ").replace("few", "a few"), code.replace("1", "2"))
    for source, text in zip(sources, changed, strict=True):
        source.parent.mkdir()
        source.write_text(text)
    first, in_other_words, other = (build.fingerprint([source], seed=0) for source in sources)
    assert first == in_other_words != other
    assert first != build.fingerprint(sources[:1], seed=1)
    names = {path.name for path in build.recipe_sources()}
    assert {"prompts.py", "prompts.yaml", "setup_prompts.py", "worked.py", "warm_start.py"} <= names


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, whatever this user has taught."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return build.cache_folder()


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The agents that were taught, in order; each knows how many were taught before."""
    names: list[str] = []

    async def teach(name: str, folder: Path, **_: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights").write_text(f"{name}, after {len(names)}")
        names.append(name)

    monkeypatch.setattr(build, "_warm_start", teach)
    return names


def test_a_society_is_built_once_and_found_again_with_variants_beside_it(tmp_path, taught):
    society = build_society(tmp_path, seed=0)
    assert society.parent == tmp_path / "quickstart"
    first = json.loads((society / "train.jsonl").read_text().splitlines()[0])
    assert first["source"] == "quickstart"
    for _ in range(2):
        assert build_society(tmp_path, seed=0) == society
        assert build_society(tmp_path, seed=0, variants=["llama_shared_3"]) == society
    assert taught == ["qwen2", "llama", "llama_shared_3"]
    assert sorted(path.name for path in (society / "models").iterdir()) == sorted(taught)
    assert sorted(society.parent.iterdir()) == [society.parent / ".lock", society]


def test_an_agent_is_taught_once_for_all_clones_of_a_user(tmp_path, taught):
    one, other = (build_society(tmp_path / clone, seed=0) for clone in ("one", "other"))
    assert contents(one) == contents(other)
    variant = build_society(tmp_path / "one", seed=0, variants=["llama_shared_3"])
    build_society(tmp_path / "other", seed=0, variants=["llama_shared_3"])
    assert contents(variant) == contents(other)
    assert taught == ["qwen2", "llama", "llama_shared_3"]
    build_society(tmp_path / "one", seed=1)
    assert taught[3:] == ["qwen2", "llama"]


@cases(
    "file, text, said",
    ("weights", "half", "do not match"),
    ("weights", None, "do not match"),
    (build.DIGESTS, "{", "Expecting"),
    (build.DIGESTS, None, "No such file"),
)
def test_a_damaged_agent_is_taught_again(tmp_path, taught, cache, caplog, file, text, said):
    society = build_society(tmp_path / "one", seed=0)
    damaged = cache / society.name / "llama" / file
    damaged.unlink() if text is None else damaged.write_text(text)
    again = build_society(tmp_path / "two", seed=0)
    assert taught == ["qwen2", "llama", "llama"]
    assert f"{damaged.parent} is damaged and is taught again: " in caplog.text
    assert said in caplog.text
    assert contents(again / "models") != contents(society / "models")
    assert contents(again) == contents(build_society(tmp_path / "three", seed=0))


def test_a_cache_that_cannot_be_written_costs_no_run(tmp_path, taught, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/x")
    for clone in ("one", "two"):
        build_society(tmp_path / clone, seed=0)
    assert taught == ["qwen2", "llama"] * 2
    assert "Other clones will teach this agent again: cannot write /proc/x/comas" in caplog.text


def test_muon_steps_as_pytorchs_does_up_to_its_rounding():
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (
        [torch.nn.Parameter(torch.zeros(shape)) for shape in ((96, 96), (288, 96), (96, 288))]
        for _ in range(2)
    )
    options = {"lr": 0.02, "momentum": 0.9}
    optimizers = (Muon(ours, **options), torch.optim.Muon(theirs, weight_decay=0.0, **options))
    for _ in range(3):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            other.grad = mine.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for mine, other in zip(ours, theirs, strict=True):
        # bfloat16 has 8 bits, and its errors accumulate over five Newton-Schulz steps.
        assert (mine - other).norm() < 0.05 * other.norm()


@pytest.fixture(scope="module", params=CHAT_FORMATS)
def architecture(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(architecture: str) -> PreTrainedTokenizerFast:
    return build_tokenizer(CHAT_FORMATS[architecture])


def test_encoding_and_decoding_give_the_text_back(tokenizer):
    rng = Random(7)
    texts = [
        text
        for _ in range(10)
        for example in discussion_examples(rng, Mixture(), "qwen2")
        for text in (example.prompt, example.response)
    ]
    texts += ["", "  two  spaces \n\n", "3.14 Ångström → naïve?", "def f(x):\n\treturn {'a': x}"]
    for text in texts:
        token_ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(token_ids, skip_special_tokens=True) == text


def test_a_lesson_is_the_response_and_what_the_prompt_quotes(tokenizer):
    problems = {name: draw_problem(Random(0), domain=name, held_out=True) for name in DOMAINS}
    right = {name: work(problem, None).text for name, problem in problems.items()}
    longest = max(MISTAKES["science"].values(), key=len)
    quoted = {"solution": right["science"], "evaluation": longest}
    prompt = fill(SCORING, "science", question=problems["science"].text, **quoted)
    plain = fill(SOLUTION, "math", question=problems["math"].text)  # quotes none
    examples = [Example((user(prompt),), SCORINGS[1]), Example((user(plain),), right["math"])]
    lesson, other = encode_lessons(tokenizer, examples)
    text = {
        weight: tokenizer.decode([t for t, w in zip(*lesson, strict=True) if w == weight])
        for weight in (0.0, 1.0)
    }
    before, opener, after = prompt.partition("# Solution\n")
    assert text[0.0].endswith(before + opener)
    assert text[1.0].startswith(after) and after.startswith(right["science"])
    assert text[1.0].endswith(SCORINGS[1] + tokenizer.eos_token)
    assert tokenizer.decode(lesson.token_ids) == text[0.0] + text[1.0]
    (prompt_ids,) = encode_prompts(tokenizer, [[user(plain)]])
    num_learned = len(other.token_ids) - len(prompt_ids)
    assert other.weights == [0.0] * len(prompt_ids) + [1.0] * num_learned


def test_neither_padding_nor_neighbours_change_a_lessons_loss(architecture, tokenizer):
    torch.manual_seed(0)
    model = build_model(architecture, tokenizer)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    lessons = encode_lessons(tokenizer, discussion_examples(Random(9), Mixture(), "qwen2"))
    assert len({len(lesson.token_ids) for lesson in lessons}) > 1
    alone = [batch_loss(model, pad_lessons([lesson], tokenizer.pad_token_id)) for lesson in lessons]
    shares = [sum(lesson.weights) for lesson in lessons]
    mean = sum(loss * share for loss, share in zip(alone, shares, strict=True)) / sum(shares)
    together = batch_loss(model, pad_lessons(lessons, tokenizer.pad_token_id))
    torch.testing.assert_close(together, mean)


@pytest.mark.stack
def test_the_seed_decides_the_weights(architecture):
    def weights(seed: int) -> dict[str, torch.Tensor]:
        model, _ = warm_start(architecture, seed=seed, recipe=Recipe(num_steps=3))
        return {name: weight for name, weight in model.state_dict().items() if weight.ndim == 2}

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_a_saved_agent_loads_as_any_model(architecture, tokenizer, tmp_path):
    """transformers loads some tokenizers as another class, which must give the same ids."""
    model = build_model(architecture, tokenizer)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded_tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    rng = Random(8)
    asked = [
        example.messages
        for _ in range(20)
        for example in discussion_examples(rng, Mixture(), "qwen2")
    ]
    asked.append((user("Any other text, e.g. 3.14 → naïve?\n\n  def f(): pass"),))
    assert encode_prompts(loaded_tokenizer, asked) == encode_prompts(tokenizer, asked)
    assert loaded_tokenizer.chat_template == tokenizer.chat_template
    assert loaded.generation_config.eos_token_id == loaded_tokenizer.eos_token_id
    assert loaded_tokenizer.eos_token == tokenizer.eos_token
    assert all(
        torch.equal(weight, model.state_dict()[name])
        for name, weight in loaded.state_dict().items()
    )
