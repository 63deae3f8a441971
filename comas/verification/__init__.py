"""True if an answer is right: to measure accuracy, never to reward."""

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
