"""Every key of a run's configuration: its type, default and constraint, and what it is for.

A section is a dataclass, a key is a field made by ``key``. Constraints on a single key stand
here; constraints among keys stand in ``comas.preflight.conflicts``. A key or value that was renamed
names its former one, so that an old file gets an error that says the new one.
"""

from comas.config.schema.engines import Cluster, Lora, Policy, Rollout
from comas.config.schema.interaction import Interaction, Reward, Society
from comas.config.schema.optimization import Optimization
from comas.config.schema.questions import Columns, Data, ReasoningGym, Validation, Verification
from comas.config.schema.run import Config, Logging, Training

__all__ = [
    "Cluster",
    "Columns",
    "Config",
    "Data",
    "Interaction",
    "Logging",
    "Lora",
    "Optimization",
    "Policy",
    "ReasoningGym",
    "Reward",
    "Rollout",
    "Society",
    "Training",
    "Validation",
    "Verification",
]
