"""What all tests share: their tiers, the quick-start society, and one thread for torch.

Tiers (scripts/test.sh): quick tests have no marker; ``stack`` starts engines, Ray, servers or
many processes, or trains a model; ``slow`` takes longer than a minute. A marker stands above a
test or a module; whoever asks for a fixture of ``STACK_FIXTURES`` has ``stack`` without it.
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

# Ray reads it once in a process, and a Ray of one test is not closed to the next.
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))

# Before any test module: Ray must find the environment that makes it listen on the loopback
# interface alone when it is first imported.
import comas.engines.cluster  # noqa: F401
from comas.quickstart import build_society

# How long an example takes says more of the machine than of the code.
hypothesis.settings.register_profile("comas", deadline=None)
hypothesis.settings.load_profile("comas")

STACK_FIXTURES = {"society", "servers"}
ENGINE_PROGRAMS = ("gcs_server", "raylet", "evaluation.server_process", "-m comas ")


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the runs of tests keep the key of their checkpoints."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Spinning threads of several processes hold each other up, and tiny models gain nothing by
    them. For every test: what a test calls may take all cores, by which last digits change."""
    import torch  # not above: the process that only hands out tests need not wait for it

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """SIGINT is received by what tests start: a shell's background jobs begin with it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def session_that_can_close() -> Iterator[None]:
    """SIGHUP is received, though the tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def society() -> Path:
    """The quick-start society: built into the repository's saves/ unless it is there."""
    return build_society(Path(__file__).parents[1] / "saves", seed=0)


@pytest.fixture(scope="module")
def saves(society: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for runs which holds the society and nothing else."""
    folder = tmp_path_factory.mktemp("saves")
    (folder / "quickstart").symlink_to(society.parent)
    return folder


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick tier does not even import a file in which every test is marked ``stack``."""
    if "not stack" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.stack\n" in collection_path.read_text() or None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Two processes share the tests, and send no report whose captured log has half a surrogate
    pair, which some tests log on purpose."""
    report = yield
    report.sections = [
        (name, text.encode(errors="replace").decode()) for name, text in report.sections
    ]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if STACK_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.stack)
    # Whatever takes long comes first, so that neither of two workers has to wait for the other.
    long = {item.path for item in items if item.get_closest_marker("stack")}
    items.sort(key=lambda item: item.path not in long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """In a quick test, vLLM, DeepSpeed and Ray do not start: it lacks the marker ``stack``."""
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
