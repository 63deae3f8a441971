"""From YAML and ``key=value`` overrides to a checked ``Config``, or to every fault at once."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from comas.config.checks import Conflict
from comas.config.schema import Config

DEFAULT_ORIGIN = "default"
COMMAND_LINE = "command line"
MAX_SHOWN_CHARS = 200


@dataclass(frozen=True)
class Setting:
    """A key with its value, and who set it: a file with its line, the command line, or nobody.

    Example: ``Setting("rollout.batch_size", 0, "configs/comas.yaml, line 31")``
    """

    key: str
    value: Any
    origin: str

    def __str__(self) -> str:
        shown = _yaml_text(self.value)
        return f"{self.key} = {shown}  ({self.origin})"


@dataclass(frozen=True)
class Fault:
    """What is wrong with one setting, or with several together, and what to do about it."""

    settings: tuple[Setting, ...]
    constraint: str
    remedy: str

    def __str__(self) -> str:
        return "\n   ".join([*map(str, self.settings), self.constraint, f"-> {self.remedy}"])


class ConfigError(ValueError):
    """Every fault of a configuration, in one readable text."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        count = f"{len(faults)} fault{'s' * (len(faults) != 1)} in the configuration:"
        listed = (f"{number}. {fault}" for number, fault in enumerate(faults, start=1))
        super().__init__("\n".join([count, *listed]))


def load(
    path: Path | None,
    overrides: Sequence[str],
    *,
    check: Callable[[Config], Iterable[Conflict]] = lambda config: (),
) -> Config:
    """Read ``path``, apply ``overrides`` (``section.key=value``, values in YAML), then ``check``.

    Later settings win: defaults, the file, the overrides from left to right. Without a path
    the file is the one of the run that ``resume=`` names; without that too, the defaults hold.

    Raises ConfigError with every fault that was found.
    """
    from_command_line, faults = _read_overrides(overrides)
    if path is None:
        path = _config_of_resumed_run(from_command_line)
    from_file, file_faults = ([], []) if path is None else _read_file(path)
    settings = {s.key: s for s in [*from_file, *from_command_line]}
    config, value_faults = _check_values(settings, check)
    faults = [*file_faults, *faults, *value_faults]
    if faults:
        raise ConfigError(faults)
    return config


def config_as_yaml(config: Config) -> str:
    """Every key of ``config``; written to a file, ``load`` reads it as an equal one."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def config_as_dict(config: Config) -> dict[str, Any]:
    """Nested plain dicts and lists, as experiment trackers take them."""
    return dataclasses.asdict(config)


def changed_keys(before: Config, after: Config) -> list[str]:
    """What differs, one ``key: value -> value`` each.

    Example: ``["training.num_steps: 31 -> 62"]``
    """
    old, new = _leaves(config_as_dict(before)), _leaves(config_as_dict(after))
    return [
        f"{key}: {_yaml_text(old[key])} -> {_yaml_text(value)}"
        for key, value in new.items()
        if old[key] != value
    ]


def known_keys() -> dict[str, type]:
    """Every ``section.key`` with its type, in the order of the schema."""
    keys: dict[str, type] = {}
    for name, kind in typing.get_type_hints(Config).items():
        if dataclasses.is_dataclass(kind):
            hints = typing.get_type_hints(kind)
            keys |= {f"{name}.{key}": hint for key, hint in hints.items()}
        else:
            keys[name] = kind
    return keys


# ---------------------------------------------------------------- sources


def _read_overrides(overrides: Sequence[str]) -> tuple[list[Setting], list[Fault]]:
    settings: list[Setting] = []
    faults: list[Fault] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        if not (key and equals):
            given = Setting("override", override, COMMAND_LINE)
            faults.append(Fault((given,), "is not of the form key=value", _example(override)))
            continue
        try:
            parsed = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))
        except (yaml.YAMLError, OmegaConfBaseException) as error:
            given = Setting(key, text, COMMAND_LINE)
            remedy = "close its brackets and quotes, or put all of it into quotes"
            faults.append(Fault((given,), f"is not YAML: {_one_line(error)}", remedy))
            continue
        assert isinstance(parsed, dict)
        leaves = _leaves({key: parsed["value"]})
        settings += [Setting(leaf, value, COMMAND_LINE) for leaf, value in leaves.items()]
    return settings, faults


def _read_file(path: Path) -> tuple[list[Setting], list[Fault]]:
    def fault(constraint: str, remedy: str) -> tuple[list[Setting], list[Fault]]:
        named = Setting("CONFIG", str(path), "the configuration file")
        return [], [Fault((named,), constraint, remedy)]

    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.MappingNode):
            return fault("does not hold sections with keys", "write it like configs/comas.yaml")
        values = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else _one_line(error)
        return fault(f"cannot be read: {reason}", f"name one of {_yaml_files(path.parent)}")
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        return fault(f"is not YAML: {_one_line(error)}", "mend the line that it names")
    assert isinstance(values, dict)
    lines = dict(_lines(root))
    return [
        Setting(key, value, f"{path}, line {lines[key]}" if key in lines else str(path))
        for key, value in _leaves(values).items()
    ], []


def _yaml_files(folder: Path) -> str:
    """The configurations of ``folder``, or of ``configs`` where it has none."""
    files = sorted(folder.glob("*.yaml")) or sorted(Path("configs").glob("*.yaml"))
    return ", ".join(map(str, files)) or "the files of configs/"


def _config_of_resumed_run(settings: Sequence[Setting]) -> Path | None:
    runs = [s.value for s in settings if s.key == "resume" and isinstance(s.value, str)]
    if not runs or not (file := Path(runs[-1]) / "config.yaml").is_file():
        return None  # the check of `resume` says what is wrong with it
    return file


def _leaves(values: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """``{"rollout": {"batch_size": 4}, "seed": 1}`` -> ``{"rollout.batch_size": 4, "seed": 1}``"""
    leaves: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        leaves |= _leaves(value, f"{key}.") if isinstance(value, dict) and value else {key: value}
    return leaves


def _lines(node: yaml.MappingNode, prefix: str = "") -> Iterator[tuple[str, int]]:
    """The line, from 1, of every key of a YAML mapping, at any depth."""
    for name, value in node.value:
        key = f"{prefix}{name.value}"
        yield key, name.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            yield from _lines(value, f"{key}.")


# ---------------------------------------------------------------- values


def _check_values(
    settings: Mapping[str, Setting], check: Callable[[Config], Iterable[Conflict]]
) -> tuple[Config, list[Fault]]:
    """The defaults with every valid setting in place, and the faults of all others."""
    merged, known = OmegaConf.structured(Config), known_keys()
    faults = [
        *_unknown_keys(s for s in settings.values() if s.key not in known),
        *_wrong_types(merged, [s for s in settings.values() if s.key in known]),
    ]
    config = OmegaConf.to_object(merged)
    assert isinstance(config, Config)
    values = _leaves(config_as_dict(config))
    faulty = {setting.key for fault in faults for setting in fault.settings}
    for conflict in sorted(check(config), key=lambda c: len(c.keys) > 1):
        if faulty.isdisjoint(conflict.keys):  # else a consequence of a fault already listed
            involved = (
                settings.get(k, Setting(k, values[k], DEFAULT_ORIGIN)) for k in conflict.keys
            )
            faults.append(Fault(tuple(involved), conflict.constraint, conflict.remedy))
        if len(conflict.keys) == 1:
            faulty.update(conflict.keys)
    return config, faults


def _unknown_keys(settings: Iterable[Setting]) -> Iterator[Fault]:
    sections = {key.partition(".")[0] for key in known_keys() if "." in key}
    for setting in settings:
        if setting.key in sections:
            yield Fault((setting,), "is a section, not a key", _example(setting.key))
        else:
            yield Fault((setting,), "is not a known key", _nearest(setting.key))


def _wrong_types(merged: DictConfig, settings: Sequence[Setting]) -> Iterator[Fault]:
    """Put each setting into ``merged``; one that does not fit its type is a fault instead."""
    known = known_keys()
    defaults = _leaves(config_as_dict(Config()))
    for setting in settings:
        try:
            OmegaConf.update(merged, setting.key, setting.value)
        except OmegaConfBaseException:
            constraint = f"must be {type_in_words(known[setting.key])}"
            yield Fault((setting,), constraint, _example(setting.key))
    for setting in settings:  # an interpolation such as ${seed} is only known when all are in
        try:
            value = OmegaConf.select(merged, setting.key, throw_on_missing=True)
            if isinstance(value, ListConfig):
                OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
        except OmegaConfBaseException as error:
            constraint = f"must be {type_in_words(known[setting.key])}: {_one_line(error)}"
            yield Fault((setting,), constraint, "write the value itself")
            OmegaConf.update(merged, setting.key, defaults[setting.key])


def type_in_words(kind: Any) -> str:
    """``int | None`` -> "a whole number, or null"; ``list[str]`` -> "a list of texts"."""
    if arguments := [a for a in typing.get_args(kind) if a is not type(None)]:
        if typing.get_origin(kind) is list:
            return f"a list of {_WORDS[arguments[0]][1]}"
        return f"{type_in_words(arguments[0])}, or null"
    return _WORDS[kind][0]


_WORDS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a text", "texts"),
    bool: ("true or false", "true or false"),
}


# ---------------------------------------------------------------- remedies


def _nearest(key: str) -> str:
    """Name the known key that was probably meant, or what there is to choose from."""
    known = list(known_keys())
    section, _, name = key.rpartition(".")
    close = [k for k in known if k.rpartition(".")[2] == name]  # right but for the section
    close = close or difflib.get_close_matches(key, known, n=1)
    if not close:
        by_name = {k.rpartition(".")[2]: k for k in known}
        close = [by_name[n] for n in difflib.get_close_matches(name, by_name, n=1)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    of_section = [k for k in known if k.startswith(f"{section}.")]
    if of_section:
        return f"the keys of this section: {', '.join(of_section)}"
    names = dict.fromkeys(k.partition(".")[0] for k in known)
    return f"the keys and sections are: {', '.join(names)} (comas/config/schema.py)"


def _example(key: str) -> str:
    """A valid override of ``key``, of a key of that section, or else of some key."""
    defaults = _leaves(config_as_dict(Config()))
    similar = (known for known in defaults if known == key or known.startswith(f"{key}."))
    example = next(similar, "training.num_epochs")
    return f"write it like {example}={_yaml_text(defaults[example])}"


def _yaml_text(value: Any) -> str:
    """``value`` on one line, as it would stand in the file."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    text = text.removesuffix("...\n").strip()
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + " ..."


def _one_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} (line {error.problem_mark.line + 1})"
    return " ".join(str(error).split())
