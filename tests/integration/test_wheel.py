"""A wheel built from the checkout, installed in an empty environment and used from an empty directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

TOPS = ("flowaware_core", "zoo", "recipes", "conf", "datasets")
FILES = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no build folder is left in the checkout; with the tools that are installed."""
    source, place = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for top in TOPS:
        shutil.copytree(root / top, source / top, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(root / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place), str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with a package called `datasets` and the wheel; dependencies are borrowed."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    interpreter = place / "bin" / "python"
    packages = next(place.glob("lib/python*/site-packages"))
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    foreign = packages / "datasets"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("def load_dataset(name):\n    return f'loaded {name}'\n")
    info = packages / "datasets-5.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: datasets\nVersion: 5.2.0\n")
    (info / "INSTALLER").write_text("pip\n")
    (info / "RECORD").write_text("datasets/__init__.py,,\ndatasets-5.2.0.dist-info/METADATA,,\n")
    pip(interpreter, "install", "--no-deps", "--no-index", str(wheel))
    return interpreter


def pip(interpreter: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(interpreter), "--quiet", *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def said(interpreter: Path, folder: Path, *arguments: str, path: str = "", cache: Path | None = None) -> str:
    environ = {**os.environ, "PYTHONPATH": path}
    if cache is not None:  # so that equal programs are compiled once
        environ |= {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    environ.pop("XLA_FLAGS", None)
    result = subprocess.run([str(interpreter), *arguments], cwd=folder, env=environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_wheel_holds_the_three_packages_with_their_data_and_nothing_else(wheel: Path, root: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"flowaware_core", "zoo", "recipes"}
    for group in ("conf", "conf/recipe", "conf/cluster"):
        assert {f"zoo/{group}/{file.name}" for file in (root / group).glob("*.yaml")} <= set(names)
    assert {f"zoo/dataset_cards/{file.parent.name}/card.yaml" for file in root.glob("datasets/*/card.yaml")} <= set(
        names
    )
    assert not any("__pycache__" in name or "/tests/" in name for name in names)


def test_it_is_found_from_an_empty_directory(python: Path, tmp_path: Path) -> None:
    program = (
        "import zoo, recipes, flowaware_core\n"
        "from zoo.config import choices, compose\n"
        "print(zoo.__file__, compose(['recipe=resnet152', 'cluster=dcu32']).recipe.name, *choices('cluster'))"
    )
    place, *names = said(python, tmp_path, "-c", program).split()
    assert place.startswith(str(python.parents[1])) and names[0] == "resnet152" and "dcu32" in names
    assert "resnet152" in said(python, tmp_path, "-m", "zoo.list")
    assert not list(tmp_path.iterdir())


def test_it_trains_as_the_checkout_does(python: Path, tmp_path: Path, root: Path) -> None:
    words = [
        "recipe=resnet50", "cluster=emulated", "cluster.n=2", "steps=2", "log_every=1", "recipe.data.global_batch=2",
        "recipe.model.blocks=[1,1,1,1]", "recipe.model.width=8", "recipe.data.image_size=8",
    ]  # fmt: skip
    losses = {}
    for name, interpreter, path in (("wheel", python, ""), ("checkout", Path(sys.executable), str(root))):
        folder = tmp_path / name
        folder.mkdir()
        said(interpreter, folder, "-m", "zoo.train", *words, path=path, cache=tmp_path / "compiled")
        run = folder / "runs" / "resnet50-emulated"
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses[name] = [line["loss"] for line in lines if line["split"] == "train"]
        assert (run / "checkpoints" / "2").is_dir()
        assert [path.name for path in folder.iterdir()] == ["runs"]
    assert losses["wheel"] == losses["checkout"] and len(losses["wheel"]) == 2


def test_the_other_package_called_datasets_stays_whole(python: Path, wheel: Path, tmp_path: Path, root: Path) -> None:
    program = "import datasets, sys; print(datasets.load_dataset('x'), datasets.__file__)"
    for folder in (tmp_path, root):  # our checkout, too, must not stand in its way
        assert said(python, folder, "-c", program).startswith("loaded x " + str(python.parents[1]))
    pip(python, "uninstall", "--yes", "flowaware-zoo")
    assert said(python, tmp_path, "-c", program).startswith("loaded x ")
    pip(python, "install", "--no-deps", "--no-index", str(wheel))
