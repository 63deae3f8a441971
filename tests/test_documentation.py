"""Names in the documentation exist, its Python runs, and its numbers are those in results/."""

import asyncio
import json
import re
from itertools import product
from typing import Any

import pytest
import torch
import yaml
from builders import discuss
from config_errors import every_key
from small_runs import REPOSITORY
from tables import case_file, cases

from comas.config.keys import keys_of
from comas.config.schema import Config
from comas.data.preparation import Item
from comas.interaction.schedules import SCHEDULES
from comas.policy_optimization.advantages import AdvantageInputs
from comas.policy_optimization.losses import LossInputs
from comas.reproduction.report import comparison_table, mean_and_spread
from comas.reproduction.results import pooled, read_records
from comas.run.metrics.step import step_lines
from comas.types import Question
from evaluation.types import BenchmarkTask, Message
from scripts.seeded_faults import TABLE, SeededFault

DOCUMENTS = (
    *("README.md", "CONTRIBUTING.md", "DEPARTURES.md", "comas/README.md", "configs/README.md"),
    *("comas/run/metrics/metrics.md", "data/README.md", "evaluation/README.md"),
    *(f"results/{name}.md" for name in ("README", "lasting", "model_types", "smollm2", "votes")),
)
GENERATED = ("data/", "results/", "saves/")
"""Written by runs, except for the pages."""


ROOTS = ("comas", "evaluation", "configs", "scripts", "tests", ".ci")
FILES = {
    str(path.relative_to(REPOSITORY))
    for pattern in ("*", *(f"{root}/**/*" for root in ROOTS))
    for path in REPOSITORY.glob(pattern)
    if path.is_file()
}
SECTIONS = {name.partition(".")[0] for name in keys_of(Config()) if "." in name}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_name_in_a_document_exists(document):
    """Of everything in backticks or code blocks, cut at blanks."""
    found = re.findall(r"```\w*\n(.*?)```|`+([^`]+?)`+", read(document), re.S)
    words = [word.strip("(),;\"'") for pair in found for word in "".join(pair).split()]
    assert [word for word in words if fault_of(word)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_in_a_document_leads_somewhere(document):
    targets = re.findall(r"\]\((?!https?:)([^)]+)\)", read(document))
    assert [target for target in targets if not leads_somewhere(document, target)] == []


def test_the_readme_shows_the_lines_of_a_step():
    def shape(line: str) -> str:
        return re.sub(r"[\d.]+", "#", line)

    names = ("validation/accuracy", "validation/greedy/accuracy", "train/accuracy")
    names += ("reward/solution", "reward/evaluation", "scoring/invalid_rate", "response_length")
    printed = {shape(line) for line in step_lines(1, 60, dict.fromkeys((*names, "time/step_s"), 1))}
    shown = re.findall(r"^step \d.*", read("README.md"), re.M)
    assert len(shown) >= 3 and {shape(line) for line in shown} == printed


def test_the_recipes_do_what_they_say(monkeypatch):
    made: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", read("CONTRIBUTING.md"), re.S):
        exec(compile(block, "CONTRIBUTING.md", "exec"), made)

    monkeypatch.setitem(SCHEDULES, "made", made["schedule"])
    asked = [Question("q", "math", "1 + 1?")]
    [discussion] = discuss(asked, num_agents=2, schedule="made", prompt_reuse=1)
    assert [turn.turn_id for turn in discussion.turns] == ["r0.s0", "r0.s1"]
    [rewarded] = made["fixed_reward"]([discussion]).discussions
    assert rewarded.rewards == (1.0, 1.0)
    ones = torch.ones(2, 2)
    rewards = torch.tensor([1.0, 0.0])
    inputs = AdvantageInputs(rewards, ones.bool(), 0 * ones, groups="aa", kl_coef=0.0)
    assert made["best_of_group"](inputs).tolist() == [[0.0, 0.0], [-1.0, -1.0]]
    losses = made["reinforce"](LossInputs(-3 * ones, ones, 2 * ones, ones.bool(), (0.2, 0.2)))
    assert losses.tolist() == [[6.0, 6.0]] * 2
    responses = (r"\boxed{Yes}", r"\boxed{no}", "yes")
    verdicts = [made["verify_yes_no"](response, "yes") for response in responses]
    assert verdicts == ["correct", "wrong", "unanswered"]
    row = {"Body": "Ann has 2 figs.", "Question": "How many?", "Answer": "2"}
    assert made["SVAMP"].convert(row) == Item("Ann has 2 figs. How many?", "2")
    assert set(made["SVAMP"].source.columns) == set(row)

    asked = []

    async def ask(messages: list[Message], *, label: str, speaker: int = 0) -> str:
        asked.append((label, len(messages)))
        return label

    task = BenchmarkTask("svamp/1", "math", "How many?", "How many? Box it.", "2")
    assert asyncio.run(made["TWICE"].flow(task, ask)) == "answer 1"
    assert asked == [("answer 0", 1), ("answer 1", 3)]


def read(document: str) -> str:
    return (REPOSITORY / document).read_text(encoding="utf-8")


def leads_somewhere(document: str, link: str) -> bool:
    """True if a relative link of ``document`` leads to a file or folder, and its heading."""
    path, _, heading = link.partition("#")
    target = (REPOSITORY / document).parent / path if path else REPOSITORY / document
    if not heading or not target.exists():
        return target.exists()
    titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.M)
    return heading in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def fault_of(word: str) -> str | None:
    """What is wrong with a word that looks like a name of the repository; None: nothing."""
    path, _, symbol = word.partition(":")
    if re.fullmatch(r"(comas|evaluation)(\.\w+)+", word):
        return None if is_symbol(word) else "no such module or symbol"
    key = word.partition("=")[0]
    if re.fullmatch(rf"({'|'.join(SECTIONS)})\.\w+", key) and not key.endswith((".py", ".jsonl")):
        return None if key in every_key() else "no such key"
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", path) or path.startswith(GENERATED):
        return None
    is_ours = "/" in path and path.partition("/")[0] in ROOTS
    if not is_ours and not (path.endswith((".py", ".sh")) and "/" not in path):
        return None
    if not exists(path):
        return "no such file or folder"
    return None if not symbol or holds(path, symbol.split(".")) else "no such symbol"


def exists(path: str) -> bool:
    if "/" not in path:  # a bare name, where its folder was said before
        return any(file.rpartition("/")[2] == path for file in FILES)
    return path in FILES or any(file.startswith(path.rstrip("/") + "/") for file in FILES)


def is_symbol(dotted: str) -> bool:
    """Whether a dotted name is a module, or names that its file holds."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        stem = "/".join(parts[:end])
        for file in (f"{stem}.py", f"{stem}/__init__.py"):
            if file in FILES:
                return holds(file, parts[end:])
    return False


def holds(file: str, names: list[str]) -> bool:
    return set(names) <= set(re.findall(r"\w+", read(file)))


RESULTS = REPOSITORY / "results"
STUDIES = case_file("documentation")["STUDIES"]
GREEDY, SAMPLED = "validation/greedy/accuracy", "validation/accuracy"

Runs = dict[str, dict[int, dict]]
"""Experiment -> seed -> recorded numbers."""


def numbers(study: str) -> Runs:
    found: Runs = {}
    for file in sorted((RESULTS / STUDIES.get(study, study)).glob("*.json")):
        for run in json.loads(file.read_text())["runs"]:
            found.setdefault(run["experiment"], {})[run["seed"]] = run
    return found


@pytest.mark.parametrize("study", STUDIES)
def test_every_experiment_was_run_with_every_seed_after_it_was_frozen(study):
    frozen = json.loads((RESULTS / "frozen" / f"{study}.json").read_text())
    runs = numbers(study)
    assert set(frozen["settings"]) <= set(runs)
    assert len({tuple(sorted(by_seed)) for by_seed in runs.values()}) == 1


def test_the_table_of_the_readme_is_of_the_numbers():
    reproduction = numbers("reproduction")
    readme = (REPOSITORY / "README.md").read_text()
    rows = [line.split(" | ") for line in readme.splitlines() if line.startswith("| `")]
    shown = {cells[0].strip("| `"): cells[2:] for cells in rows if cells[0][3:-1] in reproduction}
    assert "comas" in shown
    for name, cells in shown.items():
        runs, ends = reproduction[name].values(), product((GREEDY, SAMPLED), ("before", "after"))
        percent = [[100 * run[when][metric] for run in runs] for metric, when in ends]
        assert [cell.strip(" |*") for cell in cells] == [mean_and_spread(p, 1) for p in percent]


@cases("study, page", ("reproduction", "reproduction/report.md"), ("lasting", "lasting.md"))
def test_tables_of_finished_studies_are_of_the_numbers(study, page):
    text = (RESULTS / page).read_text()
    results = pooled(read_records(RESULTS / STUDIES[study]), numbers(study), range(20))
    reference = "comas" if study == "reproduction" else "long_live_joint"
    table = comparison_table(results, GREEDY, reference=reference).splitlines()
    assert table[0] in text
    shown = [row for row in table[2:] if row in text]
    assert len(shown) == {"reproduction": 16, "lasting": 9}[study]


def test_every_seeded_fault_finds_its_line_and_its_tests():
    faults = [SeededFault(**entry) for entry in yaml.safe_load(TABLE.read_text())]
    assert [fault.why_not() for fault in faults] == [None] * len(faults)
    assert all((TABLE.parent / f"{name}.py").is_file() for of in faults for name in of.tests)
