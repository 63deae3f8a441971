"""What is asked, and how answers to it are judged."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from comas.config.keys import key, one_of
from comas.types import Domain

COLUMNS = {
    "prompt": "prompt",
    "answer": "answer",
    "task": "task",
    "choices": ["choices"],
    "labels": "choices.label",
}
"""Part of a record -> the column that holds it, where ``data.columns`` does not name another: the
bare question; its reference answer, in the form of its domain; its domain (else ``data.domain``);
and of questions of choice the list of options, or the columns that hold one each (else they are
listed in the prompt), and the labels by which the answer names an option (in ARC A to D, or 1 to 4;
else the letters from A). A column ``id`` is read where there is one, else the number of the row is
its id; likewise ``source``, else the file's name."""


@dataclass
class ReasoningGym:
    """Generated questions, where ``data.train`` or ``data.validation`` is reasoning_gym."""

    tasks: dict[str, Any] = key({}, example={"chain_sum": {"max_terms": 3}, "countdown": {}})
    """The tasks, each with options of its generator, among which may be a size and a seed of its
    own; {} for those that it has anyway."""
    size: int | None = key(500, ge=1)
    """Training questions of each task; null: as many as ``training.num_steps`` ask, none of them
    twice."""


@dataclass
class Data:
    """Questions with their answer keys; only verification sees the answers."""

    train: str = key("data/train.jsonl", leads_to="file")
    """Training questions: a JSONL, JSON, CSV or Parquet file, a dataset on the hub such as
    hub:openai/gsm8k/main/train, reasoning_gym (data/README.md), or verifiers:ENV, an environment
    of that library (``comas/verification/environments.py``)."""
    validation: str = key("data/validation.jsonl", leads_to="file")
    """Held-out questions, likewise, read by the same keys; verifiers:ENV/eval are an environment's
    own."""
    probe: str | None = key(None, leads_to="file", example="quickstart/probe.jsonl")
    """Planted solutions with known mistakes, about which every agent is asked as a judge at each
    validation (``comas/data/probe.py`` says what a line holds); null: none."""
    columns: dict[Annotated[str, one_of(tuple(COLUMNS))], Any] = key(
        {}, example={"prompt": "question"}
    )
    """Part of a record (prompt, answer, task, choices, labels) -> the column that holds it, with
    dots where one stands within another, such as reward_model.ground_truth; null: none does."""
    domain: Domain | None = key(None, example="math")
    """Domain of questions that name none; null: each of them names one."""
    answer_after: str | None = key(None, example="####")
    """The answer is only what follows the last of these marks in its column; null: all of it."""
    reasoning_gym: ReasoningGym = field(default_factory=ReasoningGym)


@dataclass
class Validation:
    """Held-out questions: each agent answers alone, the verifier judges; nobody is trained."""

    num_questions: int | None = key(None, ge=1, example=100)
    """Questions asked at each validation, the same every time; null: all."""
    temperature: float = key(0.7, ge=0)
    """0 is greedy. Above it the agents answer greedily as well, which shows how much of a gain is
    that they sample what was the likeliest before."""
    discussions: bool = key(False)
    """Whether the agents also discuss every question, as in training: accuracy of the last round,
    and how well the rewards tell correct solutions from others."""


@dataclass
class Verification:
    """How answers are judged."""

    verifiers: dict[Domain, str] = key({}, leads_to="plug-in", example={"math": "math_verify"})
    """Domain -> name in ``comas.verification.verifiers.VERIFIERS``, or a plug-in; that of the
    domain's own name where it is not named, and rubric for questions of verifiers:ENV, which are of
    the domain reasoning. math_verify is math-verify on the whole response, as
    most of the field has it."""
    sandbox: Literal["require_namespaces", "allow_degraded"] | None = key(
        None, example="require_namespaces"
    )
    """Whether model-written programs run where the machine isolates them by no namespaces:
    require_namespaces runs none (such a run does not start), allow_degraded warns of what is
    missing; null: require_namespaces where the machine has them, else allow_degraded."""
