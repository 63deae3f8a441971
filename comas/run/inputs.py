"""inputs.json: where a run found the models and questions that its config names.

A name such as ``quickstart/models/qwen2`` leads elsewhere when the recipe behind it changes, but
a run goes on with what it began with, and is compared with that.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from comas.utils.files import read_json

FILE = "inputs.json"
_NOTED = TypeAdapter(dict[str, str])


def inputs_as_json(run: Path, locations: Mapping[str, str]) -> str:
    """The file's text: the location of every name that leads to a file or folder, and not to the
    hub.

    What lies beside the run, under the same ``saves``, may be moved together with it.
    """
    local = {
        name: Path(location).resolve()
        for name, location in locations.items()
        if Path(location).exists()
    }
    noted = {
        name: os.path.relpath(location, run)
        if location.is_relative_to(run.parent)
        else str(location)
        for name, location in local.items()
    }
    return json.dumps(noted, indent=1) + "\n"


def read_inputs(run: Path) -> dict[str, str]:
    """Name -> location, as ``inputs_as_json`` notes them; a run of an older version has none.

    Raises FileError when the file is damaged.
    """
    path = run / FILE
    remedy = "Delete it to have the names of config.yaml looked up anew (with resume_changed=true)"
    noted = read_json(path, _NOTED, remedy=remedy) if path.is_file() else {}
    return {name: os.path.normpath(run / location) for name, location in noted.items()}
