"""What a run is told: the schema of its keys, how they are read and checked, what they come to."""

from comas.config.loading import (
    ConfigError,
    changed_keys,
    config_as_dict,
    config_as_yaml,
    known_keys,
    load,
)
from comas.config.schema import Config

__all__ = [
    "Config",
    "ConfigError",
    "changed_keys",
    "config_as_dict",
    "config_as_yaml",
    "known_keys",
    "load",
]
