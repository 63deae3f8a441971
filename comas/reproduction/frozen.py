"""What was fixed before the first run: the society, the settings and the rules.

``bash scripts/reproduce.sh --freeze`` writes them down, and whoever commits that file has said what
will be run and how it will be judged. From then on no run is made, and no report written, by
anything else. Experiments and keys that came later are no part of it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import ModuleType

from pydantic import TypeAdapter

from comas.config import changed_keys
from comas.config.schema import Config
from comas.quickstart import models, muon, tokenizers, warm_start
from comas.quickstart.examples import discussion_examples
from comas.quickstart.probe import probe_records
from comas.quickstart.questions import records
from comas.quickstart.world import HABITS, Mixture
from comas.utils.files import read_json, write_text

FROZEN = "frozen.json"
_NUM_DRAWN = 200
"""Worked discussions of each model and questions of each split that are looked at."""

Settings = dict[str, dict[str, str]]
"""By experiment: key -> value where the first differs from the schema's defaults, and where each
other one differs from the first."""


@dataclass(frozen=True)
class Frozen:
    """Fingerprints of 12 hex digits, and settings."""

    date: str
    """When it was written, in UTC; every run begins later."""
    society: str
    """Of what the quick-start's agents are taught and asked, and of how they are made."""
    rules: str
    """Of the claims and of how they are decided."""
    settings: Settings


_FROZEN = TypeAdapter(Frozen)


def of_today(configs: Mapping[str, Config], rules: Sequence[ModuleType]) -> Frozen:
    """What would be frozen now.

    Args:
        configs: those of all experiments, without a seed.
        rules: the modules that decide what the runs show.
    """
    first = next(iter(configs.values()))
    return Frozen(
        date=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        society=_digest(*_taught(), *map(_source, (models, tokenizers, muon, warm_start))),
        rules=_digest(*map(_source, rules)),
        settings={
            name: {
                key: value
                for key, (_, value) in changed_keys(
                    Config() if config is first else first, config
                ).items()
            }
            for name, config in configs.items()
        },
    )


def freeze(folder: Path, today: Frozen) -> Path:
    """Write ``today`` into ``folder``; returns the path of the file.

    Raises ValueError when something has been frozen there.
    """
    path = folder / FROZEN
    if path.exists():
        raise ValueError(
            f"{path} is there: it was frozen before. Remove it with all runs and numbers that it "
            "was written for, or set results= and saves= to other folders"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(asdict(today), indent=1) + "\n")
    return path


def check_frozen(folder: Path, today: Frozen) -> Frozen | None:
    """What was frozen in ``folder``; None when nothing was.

    Raises ValueError when society, settings or rules are others today.
    """
    path = folder / FROZEN
    if not path.exists():
        return None
    before = read_json(path, _FROZEN, remedy="Restore it")
    parts = ("society", "rules")
    changed = [name for name in parts if getattr(before, name) != getattr(today, name)]
    changed += [
        f"{key} of {experiment}"
        for experiment, settings in before.settings.items()
        for key in _changed(settings, today.settings.get(experiment, {}))
    ]
    if changed:
        raise ValueError(
            f"{path}: changed since {before.date}, when it was frozen: {', '.join(changed)}. "
            "Restore that, or make another study: set results= and saves= to other folders"
        )
    return before


def _changed(before: Mapping[str, str], today: Mapping[str, str]) -> list[str]:
    return [key for key in {**before, **today} if before.get(key) != today.get(key)]


def _taught() -> Iterator[str]:
    """Texts that the agents learn and are asked: a draw of each kind."""
    for model in HABITS:
        rng = Random("frozen")
        for _ in range(_NUM_DRAWN):
            for example in discussion_examples(rng, Mixture(), model):
                yield from (example.prompt, example.response)
    for held_out in (False, True):
        yield json.dumps(records(seed=0, held_out=held_out, num_per_domain=_NUM_DRAWN))
    yield json.dumps(probe_records(seed=0))


def _source(module: ModuleType) -> str:
    assert module.__file__
    return Path(module.__file__).read_text()


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()[:12]
