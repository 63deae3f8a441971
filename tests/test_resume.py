"""What a resume accepts, and that it loses nothing."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from small_runs import QUICKSTART, reopened, rows_of, save_checkpoint, steps_in, tiny_settings
from tables import cases

from comas.__main__ import main
from comas.config.schema import Config
from comas.preflight import preparation
from comas.preflight.configuration import load_config
from comas.preflight.preparation import prepare
from comas.run import RunDirectory
from comas.run.status import trained_steps
from comas.utils.terminal import EXIT_ERROR


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(None, [f"saves={tmp_path / 'saves'}", "name=test"])


def make_run(config: Config, *, checkpoints: tuple[int, ...], reached: int) -> Path:
    """Make a run with records of every step, and some checkpoints."""
    with RunDirectory.create(config) as run:
        run.keep_settings({"some/model": config.saves})
        for step in range(reached + 1):
            run.log_metrics(step, {"a": step})
            run.save_discussions(step, [])
            run.save_tokens(step, [], advantages={})
            if step in checkpoints:
                save_checkpoint(run, step)
    return run.path


def newest(path: Path, *overrides: str) -> int | None:
    with reopened(path, *overrides) as run:
        found = run.latest_checkpoint()
    return None if found is None else found[0]


def test_what_a_run_goes_back_behind_is_moved_aside_whole(config):
    path = make_run(config, checkpoints=(2,), reached=4)
    (path / "checkpoints/step_0003").mkdir()  # damaged
    with reopened(path) as run:
        assert run.path == path
        with run.models_folder(4) as folder:
            (folder / "agent_0").mkdir()
        run.go_back_to(2)
        run.log_metrics(3, {"a": 30})
    assert len(json.loads((path / "versions.json").read_text())) == 2  # of both processes
    [aside] = (path / "dropped").iterdir()
    assert rows_of(aside) == [{"step": step, "a": step} for step in (3, 4)]
    assert [row["a"] for row in rows_of(path)] == [0, 1, 2, 30]
    assert (steps_in(aside / "discussions"), steps_in(path / "discussions")) == ([3, 4], [0, 1, 2])
    assert (steps_in(aside / "tokens"), steps_in(path / "tokens")) == ([3, 4], [0, 1, 2])
    assert steps_in(aside / "checkpoints") == [3]
    assert (aside / "models/agent_0").is_dir()
    assert trained_steps(path) is None
    with reopened(path) as run:  # models of the step that a run goes on from stay
        with run.models_folder(3):
            pass
        run.go_back_to(3)
    assert trained_steps(path) == 3
    assert list((path / "dropped").iterdir()) == [aside]  # nothing is made for nothing


def test_a_run_whose_checkpoints_are_gone_is_refused_however_short_it_was(config):
    path = make_run(config, checkpoints=(2,), reached=2)  # training.save_every is larger
    shutil.rmtree(path / "checkpoints")
    with pytest.raises(ValueError, match=r"had a checkpoint of step 2, but .* holds none: restore"):
        newest(path, "training.num_steps=9", "resume_changed=true")
    with pytest.raises(ValueError, match=r"society.cold_start of a run cannot be changed"):
        reopened(path, "society.cold_start=other.jsonl", "resume_changed=true")
    assert steps_in(path / "discussions") == [0, 1, 2]


def test_a_checkpoint_of_another_run_is_passed_over_or_needs_a_word(config, caplog):
    path = make_run(config, checkpoints=(4,), reached=6)
    other = make_run(config, checkpoints=(6,), reached=6)
    shutil.copytree(other / "checkpoints/step_0006", path / "checkpoints/step_0006")
    assert newest(path) == 4
    assert "step_0006 was not sealed for this run" in caplog.text
    shutil.rmtree(path / "checkpoints/step_0004")
    with pytest.raises(ValueError, match=r"not sealed for this run.*resume_foreign=true"):
        newest(path)
    assert newest(path, "resume_foreign=true") == 6


def damage(path: Path) -> None:
    """Flip one bit in the middle, as a failing disk does."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


HARMS: dict[str, Callable[[Path], object]] = {
    "a file in its place": lambda folder: (shutil.rmtree(folder), folder.write_text("")),
    "a bit flipped": lambda folder: damage(folder / "weights"),
    "removed": lambda folder: (folder / "weights").unlink(),
    "added": lambda folder: (folder / "more").write_text(""),
    "seal cut off": lambda folder: os.truncate(folder / "seal.json", 20),
    "unsealed": lambda folder: (folder / "seal.json").unlink(),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_checkpoint_is_passed_over_for_the_one_before(config, caplog, harm):
    path = make_run(config, checkpoints=(6, 8), reached=8)
    HARMS[harm](path / "checkpoints/step_0008")
    assert newest(path) == 6
    assert "skipping a checkpoint: " in caplog.text
    with reopened(path) as run:
        run.go_back_to(6)
    [aside] = (path / "dropped").iterdir()
    assert steps_in(aside / "checkpoints") == [8]  # and is not deleted
    HARMS[harm](path / "checkpoints/step_0006")
    nothing_left = "resume_foreign=true" if harm == "unsealed" else "Restore one from a copy"
    with pytest.raises(ValueError, match=nothing_left):
        newest(path)


WHOLE = '"run": "a", "step": 2, "signature": ""}'
UNREADABLE = ["[]", '{"files": ["weights"], ' + WHOLE, "[" * 100_000]
STEERS_A_TERMINAL = '{"files": {"../\\u001b[2J": ""}, ' + WHOLE


@cases(
    "text, said",
    *((text, "seal.json cannot be read") for text in UNREADABLE),
    (STEERS_A_TERMINAL, r"../\x1b[2J, weights differs"),
)
def test_a_seal_that_a_stranger_wrote_is_only_compared(config, caplog, text, said):
    path = make_run(config, checkpoints=(2,), reached=2)
    (path / "checkpoints/step_0002/seal.json").write_text(text)
    with pytest.raises(ValueError, match=r"no checkpoint in .* can be loaded"):
        newest(path, "resume_foreign=true")
    assert said in caplog.text


def test_a_checkpoint_with_new_contents_and_a_new_list_of_them_is_foreign(config):
    path = make_run(config, checkpoints=(2,), reached=2)
    folder = path / "checkpoints/step_0002"
    (folder / "weights").write_text("another's")
    seal = json.loads((folder / "seal.json").read_text())
    seal["files"]["weights"] = hashlib.sha256(b"another's").hexdigest()
    for signature in (seal["signature"], "", "é"):
        (folder / "seal.json").write_text(json.dumps(seal | {"signature": signature}))
        with pytest.raises(ValueError, match="resume_foreign=true"):
            newest(path)


def test_the_seal_of_a_checkpoint_makes_no_run(config):
    path = make_run(config, checkpoints=(6,), reached=6)
    (path / "checkpoints/step_0006/seal.json").replace(path / "seal.json")
    with pytest.raises(ValueError, match="is a checkpoint, not a run, and resuming acts on"):
        newest(path)


def test_a_run_of_somebody_else_needs_a_word_and_is_compared(config, monkeypatch, tmp_path, caplog):
    path = make_run(config, checkpoints=(4, 6), reached=6).rename(tmp_path / "moved")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of somebody else"))
    with pytest.raises(ValueError, match=r"was not sealed with .*resume_foreign=true"):
        newest(path)
    assert newest(path, "resume_foreign=true") == 6
    assert "loading a checkpoint because of resume_foreign=true" in caplog.text
    damage(path / "checkpoints/step_0006/weights")
    assert newest(path, "resume_foreign=true") == 4
    assert "weights differs from what was written" in caplog.text


def test_a_strangers_run_is_refused_before_its_config_acts(config, monkeypatch, tmp_path, caplog):
    """Its config.yaml would join a Ray cluster, and allows itself to be resumed."""

    def joined(*_: object, **__: object) -> None:
        raise AssertionError("preflight connects")

    monkeypatch.setattr(preparation, "cluster_machine", joined)
    path = make_run(config, checkpoints=(2,), reached=2)
    text = (path / "config.yaml").read_text().replace("seed: 0", "seed: 1")
    (path / "config.yaml").write_text(text.replace("resume_foreign: false", "resume_foreign: true"))
    monkeypatch.setenv("RAY_ADDRESS", "10.6.6.6:6379")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of somebody else"))
    for arguments in ([], ["--dry-run"], ["configs/quickstart.yaml"]):
        assert main([*arguments, f"resume={path}"]) == EXIT_ERROR
        assert "was not sealed with the key in " in caplog.text
        assert "If you trust whoever wrote it, add resume_foreign=true" in caplog.text
        caplog.clear()
    with pytest.raises(AssertionError, match="preflight connects"):
        main([f"resume={path}", "resume_foreign=true", "resume_changed=true"])


@cases("file, old, new")
def test_an_edit_by_hand_is_another_setting(config, caplog, file, old, new):
    path = make_run(config, checkpoints=(2,), reached=2)
    edited = (path / file).read_text().replace(old, new)
    assert edited != (path / file).read_text()
    (path / file).write_text(edited)
    with pytest.raises(ValueError, match="begun with other settings") as raised:
        load_config(None, [f"resume={path}"])
    said = rf"{file}: sha256 \w{{12}} -> sha256 \w{{12}}"
    assert re.search(said, str(raised.value))
    assert "add resume_changed=true" in str(raised.value)
    with reopened(path, "resume_changed=true") as run:
        assert re.search(f"continues with other settings or files: {said}", caplog.text)
        run.keep_settings({})
    assert newest(path) == 2  # from now on it has these settings


def scale_weights(file: Path) -> None:
    """Change the contents, but not the name, size or time of the file."""
    times = file.stat()
    save_file({name: 1.3 * tensor for name, tensor in load_file(file).items()}, file)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def reverse_lines(file: Path) -> None:
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "questions.jsonl": (reverse_lines, "data.train"),
    "held_out.jsonl": (reverse_lines, "data.validation"),
    "tied/model.safetensors": (scale_weights, "{}/tied"),
    "tied/chat_template.jinja": (lambda file: file.write_text("{{ messages }}"), "{}/tied"),
    "tied/generation_config.json": (lambda file: file.write_text('{"top_k": 1}'), "{}/tied"),
}


def test_inputs_that_changed_are_another_setting(tmp_path, caplog):
    prepared = prepare(load_config(QUICKSTART, tiny_settings(tmp_path)))
    with RunDirectory.create(prepared.config) as run:
        run.keep_settings(prepared.locations, prepared.sources, prepared.contents)
        save_checkpoint(run, 2)
    resume = f"resume={run.path}"
    assert main(["--dry-run", resume]) == 0, caplog.text
    for file, (change, said) in CHANGES.items():
        before = (tmp_path / file).read_bytes()
        change(tmp_path / file)
        caplog.clear()
        assert main(["--dry-run", resume]) == main([resume]) == EXIT_ERROR
        name = re.escape(said.format(tmp_path))
        told = rf"files \(contents of {name}: sha256 \w{{12}} -> sha256 \w{{12}}\); restore them"
        assert len(re.findall(told, caplog.text)) == 2, caplog.text
        assert "or add resume_changed=true" in caplog.text
        (tmp_path / file).write_bytes(before)


@pytest.mark.parametrize("text", [None, "", "[1]", '{"run": "a"}', '{"run": "a", "files": {}}'])
def test_a_run_without_a_readable_seal_needs_a_word(config, text):
    path = make_run(config, checkpoints=(2,), reached=2)
    if text is None:
        (path / "seal.json").unlink()
    else:
        (path / "seal.json").write_text(text)
    said = "(has no seal|seal.json cannot be read).*resume_foreign=true"
    with pytest.raises(ValueError, match=said):
        newest(path)
    with reopened(path, "resume_foreign=true") as run:
        assert run.latest_checkpoint() is not None
        run.keep_settings({})
        save_checkpoint(run, 3)
    assert newest(path) == 3  # it is this user's now
