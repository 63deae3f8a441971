"""The forms of answers, the graders that judge them, and what these may say."""

from typing import Literal, get_args

AnswerForm = Literal["math", "science", "coding", "choice", "reasoning"]
"""Forms that questions ask for: an expression or a decimal number in a box, a program, a letter, or
whatever a task of reasoning_gym says."""

ANSWER_FORMS: tuple[AnswerForm, ...] = get_args(AnswerForm)

Grader = Literal["strict", "published", "math_verify"]
"""strict: right, as far as we know. published: as the published results were graded, with all
the faults of those graders, to compare with them. math_verify: math by math-verify on the whole
response, as most of the field grades it; all else as strict."""

Verdict = Literal["correct", "wrong", "unanswered", "failed"]
"""correct and wrong: the answer was judged. unanswered: the response holds no answer in the
form that was asked for. failed: the verifier itself failed or ran out of time, which says
nothing about the answer; it is counted and reported, never taken for wrong."""
