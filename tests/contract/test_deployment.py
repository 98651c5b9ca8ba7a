"""Inputs of several sizes on groups of devices: everything done once, within memory, as soon as the bound allows, and right."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowaware_core as fa
from flowaware_core.deployment import Seconds, _shifts, _soonest
from zoo.models.t5.config import T5Config
from zoo.models.t5.generate import Generation, decoder
from zoo.models.t5.model import T5

WIDTH = 32


def energies(weights: Any, points: jax.Array) -> jax.Array:
    """A sum over all pairs, so that work grows with the square of the length."""
    near = jax.nn.softmax(points @ points.T, axis=-1) @ jnp.tanh(points @ weights)
    return jnp.sum(near * near, axis=-1)


def task(length: int) -> fa.Task:
    shapes = (jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32), jax.ShapeDtypeStruct((length, WIDTH), jnp.float32))
    return fa.Task(energies, shapes, mode="inference", name=f"energies of {length}")


@pytest.fixture(scope="module")
def tasks() -> list[fa.Task]:
    kinds = {length: task(length) for length in (16, 64, 256)}
    return [kinds[length] for length in (16, 64, 16, 256, 64, 16, 16, 64, 16, 16)]


def test_a_cluster_has_a_part_of_every_size_that_divides_its_levels(nested: fa.Cluster, flat: fa.Cluster) -> None:
    assert [part.num_devices for part in nested.parts()] == [1, 2, 4, 8]
    assert nested.parts()[-1] == nested and [level.size for level in nested.parts()[2].levels] == [4]
    assert [part.num_devices for part in flat.parts()] == [1, 2, 4, 8]
    one = dataclasses.replace(flat, levels=(dataclasses.replace(flat.levels[0], size=1),))
    assert one.parts() == (one,)


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_the_list_is_done_once_and_right(objective: Any, tasks: list[fa.Task], nested: fa.Cluster) -> None:
    made = fa.deployment(tasks, nested, objective)
    assert sorted(index for shift in made.shifts for group in shift.groups for index in group) == list(
        range(len(tasks))
    )
    assert all(shift.devices * len(shift.groups) == nested.num_devices for shift in made.shifts)
    assert made.bound <= made.seconds == sum(shift.seconds for shift in made.shifts)
    draws = iter(jax.random.split(jax.random.key(0), 20))
    weights = jax.random.normal(next(draws), (WIDTH, WIDTH))
    points = [jax.random.normal(next(draws), one.args[1].shape) for one in tasks]

    def work(step: fa.Step, index: int) -> Any:
        return step(*jax.device_put((weights, points[index]), step.in_shardings))

    for found, own in zip(made.run(work), points, strict=True):
        np.testing.assert_allclose(found, energies(weights, own), rtol=2e-5)


def test_what_is_raised_in_a_group_comes_out(tasks: list[fa.Task], nested: fa.Cluster) -> None:
    def work(step: fa.Step, index: int) -> Any:
        if index == 3:
            raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        fa.deployment(tasks, nested).run(work)


def test_what_fits_on_no_single_device_gets_a_group(tasks: list[fa.Task], nested: fa.Cluster) -> None:
    whole = fa.deployment([tasks[3]], nested).plans[0, 1].predicted.memory["total"]
    small = dataclasses.replace(nested, device=dataclasses.replace(nested.device, memory_bytes=whole // 2))
    made = fa.deployment(tasks, small)
    sizes = {index: shift.devices for shift in made.shifts for group in shift.groups for index in group}
    assert (3, 1) not in made.plans and sizes[3] > 1 and sizes[0] < sizes[3]
    tiny = dataclasses.replace(nested, device=dataclasses.replace(nested.device, memory_bytes=whole // 100))
    with pytest.raises(fa.DoesNotFit):
        fa.deployment(tasks, tiny)


def test_latency_is_the_least_and_throughput_the_soonest(tasks: list[fa.Task], nested: fa.Cluster) -> None:
    fast, many = fa.deployment(tasks, nested, "latency"), fa.deployment(tasks, nested)
    assert many.seconds <= fast.seconds
    for shift in fast.shifts:
        for index in (index for group in shift.groups for index in group):
            kind = next(place for place, one in enumerate(tasks) if one is tasks[index])
            times = {devices: plan.predicted.step_s for (one, devices), plan in fast.plans.items() if one == kind}
            assert times[shift.devices] == min(times.values())


def test_choices_are_as_good_as_all_of_them_tried() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        seconds: dict[int, Seconds] = {
            kind: {size: float(work) / size ** float(power) for size in (1, 2, 4, 8)}
            for kind, (work, power) in enumerate(zip(random.uniform(1, 30, 3), random.uniform(0.3, 1, 3), strict=True))
        }
        first = [int(kind) for kind in random.integers(0, 3, 12)]
        best = min(time(first, seconds, dict(enumerate(sizes))) for sizes in itertools.product((1, 2, 4, 8), repeat=3))
        assert time(first, seconds, _soonest(first, seconds, 8)) <= 1.05 * best


def time(first: Sequence[int], seconds: Mapping[int, Seconds], chosen: Mapping[int, int]) -> float:
    return sum(one.seconds for one in _shifts([chosen[kind] for kind in first], [seconds[kind] for kind in first], 8))


def test_wrong_requests_are_refused(tasks: list[fa.Task], nested: fa.Cluster) -> None:
    with pytest.raises(ValueError, match="objective='cheap'; allowed are throughput, latency"):
        fa.deployment(tasks, nested, "cheap")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no inputs"):
        fa.deployment([], nested)
    with pytest.raises(ValueError, match="energies of 16 is a training"):
        fa.deployment([dataclasses.replace(tasks[0], mode="training")], nested)
    with pytest.raises(ValueError, match=r"needs 8 devices and 2 are here"):
        fa.deployment(tasks, nested).run(lambda step, index: None, jax.devices()[:2])


def test_caches_of_keys_and_values_are_counted_and_split(flat: fa.Cluster) -> None:
    """One more token of T5 for texts that have caches of some MiB: memory as XLA needs it, the same token as plain JAX."""
    config, how = T5Config(64, 32, 2, 4, 8, 64, repeat="unrolled", dropout=0.0), Generation(max_tokens=128)
    texts, source = 64, 32

    def one(params: Any, caches: Any, encoded: jax.Array, tokens: jax.Array, at: jax.Array) -> Any:
        step, _ = decoder(config, how, params, encoded, jnp.ones((texts, source), jnp.int32))
        logits, caches = step(tokens[:, None], caches, at, jnp.zeros((texts, 1, how.max_tokens), jnp.int32))
        return jnp.argmax(logits[:, 0], -1).astype(jnp.int32), caches

    ids = jnp.ones((1, 2), jnp.int32)
    shapes = jax.eval_shape(T5(config).init, jax.random.key(0), ids, ids, ids)["params"]
    random = np.random.default_rng(0)
    draw = lambda *shape: 0.3 * random.normal(size=shape).astype(np.float32)
    params = jax.tree.map(lambda leaf: draw(*leaf.shape), shapes)
    cache = (texts, how.max_tokens, config.num_heads, config.head_size)
    caches = [(draw(*cache), draw(*cache)) for _ in range(2)]
    args = (params, caches, draw(texts, source, 32), np.arange(texts, dtype=np.int32), np.int32(100))
    decode = fa.Task(one, args, mode="inference", carried={1: 1}, name="one more token")
    plan = fa.plan(decode, flat)
    step = fa.apply(plan, decode)
    audit = fa.audit(step.compile(), plan, step)
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(caches))
    assert plan.predicted.memory["aliases"] == held / 8 and audit.ok  # the new caches are where the old ones were
    assert audit.memory["predicted"] == pytest.approx(audit.memory["compiled"], rel=0.2)
    assert plan.predicted.memory["total"] < 0.5 * fa.plan(decode, flat.parts()[0]).predicted.memory["total"]
    expected, after = jax.jit(one)(*args)
    found, kept = step(*jax.device_put(args, step.in_shardings))
    np.testing.assert_array_equal(found, expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), kept, after)
