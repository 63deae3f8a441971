"""Checkpoints beside the next step: whole ones or none, one at a time, whatever ends the run."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path

import pytest

from comas.preflight.configuration import load_config
from comas.run import CheckpointWriter, RunDirectory
from comas.run import checkpoints as checkpoints_of
from comas.utils.files import remove


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunDirectory]:
    saves = tmp_path_factory.mktemp("saves")
    config = load_config(None, [f"saves={saves}", "training.keep_checkpoints=1"])
    with RunDirectory.create(config) as run:
        yield run


@pytest.fixture
def run(opened: RunDirectory) -> Iterator[RunDirectory]:
    """An open run without checkpoints."""
    yield opened
    for folder in (opened.path / "checkpoints").iterdir():
        remove(folder)


class Ranks:
    """Two ranks that write as the test tells them to."""

    def __init__(self) -> None:
        self.parts: list[Future[None]] = []
        self.folder = Path()

    def begin(self, folder: Path) -> list[Future[None]]:
        self.folder, self.parts = folder, [Future(), Future()]
        return self.parts

    def finish(self) -> None:
        for rank, part in enumerate(self.parts):
            (self.folder / f"rank_{rank}").write_text("weights")
            part.set_result(None)


def writer(run: RunDirectory, ranks: Ranks, timeout_s: float = 10) -> CheckpointWriter:
    return CheckpointWriter(run.checkpoint_folder, ranks.begin, timeout_s=timeout_s)


def kept(run: RunDirectory) -> list[str]:
    """Everything in ``checkpoints/``, also what is not complete."""
    return sorted(path.name for path in (run.path / "checkpoints").iterdir())


def save_whole(checkpoints: CheckpointWriter, ranks: Ranks, step: int) -> None:
    checkpoints.save(step)
    ranks.finish()
    checkpoints.wait()


def test_a_checkpoint_is_there_when_it_is_whole_and_sealed_and_the_one_before_until_then(run):
    ranks = Ranks()
    with writer(run, ranks) as checkpoints:
        save_whole(checkpoints, ranks, 1)
        checkpoints.save(2)
        ranks.parts[0].set_result(None)  # one rank of two
        assert kept(run) == [".partial-step_0002", "step_0001"]
        assert run.latest_checkpoint() == (1, run.path / "checkpoints/step_0001")
        ranks.parts[1].set_result(None)
        checkpoints.wait()
        assert kept(run) == ["step_0002"]
        assert run.latest_checkpoint() == (2, run.path / "checkpoints/step_0002")


@pytest.mark.parametrize(("ends", "said"), [(True, "disk full"), (False, "step 2 was not written")])
def test_a_part_that_fails_or_never_ends_is_raised_and_leaves_the_one_before(run, ends, said):
    ranks = Ranks()
    with (
        pytest.raises(OSError if ends else TimeoutError, match=said),
        writer(run, ranks, timeout_s=10 if ends else 0.2) as checkpoints,
    ):
        save_whole(checkpoints, ranks, 1)
        checkpoints.save(2)
        if ends:
            ranks.parts[0].set_exception(OSError("disk full"))
        assert kept(run) == [".partial-step_0002", "step_0001"]
        ranks.parts[1].set_result(None)
        checkpoints.wait()
    assert kept(run) == ["step_0001"]


@pytest.mark.parametrize("end", [None, KeyboardInterrupt, RuntimeError])
def test_whatever_ends_a_run_it_waits_for_its_last_checkpoint(run, end):
    ranks = Ranks()
    with pytest.raises(end) if end else nullcontext(), writer(run, ranks) as checkpoints:
        checkpoints.save(1)
        ranks.finish()
        if end is not None:
            raise end
    assert kept(run) == ["step_0001"]


def test_a_second_ctrl_c_gives_it_up_and_keeps_the_one_before(run, monkeypatch):
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    ranks = Ranks()
    with pytest.raises(KeyboardInterrupt), writer(run, ranks) as checkpoints:
        save_whole(checkpoints, ranks, 1)
        checkpoints.save(2)
        monkeypatch.setattr(Future, "result", interrupt)
        raise KeyboardInterrupt
    assert kept(run) == ["step_0001"]
    assert all(part.cancelled() for part in ranks.parts)


@pytest.mark.parametrize(("ends", "said"), [(True, "rank 0 died"), (False, "it takes too long")])
def test_a_failure_is_not_hidden_by_that_of_the_checkpoint(run, monkeypatch, caplog, ends, said):
    monkeypatch.setattr(checkpoints_of, "GRACE_S", 0.01 if not ends else 10)
    ranks = Ranks()
    with pytest.raises(RuntimeError, match="engine 1"), writer(run, ranks) as checkpoints:
        checkpoints.save(1)
        for rank, part in enumerate(ranks.parts * ends):
            part.set_exception(RuntimeError(f"rank {rank} died"))
        raise RuntimeError("engine 1 died")
    assert kept(run) == []
    assert f"a checkpoint is given up: {said}" in caplog.text
