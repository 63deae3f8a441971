"""What a run is told: the schema of its keys, and how they are read and checked."""

from comas.config.faults import ConfigError
from comas.config.loading import Changes, changed_keys, changed_values, config_as_yaml, load
from comas.config.schema import Config

__all__ = [
    "Changes",
    "Config",
    "ConfigError",
    "changed_keys",
    "changed_values",
    "config_as_yaml",
    "load",
]
