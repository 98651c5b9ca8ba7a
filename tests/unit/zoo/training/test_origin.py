import dataclasses

import numpy as np
import pytest

from zoo.config import compose
from zoo.errors import UserError
from zoo.training.checkpoints import Checkpoints
from zoo.training.origin import Origin, origin, record
from zoo.training.run_folder import RunFolder


@pytest.fixture
def config(tmp_path):
    return compose(["recipe=resnet50", "cluster=emulated", f"run_dir={tmp_path}"])


def save(config, step, level="emulated", folder="checkpoints"):
    checkpoints = Checkpoints(config.run_dir / folder)
    checkpoints.save(step, {"w": np.ones(3)}, {**record(config), "level": level})
    checkpoints.wait()


def found(config, level="emulated"):
    return origin(config, RunFolder(config.run_dir), level)


def test_an_empty_folder_is_a_new_training(config):
    assert found(config) == Origin()


def test_the_latest_step_is_taken_unless_told_never(config):
    save(config, 2)
    save(config, 4)
    assert found(config).step == 4
    assert found(dataclasses.replace(config, resume="never")) == Origin()
    assert found(dataclasses.replace(config, resume=str(config.run_dir / "checkpoints" / "2"))).step == 2


def test_how_a_rehearsal_is_cut_may_change(config):
    save(config, 2)
    rehearsal = dataclasses.replace(config.recipe.rehearsal, steps=9)
    changed = dataclasses.replace(config, recipe=dataclasses.replace(config.recipe, rehearsal=rehearsal))
    assert found(changed).notes == ()


def test_the_number_of_readers_may_change(config):
    save(config, 2)
    recipe = dataclasses.replace(config.recipe, data={**config.recipe.data, "readers": 7})
    assert found(dataclasses.replace(config, recipe=recipe)).notes == ()
    recipe = dataclasses.replace(config.recipe, data={**config.recipe.data, "global_batch": 7})
    with pytest.raises(UserError, match=r"recipe.data.global_batch: .* -> 7"):
        found(dataclasses.replace(config, recipe=recipe))


def test_a_changed_seed_is_told_and_refused(config):
    save(config, 2)
    changed = dataclasses.replace(config, seed=7)
    with pytest.raises(UserError, match="recipe.seed: 0 -> 7"):
        found(changed)
    assert found(dataclasses.replace(changed, allow_changed_recipe=True)).notes == (
        "changed since the checkpoint: recipe.seed: 0 -> 7",
    )


def test_a_training_does_not_go_on_from_its_rehearsal_nor_a_rehearsal_over_a_training(config):
    save(config, 3, level="emulated")
    assert found(config, "cluster").step == 0 and "holds a rehearsal" in found(config, "cluster").notes[0]
    save(config, 4, level="cluster")
    with pytest.raises(UserError, match="rehearse in another run_dir"):
        found(config, "emulated")
