"""The YAML of configurations, in which texts such as ``${seed}`` and ``???`` have no meaning."""

import re
from collections.abc import Hashable, Iterator
from typing import Any

import yaml

TAG = "tag:yaml.org,2002:"
MERGE, STRING, FLOAT, INT = f"{TAG}merge", f"{TAG}str", f"{TAG}float", f"{TAG}int"
YAML_1_1 = (FLOAT, INT, f"{TAG}timestamp", f"{TAG}value")
"""Tags of numbers, dates and =, which plain texts do not get by the rules of YAML 1.1."""
NUMBER = re.compile(
    r"[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.inf)\Z|\.nan\Z", re.I
)
"""Pattern of numbers, with 1e-5, which YAML 1.1 reads as a text."""
WHOLE_NUMBER = re.compile(r"[-+]?(?:0|[1-9]\d{0,999})\Z")  # int() refuses 4,301 digits
"""Pattern of whole numbers, without 010 and 1:30, which YAML 1.1 reads as 8 and 90."""


class _Loader(yaml.SafeLoader):
    """Reads 1e-5 as a number, and dates, 010, 1:30 and = as texts; refuses tags, and keys that
    occur twice or are not texts."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if tag := getattr(event, "tag", None):
            raise _error(f"{tag.replace(TAG, '!!')} is a tag: leave it out, or quote it", event)
        node = super().compose_node(parent, index)
        if node is not None and node.end_mark is None:  # an alias of a node not yet complete
            raise _error(f"*{event.anchor} stands within what it names", event)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for name, _ in node.value:
            if name.tag == MERGE:
                continue
            if name.tag != STRING:
                shown = f"{name.value} is a name" if name.value else "a name"
                raise _error(f"{shown} that is not a text: put it into quotes", name)
            if name.value in seen:
                raise _error(f"found duplicate key {name.value}", name)
            seen.add(name.value)
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Writes YAML that ``_Loader`` reads as equal values."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # Trap: PyYAML breaks lines at these in single quotes, and reads them back as blanks.
        breaks_lines = not {"\x85", "\u2028", "\u2029"}.isdisjoint(data)
        return self.represent_scalar(STRING, data, style='"' if breaks_lines else None)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if tag not in YAML_1_1]
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(INT, WHOLE_NUMBER, list("-+0123456789"))
for _kind in (_Loader, _Dumper):  # the dumper also quotes what YAML 1.1 takes for a number or date
    _kind.add_implicit_resolver(FLOAT, NUMBER, list("-+0123456789."))
_Dumper.add_representer(str, _Dumper.represent_str)


def parse(text: str) -> tuple[Any, dict[str, int]]:
    """Return the value of ``text``, and the line (from 1) of a mapping's keys. Raises YAMLError."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None, {}
        values = loader.construct_document(root)
    finally:
        loader.dispose()
    lines: dict[str, int] = {}
    for name, node in _names(root) if isinstance(root, yaml.MappingNode) else ():
        if name in lines:
            raise _error(f"found {name} twice, once with its section", node)
        lines[name] = node.start_mark.line + 1
    return values, lines


def dump(values: Any) -> str:
    """Return ``values`` as YAML, which ``parse`` reads as equal values."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def _names(node: yaml.MappingNode, section: str = "") -> Iterator[tuple[str, yaml.Node]]:
    for name, value in node.value:
        whole = f"{section}.{name.value}" if section else str(name.value)
        if name.tag != MERGE:
            yield whole, name
        if isinstance(value, yaml.MappingNode):
            yield from _names(value, whole)


def _error(problem: str, at: yaml.Node | yaml.Event) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, at.start_mark)
