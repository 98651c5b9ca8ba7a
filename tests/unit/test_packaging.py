"""What pyproject.toml, the constraints, the hooks and the Makefile say agrees with the checkout."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_listed_packages_are_the_folders() -> None:
    found = {
        ".".join(file.parent.relative_to(ROOT).parts)
        for top in ("flowaware_core", "zoo", "recipes")
        for file in (ROOT / top).rglob("*.py")
    }
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    assert listed - {"zoo.conf", "zoo.dataset_cards"} == found


def test_every_dependency_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    for requirement in [one for group in groups for one in group if not one.startswith("flowaware-zoo")]:
        assert re.search(rf'"{re.escape(requirement)}\W*# \w+', text), requirement


@pytest.mark.parametrize("name", ["newest", "dtk"])
def test_constraints_pin_every_dependency_and_name_no_place(name: str) -> None:
    lines = [
        line for line in (ROOT / "constraints" / f"{name}.txt").read_text().splitlines() if not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[\w.-]+==[\w.!+]+", line) for line in lines)
    pinned = {plain(line.split("==")[0]): line.split("==")[1] for line in lines}
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    for requirement in [one for group in groups for one in group if not one.startswith("flowaware-zoo")]:
        wanted, least = requirement.split(">=")
        if name == "newest" or wanted not in {"pytest", "ruff", "mypy"}:
            assert numbers(pinned[plain(wanted.split("[")[0])]) >= numbers(least), requirement


def test_the_old_versions_are_those_of_the_dcu_build() -> None:
    text = (ROOT / "constraints/dtk.txt").read_text()
    wanted = ("jax==0.4.34", "jaxlib==0.4.34", "numpy==1.26", "flax==0.10.4", "dm-haiku==0.0.14", "optax==0.2.5")
    assert all(f"\n{one}" in text for one in (*wanted, "orbax-checkpoint==0.11.5"))


def test_the_hooks_run_what_ci_runs() -> None:
    hooks = [
        hook["entry"]
        for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
        for hook in repo["hooks"]
    ]
    recipe = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    commands = [line.strip().replace(" --check", "").removesuffix(" .") for line in recipe.splitlines()[1:]]
    assert hooks == commands
    assert "\nmake lint\n" in (ROOT / ".ci/run").read_text()


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
