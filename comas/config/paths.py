"""How a relative path is resolved: one rule for everything that a user may name."""

import os
import re
from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).parents[1]
REPOSITORY = _PACKAGE if (_PACKAGE / "configs").is_dir() else _PACKAGE.parent
"""The root of shipped files: the checkout, or in a wheel the package, which holds configs/."""
STARTED_IN = "COMAS_STARTED_IN"
"""Environment variable in which a script keeps the user's folder before it changes directory."""
NO_PATH = re.compile(r"\s*\Z|hub:|quickstart/|reasoning_gym\Z")
"""Names of data and models that are not files of the user."""
PREFIX = re.compile(r"(trl|verl|program):")
"""Prefix of a plug-in's path that says how to call it (comas/reward_formulation/foreign.py)."""

_named_in: dict[Path, Path | None] = {}
"""A path that was not found -> the folder of the YAML file that names it, for error messages; None
for the command line."""

LeadsTo = Literal["file", "plug-in", "new folder"]
"""What a key may name: a file or folder; ``path/to/file.py:object``; or a folder to create, not
looked up."""


class PathError(ValueError):
    """A text that cannot be a path, or a path that cannot be read."""


def find(name: str | Path, folder: Path | None = None) -> Path | None:
    """Return the absolute path of the first ``name`` that exists: in ``folder`` (that of the YAML
    file that names it), the user's current folder, or the repository; or None. Raises PathError."""
    path = _expanded(name)
    for place in [place / path for place in (folder, here(), REPOSITORY) if place is not None]:
        try:
            place.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise PathError(f"{place} cannot be read: {error.strerror}") from error
        whole = place.absolute()
        return whole.parent.resolve() / whole.name if ".." in whole.parts[:-1] else whole
    return None


def tried(name: str | Path, folder: Path | None = None) -> str:
    """Return where ``find`` looked for a relative path: ``"; tried: /home/me/x, /opt/comas/x"``."""
    if _expanded(name).is_absolute():
        return ""
    folder = folder or _named_in.get(Path(name))
    places = dict.fromkeys(str(place / name) for place in (folder, here(), REPOSITORY) if place)
    return f"; tried: {', '.join(places)}"


def names_file(argument: str) -> bool:
    """Return True if an argument is an existing path, even if it looks like ``key=value``."""
    try:
        return find(argument) is not None
    except PathError:
        return False


def whole(name: str, leads_to: LeadsTo, folder: Path | None) -> str:
    """Return ``name`` with its path made absolute by ``find``, or unchanged if it does not exist.
    Raises PathError."""
    if leads_to == "new folder":
        return str(_expanded(name)) if name.strip() else name
    if leads_to == "plug-in" and (prefix := PREFIX.match(name)):
        return prefix[0] + whole(name.removeprefix(prefix[0]), leads_to, folder)
    location, colon, attribute = name.rpartition(":") if leads_to == "plug-in" else (name, "", "")
    if NO_PATH.match(name) or (leads_to == "plug-in" and not location.endswith(".py")):
        return name
    found = find(location, folder)
    if found is None:
        _named_in[Path(location)] = folder
    return name if found is None else f"{found}{colon}{attribute}"


def here() -> Path:
    """Return the user's current folder."""
    said = os.environ.get(STARTED_IN)
    return Path(said) if said and Path.cwd().samefile(REPOSITORY) else Path.cwd()


def _expanded(name: str | Path) -> Path:
    if "\0" in str(name):
        raise PathError("holds a NUL byte, which no path does")
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        user = str(name).partition("/")[0]
        raise PathError(f"starts at the home of {user}, and there is no such user") from error
