"""The embedded default: its questions, worked discussions and build."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from comas.data import load_questions
from comas.interaction.prompts import APPROVALS, SCORING, fill
from comas.interaction.setup_prompts import TERMINATE, user
from comas.quickstart import build, build_society
from comas.quickstart.examples import discussion_examples
from comas.quickstart.muon import Muon
from comas.quickstart.questions import (
    HELD_OUT_ONE_IN,
    Problem,
    draw_problem,
    is_held_out,
    records,
)
from comas.quickstart.setup_examples import setup_example
from comas.quickstart.tokenizers import encode_prompts
from comas.quickstart.worked import (
    MISTAKES,
    SCORINGS,
    UNSEEN,
    Example,
    Mixture,
    Worked,
    evaluate,
    evaluations,
    score,
    solve,
    work,
)
from comas.reward_formulation.interaction_reward import parse_score
from comas.reward_formulation.judgment_reward import parse_judgment
from comas.types import DOMAINS, Domain, Message
from comas.utils import files
from comas.utils.files import json_lines, write_text
from comas.verification.verifiers import verify

SUM = Problem("math", "What is 48 + 23?", "71", (48, 23))
CONVERSION = Problem("science", "How many minutes are 7 h 43 min?", "463", (7, 43))
FUNCTION = Problem(
    "coding",
    "Write count(), which returns how many numbers the range has.\n\n"
    "def test_count():\n    assert count() == len(range(4, 41))",
    "def test_count():\n    assert count() == len(range(4, 41))\n\ntest_count()\n",
    (4, 41),
)
RIGHT = {
    "math": "8+3=11, 4+2=6, 6+1=7. \\boxed{71}",
    "science": "7*60=420, 420+43=463. \\boxed{463}",
    "coding": "The end minus the start.\n```python\ndef count():\n    return 41 - 4\n```",
}
WRONG = {
    "math": {
        "carry lost": "8+3=11, 4+2=6. \\boxed{61}",
        "carry joined": "8+3=11, 4+2=6, 6 11. \\boxed{611}",
        "tens left out": "8+3=11. \\boxed{11}",
        "second left out": "48. \\boxed{48}",
        "joined": "48 23. \\boxed{4823}",
        UNSEEN: "8+3=11, 4+2=6, 6+1=7. \\boxed{7171}",
    },
    "science": {
        "factor 100": "7*100=700, 700+43=743. \\boxed{743}",
        "factor 1000": "7*1000=7000, 7000+43=7043. \\boxed{7043}",
        "rest left out": "7*60=420. \\boxed{420}",
        "rest alone": "43. \\boxed{43}",
        "joined": "7*60=420, 43. \\boxed{42043}",
        UNSEEN: "7*60=420, 420+43=463. \\boxed{463463}",
    },
    "coding": {
        kind: RIGHT["coding"].replace("return 41 - 4", statement)
        for kind, statement in {
            "one added": "return 41 - 4 + 1",
            "start left out": "return 41",
            "start added": "return 41 + 4",
            "start multiplied": "return 41 * 4",
            "not returned": "print(41 - 4)",
            UNSEEN: "return 41 - 4 - 4",
        }.items()
    },
}
BUILDS_WHEN_TOLD = """
import asyncio, sys
from pathlib import Path
from comas.quickstart import build

async def teach(models, *, seed):
    (models / "qwen2").mkdir(parents=True)
    print("teaching", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    (models / "theirs").mkdir()

build._warm_start_all = teach
build.build_society(Path(sys.argv[1]), seed=int(sys.argv[2]))
"""
PROBLEMS = {problem.domain: problem for problem in (SUM, CONVERSION, FUNCTION)}


# ---- Questions ----


def test_answers_are_right() -> None:
    rng = Random(1)
    for _ in range(200):
        a, b = (problem := draw_problem(rng, domain="math", held_out=False)).numbers
        assert problem.answer == str(a + b)
        assert problem.text == f"What is {a} + {b}?"
        large, small = (problem := draw_problem(rng, domain="science", held_out=False)).numbers
        assert int(problem.answer) == large * 60 + small
        assert f" {large} " in problem.text and f" {small} " in problem.text


def test_the_coding_checker_accepts_the_number_of_numbers_only() -> None:
    rng = Random(2)
    for _ in range(50):
        problem = draw_problem(rng, domain="coding", held_out=False)
        number = len(list(range(*problem.numbers)))
        exec(problem.answer, {"count": lambda number=number: number})
        for wrong in (number - 1, number + 1):
            with pytest.raises(AssertionError):
                exec(problem.answer, {"count": lambda wrong=wrong: wrong})
        assert problem.text.endswith(problem.answer.removesuffix("\n\ntest_count()\n"))


def test_train_and_validation_are_distinct_and_read_as_real_data(tmp_path: Path) -> None:
    train = records(seed=0, held_out=False, num_per_domain=800)
    validation = records(seed=0, held_out=True, num_per_domain=100)
    rows = train + validation
    assert len(train) == 2400 and len(validation) == 300
    assert len({row["prompt"] for row in rows}) == len({row["id"] for row in rows}) == 2700
    write_text(tmp_path / "validation.jsonl", json_lines(validation))
    loaded = load_questions(tmp_path / "validation.jsonl")
    assert [question.text for question in loaded.questions] == [row["prompt"] for row in validation]
    assert [question.domain for question in loaded.questions[:4]] == [*DOMAINS, DOMAINS[0]]
    assert loaded.answers == {row["id"]: row["answer"] for row in validation}
    assert validation == records(seed=0, held_out=True, num_per_domain=100)
    assert validation != records(seed=1, held_out=True, num_per_domain=100)


def deciding_content(row: dict[str, str]) -> tuple[str, list[str]]:
    """What decides the answer, read from the text: the numbers, in any order, as a sum is the same
    both ways; and not the units, which all go by sixty."""
    return row["task"], sorted(re.findall(r"\d+", row["prompt"]))


def test_no_held_out_question_has_a_twin_to_train_on() -> None:
    for seed in range(3):
        train = records(seed=seed, held_out=False, num_per_domain=800)
        validation = records(seed=seed, held_out=True, num_per_domain=100)
        known = list(map(deciding_content, train))
        assert not [row for row in validation if deciding_content(row) in known]
        # Twins there are, on either side: so the search does find what is there.
        assert any(known.count(content) > 1 for content in known)


def test_both_sides_of_the_split_have_every_form_of_question() -> None:
    for held_out in (False, True):
        rows = records(seed=0, held_out=held_out, num_per_domain=100)
        forms = {re.sub(r"\d+", "#", row["prompt"]) for row in rows}
        assert len(forms) == 4
        sums = [deciding_content(row)[1] for row in rows if row["task"] == "math"]
        carries = [int(a) % 10 + int(b) % 10 >= 10 for a, b in sums]
        assert 0.5 < sum(carries) / len(carries) < 0.9


def test_about_one_in_five_questions_is_held_out_whatever_its_last_digit() -> None:
    """Of the 405 sums with one last digit 81 are expected: 3 standard deviations are 24."""
    for digit in range(10):
        sums = [
            Problem("math", "", "", (a, b))
            for a in range(10, 100)
            for b in range(a, 100)
            if (a + b) % 10 == digit
        ]
        num_held_out = sum(map(is_held_out, sums))
        assert abs(num_held_out - len(sums) / HELD_OUT_ONE_IN) < 24


# ---- Worked discussions ----


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_kind_of_mistake_makes_a_solution_wrong(domain: Domain) -> None:
    problem = PROBLEMS[domain]
    assert work(problem, None) == Worked(RIGHT[domain], None)
    assert verify(domain, RIGHT[domain], problem.answer) == "correct"
    assert set(WRONG[domain]) == {*MISTAKES[domain], UNSEEN}
    for kind, text in WRONG[domain].items():
        assert work(problem, kind) == Worked(text, kind)
        assert verify(domain, text, problem.answer) == "wrong"


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("domain", ["math", "science"])
def test_a_solution_has_a_mistake_exactly_when_its_answer_is_wrong(
    domain: Domain, held_out: bool
) -> None:
    """Over all kinds, on both sides of the split; science forgives 5 %."""
    rng = Random(4)
    seen = set()
    for _ in range(500):
        problem = draw_problem(rng, domain=domain, held_out=held_out)
        for kind in (None, *MISTAKES[domain], UNSEEN):
            worked = work(problem, kind)
            seen.add(worked.mistake)
            verdict = verify(domain, worked.text, problem.answer)
            assert verdict == ("wrong" if worked.mistake else "correct"), (problem, worked)
    assert seen == {None, *MISTAKES[domain], UNSEEN}


def test_a_mistake_that_cannot_happen_is_not_made() -> None:
    free_of_carries = Problem("math", "What is 41 + 23?", "64", (41, 23))
    right = Worked("1+3=4, 4+2=6. \\boxed{64}", None)
    assert work(free_of_carries, "carry lost") == right
    made = {solve(Random(i), free_of_carries, mistake=1.0).mistake for i in range(50)}
    assert made == {"tens left out", "second left out", "joined"}


def test_solvers_make_every_kind_of_mistake_as_often_as_they_are_told() -> None:
    """3000 draws; the standard deviation of a share of 0.1 is 0.006."""
    rng = Random(5)
    drawn = [solve(rng, SUM, mistake=0.5, unseen_mistake=0.1).mistake for _ in range(3000)]
    shares = {kind: drawn.count(kind) / len(drawn) for kind in (None, *MISTAKES["math"], UNSEEN)}
    expected = {None: 0.4, UNSEEN: 0.1} | dict.fromkeys(MISTAKES["math"], 0.1)
    assert shares == pytest.approx(expected, abs=0.03)


def test_nobody_is_ever_shown_the_unseen_kind() -> None:
    """Solvers that make no other mistake learn to make it, but no prompt quotes it."""
    mixture = Mixture(unseen_mistake=1.0)
    rng = Random(8)
    num_made = 0
    for _ in range(300):
        for example in discussion_examples(rng, mixture):
            prompt, response = example.prompt, example.response
            if asked := re.search(r"What is (\d+) \+ (\d+)\?", prompt):
                a, b = map(int, asked.groups())
                made = work(Problem("math", "", "", (a, b)), UNSEEN)
                assert made.text not in prompt
                num_made += made == Worked(response, UNSEEN)
    assert num_made > 50


def test_an_evaluator_names_the_mistake_or_errs_with_anything_but_the_truth() -> None:
    for domain in DOMAINS:
        for mistake, truth in {None: APPROVALS[domain], **MISTAKES[domain]}.items():
            worked = Worked("", mistake)
            assert evaluate(Random(0), domain, worked, errs=0.0) == truth
            said = {evaluate(Random(i), domain, worked, errs=1.0) for i in range(100)}
            assert said == set(evaluations(domain)) - {truth}


CARRY_LOST, JOINED = MISTAKES["math"]["carry lost"], MISTAKES["math"]["joined"]


@pytest.mark.parametrize(
    ("mistake", "evaluation", "sure", "errs", "undecided"),
    [
        ("carry lost", CARRY_LOST, 1, 3, 2),
        ("carry lost", JOINED, 3, 1, 2),
        (None, JOINED, 3, 1, 2),
        ("carry lost", APPROVALS["math"], 3, 3, 3),  # believed without a look
    ],
)
def test_a_scorer_checks_accusations_alone(
    mistake: str | None, evaluation: str, sure: int, errs: int, undecided: int
) -> None:
    for mixture, number in (
        (Mixture(scorer_errs=0.0, scorer_undecided=0.0), sure),
        (Mixture(scorer_errs=1.0, scorer_undecided=0.0), errs),
        (Mixture(scorer_undecided=1.0), undecided),
    ):
        worked = Worked("", mistake)
        said = score(Random(0), "math", worked, evaluation=evaluation, mixture=mixture)
        assert said == SCORINGS[number]


def test_what_ablations_ask_is_taught_too() -> None:
    """Of a correct judgment the evaluation approves, and a scorer that is told nothing believes."""
    rng = Random(11)
    said: dict[str, set[str | int | None]] = {"judgment": set(), "score": set()}
    for _ in range(200):
        for example in discussion_examples(rng, Mixture(ablation=1.0)):
            prompt, response = example.prompt, example.response
            if "<judgment>" in prompt:
                judgment = parse_judgment(response)
                is_approval = response.split(" <")[0] in APPROVALS.values()
                assert judgment == ("correct" if is_approval else "incorrect")
                said["judgment"].add(judgment)
            elif "<score>" in prompt and "# Evaluation" not in prompt:
                said["score"].add(parse_score(response))
            assert "## Evaluation of it" not in prompt or "You are a strict critic" in prompt
    assert said == {"judgment": {"correct", "incorrect"}, "score": {3}}


def conversations(*, mixture: Mixture, role: str) -> list[Example]:
    """What setups teach whom the system prompt makes AutoGen's assistant, or those whom it does
    not ("proxy": who sees the question as said by itself; "solver": everybody else)."""
    rng = Random(12)
    problems = [draw_problem(rng, domain=rng.choice(DOMAINS), held_out=False) for _ in range(600)]
    first = {"assistant": "system", "proxy": "assistant", "solver": "user"}[role]
    drawn = [setup_example(rng, problem, mixture) for problem in problems]
    return [example for example in drawn if example.messages[0]["role"] == first]


@pytest.mark.parametrize("role", ["assistant", "solver"])
def test_solvers_err_in_setups_as_anywhere(role: str) -> None:
    """400 and 200 draws; the standard deviation of a share of 0.5 of 200 is 0.035."""
    drawn = conversations(mixture=Mixture(mistake=0.5, unseen_mistake=0.0), role=role)
    right = {work(problem_of(example), None).text for example in drawn}
    share = sum(example.response in right for example in drawn) / len(drawn)
    assert share == pytest.approx(0.5, abs=0.15)
    assert {TERMINATE} & {example.response for example in drawn} == set()


def test_a_user_proxy_names_the_mistake_or_ends_the_conversation() -> None:
    said = set()
    for example in conversations(mixture=Mixture(evaluator_errs=0.0), role="proxy"):
        problem = problem_of(example)
        named = MISTAKES[problem.domain]
        mistake_in = dict(work(problem, kind) for kind in (None, *named))
        mistake = mistake_in[example.messages[-1]["content"]]
        assert example.response == (named[mistake] if mistake else TERMINATE)
        said.add(example.response)
        # What it has said itself before was a mistake's name, never the end.
        earlier = [m["content"] for m in example.messages[1:] if m["role"] == "assistant"]
        assert set(earlier) <= set(named.values())
    assert TERMINATE in said
    assert len(said) > 10


def problem_of(example: Example) -> Problem:
    """The problem that a conversation of a setup is about."""
    text = example.prompt
    if asked := re.search(r"What is (\d+) \+ (\d+)\?", text):
        domain: Domain = "math"
    elif asked := re.search(r"are (\d+) (?:h|min) (\d+) (?:min|s)\?", text):
        domain = "science"
    else:
        asked = re.search(r"len\(range\((\d+), (\d+)\)\)", text)
        domain = "coding"
    assert asked is not None
    first, second = map(int, asked.groups())
    return Problem(domain, text, "", (first, second))


def test_every_scoring_can_be_parsed() -> None:
    assert {number: parse_score(text) for number, text in SCORINGS.items()} == {1: 1, 2: 2, 3: 3}


def test_worked_discussions_never_show_a_held_out_question() -> None:
    held_out = [row["prompt"] for row in records(seed=0, held_out=True, num_per_domain=100)]
    rng = Random(6)
    prompts = [
        example.prompt for _ in range(300) for example in discussion_examples(rng, Mixture())
    ]
    assert not [text for text in held_out if any(f"\n{text}\n" in prompt for prompt in prompts)]
    # The same search does find a question that is there.
    assert any("\nWhat is " in prompt for prompt in prompts)


# ---- Build ----


def test_the_fingerprint_changes_with_seed_and_recipe(tmp_path: Path) -> None:
    source = tmp_path / "recipe.py"
    source.write_text("steps = 1\n")
    before = build.fingerprint([source], seed=0)
    assert before == build.fingerprint([source], seed=0)
    assert before != build.fingerprint([source], seed=1)
    source.write_text("steps = 2\n")
    assert before != build.fingerprint([source], seed=0)
    names = {path.name for path in build.recipe_sources()}
    assert {"prompts.py", "setup_prompts.py", "worked.py", "warm_start.py", "models.py"} <= names


async def _pretend_warm_start(models: Path, *, seed: int) -> None:
    for architecture in build.ARCHITECTURES:
        (models / architecture).mkdir(parents=True)


@pytest.mark.parametrize("architecture", build.ARCHITECTURES)
def test_a_scorer_believes_every_approval(society: Path, architecture: str) -> None:
    """Else a mistake costs the solver its reward though nobody has named it: a run with muted
    evaluators learns as well, and the quick-start shows nothing of criticism."""
    folder = society / "models" / architecture
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [list(conversation) for conversation in approved_mistakes()]
    right = tokenizer(SCORINGS[3], add_special_tokens=False)["input_ids"][0]
    with torch.no_grad():
        believing = [
            model(input_ids=torch.tensor([prompt])).logits[0, -1].softmax(-1)[right].item()
            for prompt in encode_prompts(tokenizer, prompts)
        ]
    assert min(believing) > 0.9


def approved_mistakes() -> Iterator[list[Message]]:
    """What a scorer is asked: two solutions with each kind of mistake, and all are approved."""
    rng = Random(14)
    for domain, mistakes in MISTAKES.items():
        for mistake in [*mistakes, UNSEEN] * 2:
            worked = Worked("", None)
            while worked.mistake is None:
                problem = draw_problem(rng, domain=domain, held_out=True)
                worked = work(problem, mistake)
            texts = {"question": problem.text, "solution": worked.text}
            yield [user(fill(SCORING, domain, **texts, evaluation=APPROVALS[domain]))]


def test_a_society_is_built_once_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_warm_start_all", _pretend_warm_start)
    society = build_society(tmp_path, seed=0)
    assert society.parent == tmp_path / "quickstart"
    assert (society / "models/qwen2").is_dir() and (society / "models/llama").is_dir()
    first = json.loads((society / "train.jsonl").read_text().splitlines()[0])
    assert first["source"] == "quickstart"
    monkeypatch.setattr(build, "_warm_start_all", None)
    assert build_society(tmp_path, seed=0) == society
    assert sorted(society.parent.iterdir()) == [society.parent / ".lock", society]


def test_an_interrupted_build_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(models: Path, *, seed: int) -> None:
        models.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "_warm_start_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_society(tmp_path, seed=0)
    assert list((tmp_path / "quickstart").iterdir()) == [tmp_path / "quickstart/.lock"]
    monkeypatch.setattr(build, "_warm_start_all", _pretend_warm_start)
    assert (build_society(tmp_path, seed=0) / "models/llama").is_dir()


@contextmanager
def _build_under_way(root: Path, *, seed: int) -> Iterator[subprocess.Popen]:
    """Another process that builds a society, and ends it when it reads a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUILDS_WHEN_TOLD, str(root), str(seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"teaching\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("killed_seed", [0, 1])
def test_the_next_build_removes_what_a_killed_one_left(
    killed_seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with _build_under_way(tmp_path, seed=killed_seed) as killed:
        assert len(list((tmp_path / "quickstart").iterdir())) == 2
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    monkeypatch.setattr(build, "_warm_start_all", _pretend_warm_start)
    society = build_society(tmp_path, seed=0)
    assert sorted(society.parent.iterdir()) == [society.parent / ".lock", society]


@pytest.mark.parametrize(("seed", "taught"), [(0, ["qwen2", "theirs"]), (1, ["llama", "qwen2"])])
def test_a_build_waits_for_another_and_takes_the_society_if_it_is_the_same(
    seed: int,
    taught: list[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(build, "_warm_start_all", _pretend_warm_start)
    caplog.set_level(logging.INFO, logger=files.log.name)
    with _build_under_way(tmp_path, seed=0) as other:

        def let_it_end(record: logging.LogRecord) -> bool:
            assert f"process {other.pid}" in record.getMessage()
            other.communicate(b"\n")
            return True

        monkeypatch.setattr(files.log, "filters", [let_it_end])
        society = build_society(tmp_path, seed=seed)
        assert other.returncode == 0
    assert sorted(folder.name for folder in (society / "models").iterdir()) == taught


def test_muon_steps_as_pytorchs_does_up_to_its_rounding() -> None:
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
        # bfloat16 keeps 8 bits, and its errors add up over five Newton-Schulz steps.
        assert (mine - other).norm() < 0.05 * other.norm()


@pytest.mark.stack
def test_a_failing_warm_start_says_why_and_stops_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = []
    create = asyncio.create_subprocess_exec

    async def recorded(*arguments: str, **options: object) -> asyncio.subprocess.Process:
        processes.append(await create(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", recorded)
    monkeypatch.setattr(build, "ARCHITECTURES", ("qwen2", "mamba"))
    with pytest.raises(RuntimeError, match=r"the mamba agent failed(.|\n)*invalid choice: 'mamba'"):
        asyncio.run(build._warm_start_all(tmp_path / "models", seed=0))
    assert [process.returncode for process in processes] == [-9, 2]
    assert not (tmp_path / "models").exists()
