"""The core imports no engine, and imports only run downwards."""

import ast
import json
import re
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from programs import run_to_end
from small_runs import REPOSITORY
from tables import case_file

FLOORS = {
    package: int(floor) if floor else None
    for floor, package in re.findall(
        r"^\| (\d?) ?\| `(\w+)` \|", (REPOSITORY / "comas/README.md").read_text(), re.M
    )
}
"""Package or module of comas -> its floor in the map; None imports none of the others."""

CORE = case_file("imports")["CORE"]


@pytest.mark.stack
def test_neither_the_core_nor_what_every_process_imports_loads_an_engine():
    assert loaded(CORE, {"ray", "vllm", "deepspeed"}) == {}
    assert loaded(["comas.__main__"], {"vllm", "deepspeed"}) == {}
    modules = ["comas.engines.rollout.cpu.shared_weights", "comas.engines.cluster.actors"]
    assert loaded(modules, {"vllm", "deepspeed", "transformers"}) == {}


def test_every_package_has_a_floor_and_imports_from_below_it_alone():
    assert FLOORS.keys() == {package_of(module) for module in modules("comas")} - {"comas"}
    assert {*FLOORS.values()} == {None, 1, 2, 3, 4, 5, 6}
    assert [arrow for arrow in imports("comas") if points_up(*arrow)] == []


PUBLIC = {"ideas", "types", "interaction", "reward_formulation", "policy_optimization"}
PUBLIC |= {"verification"}
"""Packages that ideas, like users' plug-ins, may import."""


def test_nothing_imports_an_idea_and_ideas_import_what_a_plugin_may():
    arrows = [*imports("comas"), *imports("evaluation")]
    assert [a for a in arrows if package_of(a[1]) == "ideas" != package_of(a[0])] == []
    imported = {package_of(a[1]) for a in arrows if package_of(a[0]) == "ideas"}
    assert imported and imported <= PUBLIC


def test_no_modules_import_each_other_in_a_circle():
    graph: dict[str, set[str]] = {}
    for package in ("comas", "evaluation"):
        for importer, imported in imports(package):
            graph.setdefault(importer, set()).add(imported)
    # static_order raises CycleError, which names the modules.
    assert graph.keys() <= set(TopologicalSorter(graph).static_order())


def loaded(modules: list[str], packages: set[str]) -> dict[str, list[str]]:
    """Module -> which of ``packages`` are loaded after it, if any, importing one after another."""
    program = f"""
import importlib, json, sys
found = {{}}
for module in {modules}:
    importlib.import_module(module)
    found[module] = sorted({packages} & {{name.split(".")[0] for name in sys.modules}})
print(json.dumps({{module: names for module, names in found.items() if names}}))
"""
    return json.loads(run_to_end(sys.executable, "-c", program, check=True).stdout)


def points_up(importer: str, imported: str) -> bool:
    above, below = package_of(importer), package_of(imported)
    if imported.startswith("evaluation."):
        return above != "commands"
    if above == below or (below == "types" and FLOORS.get(above) == 1):
        return False
    floors = FLOORS.get(above), FLOORS.get(below)
    return None in floors or floors[0] <= floors[1]


def package_of(module: str) -> str:
    """``comas.config.schema`` -> "config", ``comas`` -> "comas", ``evaluation.plan`` -> "plan"."""
    return [*module.split("."), module][1]


def modules(package: str) -> dict[str, Path]:
    """Dotted name -> file of every module of a package."""
    files = (REPOSITORY / package).rglob("*.py")
    named = ((path.relative_to(REPOSITORY).with_suffix(""), path) for path in files)
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in named}


@cache
def imports(package: str) -> list[tuple[str, str]]:
    """(importer, imported) among our modules, including imports inside of functions."""
    ours = modules("comas") | modules("evaluation")
    found: list[tuple[str, str]] = []
    for importer, path in modules(package).items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                # ``from comas.utils import files`` imports the module comas.utils.files.
                found += [
                    (importer, name if name in ours else node.module)
                    for name in [f"{node.module}.{alias.name}" for alias in node.names]
                    if name in ours or node.module in ours
                ]
            elif isinstance(node, ast.Import):
                found += [(importer, a.name) for a in node.names if a.name in ours]
    return found
