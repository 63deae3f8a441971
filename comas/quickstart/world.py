"""The world of the quick-start: which mistakes exist, and how often each role makes them.

All planted behaviour is in this file; ``tests/test_world.py`` measures what an untrained society
must then be like. Nothing here says how training should end.

* **The wrong habit is the mode.** An agent's likeliest answer is wrong, so an untrained agent is
  mostly wrong under greedy decoding, and sampling sometimes finds the right answer. The likeliest
  mistake depends on the model and the wording: an accusation that fits one question seldom fits the
  next, and each model names mistakes that the other overlooks in itself.
* **Judges err both ways.** Evaluators overlook mistakes, above all their own model's, and accuse
  right solutions. Scorers check evaluations better than chance and far from perfectly; an approval
  raises a score without deciding it.
* **One kind of mistake per domain is never shown to a judge** (``UNSEEN``).

| domain | right | a mistake and its name |
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
"""The kind no judge is taught: the answer written twice, or the start subtracted twice."""
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
"""Each model's likeliest mistake, by the question's wording."""
VARIANTS = {"llama_shared_3": 1, "llama_shared_9": 3}
"""Llamas, and in how many wordings per domain they share the qwen2's habits (3 and 9 of 9)."""


def habits_of(model: str) -> dict[Domain, tuple[str, ...]]:
    """Return the habits of a model or a variant. Judges of variants also see ``HABITS``."""
    num_shared = VARIANTS.get(model, 0)
    own = HABITS[model.partition("_")[0]]
    return {d: HABITS["qwen2"][d][:num_shared] + habits[num_shared:] for d, habits in own.items()}


class Doubt(NamedTuple):
    """Probabilities that a scorer says 1, by the evaluation it is shown."""

    nothing: float
    approval: float
    true_accusation: float
    false_accusation: float


@dataclass(frozen=True)
class Mixture:
    """What worked discussions show and how often they go wrong: probabilities, then counts."""

    habit: float = 0.56
    """A solver makes its habitual mistake."""
    other_mistake: float = 0.03
    """It makes another mistake that judges are taught, except a slip."""
    unseen_mistake: float = 0.03
    """It makes the mistake that judges are not taught."""
    shown_right: float = 0.4
    """A judge is shown a right solution."""
    shown_slip: float = 0.1
    """A judge is shown a slip; all others are mistakes of other kinds."""
    shown_habit: float = 0.75
    """Such a mistake is a habit of either model."""
    overlooks_own: float = 0.4
    """An evaluator approves a habitual mistake of its own model."""
    overlooks: float = 0.06
    """It approves any other mistake."""
    misnames: float = 0.05
    """It names the wrong mistake."""
    accuses: float = 0.12
    """It names a mistake in a right solution."""
    scorer_sees_random_evaluation: float = 0.4
    """A scorer is shown a random evaluation of the domain, and not the true one."""
    scorer_sees_approval: float = 0.15
    """A scorer is shown an approval of any solution."""
    doubts_wrong: Doubt = Doubt(0.75, 0.55, 1.0, 0.5)
    """A scorer says 1 of a wrong solution."""
    doubts_right: Doubt = Doubt(0.15, 0.05, 0.0, 0.15)
    """A scorer says 1 of a right solution; no accusation of it is true."""
    scorer_undecided: float = 0.03
    """A scorer says 2 whatever it is shown."""
    second_round: float = 0.5
    """A discussion includes a solution with earlier ones as its history."""
    evaluation_with_history: float = 0.2
    """An evaluator is shown earlier solutions, as in the sequential schedule."""
    ablation: float = 0.2
    """A discussion includes what ablations and baselines ask for: an evaluation with a judgment, a
    scoring without an evaluation, a rating, and a history without evaluations."""
    setup: float = 0.4
    """A discussion includes a turn of one of the evaluation's setups."""
    solutions: int = 3
    """First solutions per discussion."""
    scorings: int = 4
    """Scorings per discussion."""
