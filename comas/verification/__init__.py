"""Judges answers, to measure accuracy and to reward the baselines and bounds. The rewards of CoMAS
itself never depend on it."""

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
