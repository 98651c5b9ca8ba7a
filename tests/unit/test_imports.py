"""The direction of imports, and that importing does nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("flowaware_core", "zoo", "recipes")

# What a package of ours may import of ours.
ARROWS = {
    "flowaware_core": {"flowaware_core"},
    "zoo": {"zoo", "flowaware_core"},
    "recipes": {"recipes", "zoo", "flowaware_core"},
}

# The engine stands on these alone.
ENGINE_FOUNDATION = {"jax", "jaxlib", "numpy", "scipy", "highspy", "numba"}

# Inside the engine every arrow points down: what a room may import beside itself and the leaves.
LEAVES = {"task", "plan", "versions", "garbage"}
ROOMS = {
    "task": set(),
    "plan": set(),
    "versions": set(),
    "garbage": set(),
    "hlo": set(),
    "cluster": set(),
    "graph": {"cluster"},
    "program": {"graph"},
    "cost": {"graph", "cluster"},
    "search": {"cost", "program", "graph", "cluster"},
    "execute": {"graph"},
    "audit": {"graph", "cost", "cluster", "hlo", "explain"},
    "explain": set(),
    "outline": {"program", "graph", "explain"},
    "step": {"program", "graph", "execute"},
    "drafting": {"search", "program", "cost", "graph", "cluster"},
    "api": {"drafting", "step", "search", "program", "cost", "graph", "cluster", "explain", "identity", "outline"},
    "training": {"graph"},
    "accelerators": set(),
    "whole": {"training", "graph"},
    "chain": {"search", "cost", "graph", "cluster"},
    "planned": {"search", "program", "cost", "graph", "cluster"},
    "wish": {"whole", "search", "cluster"},
    "cutting": {"wish", "whole", "chain", "planned", "search", "graph", "cluster"},
    "pipeline": {"cutting", "wish", "whole", "planned", "training", "graph", "cluster"},
    "order": set(),
    "pipelined": {"pipeline", "planned", "training", "execute", "graph", "order"},
    "offload": {"api", "drafting", "explain", "training", "search", "program", "cost", "graph", "cluster"},
    "offloaded": {"offload", "step", "execute", "graph"},
    "joint": {"api", "offload", "pipeline", "training", "graph", "cluster"},
    "spreading": set(),
    "deployment": {"api", "step", "search", "cluster", "spreading"},
    "identity": {"program", "cluster"},
    "page": {"explain"},
    "timeline": {"page"},
    "drawing": {"page", "timeline", "explain", "drafting", "order", "pipeline", "planned", "search"},
    "__init__": {
        "accelerators",
        "api",
        "audit",
        "cluster",
        "deployment",
        "drawing",
        "explain",
        "joint",
        "offload",
        "offloaded",
        "pipeline",
        "pipelined",
        "spreading",
        "training",
    },
}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(file: Path) -> Iterator[str]:
    """Dotted names that a file imports, wherever in it; `from a import b` gives `a.b`, which may be a module."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import; write the whole name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_stands_below_them(package: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in modules(package)
        for name in imports(file)
        if name.split(".")[0] in {*PACKAGES, "tests", "conf", "datasets"} - ARROWS[package]
    ]
    assert not wrong


def test_the_engine_stands_on_arrays_and_solvers_alone() -> None:
    allowed = {*sys.stdlib_module_names, *ENGINE_FOUNDATION, "flowaware_core"}
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in modules("flowaware_core")
        for name in imports(file)
        if name.split(".")[0] not in allowed
    ]
    assert not wrong


def test_inside_the_engine_every_arrow_points_down() -> None:
    wrong = []
    for file in modules("flowaware_core"):
        room = file.relative_to(ROOT / "flowaware_core").parts[0].removesuffix(".py")
        assert room in ROOMS, f"{file.relative_to(ROOT)}: a new room; say in ROOMS what it may import"
        for name in imports(file):
            parts = name.split(".")
            if parts[0] == "flowaware_core":
                target = parts[1] if len(parts) > 1 else "__init__"
                if target not in ROOMS[room] | LEAVES | {room} or (room in LEAVES and target not in {room, "versions"}):
                    wrong.append(f"{file.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_the_numeric_core_of_the_search_knows_no_jax() -> None:
    files = (ROOT / "flowaware_core/search/labelling").rglob("*.py")
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imports(file)
        if name.split(".")[0] in {"jax", "jaxlib"}
        or (name.startswith("flowaware_core") and not name.startswith("flowaware_core.search.labelling"))
    ]
    assert not wrong


def test_models_and_recipes_know_no_mesh() -> None:
    words = ("PartitionSpec", "NamedSharding", "with_sharding_constraint", "shard_map", "jax.sharding")
    files = [*modules("zoo/models"), *modules("recipes")]
    wrong = [f"{file.relative_to(ROOT)}: {word}" for file in files for word in words if word in file.read_text()]
    assert not wrong


def test_only_one_module_asks_for_the_version_of_jax() -> None:
    words = ("jax.__version__", "jax.__version_info__", 'version("jax")', "jax.version")
    files = [file for package in PACKAGES for file in modules(package) if file.name != "versions.py"]
    wrong = [f"{file.relative_to(ROOT)}: {word}" for file in files for word in words if word in file.read_text()]
    assert not wrong


def test_the_folder_of_data_cards_holds_no_code() -> None:
    assert not list((ROOT / "datasets").rglob("*.py"))


def test_importing_everything_starts_no_backend_and_leaves_the_environment_alone() -> None:
    names = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for package in PACKAGES
        for file in modules(package)
    ]
    others = sorted({name.split(".")[0] for package in PACKAGES for file in modules(package) for name in imports(file)})
    others = [name for name in others if name not in {*PACKAGES, *sys.stdlib_module_names}]
    program = (
        "import contextlib, importlib, os\n"
        f"for name in {others!r}:\n"  # what these do to the environment is not ours; some are optional
        "    with contextlib.suppress(ModuleNotFoundError): importlib.import_module(name)\n"
        "before = dict(os.environ)\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    if dict(os.environ) != before: raise SystemExit(f'{name} changes the environment')\n"
        "    from jax._src import xla_bridge\n"
        "    if xla_bridge.backends_are_initialized(): raise SystemExit(f'{name} starts a backend')\n"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
