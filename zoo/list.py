"""`python -m zoo.list`: the recipes, clusters, models and data sets there are, a line each."""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

import yaml

from zoo.config import choices
from zoo.errors import exit_code
from zoo.models.registry import MODELS
from zoo.paths import PACKAGE, cards_dir, conf_dir

OWN = {"arrays": "zoo.data.arrays", "image_folder": "zoo.data.image_folder", "text": "zoo.data.corpus"}
"""Forms of the user's own data, and the modules that read them."""


def main(argv: list[str]) -> int:
    argparse.ArgumentParser(prog="python -m zoo.list", description=__doc__).parse_args(argv)
    sections = {
        "recipes, recipe=NAME": {name: headline(conf_dir() / "recipe" / f"{name}.yaml") for name in choices("recipe")},
        "clusters, cluster=NAME": {
            name: headline(conf_dir() / "cluster" / f"{name}.yaml") for name in choices("cluster")
        },
        "models, zoo/models/NAME": {name: docstring(module) for name, module in sorted(MODELS.items())},
        "data sets, recipe.data.name=NAME": dict(
            sorted(
                {card.parent.name: title(card) for card in cards_dir().glob("*/card.yaml")}.items()
                | {name: docstring(module) for name, module in OWN.items()}.items()
            )
        ),
    }
    width = max(len(name) for lines in sections.values() for name in lines)
    for section, lines in sections.items():
        print(f"{section}")
        for name, line in lines.items():
            print(f"  {name:<{width}}  {line}")
    return 0


def headline(file: Path) -> str:
    """The first sentence of the comment that a file of the configuration opens with."""
    comment = []
    for line in file.read_text().splitlines():
        if not line.startswith("#") or line == "#":
            break
        comment.append(line.lstrip("# "))
    return sentence(" ".join(comment))


def docstring(target: str) -> str:
    """The first sentence of a module's docstring, without importing it; target is "module:attribute"."""
    module = target.partition(":")[0].removeprefix("zoo.").replace(".", "/")
    return sentence(ast.get_docstring(ast.parse((PACKAGE / f"{module}.py").read_text())) or "")


def title(card: Path) -> str:
    return sentence(str(yaml.safe_load(card.read_text()).get("description", "")))


def sentence(text: str) -> str:
    return " ".join(text.split()).split(". ")[0].rstrip(".")


if __name__ == "__main__":
    sys.exit(exit_code(main)(sys.argv[1:]))
