"""The world of the quick-start: which mistakes there are, and how often each role makes which.

All that is planted stands in this file; what an untrained society must then be like is measured by
``tests/test_world.py``. Nothing here says how training should end.

* **The wrong habit is the mode.** An agent's likeliest answer is wrong, so an untrained agent
  decoded greedily is mostly wrong, and sampling finds the right answer now and then. Which mistake
  is the likely one depends on the model and the wording of the question: an accusation that fits
  one question seldom fits the next, and what one model does not see in itself, the other names.
* **Judges err both ways.** Evaluators overlook mistakes, their own model's above all, and accuse
  right solutions. Scorers check what they are told by reading, better than chance, far from
  perfect; an approval raises a score and does not settle it.
* **One kind of mistake in each domain is never shown to a judge** (``UNSEEN``).

| domain | right | a mistake, and how it is named |
|---|---|---|
| math | The result: 8+3=11, 4+2=6, 6+1=7. | The result: 8+3=11, 4+2=6. a carry is lost |
| science | In minutes: 7*60=420, 420+43=463. | In minutes: 7*60=420. the small unit is left out |
| coding | The end minus the start. return 41 - 4 | The end. return 41 the start is left out |
"""

from dataclasses import dataclass
from typing import NamedTuple

from comas.types import Domain

SLIP = "slip"
MISTAKES: dict[Domain, dict[str, str]] = {
    "math": {
        "carry lost": "Mistake: a carry is lost.",
        "tens left out": "Mistake: the tens are left out.",
        "carry joined": "Mistake: a carry is joined, not added.",
        "second left out": "Mistake: the second number is left out.",
        "joined": "Mistake: the numbers are joined, not added.",
        "ones left out": "Mistake: the ones are left out.",
        SLIP: "Mistake: a digit is wrong.",
    },
    "science": {
        "factor 100": "Mistake: the factor is not 100.",
        "factor 1000": "Mistake: the factor is not 1000.",
        "rest left out": "Mistake: the small unit is left out.",
        "rest alone": "Mistake: the large unit is left out.",
        "joined": "Mistake: the numbers are joined, not added.",
        "factor 10": "Mistake: the factor is not 10.",
        SLIP: "Mistake: a digit is wrong.",
    },
    "coding": {
        "one added": "The test fails: one is added.",
        "start left out": "The test fails: the start is left out.",
        "start added": "The test fails: the start is added.",
        "start multiplied": "The test fails: the numbers are multiplied.",
        "not returned": "The test fails: nothing is returned.",
        "turned round": "The test fails: the numbers are turned round.",
        SLIP: "The test fails: a digit is wrong.",
    },
}
"""The kinds of mistakes that judges are taught, and how an evaluator names each."""
UNSEEN = "twice"
"""The kind that no judge is taught: the answer written twice, the start subtracted twice."""
UNSEEN_NAMED: dict[Domain, str] = {
    "math": "Mistake: the answer is written twice.",
    "science": "Mistake: the answer is written twice.",
    "coding": "The test fails: the start is subtracted twice.",
}
HABITS: dict[str, dict[Domain, tuple[str, str, str]]] = {
    "qwen2": {
        "math": ("carry lost", "tens left out", "joined"),
        "science": ("factor 100", "rest left out", "joined"),
        "coding": ("one added", "start left out", "not returned"),
    },
    "llama": {
        "math": ("second left out", "carry joined", "ones left out"),
        "science": ("rest alone", "factor 1000", "factor 10"),
        "coding": ("start added", "turned round", "start multiplied"),
    },
}
"""The likeliest mistake of each model, by the wording of the question."""
VARIANTS = {"llama_shared_3": 1, "llama_shared_9": 3}
"""Llamas that have these wordings' habits, in each domain, from the qwen2: 3 and 9 of 9."""


def habits_of(model: str) -> dict[Domain, tuple[str, ...]]:
    """The habits of a model, or of a variant. What judges are shown is drawn from ``HABITS`` for
    variants, too."""
    num_shared = VARIANTS.get(model, 0)
    own = HABITS[model.partition("_")[0]]
    return {d: HABITS["qwen2"][d][:num_shared] + habits[num_shared:] for d, habits in own.items()}


class Doubt(NamedTuple):
    """Probabilities that a scorer says 1, by the evaluation that it is shown."""

    nothing: float
    approval: float
    true_accusation: float
    false_accusation: float


@dataclass(frozen=True)
class Mixture:
    """What worked discussions show, and how often they go wrong: probabilities, then numbers."""

    habit: float = 0.56
    """A solver makes the mistake that is its habit with such questions."""
    other_mistake: float = 0.03
    """It makes another of those that judges are taught, slips apart."""
    unseen_mistake: float = 0.03
    """It makes the kind that judges are not taught."""
    shown_right: float = 0.4
    """A solution that a judge is shown is right."""
    shown_slip: float = 0.1
    """A solution that a judge is shown has a slip; the others have a mistake of another kind."""
    shown_habit: float = 0.75
    """Such a mistake is a habit of one of the models."""
    overlooks_own: float = 0.4
    """An evaluator approves a mistake that is a habit of its own model."""
    overlooks: float = 0.06
    """It approves another mistake."""
    misnames: float = 0.05
    """It names another mistake than the one that is there."""
    accuses: float = 0.12
    """It names a mistake in a right solution."""
    scorer_sees_random_evaluation: float = 0.4
    """A scorer is shown any of the domain's evaluations; else the true one, or of a right solution
    any."""
    scorer_sees_approval: float = 0.15
    """A scorer is shown an approval, whatever the solution."""
    doubts_wrong: Doubt = Doubt(0.75, 0.55, 1.0, 0.5)
    """A scorer says 1 of a wrong solution."""
    doubts_right: Doubt = Doubt(0.15, 0.05, 0.0, 0.15)
    """A scorer says 1 of a right solution, of which no accusation is true."""
    scorer_undecided: float = 0.03
    """A scorer says 2, whatever it is shown."""
    second_round: float = 0.5
    """A discussion also shows a solution that follows earlier ones."""
    evaluation_with_history: float = 0.2
    """An evaluator is shown earlier solutions, as the sequential schedule does."""
    ablation: float = 0.2
    """A discussion also shows what ablations and baselines ask: an evaluation that ends with a
    judgment, a scoring without an evaluation, a rating, and solutions that follow the own and
    others' without any evaluation."""
    setup: float = 0.4
    """A discussion also shows one turn of a setup of the evaluation."""
    solutions: int = 3
    """First solutions in a discussion."""
    scorings: int = 4
    """Scorings in a discussion."""
