"""The configuration of a run: the schema of its keys, and how they are read and checked."""

from comas.config.errors import ConfigError
from comas.config.loading import changed_keys, config_as_yaml, load
from comas.config.schema import Config
