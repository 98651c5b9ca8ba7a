"""With the optimizer's state on the hosts a step gives the numbers of one device, and is chosen where nothing else fits."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import flowaware_core as fa
from flowaware_core import joint, versions
from flowaware_core.cost.estimate import shard_bytes
from flowaware_core.execute import hosted
from flowaware_core.graph.model import Graph
from tests.contract import staged

WIDTH, LAYERS, ROWS = 256, 4, 96
# All that a device needs, in bytes: in one program, and with the optimizer's state on the hosts.
ENOUGH, SCARCE = 16_000_000, 2_600_000
CLIPPED = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(optax.linear_schedule(1e-2, 0.0, 100)))


def cluster(memory: int, **host: Any) -> fa.Cluster:
    card = fa.Device("card", memory, {"float32": 1e13}, 1e12, **host)
    return fa.Cluster("four", card, (fa.Level("card", 4, 1e10, 1e-6),))


def layers(params: Any, extra: Any, batch: Any, key: jax.Array) -> fa.Outcome:
    del extra, key
    x = batch["x"]
    for layer in params:
        x = x + jnp.tanh(x @ layer["w"] + layer["b"])
    error = (x - batch["y"]) ** 2
    return fa.Outcome({"square": fa.Mean(jnp.sum(error), error.size)})


def weights(key: jax.Array) -> Any:
    keys = jax.random.split(key, LAYERS)
    return [{"w": jax.random.normal(each, (WIDTH, WIDTH)) / 16, "b": jnp.zeros(WIDTH)} for each in keys]


def rows() -> Any:
    draw = np.random.default_rng(0)
    return {name: draw.normal(size=(ROWS, WIDTH)) for name in "xy"}


def step_of(plan: fa.Offloaded) -> fa.OffloadedStep:
    """The step; a backend without a memory of hosts must say so."""
    known = {memory.kind for memory in jax.devices()[0].addressable_memories()}
    expected = (
        contextlib.nullcontext() if "pinned_host" in known else pytest.warns(UserWarning, match="no memory of hosts")
    )
    with expected:
        return fa.OffloadedStep(plan)


def arrays(opt_state: Any) -> list[jax.Array]:
    return [leaf for leaf in jax.tree.leaves(opt_state) if leaf.size > 1]


def differences(plan: fa.Offloaded, state: Any, batch: Any, steps: int = 5) -> tuple[float, float]:
    """The largest of the losses of some steps, and of the state after them, from plain JAX on one device."""
    step, plain = step_of(plan), jax.jit(plan.training.step(plan.schedule))
    kind = hosted.kind(step.mesh)
    split, apart = jax.device_put(jax.tree.map(jnp.copy, state), step.in_shardings[0]), []
    examples = step.placed(batch)
    for _ in range(steps):
        split, found = step(split, examples)
        state, expected = plain(state, batch)
        assert set(found) == set(expected)
        apart.append(abs(float(found["loss"]) - float(expected["loss"])))
        if kind is not None:
            assert {leaf.sharding.memory_kind for leaf in arrays(split["opt_state"])} == {kind}
            assert all(leaf.sharding.memory_kind != kind for leaf in jax.tree.leaves(split["params"]))
    pairs = [(split[name], state[name]) for name in state if name != "rng"]
    far = [jax.tree.map(lambda a, b: float(np.abs(np.asarray(a) - np.asarray(b)).max()), *pair) for pair in pairs]
    return max(apart), max(jax.tree.leaves(far))


@pytest.fixture(scope="module")
def wide() -> tuple[fa.Training, Any, Any]:
    with versions.enable_x64():
        training = fa.Training(layers, CLIPPED, splits=True)
        return training, training.initial(weights(jax.random.key(0)), jax.random.key(1)), rows()


@pytest.fixture(scope="module")
def scarce(wide: tuple[fa.Training, Any, Any]) -> fa.Offloaded:
    """What is chosen where nothing else fits."""
    with versions.enable_x64():
        found = fa.fastest(*wide, cluster(SCARCE), "layers")
    assert isinstance(found, fa.Offloaded)
    return found


@pytest.mark.smoke
@pytest.mark.usefixtures("x64")
def test_adam_and_a_norm_over_all_give_the_numbers_of_one_device(
    wide: tuple[fa.Training, Any, Any], scarce: fa.Offloaded
) -> None:
    assert len(scarce.parts) > 1 and scarce.fits
    loss, apart = differences(scarce, *wide[1:])
    assert loss < 1e-10 and apart < 1e-10


@pytest.mark.usefixtures("x64")
def test_memory_is_that_of_the_compiled_programs(scarce: fa.Offloaded) -> None:
    step = step_of(scarce)

    def compiled(program: Any, graph: Graph) -> versions.Memory:
        key = jax.eval_shape(lambda: jax.random.key(0))
        values = [graph.tensors[tensor] for tensor in graph.inputs]
        shapes = [key if v.dtype == "key" else jax.ShapeDtypeStruct(v.shape, v.dtype) for v in values]
        found = versions.memory(program.lower(*shapes).compile(compiler_options=versions.compiler_options("cpu")))
        assert found is not None
        return found

    first = compiled(step.gradients, scarce.cut.gradients)
    assert scarce.candidate.estimate.usage.total == pytest.approx(first.total, rel=0.1)
    waiting, most = first.arguments + first.outputs - first.aliases, []
    for part, program in zip(scarce.parts, step.updates, strict=True):
        found = compiled(program, part.part.graph)
        most.append(waiting + part.hosted_bytes + found.total - found.arguments)
        assert found.arguments == part.estimate.usage.arguments and not found.temporaries > part.hosted_bytes
        waiting -= sum(
            shard_bytes(scarce.cut.whole, scarce.placement, scarce.candidate.mesh, tensor)
            for tensor in part.part.gradients
        )
    assert max(part.memory_bytes for part in scarce.parts) == pytest.approx(max(most), rel=0.1)
    assert scarce.memory_bytes == pytest.approx(max(first.total, *most), rel=0.1)
    assert scarce.memory_bytes <= scarce.cluster.device.usable_bytes


@pytest.mark.usefixtures("x64")
def test_the_state_is_counted_on_the_hosts_and_on_the_way(scarce: fa.Offloaded) -> None:
    step = step_of(scarce)
    slots, homes = jax.tree.leaves(scarce.state["opt_state"]), jax.tree.leaves(step.in_shardings[0]["opt_state"])
    shards = [
        np.prod(home.shard_shape(slot.shape)) * slot.dtype.itemsize
        for slot, home in zip(slots, homes, strict=True)
        if slot.shape
    ]
    assert scarce.hosted_bytes == sum(shards)
    bandwidth = scarce.cluster.device.host_bandwidth_bytes_per_s
    assert scarce.hosting_s == pytest.approx(2 * sum(shards) / bandwidth)
    assert scarce.hosting_s < scarce.step_s
    assert "on the hosts" in scarce.describe() and f"{len(scarce.parts)} parts" in scarce.describe()


@pytest.mark.usefixtures("x64")
def test_it_is_the_last_resort(wide: tuple[fa.Training, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> Any:
        raise AssertionError("something else fits")

    def short(*args: Any, **options: Any) -> Any:
        raise fa.DoesNotFit("one program does not fit")

    monkeypatch.setattr(joint, "offload", never)
    assert isinstance(fa.fastest(*wide, cluster(ENOUGH)), fa.Plan)
    monkeypatch.setattr(joint, "plan", short)
    assert isinstance(fa.fastest(*wide, cluster(ENOUGH)), fa.Pipeline)


OPTIMIZERS = {
    "a norm over what the state gives": optax.chain(
        optax.scale_by_adam(), optax.clip_by_global_norm(0.1), optax.scale(-1e-2)
    ),
    "a norm within each parameter": optax.lamb(1e-2),
    "numbers in the state": optax.inject_hyperparams(optax.adamw)(learning_rate=1e-2),
    "a distance over all that the state keeps": optax.contrib.prodigy(1.0),
    "rows and columns": optax.adafactor(1e-2, min_dim_size_to_factor=4),
    "all at once every second step": optax.MultiSteps(optax.adam(1e-2), 2),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers_give_the_numbers_of_one_device(kind: str) -> None:
    training = fa.Training(staged.language, OPTIMIZERS[kind], splits=True)
    state = training.initial(staged.weights(jax.random.key(0)), jax.random.key(1))
    plan = fa.offload(training, state, staged.data(), cluster(ENOUGH), part_bytes=256)
    loss, apart = differences(plan, state, staged.data(), 3)
    assert loss < 1e-10 and apart < 1e-10
    joined = kind in ("a norm over what the state gives", "a distance over all that the state keeps")
    assert (plan.division.joined is not None) == joined
    assert (len(plan.parts) > 1) == (kind != "all at once every second step")


@pytest.mark.usefixtures("x64")
def test_batch_statistics_and_a_state_born_in_place() -> None:
    extra = {f"layer{index}": jnp.zeros(staged.WIDTH) for index in range(staged.LAYERS)}
    training = fa.Training(staged.normalised, CLIPPED, extra="statistics")

    def make() -> Any:
        return training.initial(staged.weights(jax.random.key(0)), jax.random.key(1), extra)

    plan = fa.offload(training, jax.eval_shape(make), staged.data(), cluster(ENOUGH))
    step = step_of(plan)
    state = step.initial(make)
    placed = jax.tree.map(
        lambda leaf, home: leaf.sharding.is_equivalent_to(home, leaf.ndim), state, step.in_shardings[0]
    )
    assert all(jax.tree.leaves(placed))
    loss, apart = differences(plan, make(), staged.data())
    assert loss < 1e-10 and apart < 1e-10


@pytest.mark.usefixtures("x64")
def test_what_does_not_fit_says_where_and_by_how_much(wide: tuple[fa.Training, Any, Any]) -> None:
    training, state, batch = wide
    some = {**state, "params": state["params"][:2], "opt_state": CLIPPED.init(state["params"][:2])}
    few = jax.tree.map(lambda leaf: leaf[:16], batch)
    with pytest.raises(
        fa.DoesNotFit, match=r"does not fit .* With the optimizer's state on the hosts: .* lies on the hosts already"
    ):
        fa.fastest(training, some, few, cluster(100_000))
    with pytest.raises(fa.DoesNotFit, match=r"one part of the update miss \d+\.\d\d KiB"):
        fa.offload(training, some, few, cluster(900_000))
    with pytest.raises(fa.DoesNotFit, match=r"takes 5\d\d\.\d\d KiB a device of the hosts' memory and 100\.00 KiB"):
        fa.offload(training, some, few, cluster(ENOUGH, host_memory_bytes=100 * 2**10))


@pytest.mark.usefixtures("x64")
def test_bad_input_is_named(wide: tuple[fa.Training, Any, Any], scarce: fa.Offloaded) -> None:
    _, state, batch = wide
    plain = optax.sgd(0.1)
    with pytest.raises(ValueError, match="keeps no arrays"):
        bare = {**state, "opt_state": plain.init(state["params"])}
        fa.offload(fa.Training(layers, plain), bare, batch, cluster(ENOUGH))
    with pytest.raises(ValueError, match="part_bytes=0"):
        fa.offload(*wide, cluster(ENOUGH), part_bytes=0)
    with pytest.raises(ValueError, match="host_bandwidth_bytes_per_s=0"):
        cluster(ENOUGH, host_bandwidth_bytes_per_s=0)
    with pytest.raises(ValueError, match="needs 4 devices and 1 are here"):
        fa.OffloadedStep(scarce, jax.devices()[:1])
