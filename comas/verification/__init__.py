"""Whether an answer is right: to measure accuracy, never to reward."""

from comas.verification.forms import ANSWER_FORMS, AnswerForm, Grader
from comas.verification.pool import Item, Verifier
from comas.verification.verdict import Verdict

__all__ = [
    "ANSWER_FORMS",
    "AnswerForm",
    "Grader",
    "Item",
    "Verdict",
    "Verifier",
]
