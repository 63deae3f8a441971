"""The errors of a configuration."""

from pathlib import Path

import pytest

from comas.config import ConfigError
from comas.config.keys import Key, keys_of, types_of
from comas.config.schema import Config
from comas.preflight.configuration import load_config


def errors(*overrides: str, file: Path | None = None) -> list[str]:
    """The errors of the overrides, on top of a file or the defaults."""
    with pytest.raises(ConfigError) as caught:
        load_config(file, overrides)
    return [str(error) for error in caught.value.errors]


def only_error(*overrides: str, file: Path | None = None) -> str:
    """The only error of the overrides."""
    [error] = errors(*overrides, file=file)
    return error


def every_key() -> dict[str, Key]:
    """The keys of a run under any algorithm."""
    keys: dict[str, Key] = {}
    for algorithm in types_of(Config)["algorithm"].values():
        keys |= keys_of(Config(algorithm=algorithm()))
    return keys
