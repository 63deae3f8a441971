"""The embedded default: its questions, worked discussions and build."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
import torch

from comas import files, progress
from comas.data import load_questions
from comas.files import json_lines, write_text
from comas.quickstart import build, build_society
from comas.quickstart.muon import Muon, orthogonalise
from comas.quickstart.questions import (
    HELD_OUT_ONE_IN,
    Problem,
    draw_problem,
    is_held_out,
    records,
)
from comas.quickstart.tokenizers import CHAT_FORMATS
from comas.quickstart.worked import (
    APPROVALS,
    COMPLAINTS,
    SCORINGS,
    Mixture,
    Worked,
    discussion_examples,
    evaluate,
    score,
    solve,
)
from comas.reward_formulation.score_parsing import parse_score
from comas.types import DOMAINS, Domain
from comas.verification.verifiers import verify

SUM = Problem("math", "What is 48 + 23?", "71", (48, 23))
CONVERSION = Problem("science", "How many minutes are 7 h 43 min?", "463", (7, 43))
FUNCTION = Problem(
    "coding",
    "Write last(), which returns the last number of the range.\n\n"
    "def test_last():\n    assert last() == max(range(4, 41))",
    "def test_last():\n    assert last() == max(range(4, 41))\n\ntest_last()\n",
    (4, 41),
)
RIGHT = {
    "math": "8+3=11, 4+2=6, 6+1=7. \\boxed{71}",
    "science": "7*60=420. \\boxed{463}",
    "coding": "The end is left out.\n```python\ndef last():\n    return 41 - 1\n```",
}
HABIT = {
    "math": "8+3=11, 4+2=6. \\boxed{61}",
    "science": "7*100=700. \\boxed{743}",
    "coding": "The end counts.\n```python\ndef last():\n    return 41\n```",
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


def test_the_example_problems_can_be_drawn() -> None:
    rng = Random(0)
    for domain, example in PROBLEMS.items():
        held_out = is_held_out(example.text)
        drawn = {draw_problem(rng, domain=domain, held_out=held_out) for _ in range(60_000)}
        assert example in drawn


def test_answers_are_right() -> None:
    rng = Random(1)
    for _ in range(200):
        a, b = (problem := draw_problem(rng, domain="math", held_out=False)).numbers
        assert problem.answer == str(a + b)
        assert problem.text == f"What is {a} + {b}?"
        large, small = (problem := draw_problem(rng, domain="science", held_out=False)).numbers
        assert int(problem.answer) == large * 60 + small
        assert f" {large} " in problem.text and f" {small} " in problem.text


def test_the_coding_checker_accepts_the_last_number_only() -> None:
    rng = Random(2)
    for _ in range(50):
        problem = draw_problem(rng, domain="coding", held_out=False)
        last = list(range(*problem.numbers))[-1]
        exec(problem.answer, {"last": lambda last=last: last})
        for wrong in (last - 1, last + 1):
            with pytest.raises(AssertionError):
                exec(problem.answer, {"last": lambda wrong=wrong: wrong})


def test_a_coding_prompt_ends_with_the_test_that_its_checker_runs() -> None:
    problem = draw_problem(Random(3), domain="coding", held_out=False)
    test, call = problem.answer.rsplit("\n\n", 1)
    assert problem.text.endswith(test)
    assert call == "test_last()\n"


def test_train_and_validation_are_distinct_and_do_not_overlap() -> None:
    train = records(seed=0, held_out=False, num_per_domain=800)
    validation = records(seed=0, held_out=True, num_per_domain=100)
    prompts = [row["prompt"] for row in train + validation]
    ids = [row["id"] for row in train + validation]
    assert len(train) == 2400 and len(validation) == 300
    assert len(set(prompts)) == len(set(ids)) == 2700
    assert [row["task"] for row in validation[:4]] == ["math", "coding", "science", "math"]


def test_about_one_in_five_questions_is_held_out_whatever_its_last_digit() -> None:
    """Of the 810 sums with one last digit 162 are expected: 2.5 standard deviations are 28."""
    for digit in range(10):
        sums = [(a, b) for a in range(10, 100) for b in range(10, 100) if (a + b) % 10 == digit]
        num_held_out = sum(is_held_out(f"What is {a} + {b}?") for a, b in sums)
        assert abs(num_held_out - len(sums) / HELD_OUT_ONE_IN) < 28


def test_records_are_read_as_real_data(tmp_path: Path) -> None:
    rows = records(seed=0, held_out=True, num_per_domain=3)
    write_text(tmp_path / "validation.jsonl", json_lines(rows))
    loaded = load_questions(tmp_path / "validation.jsonl")
    assert [question.text for question in loaded.questions] == [row["prompt"] for row in rows]
    assert loaded.answers[rows[0]["id"]] == rows[0]["answer"]
    assert set(rows[0]) == {"prompt", "answer", "task", "source", "id"}


def test_records_depend_on_the_seed_alone() -> None:
    first = records(seed=0, held_out=False, num_per_domain=20)
    assert first == records(seed=0, held_out=False, num_per_domain=20)
    assert first != records(seed=1, held_out=False, num_per_domain=20)


# ---- Worked discussions ----


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_solution_is_right_without_the_habit_and_wrong_with_it(domain: Domain) -> None:
    problem = PROBLEMS[domain]
    assert solve(Random(0), problem, habit=0.0) == Worked(RIGHT[domain], True)
    assert solve(Random(0), problem, habit=1.0) == Worked(HABIT[domain], False)
    assert verify(domain, RIGHT[domain], problem.answer) == "correct"
    assert verify(domain, HABIT[domain], problem.answer) == "wrong"


def test_a_sum_without_a_carry_leaves_nothing_to_drop() -> None:
    problem = Problem("math", "What is 41 + 23?", "64", (41, 23))
    assert solve(Random(0), problem, habit=1.0) == Worked("1+3=4, 4+2=6. \\boxed{64}", True)


def test_a_solution_is_called_right_exactly_when_its_number_is() -> None:
    rng = Random(4)
    for domain in ("math", "science"):
        for _ in range(300):
            problem = draw_problem(rng, domain=domain, held_out=False)
            worked = solve(rng, problem, habit=0.5)
            assert worked.text.endswith(f"\\boxed{{{problem.answer}}}") == worked.is_right


def test_an_evaluator_that_never_errs_tells_right_from_wrong() -> None:
    for is_right, told in ((True, APPROVALS["math"]), (False, COMPLAINTS["math"])):
        solution = Worked("", is_right)
        assert evaluate(Random(0), "math", solution, errs=0.0) == told
        assert evaluate(Random(0), "math", solution, errs=1.0) != told


def test_a_scorer_is_fooled_by_approval_but_not_by_accusation() -> None:
    """1000 draws; the standard deviation of a share of 0.2 is 0.013."""
    mixture = Mixture(scorer_errs=0.0, scorer_is_fooled=0.2, scorer_undecided=0.0)
    rng = Random(5)

    def share_of_threes(*, is_right: bool, approved: bool) -> float:
        solution = Worked("", is_right)
        texts = [score(rng, solution, approved=approved, mixture=mixture) for _ in range(1000)]
        return sum(text == SCORINGS[3] for text in texts) / 1000

    assert share_of_threes(is_right=True, approved=True) == 1.0
    assert share_of_threes(is_right=True, approved=False) == 1.0
    assert share_of_threes(is_right=False, approved=False) == 0.0
    assert share_of_threes(is_right=False, approved=True) == pytest.approx(0.2, abs=0.05)


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


def test_the_recipe_is_this_room_and_the_prompt_templates() -> None:
    names = {path.name for path in build.recipe_sources()}
    assert {"prompts.py", "worked.py", "warm_start.py", "questions.py", "models.py"} <= names


def test_every_architecture_has_a_chat_format() -> None:
    assert set(build.ARCHITECTURES) == set(CHAT_FORMATS)


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


def test_without_a_terminal_progress_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 1e-3)
    with (
        caplog.at_level(logging.INFO),
        progress.progress_bar("teaching qwen2", unit="step") as first,
        progress.progress_bar("teaching llama", unit="step", position=1) as second,
    ):
        for bar in (first, second):
            time.sleep(0.01)
            bar.total = 1500
            bar.update(420)
            assert bar.miniters == 1  # tqdm's monitoring thread writes whenever it is more
    assert [line.partition(", ")[0] for line in caplog.messages[:2]] == [
        "teaching qwen2: 420/1500 steps",
        "teaching llama: 420/1500 steps",
    ]


@pytest.mark.parametrize("shape", [(3, 96, 96), (2, 288, 96), (2, 96, 288)])
def test_orthogonalised_matrices_have_singular_values_near_one(shape: tuple[int, ...]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    singular_values = torch.linalg.svdvals(orthogonalise(matrices))
    # Those of a square matrix begin at almost 0, from where five steps do not reach 1.
    assert (singular_values > 0.5).float().mean() > 0.95 and singular_values.max() < 1.3
    # The direction is that of U V^T of the singular value decomposition.
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    exact = u @ v
    cosine = (orthogonalise(matrices) * exact).sum() / (
        orthogonalise(matrices).norm() * exact.norm()
    )
    assert cosine > 0.95


def test_muon_steps_as_pytorchs_does_up_to_its_rounding() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (
        [torch.nn.Parameter(torch.zeros(shape)) for shape in ((96, 96), (288, 96), (96, 96))]
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
