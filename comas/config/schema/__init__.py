"""Every key of a run's configuration: its type, default, constraint and purpose.

A section is a dataclass, a key a field made by ``key``. Constraints among several keys are in
``comas.preflight.conflicts``, former keys in ``comas/config/former.yaml``.
"""

from comas.config.schema.algorithm import (
    Algorithm,
    Custom,
    Dpo,
    Grpo,
    Optimization,
    PolicyGradient,
    ReinforcePP,
)
from comas.config.schema.engines import Cluster, Lora, Policy, Rollout, for_agent
from comas.config.schema.interaction import Interaction, Program, Reward, Society
from comas.config.schema.questions import Data, ReasoningGym, Validation, Verification
from comas.config.schema.run import Config, Logging, Training
