import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from zoo.training.batches import Rows, globally, rows_of_process


class Placement:
    """Stands for a sharding of which this process holds the given rows."""

    def __init__(self, *spans):
        self._spans = spans

    def addressable_devices_indices_map(self, shape):
        return {number: (slice(*span),) + (slice(None),) * (len(shape) - 1) for number, span in enumerate(self._spans)}


BATCH = {"image": jax.ShapeDtypeStruct((8, 2, 2, 3), np.float32), "label": jax.ShapeDtypeStruct((8,), np.int32)}


@pytest.mark.parametrize(
    "spans, rows",
    [
        ([(0, 2), (2, 4)], Rows(0, 2)),
        ([(4, 6), (6, 8)], Rows(1, 2)),
        ([(None,)], Rows(0, 1)),  # whole on every process
        ([(2, 4), (2, 4)], Rows(1, 4)),  # two devices of a process hold the same rows
        ([(2, 4), (4, 6)], Rows(0, 1)),  # no equal part but the whole covers both
        ([(0, 2), (6, 8)], Rows(0, 1)),
    ],
)
def test_a_process_reads_the_smallest_part_that_covers_its_devices(spans, rows):
    assert rows_of_process({"image": Placement(*spans), "label": Placement(*spans)}, BATCH) == rows


def test_arrays_are_split_as_the_step_wants_them_and_hold_the_rows_in_order():
    mesh = Mesh(np.array(jax.devices()[:1]), ("card",))
    shardings = {
        "image": NamedSharding(mesh, PartitionSpec("card", None, None, None)),
        "label": NamedSharding(mesh, PartitionSpec("card")),
    }
    local = {
        "image": np.arange(96, dtype=np.float32).reshape(8, 2, 2, 3),
        "label": np.arange(8, dtype=np.int32),
        "weight": np.ones(8, np.float32),
    }
    (batch,) = globally(iter([local]), shardings, Rows(0, 1))
    for name, leaf in local.items():
        np.testing.assert_array_equal(batch[name], leaf)
        assert batch[name].dtype == leaf.dtype
    assert batch["label"].sharding == shardings["label"]
    assert batch["weight"].sharding.spec == PartitionSpec("card")
