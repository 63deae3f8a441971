"""No key of the configuration is dead: some code outside the configuration reads each."""

from __future__ import annotations

import ast
import dataclasses
from functools import cache
from pathlib import Path

from config_faults import every_key

from comas.config.schema import Config, run

REPOSITORY = Path(__file__).parents[1]


def test_every_key_is_read_by_some_code():
    comas = REPOSITORY / "comas"
    sizes = comas / "preflight" / "sizes.py"
    sources = {*comas.rglob("*.py")} - {*(comas / "config").rglob("*.py"), sizes}
    reads = {key for path in sources for key in keys_read_in(path.read_text())}
    # It decides the number of steps; of the other keys it only tells the user.
    deciding = keys_read_in(sizes.read_text())
    reads |= deciding & {"training.num_epochs", "training.num_steps"}
    assert sorted(set(every_key()) - reads) == []


def keys_read_in(code: str) -> set[str]:
    """Keys that ``code`` reads as ``<...>.section.key``, ``section.key`` or ``config.key``, as
    attributes of something annotated with the section's class, or by a property of Config.
    A leading underscore counts as none: ``self._policy.dtype`` reads ``policy.dtype``."""
    tree = ast.parse(code)
    sections = section_names(tree)
    through = keys_of_properties()
    reads: set[str] = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)):
            continue
        owner = (last_name(node.value) or "").removeprefix("_")
        if owner == "config":
            reads |= through.get(node.attr, {node.attr})
        elif owner in sections:
            reads.add(f"{sections[owner]}.{node.attr}")
    return reads & set(every_key())


def section_names(tree: ast.AST) -> dict[str, str]:
    """Name -> section, for the sections themselves and whatever is annotated as one."""
    classes = section_classes(Config)
    names = {section.rpartition(".")[2]: section for section in classes.values()}
    names["algorithm"] = "algorithm"
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and isinstance(node.annotation, ast.Name):
            name = node.arg if isinstance(node, ast.arg) else last_name(node.target)
            if node.annotation.id in classes and name is not None:
                names[name] = classes[node.annotation.id]
    return names


def section_classes(schema: type, prefix: str = "") -> dict[str, str]:
    """Name of a section's class -> the section, sections within sections included."""
    found: dict[str, str] = {}
    for field in dataclasses.fields(schema):
        if dataclasses.is_dataclass(field.type):
            section = f"{prefix}{field.name}"
            found |= {field.type.__name__: section} | section_classes(field.type, f"{section}.")
    return found


def last_name(node: ast.AST) -> str | None:
    """``a.b.c`` -> "c", ``c`` -> "c"."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


@cache
def keys_of_properties() -> dict[str, set[str]]:
    """Property of Config -> the keys that it reads, directly or through other properties."""
    tree = ast.parse(Path(run.__file__).read_text())
    [config] = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Config"]
    properties = {n.name: n for n in config.body if isinstance(n, ast.FunctionDef)}

    def keys(name: str) -> set[str]:
        attributes = [n for n in ast.walk(properties[name]) if isinstance(n, ast.Attribute)]
        found = {f"{last_name(n.value)}.{n.attr}" for n in attributes}
        others = {n.attr for n in attributes if last_name(n.value) == "self"} & set(properties)
        return found.union(*map(keys, others)) & set(every_key())

    return {name: keys(name) for name in properties}
