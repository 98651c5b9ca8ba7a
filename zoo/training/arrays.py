"""Named arrays on disk, through Orbax: OCDBT on TensorStore, sharded, asynchronous. The only module that knows Orbax.

Each array is a Zarr array of its name in the key-value store of the directory, so TensorStore alone opens it:

    tensorstore.open({"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": "file://DIR/", "path": "params.w/"}})
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from flowaware_core import versions
from zoo.training.leaves import Wanted

# jaxlib 0.4.34's coordinator refuses a barrier whose name was used before, and Orbax names them after the folder alone.
# All processes write the same checkpoints in the same order, so they count alike.
_writes = itertools.count()


def write(directory: Path, arrays: Mapping[str, jax.Array | np.ndarray]) -> Callable[[], None]:
    """Starts to write the arrays into a directory that does not exist yet, all processes together.

    Returns once the values are copied to the host: the caller may donate the arrays. The function that is returned
    blocks until all processes have written, and raises what went wrong.
    """
    if not arrays:
        return lambda: None
    checkpointer = _checkpointer()
    checkpointer.save(directory.absolute(), args=ocp.args.PyTreeSave(dict(arrays)))

    def finish() -> None:
        checkpointer.wait_until_finished()
        checkpointer.close()

    return finish


def read(directory: Path, wanted: Mapping[str, Wanted]) -> dict[str, jax.Array | np.ndarray]:
    """The arrays of these names: each device reads its own shard alone, whatever the placement was when saved."""
    if not wanted:
        return {}
    item = {name: jax.ShapeDtypeStruct(one.shape, one.dtype) for name, one in wanted.items()}
    restore_args = {name: _restore_args(one) for name, one in wanted.items()}
    # transforms={} lets the directory hold more arrays than are read.
    args = ocp.args.PyTreeRestore(item=item, restore_args=restore_args, transforms={})
    return _checkpointer().restore(directory.absolute(), args=args)


def _checkpointer() -> ocp.AsyncCheckpointer:
    versions.complete_coordination_client()
    _silence_orbax()
    options = ocp.options.MultiprocessingOptions(barrier_sync_key_prefix=f"checkpoint{next(_writes)}")
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=False, multiprocessing_options=options)
    return ocp.AsyncCheckpointer(handler, multiprocessing_options=options)


def _restore_args(wanted: Wanted) -> ocp.RestoreArgs:
    if wanted.sharding is None:
        return ocp.RestoreArgs(restore_type=np.ndarray, dtype=wanted.dtype)
    return ocp.ArrayRestoreArgs(sharding=wanted.sharding, global_shape=wanted.shape, dtype=wanted.dtype)


def _silence_orbax() -> None:
    """Keeps Orbax's notes to its developers, and tracebacks of what it raises anyway, away from our users."""
    logging.getLogger("absl").addFilter(_is_not_of_orbax)


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in record.pathname
