"""What a verifier may say."""

from typing import Literal

Verdict = Literal["correct", "wrong", "unanswered", "failed"]
"""correct and wrong: the answer was judged. unanswered: the response holds no answer in the
form that was asked for. failed: the verifier itself failed or ran out of time, which says
nothing about the answer; it is counted and reported, never taken for wrong."""
