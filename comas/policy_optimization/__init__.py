"""Policy optimisation: advantages, batches and losses on plain tensors."""

from comas.policy_optimization import group_advantages
from comas.policy_optimization.advantages import ADVANTAGE_ESTIMATORS, AdvantageEstimator

__all__ = ["ADVANTAGE_ESTIMATORS", "AdvantageEstimator", "group_advantages"]
