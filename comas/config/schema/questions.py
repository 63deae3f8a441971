"""The questions, and the verification of answers."""

from dataclasses import dataclass, field
from typing import Any, Literal

from comas.config.keys import key
from comas.types import Domain

Part = Literal["id", "prompt", "answer", "task", "choices", "labels"]
COLUMNS: dict[Part, Any] = {
    "id": "id",
    "prompt": "prompt",
    "answer": "answer",
    "task": "task",
    "choices": ["choices"],
    "labels": "choices.label",
}
"""Part of a record -> its default column; ``data.columns`` may name another.

``prompt``: the bare question. ``answer``: its reference answer, in the form of its domain.
``task``: its domain (default: ``data.domain``). ``choices``: for multiple choice, the list of
options, or one column per option (default: the prompt lists them). ``labels``: the options' names
in the answer, such as A to D or 1 to 4 in ARC (default: letters from A). ``id``: a unique name
(default: the row's number). ``source``, an optional column: default the file's name.
"""


@dataclass
class ReasoningGym:
    """Generated questions, if ``data.train`` or ``data.validation`` is reasoning_gym."""

    tasks: dict[str, dict[str, Any]] = key(
        {}, example={"chain_sum": {"max_terms": 3}, "countdown": {}}
    )
    """Task -> options of its generator, which may include a size and a seed; {} for the
    defaults."""
    size: int | None = key(500, ge=1)
    """Training questions of each task; null: as many as ``training.num_steps`` need, all
    different."""


@dataclass
class Data:
    """Questions with gold answers, which only verification sees."""

    train: str = key("data/train.jsonl", leads_to="file")
    """Training questions: a JSONL, JSON, CSV or Parquet file, a dataset on the hub such as
    hub:openai/gsm8k/main/train, or reasoning_gym (data/README.md)."""
    validation: str = key("data/validation.jsonl", leads_to="file")
    """Held-out questions, read in the same way."""
    probe: str | None = key(None, leads_to="file", example="quickstart/probe.jsonl")
    """Planted solutions with known mistakes, which every agent judges at each validation
    (comas/data/probe.py has the format); null: none."""
    columns: dict[Part, Any] = key({}, example={"prompt": "question"})
    """Part of a record (id, prompt, answer, task, choices, labels) -> its column, with dots for
    nested ones such as reward_model.ground_truth; null: id, task, choices or labels have none."""
    domain: Domain | None = key(None, example="math")
    """Domain of questions that do not name theirs; null: all have to."""
    answer_after: str | None = key(None, example="####")
    """The answer is the text after the last of these marks in its column; null: all of it."""
    reasoning_gym: ReasoningGym = field(default_factory=ReasoningGym)


@dataclass
class Validation:
    """Held-out questions, which each agent answers alone and the verifier judges."""

    num_questions: int | None = key(None, ge=1, example=100)
    """Questions of each validation, always the same; null: all."""
    temperature: float = key(0.7, ge=0)
    """0 is greedy. Above 0, agents also answer greedily, which shows how much of a gain only
    sharpens what was already likeliest."""
    discussions: bool = key(False)
    """Whether agents also discuss every question, to measure the accuracy of the last round and how
    well rewards tell correct solutions from others."""


@dataclass
class Verification:
    """The verification of answers."""

    verifiers: dict[Domain, str] = key({}, leads_to="plug-in", example={"math": "math_verify"})
    """Domain -> name in ``comas.verification.verifiers.VERIFIERS``, or a plug-in; by default the
    domain's name. math_verify is math-verify on the whole response, the usual grader of the
    field."""
    sandbox: Literal["require_namespaces", "allow_degraded"] | None = key(
        None, example="require_namespaces"
    )
    """Isolation of model-written programs: require_namespaces refuses to start without namespaces,
    allow_degraded warns of what is missing; null: require_namespaces if the machine has them."""
