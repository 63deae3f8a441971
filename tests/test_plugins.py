"""Plug-ins: objects from a user's own files and packages, named instead of ours."""

import json
import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import discussion, turn
from programs import run_to_end
from ray.exceptions import RayTaskError
from small_runs import (
    QUICKSTART,
    REPOSITORY,
    begun,
    rows_of,
    save_checkpoint,
    tiny_settings,
    written,
)
from tables import case_file, cases

from comas import __main__ as command
from comas.__main__ import main
from comas.config import ConfigError
from comas.config.plugins import PluginError, Registry, adopt_texts, digest_of
from comas.data import QuestionSet
from comas.engines.cluster.supervision import EngineError
from comas.interaction.criticism import CRITICISMS
from comas.interaction.schedules import SCHEDULES
from comas.policy_optimization import ADVANTAGE_ESTIMATORS
from comas.preflight.checks import errors_of
from comas.preflight.configuration import load_config
from comas.preflight.plugins import PLUGIN_KEYS, check_plugins
from comas.reward_formulation import REWARD_SCHEMES
from comas.run import RunDirectory
from comas.run.trackers import TRACKERS
from comas.types import Question
from comas.verification import Verifier
from comas.verification.verifiers import VERIFIERS
from evaluation.benchmarks import BENCHMARKS
from evaluation.config import read_command
from evaluation.setups import SETUPS

GREETINGS: Registry[str] = Registry(
    {"hello": "Hello"},
    group="comas.test_greetings",
    wanted="a text",
    adapt=lambda found: found if isinstance(found, str) else None,
)
ASKED = QuestionSet(tuple(Question(q, "math", "?") for q in "qp"), {"q": "71", "p": "2"})
CONSTANT = case_file("plugins")["CONSTANT"]


def worked_example(folder: Path) -> tuple[Path, list[str]]:
    """CONTRIBUTING.md's file, outside the checkout, and the settings that choose its functions."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    [example] = [b for b in re.findall(r"```python\n(.*?)```", text, re.S) if "brief_reward" in b]
    path = folder / "ideas/brief.py"
    path.parent.mkdir()
    path.write_text(example)
    chosen = {"reward.scheme": "brief_reward", "verification.verifiers.math": "same_text"}
    return path, [f"{key}={path}:{name}" for key, name in chosen.items()]


def refusal(name: str, registry: Registry[Any] = GREETINGS) -> str:
    with pytest.raises(PluginError) as caught:
        registry[name]
    return str(caught.value)


def test_a_shipped_name_a_file_and_a_module_are_looked_up_in_the_same_way(tmp_path, monkeypatch):
    path = written(tmp_path / "words.py", "class Kind:\n    word = 'Moin'\n\nSERVUS = 'Servus'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert GREETINGS["hello"] == "Hello"
    assert GREETINGS[f"{path}:SERVUS"] == GREETINGS["words:SERVUS"] == "Servus"
    assert GREETINGS[f"{path}:Kind.word"] == "Moin"
    assert list(GREETINGS) == ["hello"]
    source = GREETINGS.source_of(f"{path}:SERVUS")
    assert str(source) == f"{path}, line 4" and source.digest == digest_of(path.read_text())
    assert GREETINGS.source_of("hello") is None
    monkeypatch.delitem(sys.modules, "words")  # as in a process that starts later
    written(path, "SERVUS = 'Pfiat di'\n")
    assert f"{path} was edited meanwhile; restore it" in refusal("words:HALLO")


def test_an_installed_package_registers_names_as_entry_points(tmp_path, monkeypatch):
    written(tmp_path / "island.py", "MOIN = 'Moin'\n")
    (tmp_path / "island-1.0.dist-info").mkdir()
    written(tmp_path / "island-1.0.dist-info/METADATA", "Name: island\nVersion: 1.0\n")
    points = "[comas.test_greetings]\nmoin = island:MOIN\n"
    written(tmp_path / "island-1.0.dist-info/entry_points.txt", points)
    monkeypatch.syspath_prepend(tmp_path)
    assert GREETINGS["moin"] == "Moin"
    assert "choose one of: hello, moin; or name an object of your own" in refusal("ahoy")


def test_what_cannot_be_used_is_refused_with_the_line_of_the_file(tmp_path, monkeypatch):
    lines = ["import os", "from string import digits", "", "NUMBER = 3", "WORD = 'a'"]
    path = written(tmp_path / "bad.py", "\n".join(lines))
    assert refusal(f"{path}:NUMBER") == f"{path}, line 4: it is of type int; make it a text"
    others = "define a text, there, or name another object: digits, NUMBER, WORD"
    assert refusal(f"{path}:nothing") == f"{path} has no nothing; {others}"
    assert "nowhere.py cannot be read: No such file or directory" in refusal("nowhere.py:x")
    assert "holds NUL bytes: save" in refusal(f"{written(tmp_path / 'nul.py', chr(0))}:x")
    assert "there is no module no.such.module" in refusal("no.such.module:x")
    (tmp_path / "broken").mkdir()
    written(tmp_path / "broken/__init__.py", "1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    assert "there is no module broken.r (ZeroDivisionError" in refusal("broken.r:x")


@cases("text, said")
def test_a_file_that_fails_is_refused_at_its_line(tmp_path, text, said):
    path = written(tmp_path / "mine.py", text)
    assert f"{path}, {said}" in refusal(f"{path}:a")


def test_faults_of_plugins_are_faults_of_their_keys(tmp_path):
    path = written(tmp_path / "fixed.py", "oh no\n")
    keys = [*PLUGIN_KEYS, "verification.verifiers.math"]
    keys = [key for key in keys if key not in ("verification.verifiers.*", "interaction.program")]
    names = {key: f"[{path}:x]" if key == "logging.trackers" else f"{path}:x" for key in keys}
    settings = [f"{key}={name}" for key, name in names.items()]
    with pytest.raises(ConfigError) as caught:
        load_config(None, ["algorithm.name=custom", *settings])
    assert {fault.settings[0].key for fault in caught.value.errors} == {*keys}
    assert all(f"{path}, line 1: SyntaxError" in str(fault) for fault in caught.value.errors)


def test_a_bare_function_is_a_scheme_and_an_estimator_but_no_criticism(tmp_path):
    path = written(tmp_path / "fixed.py", CONSTANT)
    scheme = REWARD_SCHEMES[f"{path}:half"]
    [rewarded] = scheme([discussion(turn("r0.s0"))], dict, seed=0, step=0).discussions
    assert rewarded.rewards == (0.5,) and scheme.needs == () and scheme.reads is None
    assert ADVANTAGE_ESTIMATORS[f"{path}:half"].group_by == ()
    assert "it is of type function; make it a Criticism" in refusal(f"{path}:half", CRITICISMS)


def test_rewards_and_metrics_of_numpy_and_torch_are_numbers_to_json(tmp_path):
    path = written(
        tmp_path / "measured.py",
        "import numpy, torch\nfrom comas.types import RewardedDiscussion, Rewards\n\n\n"
        "def x(discussions):\n"
        "    each = [RewardedDiscussion(d, (torch.tensor(0.5),)) for d in discussions]\n"
        "    return Rewards(each, {'a': numpy.float32(0.25), 'b': None})\n",
    )
    rewards = REWARD_SCHEMES[f"{path}:x"]([discussion(turn("r0.s0"))], dict, seed=0, step=0)
    found = json.dumps([rewards.discussions[0].rewards, rewards.metrics])
    assert found == '[[0.5], {"a": 0.25, "b": null}]'


def test_the_error_of_a_plugin_can_be_sent_to_another_process():
    error = pickle.loads(pickle.dumps(PluginError("my.py, line 3: it fails", "mend it")))
    assert str(error) == "my.py, line 3: it fails; mend it"


@cases(
    "registry, name, call",
    (REWARD_SCHEMES, "f", "f() is called with (discussions)"),
    (REWARD_SCHEMES, "scheme", "(discussions) is called with (discussions, verdicts=)"),
    (ADVANTAGE_ESTIMATORS, "f", "f() is called with (inputs)"),
    (ADVANTAGE_ESTIMATORS, "estimator", "f() is called with (inputs)"),
    (SCHEDULES, "f", "f() is called with (discussions, num_agents=, rules=, rng=)"),
    (CRITICISMS, "criticism", "f() is called with (submission)"),
    (CRITICISMS, "one_role", "its roles are Role(name='tool'"),
    (VERIFIERS, "f", "f() is called with (response, gold)"),
    (TRACKERS, "f", "f() is called with (config, run)"),
    (BENCHMARKS, "benchmark", "f() is called with (row)"),
    (SETUPS, "setup", "f() is called with (task, ask)"),
)
def test_what_cannot_be_called_as_it_will_be_is_refused(tmp_path, registry, name, call):
    path = written(tmp_path / "misfits.py", case_file("plugins")["MISFITS"])
    said = refusal(f"{path}:{name}", registry)
    assert f"{path}, line " in said and call in said and f"; make it {registry.wanted}" in said


def plugin_errors(*settings: str) -> list[str]:
    """The errors of plug-ins, wherever they are found before a run."""
    try:
        return errors_of(check_plugins(load_config(QUICKSTART, settings), ASKED))
    except ConfigError as error:
        return [str(error)]


@cases("key, definition, said")
def test_what_ends_or_misreturns_is_told_before_a_run(tmp_path, key, definition, said):
    name = "builtins:print"
    if definition is not None:
        name = f"{written(tmp_path / 'other.py', definition)}:x"
    [error] = plugin_errors("algorithm.name=custom", f"{key}={name}")
    assert key.partition(".")[0] in error or "other.py, line" in error
    assert said in error


@cases("definition, is_refused")
def test_a_kl_penalty_that_nothing_subtracts_is_refused(tmp_path, definition, is_refused):
    estimator = f"algorithm.estimator={written(tmp_path / 'mine.py', definition)}:x"
    errors = plugin_errors("algorithm.name=custom", "algorithm.kl_coef=0.1", estimator)
    assert ["ignores inputs.log_ratios" in error for error in errors] == [True] * is_refused
    assert plugin_errors("algorithm.name=custom", "algorithm.kl_coef=0", estimator) == []


def test_workers_judge_with_the_text_that_this_process_has_read(tmp_path):
    path = tmp_path / "mine.py"
    adopt_texts({str(path): "def verify(response, gold):\n    return gold\n"})
    written(path, "def verify(response, gold):\n    raise KeyError(response)\n")  # edited since
    items = [("math", "a", "wrong"), ("science", r"\boxed{2}", "2")]
    with Verifier(num_workers=1, chosen={"math": f"{path}:verify"}) as verifier:
        assert verifier.verify_batch(items) == ["wrong", "correct"]


def test_a_dry_run_tries_the_worked_example_and_says_where_it_is(tmp_path):
    path, chosen = worked_example(tmp_path)
    checks = check_plugins(load_config(QUICKSTART, chosen), ASKED)
    assert errors_of(checks) == []
    text = path.read_text()
    for name in ("brief_reward", "same_text"):
        [line] = [n for n, of in enumerate(text.splitlines(), 1) if of.startswith(f"def {name}(")]
        where = f"{path}, line {line}, sha256 {digest_of(text)[:12]}"
        assert where in [check.present for check in checks]


def test_a_run_keeps_the_text_and_a_resume_compares_it(tmp_path, caplog):
    path = written(tmp_path / "fixed.py", CONSTANT)
    run = begun(load_config(None, [f"saves={tmp_path / 'saves'}", f"reward.scheme={path}:half"]))
    digest = digest_of(CONSTANT)
    assert (run / f"sources/{digest[:12]}-fixed.py").read_text() == CONSTANT
    assert json.loads((run / "seal.json").read_text())["files"][str(path)] == digest

    load_config(None, [f"resume={run}"])
    written(path, CONSTANT + "raise SystemError('it was run')\n")
    with pytest.raises(ValueError, match=f"{path}: sha256 {digest[:12]} -> sha256 "):
        load_config(None, [f"resume={run}"])  # before anything of it is run
    edited = written(path, CONSTANT + "# better\n").read_text()
    with RunDirectory.open(load_config(None, [f"resume={run}", "resume_changed=true"])) as resumed:
        resumed.keep_settings({}, {str(path): edited})
    assert "this run continues with other settings or files" in caplog.text
    assert {file.read_text() for file in (run / "sources").iterdir()} == {CONSTANT, edited}
    load_config(None, [f"resume={run}"])
    path.unlink()
    with pytest.raises(ValueError, match=r"fixed\.py: .* -> gone"):
        load_config(None, [f"resume={run}"])


IN_ACTOR = EngineError("rank 0 failed")
IN_ACTOR.__cause__ = RayTaskError("f", "", PluginError("my.py, line 2", "mend it"))
WORD = "resume_changed=true"


@cases(
    "error, step, said, word",
    (PluginError("my.py, line 2", "mend it"), 4, "after step 4, once the error is mended", WORD),
    (IN_ACTOR, None, r"start over \(there is no .* yet\), once the error is mended", WORD),
    (ValueError("bring the checkpoints back"), 4, "after step 4, once the error is mended", ""),
    (KeyboardInterrupt(), None, r"start over \(there is no checkpoint yet\)", ""),
    (KeyboardInterrupt(), 4, "continue after step 4", ""),
)
def test_a_failed_run_says_how_it_goes_on(tmp_path, monkeypatch, caplog, error, step, said, word):
    def fail(prepared: object, run: RunDirectory) -> None:
        if step is not None:
            save_checkpoint(run, step)
        raise error

    monkeypatch.setattr(command, "train", fail)
    assert main([str(QUICKSTART), *tiny_settings(tmp_path)]) > 0
    last = caplog.messages[-1]
    told = re.fullmatch(rf"to .*{said}: bash \S+train_comas.sh resume=(\S+)( {word})?", last)
    assert told and bool(told[2]) == bool(word), last
    assert Path(told[1]).samefile(tmp_path / "saves/latest")
    ended = (Path(told[1]) / "ended").read_text()
    assert main(["--export-best", f"resume={told[1]}"]) == 1  # whose error is not the run's end
    assert caplog.messages[-1].endswith("has no best checkpoint: training.keep_best is null")
    assert (Path(told[1]) / "ended").read_text() == ended


def test_a_tracker_of_ones_own_gets_every_row(tmp_path, caplog):
    tracker = case_file("plugins")["TRACKER"]
    path = written(tmp_path / "notes.py", tracker)
    config = load_config(None, [f"saves={tmp_path}", f"logging.trackers=[{path}:Notes]"])
    with RunDirectory.create(config) as run:
        run.log_metrics(0, {"a": 1.5})
        run.log_metrics(1, {"a": None})
    rows = [json.loads(line) for line in (run.path / "notes").read_text().splitlines()]
    assert rows == [{"step": 0, "a": 1.5}, {"step": 1, "a": None}, "closed, failed: False"]
    rough = tracker.replace("self.log(f", "raise OSError(f").replace("(row)", "(row.pop('step'))")
    config.logging.trackers = [f"{written(tmp_path / 'rough.py', rough)}:Notes"] * 2
    with pytest.raises(KeyboardInterrupt), RunDirectory.create(config) as run:
        run.log_metrics(0, {"a": 1.5})
        raise KeyboardInterrupt
    assert caplog.text.count("was not closed: closed, failed: True") == 2
    mute = written(tmp_path / "mute.py", tracker.replace("def close", "def end"))
    config.logging.trackers = [f"{mute}:Notes"]
    with pytest.raises(PluginError, match=r"mute.py:Notes lacks a method of a Tracker"):
        RunDirectory.create(config)
    broken = written(tmp_path / "broken.py", tracker.replace("config.name", "config.nothing"))
    config.logging.trackers = [config.logging.trackers[0].replace("mute", "rough")]
    config.logging.trackers += [f"{broken}:Notes"]
    with pytest.raises(PluginError, match=r"line 6 \(__init__\): AttributeError: .* 'nothing'"):
        RunDirectory.create(config)
    assert caplog.text.count("was not closed: closed, failed: True") == 3  # the one that started
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 3  # two runs, latest


def test_setups_and_benchmarks_may_be_plugins_under_names_of_their_own(tmp_path):
    path = written(
        tmp_path / "mine.py",
        "from evaluation.setups import SETUPS\nTWICE = vanilla = SETUPS['vanilla']\n",
    )
    command = read_command(["mine", "saves/x", f"setups=[vanilla,{path}:TWICE]"])
    assert command.config.setups == ["vanilla", f"{path}:TWICE"]
    with pytest.raises(ConfigError, match="must hold names, each once"):
        read_command(["mine", "saves/x", f"setups=[{path}:vanilla]"])
    with pytest.raises(ConfigError, match=r"it is of type Setup\s+-> make it a Benchmark\Z"):
        read_command(["mine", "saves/x", f"benchmarks=[{path}:TWICE]"])


@pytest.mark.stack
def test_the_worked_example_trains_adapters_from_outside_the_checkout(tmp_path, society):
    _, chosen = worked_example(tmp_path)
    half = written(tmp_path / "half.py", case_file("plugins")["HALF"])
    (tmp_path / "saves").mkdir()
    (tmp_path / "saves/quickstart").symlink_to(society.parent)
    config = QUICKSTART.with_name("quickstart_lora.yaml")  # of one base: one engine
    command = [sys.executable, "-m", "comas", str(config)]
    settings = [
        f"saves={tmp_path / 'saves'}",
        *("training.num_steps=1", "rollout.batch_size=8"),
        *("validation.num_questions=6", "data.probe=null"),
        *(*chosen, "algorithm.name=custom", f"algorithm.estimator={half}:half"),
    ]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = run_to_end(*command, *settings, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "saves/latest"
    [_, step] = rows_of(run)
    turns = [
        turn
        for line in (run / "discussions/step_0001.jsonl").read_text().splitlines()
        for turn in json.loads(line)["turns"]
    ]
    assert {turn["reward"] for turn in turns} & {-0.1, 0.4, 0.9}  # of long responses
    assert len(list((run / "sources").iterdir())) == 2
    for agent in range(2):
        assert step[f"agent_{agent}/policy/num_samples"] == len(turns) / 2
        assert step[f"agent_{agent}/rollout_mismatch/max"] < 1e-3
        assert (run / f"models/agent_{agent}/adapter_config.json").is_file()
