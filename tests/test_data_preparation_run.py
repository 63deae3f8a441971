"""scripts/prepare_data.sh on made-up copies of every dataset: builds, checks, continues."""

import json
import shutil
import subprocess
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest
from local_copies import kodcode_row, math_row, webinstruct_row, write_all, write_card
from small_runs import REPOSITORY, contents, rows_of, write_records
from tables import cases

from comas.data import load_questions
from comas.data.preparation.math_train import MATH
from evaluation.benchmarks import BENCHMARKS
from scripts import prepare_data as script

pytestmark = pytest.mark.stack

SPLITS = ("train", "validation")
SIZES = ["--train-size", "6", "4", "6", "--validation-size", "3", "2", "3"]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copies")
    write_all(folder)
    return folder


@pytest.fixture(scope="module")
def built_once(copies: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    assert run(copies, folder) == 0
    return folder


@pytest.fixture
def built(built_once: Path, tmp_path: Path) -> Path:
    """A whole build, which a test may damage."""
    return shutil.copytree(built_once, tmp_path / "data")


def run(copies: Path, folder: Path, *options: str, sizes: list[str] = SIZES) -> int:
    return script.main(["--from", str(copies), "--output", str(folder), *sizes, *options])


def taken(folder: Path) -> set[str]:
    """The ids of all questions to train and to validate on."""
    return {record["id"] for split in SPLITS for record in rows_of(folder, f"{split}.jsonl")}


def files_of(folder: Path) -> dict[str, dict]:
    return json.loads((folder / "checksums.json").read_text())["files"]


def test_the_command_builds_the_blend_its_validation_set_and_all_benchmarks(copies, tmp_path):
    folder = copies.parent / "output"  # both relative to the current folder
    command = [
        "bash",
        str(REPOSITORY / "scripts/prepare_data.sh"),
        "--from",
        copies.name,
        f"--output={folder.name}",
        *SIZES,
    ]
    result = subprocess.run(command, cwd=copies.parent, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    plan = f"16 training questions, 8 validation questions, {len(BENCHMARKS)} benchmarks in"
    assert f"{plan} {folder} from local copies in {copies}." in result.stderr
    train, validation = (load_questions(folder / f"{name}.jsonl") for name in SPLITS)
    found = [Counter(question.domain for question in one.questions) for one in (train, validation)]
    assert found[0] == {"math": 6, "coding": 4, "science": 6}
    assert found[1] == {"math": 3, "coding": 2, "science": 3}
    assert not set(train.answers) & set(validation.answers)
    table = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert f"{folder}/benchmarks/gsm8k.jsonl 1 local copy, built" in table
    assert "left out 8 coding: it is easy" in table
    assert "left out 1318 the copy lacks it" in table


def test_every_benchmark_has_its_records_and_every_file_its_checksum(copies, built, tmp_path):
    folder = built / "benchmarks"
    counts = {path.stem: len(rows_of(folder, path.name)) for path in folder.iterdir()}
    assert counts == {**dict.fromkeys(BENCHMARKS, 1), "gpqa": 4}
    found = {str(name): sha256(text).hexdigest() for name, text in contents(built).items()}
    del found["checksums.json"]
    assert {name: entry["sha256"] for name, entry in files_of(built).items()} == found
    train = files_of(built)["train.jsonl"]
    assert (train["recipe"]["seed"], train["origin"]) == (0, "local copy")
    assert run(copies, tmp_path / "other", "--seed", "1") == 0  # the same benchmarks
    assert taken(tmp_path / "other") != taken(built)
    gpqa = "benchmarks/gpqa.jsonl"
    assert files_of(tmp_path / "other")[gpqa]["sha256"] == files_of(built)[gpqa]["sha256"]


def test_a_coding_question_whose_own_solution_fails_is_never_taken(copies, tmp_path, caplog):
    # As many as the copies have: every question is tried.
    everything = ["--train-size", "24", "5", "15", "--validation-size", "4", "2", "3"]
    assert run(copies, tmp_path, sizes=everything) == 0
    coding = {one for one in taken(tmp_path) if one.startswith("kodcode")}
    # Odd numbers are medium or hard; the solution of number 3 is wrong.
    assert coding == {f"kodcode-{number:05d}" for number in (1, 5, 7, 9, 11, 13, 15)}
    assert "gsm8k: 1 rows, but the hub's copy has 1319" in caplog.text
    reason = "coding: its own reference answer is judged wrong"
    assert files_of(tmp_path)["train.jsonl"]["left_out"][reason] == 1
    too_many = ["--train-size", "6", "6", "6", "--validation-size", "3", "2", "3"]
    assert run(copies, tmp_path / "too_many", sizes=too_many) == 1
    assert "coding: 6 questions are wanted for train, but the dataset has only 5" in caplog.text
    assert "1 x its own reference answer is judged wrong" in caplog.text
    assert "--train-size" in caplog.text
    assert not (tmp_path / "too_many/train.jsonl").exists()
    assert (tmp_path / "too_many/benchmarks/mmlu.jsonl").exists()


def planted_copies(folder: Path) -> None:
    """Copies in which questions repeat a benchmark's or each other's."""
    write_all(folder)
    quiet_lake = "On a quiet lake in the north seven boats with red sails go round the old island"
    math_500 = [{"problem": "What is  $2\\pi$ halved?", "answer": "\\pi"}]
    write_records(folder / "HuggingFaceH4/MATH-500/test.jsonl", math_500)
    scibench = [{"problem_text": f"{quiet_lake}. Find p.", "answer_number": "1", "unit": " "}]
    write_records(folder / "xw27/scibench/atkins.json", scibench)
    rows = [math_row(number) for number in range(1, 9) if number % 3]
    rows[1]["problem"] = "what is $2 \\pi$, halved"  # as in MATH-500
    rows[3]["problem"] = rows[2]["problem"].upper()  # as another of this dataset
    rows[4]["problem"] = "find  P"  # the question alone, as in SciBench
    root = folder / MATH.source.hub_name
    shutil.rmtree(root)
    for config in MATH.source.configs:
        # Number 0 is of level 3, and left out.
        write_records(root / f"{config}.jsonl", rows if config == "algebra" else [math_row(0)])
    write_card(root, {config: {"train": f"{config}.jsonl"} for config in MATH.source.configs})
    coding = [kodcode_row(number) for number in (1, 5, 7)]
    coding[2]["question"] = f"Write add_7(x). {quiet_lake}."  # 17 words of SciBench's
    science = [webinstruct_row(number) for number in (0, 1, 2, 4)]
    science[3]["question"] = "Ann has 2 pens, and buys 3: how many"  # as in GSM8K
    for name, planted in (
        ("KodCode/KodCode-Light-RL-10K", coding),
        ("TIGER-Lab/WebInstruct-verified", science),
    ):
        (folder / name / "data/train-00000-of-00001.parquet").unlink()
        write_records(folder / name / "data/train-0.jsonl", planted)


def test_planted_repetitions_are_dropped_and_counted_and_nothing_else(tmp_path):
    planted_copies(tmp_path / "copies")
    sizes = ["--train-size", "4", "1", "2", "--validation-size", "0", "1", "1"]
    assert run(tmp_path / "copies", tmp_path / "data", sizes=sizes) == 0
    found = taken(tmp_path / "data")
    assert not found & {"math-00001", "kodcode-00002", "webinstruct-00003"}
    assert len(found & {"math-00002", "math-00003"}) == 1  # twins
    assert len(found) == 9
    counts = files_of(tmp_path / "data")["train.jsonl"]["left_out"]
    for domain in ("math", "coding", "science"):
        assert counts[f"{domain}: it repeats a question of the benchmark"] == 1
    assert counts["math: it repeats a question of the blend"] == 1


def test_a_second_run_keeps_what_is_there_if_no_benchmark_changed(built, tmp_path, capsys, caplog):
    before = contents(built)
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "empty", built) == 0  # reads no dataset
    assert contents(built) == before
    assert capsys.readouterr().out.count("checked, kept") == len(BENCHMARKS) + 2
    changed = [{"problem": "New?", "answer": "1"}]
    write_records(tmp_path / "newer/HuggingFaceH4/MATH-500/test.jsonl", changed)
    assert run(tmp_path / "newer", built, "--only", "math-500", "--rebuild") == 0
    assert run(tmp_path / "empty", built) == 1
    assert "train.jsonl was built with apart_from.math-500 '" in caplog.text


def test_a_half_written_file_is_no_obstacle_and_a_lost_one_is_built_again_as_it_was(copies, built):
    before = contents(built)
    (built / "benchmarks/gsm8k.jsonl").rename(built / "benchmarks/.partial-gsm8k.jsonl")
    (built / "validation.jsonl").unlink()
    assert run(copies, built) == 0
    assert contents(built) == before


@cases("num_lost_bytes, options, message")
def test_what_differs_stays_and_is_told(copies, built, caplog, num_lost_bytes, options, message):
    path = built / "train.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - num_lost_bytes])
    before = contents(built)
    assert run(copies, built, *options) == 1
    assert contents(built) == before
    assert message in caplog.text and "--rebuild replaces it" in caplog.text
    assert run(copies, built, *options, "--rebuild") == 0
    assert run(copies, built, *options) == 0


@cases("name, content, said")
def test_a_file_of_the_users_is_never_overwritten(copies, tmp_path, caplog, name, content, said):
    (tmp_path / name).write_text(content)
    assert run(copies, tmp_path) == 1
    assert (tmp_path / name).read_text() == content
    assert said in caplog.text


def test_all_missing_copies_are_named_before_anything_is_read(tmp_path, caplog):
    (tmp_path / "copies").mkdir()
    assert run(tmp_path / "copies", tmp_path / "data") == 1
    number = len(BENCHMARKS) + 3
    assert f"lacks {number} of {number} datasets" in caplog.messages[-1]
    assert caplog.messages[-1].count("hf download ") == number
    assert f"--local-dir {tmp_path}/copies/openai/gsm8k" in caplog.messages[-1]
    assert list((tmp_path / "data").glob("**/*.jsonl")) == []
