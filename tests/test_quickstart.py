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
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from comas.data import load_questions
from comas.interaction.prompts import APPROVALS
from comas.interaction.setup_prompts import TERMINATE
from comas.quickstart import build, build_society
from comas.quickstart.examples import discussion_examples
from comas.quickstart.muon import Muon
from comas.quickstart.questions import (
    FUNCTIONS,
    HELD_OUT_ONE_IN,
    NUM_WORDINGS,
    Problem,
    draw_problem,
    is_held_out,
    make_problem,
    problem_of,
    records,
)
from comas.quickstart.setup_examples import setup_example
from comas.quickstart.worked import (
    SCORINGS,
    Example,
    Worked,
    evaluate,
    mistaken,
    score,
    slip,
    solve,
    work,
)
from comas.quickstart.world import HABITS, MISTAKES, SLIP, UNSEEN, Doubt, Mixture
from comas.reward_formulation.interaction_reward import parse_score
from comas.reward_formulation.judgment_reward import parse_judgment
from comas.reward_formulation.self_rewarding import parse_rating
from comas.types import DOMAINS, Domain
from comas.utils import files
from comas.utils.files import json_lines, write_text
from comas.verification.verifiers import verify

SUM = Problem("math", "What is 48 + 23?", "71", (48, 23), 0)
CONVERSION = Problem("science", "How many minutes are 7 h 43 min?", "463", (7, 43), 0)
FUNCTION = Problem(
    "coding",
    "Write count(), which returns how many numbers the range has.\n\n"
    "def test_count():\n    assert count() == len(range(4, 41))",
    "def test_count():\n    assert count() == len(range(4, 41))\n\ntest_count()\n",
    (4, 41),
    0,
)
RIGHT = {
    "math": "The result: 8+3=11, 4+2=6, 6+1=7. \\boxed{71}",
    "science": "In minutes: 7*60=420, 420+43=463. \\boxed{463}",
    "coding": "The end minus the start.\n```python\ndef count():\n    return 41 - 4\n```",
}
WRONG = {
    "math": {
        "carry lost": "The result: 8+3=11, 4+2=6. \\boxed{61}",
        "carry joined": "The result: 8+3=11, 4+2=6, 6 11. \\boxed{611}",
        "tens left out": "The result: 8+3=11. \\boxed{11}",
        "second left out": "The result: 48. \\boxed{48}",
        "joined": "The result: 48 23. \\boxed{4823}",
        "ones left out": "The result: 8+3=11, 4+2=6, 6+1=7. \\boxed{70}",
        UNSEEN: "The result: 8+3=11, 4+2=6, 6+1=7. \\boxed{7171}",
    },
    "science": {
        "factor 10": "In minutes: 7*10=70, 70+43=113. \\boxed{113}",
        "factor 100": "In minutes: 7*100=700, 700+43=743. \\boxed{743}",
        "factor 1000": "In minutes: 7*1000=7000, 7000+43=7043. \\boxed{7043}",
        "rest left out": "In minutes: 7*60=420. \\boxed{420}",
        "rest alone": "In minutes: 43. \\boxed{43}",
        "joined": "In minutes: 7*60=420, 43. \\boxed{42043}",
        UNSEEN: "In minutes: 7*60=420, 420+43=463. \\boxed{463463}",
    },
    "coding": {
        kind: f"{plan}\n```python\ndef count():\n    {statement}\n```"
        for kind, plan, statement in [
            ("one added", "The end minus the start, plus one.", "return 41 - 4 + 1"),
            ("start left out", "The end.", "return 41"),
            ("start added", "The end plus the start.", "return 41 + 4"),
            ("start multiplied", "The end times the start.", "return 41 * 4"),
            ("turned round", "The start minus the end.", "return 4 - 41"),
            ("not returned", "The end minus the start.", "print(41 - 4)"),
            (UNSEEN, "The end minus the start, twice.", "return 41 - 4 - 4"),
        ]
    },
}
NEVER_ERRS = Mixture(overlooks_own=0.0, overlooks=0.0, misnames=0.0, accuses=0.0)
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
        assert re.findall(r"\d+", problem.text) == [str(a), str(b)]
        large, small = (problem := draw_problem(rng, domain="science", held_out=False)).numbers
        assert int(problem.answer) == large * 60 + small
        assert f" {large} " in problem.text and f" {small} " in problem.text


def test_the_coding_checker_accepts_the_number_of_numbers_only() -> None:
    rng = Random(2)
    for _ in range(50):
        problem = draw_problem(rng, domain="coding", held_out=False)
        name = FUNCTIONS[problem.wording]
        number = len(list(range(*problem.numbers)))
        exec(problem.answer, {name: lambda number=number: number})
        for wrong in (number - 1, number + 1):
            with pytest.raises(AssertionError):
                exec(problem.answer, {name: lambda wrong=wrong: wrong})


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_prompt_says_which_problem_it_is_about(domain: Domain) -> None:
    rng = Random(4)
    for _ in range(100):
        problem = draw_problem(rng, domain=domain, held_out=False)
        assert problem_of(f"# Problem\n{problem.text}\n\n# Discussion so far") == problem
    with pytest.raises(ValueError, match="Ada"):
        problem_of("Who was Ada?")


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
        assert len(forms) == 3 * NUM_WORDINGS
        sums = [deciding_content(row)[1] for row in rows if row["task"] == "math"]
        carries = [int(a) % 10 + int(b) % 10 >= 10 for a, b in sums]
        assert 0.7 < sum(carries) / len(carries) < 1


def test_about_one_in_five_questions_is_held_out_whatever_its_last_digit() -> None:
    """Of the 405 sums with one last digit 81 are expected: 3 standard deviations are 24."""
    for digit in range(10):
        sums = [
            make_problem("math", (a, b), 0)
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
    assert set(WRONG[domain]) == {*MISTAKES[domain], UNSEEN} - {SLIP}
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
    kinds = {*MISTAKES[domain], UNSEEN} - {SLIP}
    for _ in range(500):
        problem = draw_problem(rng, domain=domain, held_out=held_out)
        for worked in (work(problem, None), slip(rng, problem), *(work(problem, k) for k in kinds)):
            seen.add(worked.mistake)
            verdict = verify(domain, worked.text, problem.answer)
            assert verdict == ("wrong" if worked.mistake else "correct"), (problem, worked)
    assert seen == {None, SLIP, *kinds}


def test_a_mistake_that_cannot_happen_is_not_made() -> None:
    free_of_carries = make_problem("math", (41, 23), 0)
    right = Worked("The result: 1+3=4, 4+2=6. \\boxed{64}", None)
    assert work(free_of_carries, "carry lost") == right
    shown = {worked.mistake for worked in mistaken(free_of_carries)}
    assert shown == {"tens left out", "second left out", "joined", "ones left out"}


def test_a_slip_is_one_digit_of_the_right_way() -> None:
    said = {slip(Random(i), CONVERSION).text for i in range(300)}
    assert "In minutes: 7*60=420, 420+43=463. \\boxed{563}" in said  # miswritten
    assert "In minutes: 7*60=420, 420+83=503. \\boxed{503}" in said  # miscopied
    assert RIGHT["science"] not in said
    assert "In minutes: 7*60=420, 420+43=463. \\boxed{465}" not in said  # within 5 %


@pytest.mark.parametrize("model", HABITS)
@pytest.mark.parametrize("wording", range(NUM_WORDINGS))
def test_a_solvers_mistakes_are_mostly_its_habit_with_such_questions(
    model: str, wording: int
) -> None:
    """3000 draws; the standard deviation of a share of 0.5 is 0.01."""
    rng = Random(5)
    mixture = Mixture(habit=0.5, other_mistake=0.1, unseen_mistake=0.05)
    problem = make_problem("math", (48, 23), wording)
    drawn = [solve(rng, problem, model, mixture).mistake for _ in range(3000)]
    shares = {kind: drawn.count(kind) / len(drawn) for kind in {*drawn}}
    habit = HABITS[model]["math"][wording]
    others = {*MISTAKES["math"]} - {SLIP, habit}
    expected = {None: 0.35, habit: 0.5, UNSEEN: 0.05} | dict.fromkeys(others, 0.1 / 6)
    expected[habit] += 0.1 / 6
    assert shares == pytest.approx(expected, abs=0.04)


def test_models_have_no_habit_in_common_and_judges_know_them_all() -> None:
    for domain in DOMAINS:
        habits = [kind for of_model in HABITS.values() for kind in of_model[domain]]
        assert len(set(habits)) == len(habits) == 2 * NUM_WORDINGS
        assert set(habits) <= set(MISTAKES[domain]) - {SLIP}


def test_nobody_is_ever_shown_the_unseen_kind() -> None:
    """Solvers that make no other mistake learn to make it, but no prompt quotes it."""
    mixture = Mixture(habit=0.0, other_mistake=0.0, unseen_mistake=1.0)
    rng = Random(8)
    num_made = 0
    for _ in range(300):
        for example in discussion_examples(rng, mixture, "qwen2"):
            made = work(problem_of(example.prompt), UNSEEN)
            assert made.text not in example.prompt
            num_made += made == Worked(example.response, UNSEEN)
    assert num_made > 50


@pytest.mark.parametrize("domain", DOMAINS)
def test_an_evaluator_overlooks_misnames_and_accuses_as_often_as_it_is_told(domain: Domain) -> None:
    own, other = HABITS["qwen2"][domain][0], HABITS["llama"][domain][0]

    def said(mistake: str | None, **shares: float) -> set[str]:
        mixture = replace(NEVER_ERRS, **shares)
        worked = Worked("", mistake)
        return {evaluate(Random(i), domain, worked, "qwen2", mixture) for i in range(100)}

    named = MISTAKES[domain]
    for mistake, truth in {None: APPROVALS[domain], **named}.items():
        assert said(mistake) == {truth}
    assert said(own, overlooks_own=1.0) == {APPROVALS[domain]} == said(other, overlooks=1.0)
    assert said(other, overlooks_own=1.0) == {named[other]}
    assert said(own, misnames=1.0) == set(named.values()) - {named[own]}
    assert said(None, accuses=1.0) == set(named.values())


CARRY_LOST, JOINED = MISTAKES["math"]["carry lost"], MISTAKES["math"]["joined"]


@pytest.mark.parametrize(
    ("mistake", "evaluation", "shown"),
    [
        ("carry lost", None, "nothing"),
        ("carry lost", APPROVALS["math"], "approval"),
        ("carry lost", CARRY_LOST, "true_accusation"),
        ("carry lost", JOINED, "false_accusation"),
        (None, None, "nothing"),
        (None, APPROVALS["math"], "approval"),
        (None, JOINED, "false_accusation"),
    ],
)
def test_a_scorer_doubts_by_what_it_is_shown(
    mistake: str | None, evaluation: str | None, shown: str
) -> None:
    never = Doubt(0.0, 0.0, 0.0, 0.0)
    for share, undecided, number in ((1.0, 0.0, 1), (0.0, 0.0, 3), (0.0, 1.0, 2)):
        doubt = never._replace(**{shown: share})
        mixture = Mixture(
            doubts_wrong=doubt if mistake else never,
            doubts_right=never if mistake else doubt,
            scorer_undecided=undecided,
        )
        worked = Worked("", mistake)
        said = score(Random(0), "math", worked, evaluation=evaluation, mixture=mixture)
        assert said == SCORINGS[number]


def test_what_ablations_ask_is_taught_too() -> None:
    """Of a correct judgment the evaluation approves."""
    rng = Random(11)
    said: dict[str, set[str | int | None]] = {"judgment": set(), "score": set(), "rating": set()}
    for _ in range(200):
        for example in discussion_examples(rng, Mixture(ablation=1.0), "llama"):
            prompt, response = example.prompt, example.response
            if "<judgment>" in prompt:
                judgment = parse_judgment(response)
                is_approval = response.split(" <")[0] in APPROVALS.values()
                assert judgment == ("correct" if is_approval else "incorrect")
                said["judgment"].add(judgment)
            elif "<score>" in prompt and "# Evaluation" not in prompt:
                said["score"].add(parse_score(response))
            elif "<rating>" in prompt:
                said["rating"].add(parse_rating(response))
            assert "## Evaluation of it" not in prompt or "You are a strict critic" in prompt
    assert said == {"judgment": {"correct", "incorrect"}, "score": {1, 2, 3}, "rating": {1, 5}}


def conversations(*, mixture: Mixture, role: str) -> list[Example]:
    """What setups teach whom the system prompt makes AutoGen's assistant, or those whom it does
    not ("proxy": who sees the question as said by itself; "solver": everybody else)."""
    rng = Random(12)
    problems = [draw_problem(rng, domain=rng.choice(DOMAINS), held_out=False) for _ in range(600)]
    first = {"assistant": "system", "proxy": "assistant", "solver": "user"}[role]
    drawn = [setup_example(rng, problem, mixture, "qwen2") for problem in problems]
    return [example for example in drawn if example.messages[0]["role"] == first]


@pytest.mark.parametrize("role", ["assistant", "solver"])
def test_solvers_err_in_setups_as_anywhere(role: str) -> None:
    """400 and 200 draws; the standard deviation of a share of 0.5 of 200 is 0.035."""
    mixture = Mixture(habit=0.5, other_mistake=0.0, unseen_mistake=0.0)
    drawn = conversations(mixture=mixture, role=role)
    right = {work(problem_of(example.prompt), None).text for example in drawn}
    share = sum(example.response in right for example in drawn) / len(drawn)
    assert share == pytest.approx(0.5, abs=0.15)
    assert {TERMINATE} & {example.response for example in drawn} == set()


def test_a_user_proxy_names_the_mistake_or_ends_the_conversation() -> None:
    said = set()
    for example in conversations(mixture=NEVER_ERRS, role="proxy"):
        problem = problem_of(example.prompt)
        named = MISTAKES[problem.domain]
        known = dict([work(problem, None), *mistaken(problem)])
        mistake = known.get(example.messages[-1]["content"], SLIP)
        assert example.response == (named[mistake] if mistake else TERMINATE)
        said.add(example.response)
        # What it has said itself before was a mistake's name, never the end.
        earlier = [m["content"] for m in example.messages[1:] if m["role"] == "assistant"]
        assert set(earlier) <= set(named.values())
    assert TERMINATE in said
    assert len(said) > 10


def test_every_scoring_can_be_parsed() -> None:
    assert {number: parse_score(text) for number, text in SCORINGS.items()} == {1: 1, 2: 2, 3: 3}


def test_worked_discussions_never_show_a_held_out_question() -> None:
    held_out = [row["prompt"] for row in records(seed=0, held_out=True, num_per_domain=100)]
    rng = Random(6)
    prompts = [
        example.prompt
        for _ in range(300)
        for example in discussion_examples(rng, Mixture(), "qwen2")
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
