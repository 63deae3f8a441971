"""``key=value`` arguments and printing, for benchmarks, GPU checks and chaos."""

import dataclasses
import sys
from typing import TypeVar

from comas.config import ConfigError, load

Arguments = TypeVar("Arguments")


def read_arguments(kind: type[Arguments]) -> Arguments:
    """Read the command line's ``key=value`` arguments into ``kind``, a dataclass of defaults. An
    invalid key or value prints an error with the keys, and exits with status 2."""
    given = sys.argv[1:]
    try:
        return load(kind, None, given)
    except ConfigError as error:
        keys = "".join(f"  {f.name}={f.default}\n" for f in dataclasses.fields(kind))  # type: ignore[arg-type]
        sys.stderr.write(f"error: {' '.join(given)}: {error}\nKeys and their defaults:\n{keys}")
        raise SystemExit(2) from None


def say(line: str) -> None:
    """Print a line, and flush."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
