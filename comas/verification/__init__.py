"""Judges answers, to measure accuracy and to reward the baselines and bounds. The rewards of CoMAS
itself never depend on it."""

from comas.verification.forms import Grader, Verdict
from comas.verification.pool import Verifier
