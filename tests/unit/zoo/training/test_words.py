import dataclasses

import pytest

from zoo.config import compose
from zoo.training import words


@pytest.fixture(scope="module")
def config():
    return compose(["recipe=resnet50", "cluster=dcu32"])


def test_the_command_can_be_typed_again():
    assert (
        words.command("zoo.train", ["recipe=resnet50", "run_dir=a b"])
        == "python -m zoo.train recipe=resnet50 'run_dir=a b'"
    )


def test_the_command_for_the_cluster_leaves_out_what_shapes_the_rehearsal(config):
    argv = [
        "recipe=resnet50",
        "cluster=dcu32",
        "steps=3",
        "recipe.rehearsal.examples_per_device=2",
        "processes=2",
        "seed=1",
    ]
    said = words.for_the_cluster(config, argv)
    assert said.endswith("python -m zoo.train recipe=resnet50 cluster=dcu32 seed=1") and "on dcu32" in said


def test_virtual_devices_give_way_to_those_of_the_machine(config):
    emulated = dataclasses.replace(config, cluster=compose(["recipe=resnet50", "cluster=emulated"]).cluster)
    said = words.for_the_cluster(emulated, ["recipe=resnet50", "cluster=emulated", "cluster.n=8"])
    assert said.endswith("python -m zoo.train recipe=resnet50 cluster=local")


def test_a_rehearsal_names_every_changed_size():
    said = words.rehearsal("dcu32", 3, 16, {"axis node": [8, 4], "global batch": [512, 16]})
    assert "rehearsal of dcu32: 3 steps on 16 virtual devices (axis node 8 -> 4, global batch 512 -> 16)" in said
    assert "level emulated" in said
