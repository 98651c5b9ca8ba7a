"""A state comes back as it was, on any devices; what is damaged, half-written or elsewhere is named and never used."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tensorstore
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from zoo.errors import UserError
from zoo.training.checkpoints import Checkpoints, locate

META = {"plan_hash": "abc", "recipe": {"name": "tiny"}, "seed": 7, "level": "emulated"}


def on(num_devices: int, *spec) -> NamedSharding:
    """A placement over the first devices, named `card`."""
    return NamedSharding(Mesh(np.array(jax.devices()[:num_devices]), ("card",)), PartitionSpec(*spec))


def training_state(num_devices: int = 8) -> dict:
    """What a training run holds, with every kind of leaf and dtype; 24 and 16 rows split over 1, 2, 4 and 8 devices."""
    draw = np.random.default_rng(3).standard_normal  # jax.random.normal differs between the version lanes
    params = {
        "conv": {"kernel": jnp.float32(draw((3, 3, 5, 16))), "bias": jnp.arange(16, dtype=jnp.bfloat16)},
        "linear/~/w.1": {"w": jnp.float32(draw((24, 7)))},
        "mask": jnp.arange(24) % 3 == 0,
    }
    params = jax.device_put(
        params,
        {
            "conv": {"kernel": on(num_devices, None, None, None, "card"), "bias": on(num_devices, "card")},
            "linear/~/w.1": {"w": on(num_devices, "card")},
            "mask": on(num_devices, "card"),
        },
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.constant_schedule(1e-3)))
    return {
        "params": params,
        "batch_stats": {},
        "opt_state": optimizer.init(params["conv"]),
        "step": jax.device_put(jnp.int32(5), on(num_devices)),
        "rng": jax.device_put(
            jax.random.wrap_key_data(jnp.arange(16, dtype="uint32").reshape(8, 2)), on(num_devices, "card")
        ),
        "raw_rng": jax.random.PRNGKey(1),
        "host": [np.arange(6).reshape(2, 3), np.float64(0.1), np.bool_(True), np.zeros((0, 4), np.int16)],
        "python": (3, 0.1, True, "text", float("inf"), None),
        "nothing": jnp.zeros((3, 0)),
    }


def abstract(state, sharding_of=lambda leaf: leaf.sharding):
    """The state without values; leaves of the host stay."""
    return jax.tree.map(
        lambda leaf: (
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding_of(leaf))
            if isinstance(leaf, jax.Array)
            else leaf
        ),
        state,
    )


def values(leaf):
    return np.asarray(jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)


def assert_same(found, expected) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert type(one) is type(other)
        if isinstance(other, (jax.Array, np.ndarray, np.generic)):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(values(one), values(other))
        else:
            assert one == other


def saved(directory: Path, *steps: int, **options) -> Checkpoints:
    checkpoints = Checkpoints(directory, **options)
    for step in steps:
        checkpoints.save(step, {"w": jnp.full((64, 8), step, jnp.float32), "b": jnp.ones(3)}, META)
        checkpoints.wait()
    return checkpoints


SMALL = {"w": jax.ShapeDtypeStruct((64, 8), "float32"), "b": jax.ShapeDtypeStruct((3,), "float32")}


@pytest.mark.smoke
def test_a_state_comes_back_with_its_structure_values_and_meta(tmp_path):
    state, checkpoints = training_state(), Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(5, state, META)
    checkpoints.wait()
    found, meta = checkpoints.restore(5, abstract(state))
    assert_same(found, state)
    assert isinstance(found["opt_state"][0], optax.EmptyState)
    assert found["params"]["conv"]["kernel"].sharding == state["params"]["conv"]["kernel"].sharding
    assert found["rng"].sharding.is_equivalent_to(state["rng"].sharding, 1)
    assert {**META, "step": 5}.items() <= meta.items()
    assert meta["versions"]["jax"] == jax.__version__
    assert [checkpoints.steps(), checkpoints.latest(), Checkpoints(tmp_path / "no").latest()] == [[5], 5, None]


@pytest.mark.smoke
def test_eight_devices_to_one_to_eight_gives_equal_arrays(tmp_path):
    state = training_state(8)
    one = Checkpoints(tmp_path / "8")
    one.save(1, state, META)
    one.wait()
    on_one, _ = one.restore(1, abstract(state, lambda leaf: on(1)))
    two = Checkpoints(tmp_path / "1")
    two.save(2, on_one, META)
    two.wait()
    again, _ = two.restore(2, abstract(state))
    assert_same(on_one, state)
    assert_same(again, state)


@pytest.mark.parametrize("num_devices, spec", [(3, ("card",)), (7, (None, "card")), (5, ()), (6, ("card", None))])
def test_any_other_placement_reads_each_shard_alone(tmp_path, num_devices, spec):
    """12 x 14 split over 4 lies across the borders of every placement here."""
    array = jax.device_put(jnp.arange(168.0).reshape(12, 14), on(4, "card"))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(0, {"x": array}, META)
    checkpoints.wait()
    sharding = on(num_devices, *spec)
    found, _ = checkpoints.restore(0, {"x": jax.ShapeDtypeStruct((12, 14), "float32", sharding=sharding)})
    assert found["x"].sharding == sharding
    assert {shard.data.shape for shard in found["x"].addressable_shards} == {sharding.shard_shape((12, 14))}
    np.testing.assert_array_equal(found["x"], np.arange(168.0).reshape(12, 14))


def test_float64_comes_back_or_says_how(tmp_path):
    jax.config.update("jax_enable_x64", True)
    try:
        state = {"e": jnp.float64(0.1), "i": jnp.arange(3, dtype=jnp.int64)}
        checkpoints = Checkpoints(tmp_path)
        checkpoints.save(1, state, {})
        checkpoints.wait()
        assert_same(checkpoints.restore(1, state)[0], state)
    finally:
        jax.config.update("jax_enable_x64", False)
    with pytest.raises(UserError, match="e: float64 .*JAX_ENABLE_X64=1"):
        checkpoints.restore(1, {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in state.items()})


@pytest.mark.parametrize(
    "dtype", ["bool", "int4", "int8", "uint32", "float16", "bfloat16", "float8_e4m3fn", "complex64", "float32"]
)
def test_every_dtype_keeps_its_bits(tmp_path, dtype):
    bits = np.random.default_rng(0).integers(0, 2, (5, 3)) * 3
    array = jnp.asarray(bits).astype(dtype)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": array}, {})
    checkpoints.wait()
    assert_same(checkpoints.restore(1, {"x": array})[0], {"x": array})


def test_numbers_that_are_not_finite_come_back(tmp_path):
    array = jnp.float32([np.nan, np.inf, -np.inf, -0.0, 1e-45])
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": array}, {"loss": float("nan")})
    checkpoints.wait()
    found, meta = checkpoints.restore(1, {"x": array})
    np.testing.assert_array_equal(np.asarray(found["x"]).view("uint32"), np.asarray(array).view("uint32"))
    assert np.isnan(meta["loss"])


@pytest.mark.smoke
def test_donating_the_state_right_after_save_does_not_change_what_is_saved(tmp_path):
    overwrite = jax.jit(lambda tree: jax.tree.map(lambda x: x * 0 - 7, tree), donate_argnums=0)
    for step, spec in enumerate([("card",), ()]):
        state = {str(i): jax.device_put(jnp.full((512, 1024), i, jnp.float32), on(4, *spec)) for i in range(8)}
        state["host"] = np.arange(5)
        checkpoints = Checkpoints(tmp_path)
        checkpoints.save(step, state, {})
        state.pop("host")[:] = -7
        asked = {**abstract(state), "host": np.zeros(5, int)}
        jax.block_until_ready(overwrite(overwrite(state)))
        checkpoints.wait()
        found, _ = checkpoints.restore(step, asked)
        assert [float(found[str(i)].min()) for i in range(8)] == [float(found[str(i)].max()) for i in range(8)]
        assert [float(found[str(i)].max()) for i in range(8)] == list(range(8))
        np.testing.assert_array_equal(found["host"], np.arange(5))


@pytest.mark.smoke
def test_any_flipped_byte_is_named_and_the_previous_good_step_offered(tmp_path):
    checkpoints = saved(tmp_path, 10, 20)
    for file in sorted(file for file in (tmp_path / "20").rglob("*") if file.is_file()):
        content = file.read_bytes()
        for position in (0, len(content) // 2, len(content) - 1):
            file.write_bytes(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
            with pytest.raises(UserError) as error:
                checkpoints.restore(20, SMALL)
            assert file.relative_to(tmp_path / "20").as_posix() in str(error.value)
            assert f"step 10 before it is good: resume={tmp_path / '10'}" in str(error.value)
        file.write_bytes(content)
    checkpoints.restore(20, SMALL)


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_truncated_or_missing_array_file_is_named(tmp_path, damage):
    checkpoints = saved(tmp_path, 10, 20, 30)
    for step in (20, 30):
        data = max((tmp_path / str(step) / "arrays").rglob("d/*"), key=lambda file: file.stat().st_size)
        if damage == "truncated":
            os.truncate(data, data.stat().st_size // 2)
        else:
            data.unlink()
    with pytest.raises(UserError, match=f"{data.name} (has|is missing).*; step 10 before it is good"):
        checkpoints.restore(30, SMALL)
    shutil.rmtree(tmp_path / "10")
    with pytest.raises(UserError, match="no good one before it"):
        checkpoints.restore(30, SMALL)


def test_half_written_steps_are_never_chosen_and_are_cleaned_up(tmp_path):
    saved(tmp_path, 10)
    for name in ("20.writing", "7.deleting", "30.orbax-checkpoint-tmp-0", "40"):  # 40 has no manifest
        shutil.copytree(tmp_path / "10", tmp_path / name)
    (tmp_path / "40" / "manifest.json").unlink()
    (tmp_path / "notes.txt").write_text("of the user")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.steps() == [10]
    with pytest.raises(UserError, match="no complete checkpoint of step 40 .* there are: 10"):
        checkpoints.restore(40, SMALL)
    saved(tmp_path, 11)
    assert {path.name for path in tmp_path.iterdir()} == {"10", "11", "30.orbax-checkpoint-tmp-0", "40", "notes.txt"}


def test_a_step_that_was_being_replaced_comes_back(tmp_path):
    saved(tmp_path, 10)
    (tmp_path / "10").rename(tmp_path / "10.replaced")
    checkpoints = saved(tmp_path, 11)
    assert checkpoints.steps() == [10, 11]
    checkpoints.verify(10)


def test_saving_a_step_again_replaces_it(tmp_path):
    checkpoints = saved(tmp_path, 10)
    checkpoints.save(10, {"w": jnp.zeros((64, 8)), "b": jnp.zeros(3)}, {"note": "again"})
    checkpoints.wait()
    found, meta = checkpoints.restore(10, SMALL)
    assert float(found["w"].sum()) == 0 and meta["note"] == "again"


def test_retention_keeps_the_newest_and_the_best(tmp_path):
    assert saved(tmp_path / "a", 1, 2, 3, 4, keep=2).steps() == [3, 4]
    assert saved(tmp_path / "b", 1, 2, 3, 4, keep=None).steps() == [1, 2, 3, 4]
    best = saved(tmp_path / "c", 1, 2, 3, 4, keep=1, best=lambda meta: -abs(meta["step"] - 2))
    assert best.steps() == [2, 4]
    # Of equally good steps the first: a run that no longer improves keeps the one that it names as its best.
    level = saved(tmp_path / "d", 1, 2, 3, 4, keep=1, best=lambda meta: None if meta["step"] == 1 else 0.5)
    assert level.steps() == [2, 4]
    # Going back to step 2 and saving 3 never deletes the step just written, whatever lies ahead of it.
    assert saved(tmp_path / "c", 3, keep=1).steps() == [3, 4]


def test_a_save_that_fails_deletes_no_good_step(tmp_path, monkeypatch):
    checkpoints = saved(tmp_path, 1, keep=1)

    def full(directory):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zoo.training.manifest.write", full)
    checkpoints.save(2, {"w": jnp.ones(3)}, {})
    with pytest.raises(UserError, match="No space left on device"):
        checkpoints.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_another_tree_shape_or_dtype_is_named_by_path(tmp_path):
    checkpoints = saved(tmp_path, 1)
    struct = jax.ShapeDtypeStruct
    with pytest.raises(UserError, match=r"w: float32\[64,? ?8\] in the checkpoint, bfloat16"):
        checkpoints.restore(1, {**SMALL, "w": struct((64, 8), "bfloat16")})
    with pytest.raises(UserError, match=r"w: .* float32\[64, 9\] in this run"):
        checkpoints.restore(1, {**SMALL, "w": struct((64, 9), "float32")})
    with pytest.raises(UserError, match="c.x: not in the checkpoint"):
        checkpoints.restore(1, {**SMALL, "c": {"x": struct((1,), "float32")}})
    with pytest.raises(UserError, match="b: in the checkpoint, but not in this run"):
        checkpoints.restore(1, {"w": SMALL["w"]})
    found, _ = checkpoints.restore(1, {"w": SMALL["w"]}, partial=True)
    assert float(found["w"].sum()) == 512


def test_a_directory_that_is_no_checkpoint(tmp_path):
    saved(tmp_path / "run" / "checkpoints", 3, 20)
    for path, step in [("run", 20), ("run/checkpoints", 20), ("run/checkpoints/3", 3)]:
        assert locate(tmp_path / path)[1] == step
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name, reason in [("empty", "holds no complete checkpoint"), ("file", "is a file"), ("no", "does not exist")]:
        with pytest.raises(UserError, match=f"{name} {reason}; name a run folder"):
            locate(tmp_path / name)


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    for directory in (tmp_path / "file", tmp_path / "file" / "checkpoints", Path("/proc/checkpoints")):
        with pytest.raises(UserError, match=f"cannot save in {directory}: .*; .*name "):
            Checkpoints(directory).save(1, {"w": jnp.ones(3)}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_disk_too_small_is_seen_before_anything_is_written(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(UserError, match="needs 4.0 MiB in .* 0.0 MiB are free"):
        Checkpoints(tmp_path).save(1, {"w": jnp.ones((1024, 1024))}, {})
    assert list(tmp_path.iterdir()) == []


def test_tensorstore_alone_opens_an_array(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    state = training_state()
    checkpoints.save(1, state, {})
    checkpoints.wait()
    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "ocdbt", "base": f"file://{tmp_path}/1/arrays/", "path": "params.linear/~/w%2E1.w/"},
    }
    found = tensorstore.open(spec).result().read().result()
    np.testing.assert_array_equal(found, state["params"]["linear/~/w.1"]["w"])


def test_describe_shows_shapes_dtypes_and_placements(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, training_state(), META)
    checkpoints.wait()
    lines = [" ".join(line.split()) for line in checkpoints.describe(1).splitlines()]
    assert lines[0] == f"checkpoint {tmp_path / '1'}" and lines[1].startswith("step 1, ")
    for line in (
        'plan_hash: "abc"',
        "params.conv.kernel float32[3,3,5,16] (-, -, -, card) over card=8",
        "params.conv.bias bfloat16[16] (card) over card=8",
        "rng key<fry>[8] key (card) over card=8",
        "host.1 float64[] numpy",
        "python.3 python 'text'",
        "opt_state.0 empty EmptyState",
        "raw_rng uint32[2] on 1 device(s)",
    ):
        assert line in lines
