"""Where a path leads that is not whole: the one rule for everything that a user may name."""

import os
import re
from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).parents[1]
REPOSITORY = _PACKAGE if (_PACKAGE / "configs").is_dir() else _PACKAGE.parent
"""What shipped files are named from: the checkout, or a wheel's package, which holds configs/."""
STARTED_IN = "COMAS_STARTED_IN"
"""The variable by which a script, which goes to the repository, says where it was started."""
NO_PATH = re.compile(r"\s*\Z|hub:|verifiers:|quickstart/|reasoning_gym\Z")
"""How data and models are named that are no files of the user's."""
PREFIX = re.compile(r"(trl|verl):")
"""Before the path of a plug-in, how it is called (``comas/reward_formulation/foreign.py``)."""

_named_in: dict[Path, Path | None] = {}
"""A path that is nowhere -> the folder of the YAML file that names it, to be told later; None: the
command line names it."""

LeadsTo = Literal["file", "plug-in", "new folder"]
"""What a key may name: a file or folder; ``path/to/file.py:object``; a folder that is written to,
and made where it is missing, for which nobody looks elsewhere."""


class PathError(ValueError):
    """A text that can be no path, or leads to what cannot be looked at."""


def find(name: str | Path, folder: Path | None = None) -> Path | None:
    """The first that exists, and is then whole: ``name`` in ``folder`` (that of the YAML file that
    names it), in the folder where the user stands, and in the repository. None: there is none.

    Raises PathError.
    """
    path = _expanded(name)
    places = [place / path for place in (folder, here(), REPOSITORY) if place is not None]
    for place in places:
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
    """``"; tried: /home/me/x, /opt/comas/x"``: where ``find`` has looked for a relative path."""
    if _expanded(name).is_absolute():
        return ""
    folder = folder or _named_in.get(Path(name))
    places = dict.fromkeys(str(place / name) for place in (folder, here(), REPOSITORY) if place)
    return f"; tried: {', '.join(places)}"


def names_file(argument: str) -> bool:
    """Whether an argument is the path of a file or folder, though it may look like
    ``key=value``."""
    try:
        return find(argument) is not None
    except PathError:
        return False


def whole(name: str, leads_to: LeadsTo, folder: Path | None) -> str:
    """``name`` with a whole path in place of one that starts at ``folder``, where the user stands
    or at the repository; as it is where there is no such file. Raises PathError."""
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
    """The folder where the user stands."""
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
