"""The core knows no engine, and imports run downwards only."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]

LAYERS = (
    "types",
    "seeds",
    "files",
    "processes",
    "temporary",
    "concurrency",
    "terminal",
    "progress",
    "model_folder",
    "chat",
    "config",
    "data",
    "verification",
    "interaction",
    "reward_formulation",
    "policy_optimization",
    "data_preparation",
    "quickstart",
    "engines",
    "run_directory",
    "metrics",
    "pages",
    "preflight",
    "validation",
    "guards",
    "model_cards",
    "train",
    "reproduction",
    "__main__",
    "minimal",
)
"""The rooms of comas from bottom to top. Each imports only rooms that stand before it."""

CORE = [
    "comas.types",
    "comas.config",
    "comas.data",
    "comas.metrics",
    "comas.interaction",
    "comas.reward_formulation",
    "comas.policy_optimization",
    "comas.validation",
]


def test_the_core_imports_no_engine():
    engines = {"ray", "vllm", "deepspeed"}
    assert loaded(CORE, engines) == {}
    assert loaded(["ray"], engines) == {"ray": ["ray"]}


def test_what_every_process_imports_loads_no_engine():
    modules = ["comas.engines.rollout.shared_weights", "comas.engines.cluster.actors"]
    assert loaded(modules, {"vllm", "deepspeed", "transformers"}) == {}


def test_every_room_has_its_layer():
    rooms = {room_of(module) for module in modules("comas")} - {"comas"}
    assert rooms == set(LAYERS)


def test_no_module_imports_a_room_above_its_own():
    assert [arrow for arrow in imports("comas") if points_up(*arrow)] == []


def test_the_drawing_of_the_rooms_has_every_import():
    text = (REPOSITORY / "comas/README.md").read_text()
    drawing = re.sub(r",\n[ │]+", ", ", text.split("```")[1])  # a long line goes on below
    ground = set(re.split(r",\s*", re.search(r"ground +(.*)", drawing)[1]))
    drawn = {
        (importer, imported)
        for importer, rooms in re.findall(r"(\w+) ─+► (.*)", drawing)
        if importer != "train"
        for imported in rooms.split(", ")
    }
    assert "train ────────────────► all below but pages, quickstart, data_preparation" in drawing
    below = LAYERS[LAYERS.index("config") : LAYERS.index("train")]
    drawn |= {("train", room) for room in {*below} - {"pages", "quickstart", "data_preparation"}}
    arrows = {(room_of(importer), room_of(imported)) for importer, imported in imports("comas")}
    assert ground == set(LAYERS[: LAYERS.index("config")])
    assert drawn == {
        (importer, imported)
        for importer, imported in arrows
        if importer != imported and imported not in ground | {"comas"}
    }


def test_the_search_for_arrows_that_point_up_finds_one():
    assert points_up("comas.config.checks", "comas.interaction")
    assert points_up("comas.train", "evaluation.plan")
    assert not points_up("comas.interaction.parallel", "comas.config.schema")
    assert ("comas.train", "comas.config.schema") in set(imports("comas"))
    assert ("comas.run_directory.directory", "comas.files") in set(imports("comas"))


def test_no_modules_import_each_other_in_a_circle():
    graph: dict[str, set[str]] = {}
    for package in ("comas", "evaluation"):
        for importer, imported in imports(package):
            graph.setdefault(importer, set()).add(imported)
    # static_order raises CycleError, which names the modules.
    assert graph.keys() <= set(TopologicalSorter(graph).static_order())


def loaded(modules: list[str], packages: set[str]) -> dict[str, list[str]]:
    """Which of ``packages`` are there after each of ``modules``, imported one after another;
    modules after which there is none are left out."""
    program = f"""
import importlib, json, sys
found = {{}}
for module in {modules}:
    importlib.import_module(module)
    found[module] = sorted({packages} & {{name.split(".")[0] for name in sys.modules}})
print(json.dumps({{module: names for module, names in found.items() if names}}))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


def points_up(importer: str, imported: str) -> bool:
    if not imported.startswith("comas."):
        return True  # evaluation stands above all of comas
    if room_of(importer) == "comas":
        return room_of(imported) != "comas"
    return LAYERS.index(room_of(imported)) > LAYERS.index(room_of(importer))


def room_of(module: str) -> str:
    """``comas.config.schema`` -> "config", ``comas`` -> "comas"."""
    return [*module.split("."), module][1]


def modules(package: str) -> dict[str, Path]:
    """Dotted name -> file of every module of a package."""
    files = (REPOSITORY / package).rglob("*.py")
    named = ((path.relative_to(REPOSITORY).with_suffix(""), path) for path in files)
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in named}


def imports(package: str) -> Iterator[tuple[str, str]]:
    """(importer, imported) among our own modules, wherever in a module the import stands."""
    ours = modules("comas") | modules("evaluation")
    for importer, path in modules(package).items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                # ``from comas import files`` imports the module comas.files.
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (
                    (importer, name if name in ours else node.module)
                    for name in whole
                    if name in ours or node.module in ours
                )
            elif isinstance(node, ast.Import):
                yield from ((importer, a.name) for a in node.names if a.name in ours)
