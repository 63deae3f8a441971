"""The forms of answers, and the graders that judge them."""

from typing import Literal, get_args

AnswerForm = Literal["math", "science", "coding", "choice"]
"""What a question asks for: an expression or a decimal number in a box, a program, a letter."""

ANSWER_FORMS: tuple[AnswerForm, ...] = get_args(AnswerForm)

Grader = Literal["strict", "published"]
"""strict: right, as far as we know. published: as the published results were graded, with all
the faults of those graders, to compare with them."""
