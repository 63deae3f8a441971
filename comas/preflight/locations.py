"""Where the name of a model or question file leads, and how these questions are read."""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from comas import quickstart
from comas.config.schema import Config, Data
from comas.data import RECORDS, reasoning_gym
from comas.quickstart import QUICKSTART_PREFIX
from comas.quickstart.build import fingerprint, recipe_sources
from comas.quickstart.world import VARIANTS
from comas.run.seals import read_inputs
from comas.utils.gguf import GGUF_SUFFIX, converted


def locate(
    names: Iterable[str],
    *,
    saves: Path,
    seed: int,
    found_before: Mapping[str, str],
    builds: bool = True,
) -> dict[str, str]:
    """Return the location of each name of a model or question file.

    An embedded name (``quickstart/...``) leads into the society under ``saves``, which is built
    first if it is missing and ``builds`` is set; a GGUF file leads to the folder it is converted to
    there; any other name leads to itself. ``found_before`` holds the locations with which a resumed
    run began (inputs.json).

    Raises ValueError if an embedded file is gone and today's recipe would make a different one.
    """
    locations = {}
    for name in names:
        before = found_before.get(name)
        if name.endswith(GGUF_SUFFIX):
            locations[name] = before or str(converted(Path(name), saves=saves))
        elif not name.startswith(QUICKSTART_PREFIX):
            locations[name] = before or name
        elif before is not None and Path(before).exists():
            locations[name] = before
        else:
            build = partial(quickstart.build_society, variants=variants_in([name]))
            society = (build if builds else society_folder)(saves, seed=seed)
            # The same recipe makes the same society, even after the run was moved.
            within = Path(society.name, name.removeprefix(QUICKSTART_PREFIX)).parts
            location = society.parent.joinpath(*within)
            if before is not None and Path(before).parts[-len(within) :] != within:
                raise ValueError(
                    f"this run began with {before} ({name}), which is gone, and this version of "
                    f"the code makes another ({location}). Put it back, or start a new run"
                )
            locations[name] = str(location)
    return locations


def find_location(config: Config, name: str, *, embedded: Collection[str]) -> tuple[str, bool]:
    """Return the location of a name, and False if it is still to be built. Raises ValueError unless
    the name is among ``embedded`` or not embedded at all."""
    saves, seed = Path(config.saves), config.seed
    before = read_inputs(Path(config.resume)) if config.resume else {}
    location = locate([name], saves=saves, seed=seed, found_before=before, builds=False)[name]
    if not name.startswith(QUICKSTART_PREFIX) or Path(location).exists():
        return location, True
    if name not in embedded:
        raise ValueError(f"{name} is not embedded; choose one of {', '.join(embedded)}")
    return location, society_folder(saves, seed=seed).is_dir() and not variants_in([name])


def society_folder(saves: Path, *, seed: int) -> Path:
    """Return the folder of the quick-start society that today's recipe builds."""
    return saves / "quickstart" / fingerprint(recipe_sources(), seed=seed)


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
