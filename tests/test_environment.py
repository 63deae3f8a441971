"""The environment of the scripts: its Python, package sources, and installation from the pins."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from programs import run_to_end
from small_runs import REPOSITORY, contents
from tables import case_file, cases

VERSIONS = ("3.11", "3.12")


def sourcing(function: str) -> list[str]:
    """The command that runs a function of scripts/environment.sh."""
    source = (REPOSITORY / "scripts/environment.sh").read_text()
    source = source.replace("\nensure_environment\n", f"\n{function}\n")
    return ["bash", "-c", f"set -euo pipefail\n{source}"]


def call(function: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a function of scripts/environment.sh in ``folder``."""
    known = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "REQUIREM", "UV_"))}
    return run_to_end(*sourcing(function), cwd=folder, env=known | environment)


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("version", ["3.10", *VERSIONS, "3.13"])
def test_python_3_11_and_3_12_are_taken_and_others_refused_with_what_to_install(tmp_path, version):
    pretends = f"sys.version_info = {tuple(map(int, version.split('.')))}"
    runs = "exec(sys.argv[sys.argv.index('-c') + 1])"
    text = f"#!{sys.executable}\nimport sys\n{pretends}\n{runs}\n"
    python = executable(tmp_path / "python", text)
    found = call("find_python", tmp_path, PYTHON=str(python))
    if version in VERSIONS:
        assert found.stdout == f"{python}\n"
    else:
        assert found.returncode == 1
        needed = "Python 3.11 or 3.12 with its venv module is needed; tried: "
        assert f"{needed}{python}" in found.stderr
        assert "apt install python3.12 python3.12-venv" in found.stderr


def test_uv_is_told_what_pip_is_configured_with(tmp_path):
    settings, expected = case_file("environment")["PIP_SETTINGS"]
    pip = f"#!/bin/sh\ncat <<'SETTINGS'\n{settings}SETTINGS\n"
    executable(tmp_path / ".venv/bin/python", pip)
    uv = '#!/bin/sh\nenv | grep -E "^(SSL_CERT_FILE|UV_)" | sort; echo "$@"\n'
    executable(tmp_path / ".venv/bin/uv", uv)
    variables = {"UV_INDEX": "/mine", "SSL_CERT_FILE": ""}
    assert call("share_sources_with_uv; install torch", tmp_path, **variables).stdout == expected


@pytest.mark.parametrize("offers", ["configured", "PyTorch's", "neither"])
def test_torch_for_a_cpu_comes_from_pytorch_where_no_configured_source_has_it(tmp_path, offers):
    status = {"configured": "true", "PyTorch's": '[ "$6" = --index ]', "neither": "false"}[offers]
    uv = f'#!/bin/sh\necho "$@"\necho "Downloading" >&2\n{status}\n'
    executable(tmp_path / ".venv/bin/uv", uv)
    done = call("install_cpu_torch torch==2.13.0+cpu", tmp_path)
    asked = "--index https://download.pytorch.org/whl/cpu torch==2.13.0+cpu\n"
    assert done.stdout.endswith(asked) == (offers != "configured")
    assert ("\nDownloading\n" in done.stderr) == (offers != "configured")  # is shown
    assert (done.returncode == 1) == (offers == "neither")
    refused = "error: torch==2.13.0+cpu could not be installed for Python : neither\n"
    assert (refused in done.stderr) == (offers == "neither")


PINS = ("requirements.txt", "requirements-cpu.txt", "mine.txt")


@cases(
    "driver, named, installed",
    ("535.104.05", None, None),
    ("580.65.06", None, "requirements.txt"),
    *(("535.104.05", pins, pins) for pins in PINS),
)
def test_the_driver_is_compared_unless_pins_are_named(tmp_path, driver, named, installed):
    for file in (*PINS, "setup.py"):
        (tmp_path / file).write_text("uv==0.13.9\n")
    two = "{ echo GPU 0: A100; sleep 0.1; echo GPU 1: A100; }"
    listing = f'[ "$1" = -L ] && {two} || printf "%s\\n%s\\n" {driver} {driver}'
    executable(tmp_path / "bin/nvidia-smi", f"#!/bin/sh\n{listing}\n")
    chosen = {"REQUIREMENTS": named} if named else {}
    installs = "{ echo installs $1; mkdir -p $VENV; is_ready() { true; }; }"
    install = f"install_requirements() {installs}; ensure_environment"
    done = call(install, tmp_path, PATH=f"{tmp_path}/bin:{os.environ['PATH']}", **chosen)
    assert (done.returncode == 0) == (installed is not None)
    assert done.stdout == (f"installs {installed}\n" if installed else "")
    for part in ("driver 535.104.05 is too old for CUDA 13", "Install driver 580 or newer"):
        assert (part in done.stderr) == (installed is None)


UV, PYTHON = (case_file("environment")[name] for name in ("UV", "PYTHON"))
ENSURE = "SECONDS_OF_A_LOOK=0.3; ensure_environment; echo $VENV"
CREATED = "environment: creating .venv with Python 3.11.7"


def checkout(folder: Path) -> dict[str, str]:
    """Make a checkout without an environment, with scripts as Python and uv; returns variables."""
    folder.mkdir()
    for file in PINS:
        (folder / file).write_text(f"# {file}\nuv==0.13.9\n")
    (folder / "setup.py").touch()
    executable(folder / "uv", UV)
    python = str(executable(folder / "python", PYTHON))
    return {"PYTHON": python, "REQUIREMENTS": "requirements.txt"}


def ready(folder: Path) -> dict[str, str]:
    """Make a checkout whose environment is ready; returns variables."""
    variables = checkout(folder)
    assert call(ENSURE, folder, **variables).returncode == 0
    (folder / "installed").write_text("")
    return variables


def installed(folder: Path) -> list[str]:
    """uv's calls since the last time, without the options common to all."""
    lines = (folder / "installed").read_text().splitlines()
    (folder / "installed").write_text("")
    return [line.partition("--no-deps ")[2] for line in lines]


OWN = "-q --no-build-isolation --reinstall -e ."
ALL = ["-r requirements.txt", OWN]


def test_an_installation_that_failed_is_continued_and_one_that_ended_is_not_repeated(tmp_path):
    here = tmp_path / "here"
    variables = checkout(here)
    (here / "is_down").touch()
    first = call(ENSURE, here, **variables)
    assert (first.returncode, installed(here)) == (1, ALL[:1])
    assert CREATED in first.stdout
    (here / "is_down").unlink()
    packages = here / ".venv/lib/python3.11/site-packages"
    for package in ("half", "whole"):
        (packages / f"{package}-1.0.dist-info").mkdir(parents=True)
    (packages / "whole-1.0.dist-info/INSTALLER").touch()
    second = call(ENSURE, here, **variables)
    assert (second.returncode, installed(here)) == (0, ALL)
    assert CREATED not in second.stdout
    assert [path.name for path in packages.iterdir()] == ["whole-1.0.dist-info"]
    third = call(ENSURE, here, **variables)
    assert (third.returncode, third.stdout, third.stderr) == (0, ".venv\n", "")
    assert installed(here) == []
    (here / ".venv/bin/uv").unlink()  # as in an environment of a former release
    (here / "setup.py").write_text("# changed since\n")
    fourth = call(ENSURE, here, **variables)
    assert (fourth.returncode, installed(here)) == (0, ALL)
    assert CREATED not in fourth.stdout


@pytest.mark.parametrize("by", ["cp -al", "mv"])
def test_the_environment_of_a_copied_or_moved_checkout_works_there(tmp_path, by):
    there, here = tmp_path / "there", tmp_path / "over here"
    variables = ready(there)
    before = contents(there)
    subprocess.run([*by.split(), there, here], check=True)
    variables["PYTHON"] = str(here / "python")
    done = call(ENSURE, here, **variables)
    assert done.returncode == 0, done.stderr
    assert installed(here) == [OWN] and CREATED not in done.stdout
    assert f".venv was made in {there}, and is made to work here\n" in done.stdout
    if by != "mv":
        assert contents(there) == before
    done = call(ENSURE, here, **variables)
    assert (done.returncode, done.stdout, done.stderr) == (0, ".venv\n", "")


def test_an_environment_that_something_runs_from_is_not_changed(tmp_path):
    here = tmp_path / "here"
    variables = ready(here)
    # As a script after its exec.
    uses = sourcing("ensure_environment\nexec sh -c 'echo runs; exec sleep 60'")
    named = os.environ | {"REQUIREMENTS": "requirements.txt"}
    options = {"cwd": here, "env": named, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(uses, **options) as process, ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout.readline() == "runs\n"
        assert call(ENSURE, here, **variables).stdout == ".venv\n"
        (here / "requirements.txt").write_text("vllm==0.30.0\n")
        before = contents(here / ".venv")
        done = call(ENSURE, here, **variables)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"error: {here}/.venv is in use (process {process.pid}).\n" in done.stderr
        assert contents(here / ".venv") == before
    done = call(ENSURE, here, **variables)
    assert done.stdout.splitlines()[-2:] == ["environment: ready", ".venv"]


SOURCED = {"browser", "environment", "start"}
STARTED = sorted({path.stem for path in (REPOSITORY / "scripts").glob("*.sh")} - SOURCED)


@pytest.mark.parametrize("name", [*STARTED, "benchmark door", "benchmark -h"])
def test_help_of_every_script_needs_no_environment(tmp_path, name):
    here = tmp_path / "here"
    for folder in ("scripts", "evaluation/benchmarks", "comas/help"):
        shutil.copytree(REPOSITORY / folder, here / folder)
    before = contents(tmp_path)
    script, *arguments = name.split()
    environment = os.environ | {"PYTHON": "/nowhere/python", "PATH": "/usr/bin:/bin"}
    command = ["bash", here / f"scripts/{script}.sh", *arguments, "--help"]
    done = run_to_end(*command, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search("usage: .*scripts/|\nKeys and their defaults:\n", done.stdout)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("fault", ["removed", "replaced", "half made"])
def test_an_environment_whose_python_is_gone_or_was_half_made_is_made_afresh(tmp_path, fault):
    here = tmp_path / "here"
    variables = ready(here)
    inner = here / ".venv/bin/python"
    if fault == "half made":
        (here / ".venv/requirements.stamp").write_text(f"created  - {here}\n")
    elif fault == "replaced":  # its packages are for Python 3.11
        inner.write_text(PYTHON.replace("3.11", "3.12"))
    else:
        inner.unlink()
        inner.symlink_to("/nowhere/python3.11")
    (here / ".venv/lib/former").touch()
    done = call(ENSURE, here, **variables)
    assert (done.returncode, CREATED in done.stdout, installed(here)) == (0, True, ALL)
    assert not (here / ".venv/lib/former").exists()


def interpreter(version: str) -> str:
    """A Python of this version, from PATH or pyenv; skips the test if there is none."""
    installed = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    for candidate in [shutil.which(f"python{version}"), *map(str, installed)]:
        # pyenv has a shim for every version, which fails for versions that are not active.
        if candidate and subprocess.run([candidate, "-c", ""], check=False).returncode == 0:
            return candidate
    pytest.skip(f"no Python {version} on this machine")


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_fresh_clone_installs_from_the_pins_and_trains_one_step(society, tmp_path, version):
    python = interpreter(version)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(REPOSITORY), str(clone)], check=True)
    shutil.copytree(society, clone / "saves/quickstart" / society.name)
    known = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = ["bash", "scripts/train_comas.sh", "configs/quickstart.yaml"]
    settings = ["training.num_steps=1", "validation.num_questions=3"]
    trained = run_to_end(*command, *settings, cwd=clone, env=known | {"PYTHON": python})
    said = trained.stdout + trained.stderr
    shutil.rmtree(clone / ".venv")
    if f"could not be installed for Python {version}" in said:
        pytest.skip(f"no source offers the CPU build of torch for Python {version}")
    assert trained.returncode == 0, said
    assert "step 1/1" in said
