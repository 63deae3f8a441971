"""Shared by all tests: their tiers, the quick-start society, and one thread for torch.

Tiers (scripts/test.sh): quick tests have no marker; ``stack`` tests start engines, Ray, servers or
many processes, train a model or wait for seconds; ``slow`` tests take over a minute. Using a
fixture of ``STACK_FIXTURES`` implies ``stack``.
"""

import os
import secrets
import signal
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest

# Ray reads the token once per process, and all tests of a process must be able to use their Ray.
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))

# Before any test module: sets what makes Ray, when first imported, listen on loopback only.
import comas.engines.cluster  # noqa: F401
from comas.quickstart import build_society

# The time of an example depends more on the machine than on the code.
hypothesis.settings.register_profile("comas", deadline=None, max_examples=25)
hypothesis.settings.load_profile("comas")

STACK_FIXTURES = {"society", "servers", "wheel"}
LONGEST = ("test_agents", "test_world")
ENGINE_PROGRAMS = ("gcs_server", "raylet", "evaluation.server_process", "-m comas ")


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Holds the key that signs the tests' checkpoints."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Give torch one thread: spinning threads of several processes slow each other down. Before
    every test, because tested code may use all cores, which changes last digits."""
    import torch  # here, because the controller of the workers needs none

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """Receive SIGINT, which a shell's background jobs ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def society() -> Path:
    """The quick-start society, built under the repository's saves/ if missing."""
    return build_society(Path(__file__).parents[1] / "saves", seed=0)


@pytest.fixture(scope="module")
def saves(society: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for runs that contains only the society."""
    folder = tmp_path_factory.mktemp("saves")
    (folder / "quickstart").symlink_to(society.parent)
    return folder


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files whose tests are all marked ``stack`` in the quick tier."""
    if "not stack" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.stack\n" in collection_path.read_text() or None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Replace half surrogate pairs, which some tests log on purpose and workers cannot send."""
    report = yield
    told = ((name, text.encode(errors="replace")) for name, text in report.sections)
    report.sections = [(name, text.decode()) for name, text in told]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if STACK_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.stack)
    # Long files first, so that the two workers end at about the same time.
    long = {item.path for item in items if item.get_closest_marker("stack")}
    items.sort(key=lambda item: (item.path.stem not in LONGEST, item.path not in long))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Fail a test without the marker ``stack`` that starts vLLM, DeepSpeed or Ray."""
    start_process = subprocess.Popen.__init__

    def refuse_engines(process: Any, args: Any, *others: Any, **options: Any) -> None:
        command = args if isinstance(args, str) else " ".join(map(str, args))
        for program in ENGINE_PROGRAMS:
            if program in command:
                refuse(program)
        start_process(process, args, *others, **options)

    def refuse(*started: Any, **options: Any) -> NoReturn:
        pytest.fail(f"starts an engine {started}: mark it with pytest.mark.stack")

    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("stack") is None:
            patch.setattr(subprocess.Popen, "__init__", refuse_engines)
            patch.setattr("torch.distributed.init_process_group", refuse)
        return (yield)
