"""Where the name of a model or question file leads, and how these questions are read."""

from collections.abc import Collection, Mapping
from pathlib import Path

from comas.config.schema import Config, Data
from comas.data import RECORDS, reasoning_gym
from comas.quickstart import QUICKSTART_PREFIX
from comas.quickstart.build import society_folder
from comas.quickstart.world import VARIANTS
from comas.run.seals import read_inputs
from comas.utils.gguf import GGUF_SUFFIX, converted


def locate(name: str, *, saves: Path, seed: int, found_before: Mapping[str, str]) -> str:
    """Return the location of the name of a model or question file.

    An embedded name (``quickstart/...``) leads into the society under ``saves``, which may still
    have to be built; a GGUF file leads to the folder that it is converted to there; any other name
    leads to itself. ``found_before`` holds the locations with which a resumed run began
    (inputs.json).

    Raises ValueError if an embedded file is gone and today's recipe would make a different one.
    """
    before = found_before.get(name)
    if before is not None and not Path(before).exists() and Path(name).exists():
        # A run that was moved without what it names. Nothing stands for a taught model.
        before = before if "cold_start" in Path(before).parts else None
    if name.endswith(GGUF_SUFFIX):
        return before or str(converted(Path(name), saves=saves))
    if before is not None and is_built(name, before):
        return before
    if not name.startswith(QUICKSTART_PREFIX):
        return name
    society = society_folder(saves, seed=seed)
    location = society / name.removeprefix(QUICKSTART_PREFIX)
    # The same recipe makes the same society, even after the run was moved.
    within = location.relative_to(society.parent).parts
    if before is not None and Path(before).parts[-len(within) :] != within:
        raise ValueError(
            f"this run began with {before} ({name}), which is gone, and this version of "
            f"the code makes another ({location}). Put it back, or start a new run"
        )
    return str(location)


def find_location(config: Config, name: str, *, embedded: Collection[str]) -> str:
    """Return the location of a name. Raises ValueError if it begins like embedded names, but is not
    among ``embedded``."""
    if name.startswith(QUICKSTART_PREFIX) and name not in embedded:
        raise ValueError(f"{name} is not embedded; choose one of {', '.join(embedded)}")
    before = read_inputs(Path(config.resume)) if config.resume else {}
    return locate(name, saves=Path(config.saves), seed=config.seed, found_before=before)


def is_built(name: str, location: str) -> bool:
    """Return False if ``name`` is embedded, and its file or model is still to be built."""
    return not name.startswith(QUICKSTART_PREFIX) or Path(location).exists()


def variants_in(names: Collection[str]) -> list[str]:
    """Return the variants of embedded models that are among the ``names``."""
    return [name for name in VARIANTS if f"{QUICKSTART_PREFIX}models/{name}" in names]


def training_rules(config: Config) -> Data:
    """Return how to read ``data.train``: as ``data`` says, unless it is embedded."""
    if config.data.train.startswith(QUICKSTART_PREFIX):
        return RECORDS
    num_steps = config.training.num_steps
    asked = None if num_steps is None else num_steps * config.rollout.batch_size
    return reasoning_gym.endless_rules(config.data, num_questions=asked)


def held_out_rules(config: Config) -> Data:
    """Return how to read ``data.validation``: as ``data`` says, unless it is embedded."""
    embedded = config.data.validation.startswith(QUICKSTART_PREFIX)
    return RECORDS if embedded else reasoning_gym.held_out_rules(config.data)
