"""Policy optimisation: advantages, batches and losses on plain tensors."""

from comas.policy_optimization.advantages import ADVANTAGE_ESTIMATORS, AdvantageEstimator
from comas.policy_optimization.losses import LOSSES
