"""Questions that reasoning_gym makes, and its score_answer in the sandbox."""

import json

import pytest
from small_runs import QUICKSTART
from tables import cases

from comas.config import ConfigError
from comas.config.schema import Data, ReasoningGym
from comas.data import DataError, load_questions, reasoning_gym
from comas.data.preparation.check import main
from comas.data.reasoning_gym import (
    HELD_OUT,
    NUM_HELD_OUT,
    UNSOUND,
    endless_rules,
    generated_rows,
    held_out_rules,
)
from comas.preflight.configuration import load_config
from comas.verification import Verifier
from comas.verification.reasoning_gym import Gold, try_tasks, verify_reasoning_gym

TASKS = {"chain_sum": {"max_terms": 3}, "countdown": {"size": 1, "seed": 5}}
ON = ("data.train=reasoning_gym", "data.reasoning_gym.tasks={chain_sum: {}}")


def rules(**settings: object) -> Data:
    return Data(reasoning_gym=ReasoningGym(**{"tasks": TASKS, "size": 3} | settings))


def test_held_out_questions_have_seeds_of_their_own_and_a_run_as_many_as_it_asks():
    held_out = held_out_rules(rules()).reasoning_gym
    assert held_out.size == NUM_HELD_OUT
    chain_sum = {"max_terms": 3, "seed": HELD_OUT}
    assert held_out.tasks == {"chain_sum": chain_sum, "countdown": {"seed": 5 + HELD_OUT}}
    endless = rules(size=None)
    assert endless_rules(endless, num_questions=7).reasoning_gym.size == 4  # of each of 2 tasks
    assert endless_rules(rules(), num_questions=7).reasoning_gym.size == 3
    with pytest.raises(DataError, match=r"data\.reasoning_gym\.size: null is for a run of"):
        generated_rows(endless)


@cases(
    "overrides, said",
    ([*ON, "data.reasoning_gym.tasks.gcd=3"], "must be a mapping of the task's options"),
    ([*ON, "data.reasoning_gym.tasks.gcd.size=0"], "must be a whole number from 1 to"),
    ([*ON, "data.reasoning_gym.tasks.gcd.seed=x"], "must be a whole number from 0 to"),
)
def test_keys_that_make_no_questions_are_faults(overrides, said):
    with pytest.raises(ConfigError, match=said):
        load_config(QUICKSTART, overrides)


def test_tasks_for_which_a_constant_is_right_are_refused_with_the_reason():
    with pytest.raises(DataError, match=r"tasks: leave these out:\n") as error:
        generated_rows(rules(tasks={task: {} for task in UNSOUND} | TASKS))
    named = [fault.split(":")[0] for fault in str(error.value).split("\n  ")[1:]]
    assert named == ["coin_flip", "game_of_life_halting", "puzzle24"]


def test_another_version_and_a_gold_of_somebody_elses_are_faults(monkeypatch):
    monkeypatch.setattr(reasoning_gym, "version", lambda name: "9.9")
    with pytest.raises(DataError, match=r"version 0\.1\.25 .*: 9\.9 is installed: .*pip install"):
        generated_rows(rules(size=4))
    with pytest.raises(ValueError, match=r"was not made by data\.train=reasoning_gym"):
        verify_reasoning_gym(r"\boxed{1}", "71")


@pytest.fixture(scope="module")
def made() -> list[dict[str, str]]:
    pytest.importorskip("reasoning_gym")
    return [row for _, row in generated_rows(rules())]


def test_tasks_take_turns_by_their_share_and_ids_say_how_questions_were_made(made):
    assert [row["id"].removeprefix("reasoning_gym/") for row in made] == [
        "chain_sum/seed0/0",
        "chain_sum/seed0/1",
        "countdown/seed5/0",
        "chain_sum/seed0/2",
    ]
    assert {row["task"] for row in made} == {"reasoning"}


def test_questions_do_not_depend_on_the_process(made, monkeypatch):
    """ransom_note goes through a set of letters."""
    wanted = rules(tasks={"ransom_note": {}}, size=3)
    first = generated_rows(wanted)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert generated_rows(wanted) == first


def test_held_out_questions_are_others(made):
    wanted = rules(tasks={"chain_sum": {}}, size=30)
    train, held_out = (load_questions("reasoning_gym", r) for r in (wanted, held_out_rules(wanted)))
    assert not {q.text for q in train.questions} & {q.text for q in held_out.questions}


def test_tasks_that_cannot_be_made_are_named_all_at_once_with_what_there_is(made):
    tasks = {"chain_summ": {}, "gcd": {"values": 3}, "lcm": {"min_value": -1}}
    with pytest.raises(DataError) as error:
        generated_rows(rules(tasks=tasks))
    first, *faults = str(error.value).split("\n  ")
    assert first == "data.reasoning_gym.tasks:"
    assert faults[0].startswith("chain_summ: there is no such task; chain_sum, ")
    assert faults[1].startswith("gcd: it has no option values; it has min_numbers, ")
    assert faults[2].startswith("lcm: {'size': 3, 'min_value': -1} are no options of it")


@pytest.fixture(scope="module")
def golds(made) -> dict[str, str]:
    tasks = {"spiral_matrix": {}, "countdown": {}, "simple_integration": {}, "rubiks_cube": {}}
    return {
        Gold.read(row["answer"]).task: row["answer"]
        for _, row in generated_rows(rules(tasks=tasks, size=1))
    }


@pytest.mark.stack
def test_tasks_judge_their_own_answers_right_and_others_or_endless_ones_wrong(golds):
    assert try_tasks(golds.values()) == "countdown, rubiks_cube, simple_integration, spiral_matrix"
    own = {task: Gold.read(gold).own_answer for task, gold in golds.items()}
    assert own.pop("rubiks_cube") is None  # judged by its rules alone
    items = [("reasoning", rf"So \boxed{{\text{{{own[task]}}}}}", golds[task]) for task in own]
    items += [("reasoning", r"\boxed{0}", gold) for gold in golds.values()]
    items += [("reasoning", text, golds["countdown"]) for text in (r"\boxed{9**9**9**9}", "no box")]
    with Verifier(num_workers=1) as verifier:
        verdicts = verifier.verify_batch(items)
    assert verdicts == ["correct"] * 3 + ["wrong"] * 5 + ["unanswered"]


@pytest.mark.stack
@pytest.mark.parametrize("task", ["spiral_matrix", "countdown", "simple_integration"])
def test_an_answer_that_is_code_is_never_run(golds, task):
    """reasoning_gym evaluates all three: each of these would be right."""
    gold = Gold.read(golds[task])
    own = str(gold.own_answer)
    code = {
        "spiral_matrix": f"{own!r}.split()",
        "countdown": f"{own}+len([])",
        "simple_integration": f"eval({own.replace('**', '^')!r})",
    }[task]
    assert verify_reasoning_gym(rf"\boxed{{{own}}}", golds[task]) == "correct"
    assert verify_reasoning_gym(rf"\boxed{{{code}}}", golds[task]) == "wrong"


@pytest.mark.stack
def test_the_check_of_data_knows_them(made, capsys):
    assert main(["reasoning_gym", "data.reasoning_gym.tasks={gcd: {size: 2}}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "reasoning_gym: 2 records, 0 of them faulty"
    own = json.loads(generated_rows(rules(tasks={"gcd": {"size": 2}}))[-1][1]["answer"])
    assert lines[-3].strip() == Gold(**own).own_answer
