"""What there is, a line each."""

from __future__ import annotations

import pytest

from zoo.config import choices
from zoo.list import OWN, headline, main, sentence
from zoo.models.registry import MODELS
from zoo.paths import cards_dir, conf_dir


def test_everything_is_listed_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = [line.split(None, 1) for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    cards = [card.parent.name for card in cards_dir().glob("*/card.yaml")]
    assert {name for name, *_ in lines} == {*choices("recipe"), *choices("cluster"), *MODELS, *cards, *OWN}
    assert all(len(line) == 2 and len(line[1]) < 110 for line in lines), lines


@pytest.mark.parametrize("recipe", choices("recipe"))
def test_a_recipe_says_command_hardware_time_and_metric(recipe: str) -> None:
    comment = (conf_dir() / "recipe" / f"{recipe}.yaml").read_text().split("\n\n")[0]
    assert f"recipe={recipe}" in comment
    assert all(f"# {word}:" in comment for word in ("Command", "Hardware", "Time", "Metric"))


@pytest.mark.parametrize("cluster", choices("cluster"))
def test_every_figure_of_a_cluster_has_a_unit_or_is_a_count(cluster: str) -> None:
    file = conf_dir() / "cluster" / f"{cluster}.yaml"
    assert headline(file)
    for line in file.read_text().splitlines():
        key, _, value = line.strip().partition(":")
        if key in ("memory_gib", "latency_s") or key.endswith("bytes_per_s"):
            assert "#" in value and any(unit in value for unit in ("GiB", "B/s", "s; ")), line


def test_a_sentence_ends_at_its_full_stop() -> None:
    assert sentence("One\n  thing of 0.5. Another.") == "One thing of 0.5"
