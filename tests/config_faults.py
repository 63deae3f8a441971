"""What is wrong with a configuration."""

from pathlib import Path

import pytest

from comas.config import ConfigError
from comas.config.keys import Key, keys_of, types_of
from comas.config.schema import Config
from comas.preflight.configuration import load_config


def faults(*overrides: str, file: Path | None = None) -> list[str]:
    """The faults that the overrides (on top of a file, or of the defaults) have."""
    with pytest.raises(ConfigError) as caught:
        load_config(file, overrides)
    return [str(fault) for fault in caught.value.faults]


def only_fault(*overrides: str, file: Path | None = None) -> str:
    """The one fault that there is."""
    [fault] = faults(*overrides, file=file)
    return fault


def every_key() -> dict[str, Key]:
    """The keys of a run under any algorithm."""
    keys: dict[str, Key] = {}
    for algorithm in types_of(Config)["algorithm"].values():
        keys |= keys_of(Config(algorithm=algorithm()))
    return keys
