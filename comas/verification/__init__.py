"""Whether an answer is right: this measures accuracy, and rewards baselines and bounds alone. No
reward of CoMAS itself depends on it."""

from comas.verification.forms import ANSWER_FORMS, AnswerForm, Grader, Verdict
from comas.verification.pool import Item, Verifier

__all__ = [
    "ANSWER_FORMS",
    "AnswerForm",
    "Grader",
    "Item",
    "Verdict",
    "Verifier",
]
