"""One protein over several devices gives what one device gives, from the first pass to the last recycle."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import flowaware_core as fa
from zoo.folding.buckets import Size
from zoo.folding.predictor import Predictor
from zoo.folding.splitting import Split
from zoo.models.alphafold2.config import changed, preset
from zoo.models.alphafold2.convert import draw

SIZE = Size(32, 8, 8)
BLOCKS = "model.embeddings_and_evoformer"
SMALL = {f"{BLOCKS}.evoformer_num_block": 1, f"{BLOCKS}.extra_msa_stack_num_block": 1,
         "model.heads.structure_module.num_layer": 2}  # fmt: skip


def features(predictor: Predictor) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for name, shape in predictor.model.feature_shapes(SIZE.residues, SIZE.rows, SIZE.further).items():
        whole = np.issubdtype(shape.dtype, np.integer)
        value = rng.integers(0, 20, shape.shape) if whole else rng.uniform(0, 1, shape.shape)
        found[name] = (np.ones(shape.shape) if "mask" in name else value).astype(shape.dtype)
    return found | {"residue_index": np.arange(SIZE.residues, dtype=np.int32)}


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4, 8])
def test_split_equals_one_device(count: int) -> None:
    predictor = Predictor(changed(preset("model_3_ptm"), SMALL))
    params, seen = draw(predictor.model.parameter_shapes(), 0), features(predictor)
    # So little memory that the pairs have to be split as well as what else is large.
    split = Split(tuple(jax.devices()[:count]), 400 * 2**20)
    one, several = (
        predictor.predict(params, lambda recycle: seen, 30, SIZE, recycles=1, split=where) for where in (None, split)
    )
    for name, value in one.arrays.items():
        largest = np.abs(value).max()
        np.testing.assert_allclose(several.arrays[name], value, atol=1e-4 * largest, rtol=0, err_msg=name)
    np.testing.assert_allclose(several.positions, one.positions, atol=1e-3)


@pytest.mark.slow
def test_what_not_even_all_devices_hold_is_refused() -> None:
    predictor = Predictor(changed(preset("model_3_ptm"), SMALL))
    params, seen = predictor.model.parameter_shapes(), features(predictor)
    with pytest.raises(fa.DoesNotFit):
        Split(tuple(jax.devices()[:2]), 2**20).step(
            predictor.model.iterate, params, seen, predictor.model.first_previous(SIZE.residues)
        )


def test_the_devices_have_the_memory_that_they_were_given() -> None:
    cluster = Split(tuple(jax.devices()[:4]), 3 * 2**30).cluster()
    assert cluster.num_devices == 4 and cluster.device.usable_bytes == 3 * 2**30
