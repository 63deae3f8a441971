"""What a role is told: the shipped prompts, and those from a user's file."""

import hashlib
from pathlib import Path

import pytest
from builders import discuss
from small_runs import begun, written
from tables import case_file, cases

from comas.config import ConfigError
from comas.interaction import prompts
from comas.interaction.prompts import EVALUATION, RATING, SCORING, SHIPPED, SOLUTION, fill
from comas.interaction.wording import read_wording, wording_of
from comas.preflight.configuration import load_config
from comas.reward_formulation.interaction_reward import parse_score
from comas.reward_formulation.judgment_reward import parse_judgment
from comas.reward_formulation.self_rewarding import parse_rating
from comas.run.seals import kept_source
from comas.types import ALL_DOMAINS, Question
from evaluation.models import kept_prompts
from evaluation.tasks import held_out_tasks


@pytest.mark.parametrize("domain", ALL_DOMAINS)
@cases(
    "template, parse, shown",
    (SCORING, parse_score, 1),
    (prompts.SCORING_ALONE, parse_score, 1),
    (prompts.EVALUATION_WITH_JUDGMENT, parse_judgment, "incorrect"),
    (RATING, parse_rating, 2),
)
def test_the_example_in_a_prompt_can_be_read(template, parse, shown, domain):
    texts = {"solution": "THE SOLUTION", "evaluation": "THE EVALUATION"}
    text = fill(template, domain, question="QUESTION", **texts)
    assert "QUESTION" in text and "THE SOLUTION" in text
    assert ("THE EVALUATION" in text) == (template == SCORING)
    assert template != SCORING or prompts.discussion_text([]) not in text
    assert parse(text.partition("for example: ")[2].partition("\n")[0]) == shown


OWN, FAULTY, FAULTS = (case_file("wording")[name] for name in ("OWN", "FAULTY", "FAULTS"))


def faults(tmp_path: Path, text: str) -> list[str]:
    path = written(tmp_path / f"{len(text)}.yaml", text)
    with pytest.raises(ValueError) as caught:
        read_wording(path)
    said, *listed = str(caught.value).split("\n   ")
    assert said == f"{path}:" or not listed
    return listed or [said]


def test_the_shipped_wording_is_whole_and_is_what_it_always_was():
    named = [item for section in SHIPPED.values() for item in section.items()]
    texts = "\0".join(text for key, text in named if key not in ("choice", "reasoning"))
    assert hashlib.sha256(texts.encode()).hexdigest()[:16] == "24bd24ae2564709f"


def test_a_file_words_only_what_it_holds_differently(tmp_path):
    wording = wording_of(str(written(tmp_path / "prompts.yaml", OWN)))
    quoted = {"question": "1 + 1?", "solution": "2", "evaluation": "Right.", "wording": wording}
    own = "1 + 1? 2 Right.\nSay <score>1</score>, {or} <score>3</score>."
    assert fill(SCORING, "math", **quoted) == own
    shipped = {**quoted, "wording": SHIPPED}
    assert fill(SCORING, "science", **quoted) == fill(SCORING, "science", **shipped)
    assert fill(SOLUTION, "math", question="1 + 1?", wording=wording).endswith("nothing yet")
    for template in (SOLUTION, EVALUATION, RATING):
        asked = {"question": "?", "solution": "2", "history": [prompts.HistoryItem("2", None)]}
        own = fill(template, "coding", **asked, wording=wording)
        assert own == fill(template, "coding", **asked)
    assert wording_of(None) is SHIPPED


def test_a_quoted_text_can_be_cut(tmp_path):
    text = """solution: {math: "{question} {discussion}"}
scoring: {math: "{question:.5} {solution:.4} {evaluation:.0}<score>1</score>"}
history: {item: "{solution:.2}, {evaluation:.1}"}"""
    wording = wording_of(str(written(tmp_path / "prompts.yaml", text)))
    quoted = {"question": "1 + 1?", "wording": wording}
    said = fill(SCORING, "math", solution="It is 2", evaluation="No", **quoted)
    assert said == "1 + 1 It i <score>1</score>"
    heard = [prompts.HistoryItem("It is 2", "No")]
    assert fill(SOLUTION, "math", history=heard, **quoted) == "1 + 1? It, N"


def test_every_fault_of_a_file_has_its_line(tmp_path):
    for line, said in zip(faults(tmp_path, FAULTY), FAULTS, strict=True):
        assert line.startswith(said)
    assert faults(tmp_path, "- a\n") == ["line 1: it does not hold roles"]
    [fault] = faults(tmp_path, "history:\n  empty: a\n  empty: b\n")
    assert "is not YAML" in fault and "line" in fault


def test_agents_and_validations_are_asked_in_the_words_of_the_file(tmp_path):
    own = 'solution:\n  math: "Q {question} D {discussion}"\n'
    path = written(tmp_path / "prompts.yaml", OWN + own)
    rules = {"prompts": str(path), "num_rounds": 1, "prompt_reuse": 1}
    [discussion] = discuss([Question("q", "math", "1 + 1?")], num_agents=2, **rules)
    assert discussion.turns[0].prompt == "Q 1 + 1? D nothing yet"
    assert discussion.turns[2].prompt.endswith("Say <score>1</score>, {or} <score>3</score>.")
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text('{"id": "a", "task": "math", "prompt": "2?", "answer": "2", "source": "s"}')
    [task] = held_out_tasks(held_out, limit=None, prompts=str(path))
    assert task.query == "Q 2? D nothing yet"


def test_the_preflight_refuses_an_invalid_file(tmp_path):
    path = written(tmp_path / "prompts.yaml", "scoring:\n  math: score it\n")
    with pytest.raises(ConfigError, match=r"line 2: scoring\.math lacks .*\s+.*\s+-> mend"):
        load_config(None, [f"interaction.prompts={path}"])


@cases("rules, has_history")
def test_a_solvers_prompt_quotes_the_discussion_wherever_there_is_one(tmp_path, rules, has_history):
    own = written(tmp_path / "own.yaml", 'solution: {math: "{question}", choice: "{question}"}')
    settings = [f"interaction.{rule}" for rule in rules]
    if "schedule=debate" in rules:
        settings += ["interaction.criticism=none", "reward.scheme=majority"]
    settings += [f"interaction.prompts={own}"]
    if not has_history:
        assert load_config(None, settings).interaction.prompts == str(own)
        return
    with pytest.raises(ConfigError) as caught:
        load_config(None, settings)
    said = str(caught.value)
    assert "solution.math, solution.choice must quote {discussion}, or nobody sees" in said
    assert "interaction.num_rounds to 1" in said and said.count("->") == 1


def test_a_run_keeps_its_prompts_and_a_resume_compares_them(tmp_path):
    path = written(tmp_path / "prompts.yaml", OWN)
    config = load_config(None, [f"saves={tmp_path / 'saves'}", f"interaction.prompts={path}"])
    written(path, OWN + "# other words\n")  # while the run prepares: it uses what it has read
    run = begun(config)
    with pytest.raises(ValueError, match="add resume_changed=true"):
        load_config(None, [f"resume={run}"])
    kept = kept_source(run, path)
    assert kept is not None and kept.read_text() == OWN
    assert kept_source(run, prompts.SHIPPED_FILE) is None
    assert kept_prompts(run, config) == str(kept)  # what an evaluation of it asks with
    assert kept_prompts(run, load_config(None, [])) is None
    written(kept, f"{OWN}# edited\n")
    with pytest.raises(ValueError, match=r"sources lacks the file of interaction\.prompts"):
        kept_prompts(run, config)
