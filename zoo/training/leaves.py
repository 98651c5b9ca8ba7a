"""The leaves of a state as a checkpoint knows them: a name, a kind, and for arrays the values.

A state is any pytree. Each leaf gets the name of its path, `params.conv.kernel` or `opt_state.0.mu.conv.kernel`; a dot
or a percent sign inside a dictionary key is written `%2E` or `%25`. Five kinds of leaf:

    array    a jax.Array                                          stored
    key      typed random keys                                    stored as their uint32 key data
    numpy    a NumPy array or scalar                              stored
    python   a bool, int, float or str                            kept in the record
    empty    a node without leaves: None, {}, optax.EmptyState()  kept in the record

Arrays of size zero hold nothing to store. Nothing is pickled: structure comes back through the abstract state that the
caller gives, and each of its leaves is held against the record.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

from zoo.errors import UserError

# dtype of typed random keys -> the name that jax.random.wrap_key_data knows in every version
KEYS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
LISTED = 8  # differences that an error prints before it says "and N more"


@dataclass(frozen=True)
class Leaf:
    """The record of one leaf. `value` is the Python value, the kind of random keys or the type of an empty node."""

    name: str
    kind: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    value: Any = None
    placement: dict | None = None  # {"mesh": {axis: size}, "spec": [...]} as saved, for people

    def to_json(self) -> dict:
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, record: dict) -> Leaf:
        return cls(**{**record, "shape": tuple(record["shape"])})

    def __str__(self) -> str:
        if self.kind in ("empty", "python"):
            return f"{self.kind} {self.value!r}" if self.kind == "python" else f"empty {self.value}"
        words = [f"{self.dtype}[{','.join(map(str, self.shape))}]", *([] if self.kind == "array" else [self.kind])]
        return "  ".join(words + ([_placed(self.placement)] if self.placement else []))

    @property
    def stored(self) -> bool:
        return self.kind in ("array", "key", "numpy") and 0 not in self.shape

    @property
    def num_bytes(self) -> int:
        """Bytes of the values in memory; a key counts as the widest implementation's four words."""
        if not self.stored:
            return 0
        itemsize = 16 if self.kind == "key" else jax.numpy.dtype(self.dtype).itemsize
        return int(np.prod(self.shape, dtype=np.int64)) * itemsize


@dataclass(frozen=True)
class Wanted:
    """How one stored array is read: on the host as NumPy when `sharding` is None."""

    shape: tuple[int, ...]
    dtype: Any
    sharding: jax.sharding.Sharding | None


def split(state: Any) -> tuple[list[Leaf], dict[str, jax.Array | np.ndarray]]:
    """The records of all leaves, and the arrays to store by name.

    NumPy arrays are copied, so that the caller may go on writing into them. Raises ValueError for a leaf of another
    type and for two leaves of one name (the keys 0 and "0" of one dictionary).
    """
    records, arrays = [], {}
    for name, value in _named(state)[0]:
        record = _record(name, value)
        records.append(record)
        if record.stored:
            arrays[name] = _storable(record, value)
    return records, arrays


def wanted(records: dict[str, Leaf], abstract_state: Any, partial: bool) -> dict[str, Wanted]:
    """What has to be read for an abstract state; its leaves are held against the records first, as `check` does."""
    check(records, abstract_state, partial)
    return {name: _wanted(records[name], leaf) for name, leaf in _named(abstract_state)[0] if records[name].stored}


def check(records: dict[str, Leaf], abstract_state: Any, partial: bool) -> None:
    """Holds the leaves of an abstract state against the records.

    Raises:
        UserError: a leaf is missing, left over (unless partial), or of another kind, shape or dtype; all are named.
    """
    asked = dict(_named(abstract_state)[0])
    lines = [f"{name}: not in the checkpoint" for name in asked if name not in records]
    if not partial:
        lines += [f"{name}: in the checkpoint, but not in this run's state" for name in records if name not in asked]
    for name in asked.keys() & records.keys():
        lines += _mismatch(records[name], asked[name])
    if lines:
        more = [f"and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
        raise UserError(
            f"the checkpoint holds another state: {'; '.join(sorted(lines)[:LISTED] + more)}. "
            "Give the recipe that it was saved with, or another run_dir to start afresh"
        )


def join(records: dict[str, Leaf], abstract_state: Any, arrays: dict[str, Any]) -> Any:
    """The state: structure and empty nodes of the abstract state, values of the records and of the arrays read."""
    entries, structure = _named(abstract_state)
    return jax.tree_util.tree_unflatten(
        structure, [_restored(records[name], leaf, arrays.get(name)) for name, leaf in entries]
    )


def _named(tree: Any) -> tuple[list[tuple[str, Any]], Any]:
    entries, structure = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_empty)
    names = [".".join(map(_part, path)) or "state" for path, _ in entries]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two leaves of the state are named {twice}; rename one of the dictionary keys")
    return [(name, value) for name, (_, value) in zip(names, entries, strict=True)], structure


def _is_empty(node: Any) -> bool:
    return not jax.tree_util.tree_leaves(node)


def _part(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute)).replace("%", "%25").replace(".", "%2E")
    raise ValueError(f"unknown kind of path entry {key!r} in the state; use dicts, lists, tuples and dataclasses")


def _is_key(value: Any) -> bool:
    return hasattr(value, "dtype") and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


def _record(name: str, value: Any) -> Leaf:
    if _is_empty(value):
        return Leaf(name, "empty", value=type(value).__name__)
    if isinstance(value, (bool, int, float, str)) and not isinstance(value, np.generic):  # np.float64 is a float
        return Leaf(name, "python", dtype=type(value).__name__, value=value)
    if isinstance(value, jax.Array) and not _is_key(value):
        return Leaf(name, "array", value.shape, str(value.dtype), placement=_placement(value.sharding))
    if isinstance(value, jax.Array) and str(value.dtype) in KEYS:
        return Leaf(name, "key", value.shape, str(value.dtype), KEYS[str(value.dtype)], _placement(value.sharding))
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "OUSMm" and value.dtype.fields is None:
        return Leaf(name, "numpy", value.shape, str(value.dtype), "scalar" if isinstance(value, np.generic) else None)
    found = f"{type(value).__name__} of dtype {value.dtype}" if hasattr(value, "dtype") else type(value).__name__
    raise ValueError(f"{name} is a {found}, which no checkpoint can hold; use an array, a number, a str or None")


def _storable(record: Leaf, value: Any) -> jax.Array | np.ndarray:
    if record.kind == "numpy":
        return np.array(value)
    data = jax.random.key_data(value) if record.kind == "key" else value
    # With several processes an array of one process alone has no global placement: process 0 writes its own.
    return np.array(data) if jax.process_count() > 1 and data.is_fully_addressable else data


def _placement(sharding: jax.sharding.Sharding) -> dict:
    if isinstance(sharding, jax.sharding.NamedSharding):
        spec = [list(entry) if isinstance(entry, tuple) else entry for entry in sharding.spec]
        return {"mesh": {str(axis): size for axis, size in sharding.mesh.shape.items()}, "spec": spec}
    return {"devices": len(sharding.device_set)}


def _placed(placement: dict) -> str:
    if "spec" not in placement:
        return f"on {placement['devices']} device(s)"
    spec = ", ".join("+".join(dim) if isinstance(dim, list) else str(dim or "-") for dim in placement["spec"])
    mesh = ", ".join(f"{axis}={size}" for axis, size in placement["mesh"].items())
    return f"({spec}) over {mesh}"


def _mismatch(record: Leaf, asked: Any) -> list[str]:
    if record.kind == "empty" or _is_empty(asked):
        fits = record.kind == "empty" and _is_empty(asked)
        found = f"empty ({record.value})" if record.kind == "empty" else f"a {record.kind}"
        return [] if fits else [f"{record.name}: {found} in the checkpoint, {type(asked).__name__} in this run"]
    if record.kind == "python":
        return []
    here = (tuple(np.shape(asked)), str(getattr(asked, "dtype", type(asked).__name__)))
    if (record.shape, record.dtype) != here:
        there = f"{record.dtype}{list(record.shape)}"
        return [f"{record.name}: {there} in the checkpoint, {here[1]}{list(here[0])} in this run"]
    if (
        _on_device(record, asked)
        and record.kind != "key"
        and jax.dtypes.canonicalize_dtype(record.dtype) != record.dtype
    ):
        return [f"{record.name}: {record.dtype} in the checkpoint, but 64-bit is off (JAX_ENABLE_X64=1 turns it on)"]
    return []


def _on_device(record: Leaf, asked: Any) -> bool:
    if isinstance(asked, (np.ndarray, np.generic)):
        return False
    return record.kind != "numpy" or getattr(asked, "sharding", None) is not None


def _sharding(asked: Any) -> jax.sharding.Sharding:
    sharding = getattr(asked, "sharding", None)
    if sharding is None:
        assert jax.process_count() == 1, "with several processes every leaf of the abstract state needs a sharding"
        return jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return sharding


def _wanted(record: Leaf, asked: Any) -> Wanted:
    if record.kind == "key":
        # The data has one more dimension than the keys, and a PartitionSpec may be shorter than the shape.
        data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(asked.shape, asked.dtype))
        return Wanted(data.shape, data.dtype, _sharding(asked))
    return Wanted(record.shape, jax.numpy.dtype(record.dtype), _sharding(asked) if _on_device(record, asked) else None)


def _restored(record: Leaf, asked: Any, array: Any) -> Any:
    if record.kind == "empty":
        return asked
    if record.kind == "python":
        return record.value
    if record.kind == "key" and array is not None:
        wrap = jax.jit(lambda data: jax.random.wrap_key_data(data, impl=record.value), out_shardings=_sharding(asked))
        return wrap(array)
    if array is None:  # nothing of it was stored
        empty = np.zeros(record.shape, jax.numpy.dtype(record.dtype))
        return jax.device_put(empty, _sharding(asked)) if _on_device(record, asked) else empty
    return array[()] if record.value == "scalar" and isinstance(array, np.ndarray) else array
