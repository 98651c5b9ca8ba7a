"""Composing a configuration: choices, paths, unknown keys, ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowaware_core.cluster import GIB
from zoo.clusters import build
from zoo.config import choices, compose, plain
from zoo.errors import UserError

BASE = ["recipe=resnet50", "cluster=dcu32"]


def sentence(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        compose(list(overrides))
    return str(caught.value)


@pytest.mark.parametrize(
    ("recipe", "cluster"),
    [*((recipe, "dcu32") for recipe in choices("recipe")), *(("resnet50", cluster) for cluster in choices("cluster"))],
)
def test_every_choice_composes(recipe: str, cluster: str) -> None:
    config = compose([f"recipe={recipe}", f"cluster={cluster}"])
    assert (config.recipe.name, config.cluster.name) == (recipe, cluster)
    assert config.run_dir == Path(f"runs/{recipe}-{cluster}")


def test_the_blocks_of_the_paper() -> None:
    wanted = {
        "resnet50": [3, 4, 6, 3],
        "resnet152": [3, 8, 36, 3],
        "resnet230": [5, 16, 50, 5],
        "resnet302": [5, 16, 72, 7],
    }
    found = {name: compose([f"recipe={name}", "cluster=dcu32"]).recipe.model["blocks"] for name in wanted}
    assert found == wanted


def test_a_recipe_built_on_another_keeps_its_optimizer() -> None:
    small, large = (compose([f"recipe={name}", "cluster=dcu32"]).recipe for name in ("resnet50", "resnet302"))
    assert small.optimizer == large.optimizer and small.training == large.training


def test_missing_and_misspelt_choices_list_what_there_is() -> None:
    missing = sentence()
    assert all(name in missing for name in ("recipe=NAME", "cluster=NAME", "resnet152", "dcu32"))
    misspelt = sentence("recipe=resnet512", "cluster=dcu23")
    assert "did you mean resnet" in misspelt and "did you mean dcu32?" in misspelt and "h200x8" in misspelt


@pytest.mark.parametrize(
    "name", ["a=b", "a(b", "a,b", "~a", "a b", "a)b", "[a]", "{a: 1}", "${a}", "a'b", 'a"b', "ä\\b", "#a"]
)
def test_paths_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    for wanted in (name, str(tmp_path / name / "c")):
        keys = ("run_dir", "data_dir", "init_from", "resume")
        config = compose([*BASE, *(f"{key}={wanted}" for key in keys)])
        assert {key: str(getattr(config, key)) for key in keys} == dict.fromkeys(keys, wanted)


def test_a_leading_tilde_is_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    assert compose([*BASE, "run_dir=~/runs"]).run_dir == Path("/home/anna/runs")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("stps=5", ["stps", "did you mean steps?"]),
        ("recipe.modle.width=64", ["recipe.modle", "did you mean model?"]),
        (
            "cluster.levels.node.bandwith_bytes_per_s=1",
            ["cluster.levels.node.bandwith_bytes_per_s", "did you mean bandwidth"],
        ),
        ("steps=-1", ["steps=-1", "at least 1"]),
        ("steps=ten", ["steps='ten'", "whole number"]),
        ("steps=1.5", ["steps=1.5", "whole number"]),
        ("steps=true", ["steps=True", "whole number"]),
        ("seed=-1", ["seed=-1"]),
        ("processes=0", ["processes=0"]),
        ("recipe.rehearsal.steps=0", ["recipe.rehearsal.steps=0"]),
        ("cluster.levels.node.bandwidth_bytes_per_s=-1", ["cluster.levels.node.bandwidth_bytes_per_s=-1.0", "above 0"]),
        ("cluster.levels.card.size=0", ["cluster.levels.card.size=0", "above 0"]),
        ("cluster.levels.card.latency_s=inf", ["cluster.levels.card.latency_s=inf", "finite"]),
        ("cluster.device.usable_fraction=1.5", ["cluster.device.usable_fraction=1.5", "(0, 1]"]),
        ("cluster.n=8", ["cluster.n", "cluster=emulated"]),
        ("run_dir=", ["run_dir= has no value"]),
        ("steps", ["'steps'", "key=value"]),
        ("steps=[1", ["steps=[1"]),
        ("seed=${nothing}", ["nothing"]),
        ("conf_dir=/nowhere", ["conf_dir=/nowhere is no folder"]),
        ("--help", ["--help", "python -m zoo.list"]),
        ("compare=some", ["compare=some", "all"]),
        ("meshes=some", ["meshes=some", "few", "all"]),
    ],
)
def test_what_the_user_can_mend_is_said_in_one_sentence(override: str, words: list[str]) -> None:
    said = sentence(*BASE, override)
    assert all(word in said for word in words), said
    assert "\n" not in said


def test_optional_keys_need_no_prefix() -> None:
    config = compose([*BASE, "+recipe.model.extra=1", "recipe.data.more=[1,2]", "cluster.device.usable_fraction=0.5"])
    assert config.recipe.model["extra"] == 1 and config.recipe.data["more"] == [1, 2]


def test_described_clusters_speak_gib_and_the_engine_bytes() -> None:
    cluster = build(compose(BASE).cluster)
    assert cluster.num_devices == 32 and [level.name for level in cluster.levels] == ["node", "card"]
    assert cluster.device.memory_bytes == 16 * GIB
    assert build(compose(["recipe=resnet50", "cluster=h200x8"]).cluster).num_devices == 8
    assert build(compose(["recipe=resnet50", "cluster=gpu16"]).cluster).num_devices == 16


@pytest.mark.parametrize(
    ("overrides", "sizes"),
    [([], {"card": 4}), (["cluster.n=8"], {"card": 8}), (["cluster.n=8", "cluster.nodes=2"], {"node": 2, "card": 4})],
)
def test_emulated_clusters_take_their_size_from_the_command(overrides: list[str], sizes: dict[str, int]) -> None:
    cluster = build(compose(["recipe=resnet50", "cluster=emulated", *overrides]).cluster)
    assert {level.name: level.size for level in cluster.levels} == sizes


def test_emulated_devices_that_do_not_divide_are_refused() -> None:
    said = sentence("recipe=resnet50", "cluster=emulated", "cluster.n=7", "cluster.nodes=2")
    assert "cluster.n=7" in said and "nodes=2" in said


def test_a_folder_of_ones_own_adds_choices(tmp_path: Path) -> None:
    own = tmp_path / "my 'conf', =1"
    (own / "cluster").mkdir(parents=True)
    (own / "cluster" / "mine.yaml").write_text("defaults: [h200x8, _self_]\nname: mine\nlevels: {card: {size: 2}}\n")
    config = compose(["recipe=resnet50", "cluster=mine", f"conf_dir={own}"])
    assert build(config.cluster).num_devices == 2 and config.run_dir == Path("runs/resnet50-mine")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "broken.yaml").write_text("name: [1\n")
    assert "broken.yaml" in sentence("recipe=resnet50", "cluster=broken", f"conf_dir={tmp_path}")


def test_a_configuration_as_plain_values_is_json(tmp_path: Path) -> None:
    import json

    tree = plain(compose([*BASE, f"run_dir={tmp_path}"]))
    assert json.loads(json.dumps(tree)) == tree
    assert tree["run_dir"] == str(tmp_path) and tree["cluster"]["levels"]["node"]["size"] == 8


def test_composing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    compose(BASE)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster/mine.yaml").write_bytes(b"\xff\xfe\x00")
    said = sentence("recipe=resnet50", "cluster=mine", f"conf_dir={tmp_path}")
    assert str(tmp_path / "cluster/mine.yaml") in said and "UTF-8" in said and "\n" not in said
