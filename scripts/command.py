"""Reading ``key=value`` arguments and printing, for benchmarks, GPU checks and chaos."""

from __future__ import annotations

import dataclasses
import sys
from typing import TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

Arguments = TypeVar("Arguments")


def read_arguments(kind: type[Arguments], *, about: str) -> Arguments:
    """The ``key=value`` arguments of the command line as ``kind``, a dataclass of defaults.

    ``--help`` prints ``about`` and the keys, and ends the process with status 0; a key or a
    value that does not fit ends it with status 2, after an error that lists the keys.
    """
    given = sys.argv[1:]
    defaults = OmegaConf.structured(kind)
    keys = "\n".join(
        ["Keys and their defaults:", *(f"  {f.name}={f.default}" for f in dataclasses.fields(kind))]  # type: ignore[arg-type]
    )
    if {"-h", "--help"} & set(given):
        sys.stdout.write(f"{about}\n{keys}\n")
        raise SystemExit(0)
    try:
        return OmegaConf.to_object(OmegaConf.merge(defaults, OmegaConf.from_dotlist(given)))  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
        sys.stderr.write(f"error: {' '.join(given)}: {reason}\n{keys}\n")
        raise SystemExit(2) from None


def say(line: str) -> None:
    """Print a line at once, also into a file."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
