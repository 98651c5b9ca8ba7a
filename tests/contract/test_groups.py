"""Stages on unequal groups of devices: the numbers of one device, and no slower than equal groups."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import flowaware_core as fa
from tests.contract.staged import cluster, data, deep, language, weights

CARD = fa.Device("card", 16 * fa.GIB, {"float32": 1e13}, 1e12)
PARTS, RATE, STEPS = 4, 0.1, 5


def nodes(count: int, cards: int, bandwidth: float = 1e12, latency: float = 1e-9) -> fa.Cluster:
    levels = fa.Level("node", count, bandwidth, latency), fa.Level("card", cards, 1e13, latency)
    return fa.Cluster(f"{count} x {cards}", CARD, levels)


def plain(params: Any, batch: Any, rng: jax.Array, step: int) -> tuple[jax.Array, Any]:
    """Loss and gradients of a step, by nothing but JAX; micro-batch i has the rows i, i + n, ..."""
    key = jax.random.fold_in(rng, step)

    def loss(params: Any) -> jax.Array:
        rows = [jax.tree.map(lambda leaf, i=part: leaf[i::PARTS], batch) for part in range(PARTS)]
        found = [language(params, None, rows[part], jax.random.fold_in(key, part)).terms for part in range(PARTS)]
        return sum(one["entropy"].total for one in found) / sum(one["entropy"].count for one in found)

    return jax.value_and_grad(loss)(params)


@pytest.mark.parametrize(
    ("where", "groups"),
    [
        (nodes(3, 2), (4, 2)),  # members of the outermost level
        (nodes(3, 2), (2, 4)),
        (cluster(), (2, 2, 4)),  # parts of a member
        (cluster(), (1, 3, 4)),  # over three cards nothing is even
        (nodes(1, 7), (5, 2)),
    ],
    ids=lambda one: one.name if isinstance(one, fa.Cluster) else str(one),
)
@pytest.mark.usefixtures("x64")
def test_losses_and_gradients_are_those_of_one_device(where: fa.Cluster, groups: tuple[int, ...]) -> None:
    training = fa.Training(language, optax.sgd(RATE), splits=True)
    batch, state = data(), training.initial(weights(jax.random.key(0)), jax.random.key(1))
    cuts = [f"0['params']['layer{number}']" for number in range(1, len(groups))]
    plan = fa.pipeline(training, state, batch, where, micro_batches=PARTS, groups=groups, cuts=cuts)
    assert plan.groups == groups and all(stage.stage.own for stage in plan.stages)
    step, params, rng = fa.PipelinedStep(plan), state["params"], state["rng"]
    assert {len(leaf.device_set) for leaf in jax.tree.leaves(step.in_shardings)} == set(groups)
    split, rows = jax.device_put((jax.tree.map(jnp.copy, state), batch), step.in_shardings)
    expected = jax.jit(plain, static_argnums=3)
    for number in range(STEPS):
        before = jax.tree.map(np.asarray, split["params"])
        split, found = step(split, rows)
        loss, gradients = expected(params, batch, rng, number)
        assert float(found["loss"]) == pytest.approx(float(loss), rel=1e-8)
        if number == 0:
            apart = jax.tree.map(
                lambda old, new, one: float(np.abs((old - np.asarray(new)) / RATE - one).max()),
                before, split["params"], gradients,
            )  # fmt: skip
            assert max(jax.tree.leaves(apart)) < 1e-10 * max(
                float(jnp.abs(g).max()) for g in jax.tree.leaves(gradients)
            )
        params = jax.tree.map(lambda one, slope: one - RATE * slope, params, gradients)


def test_two_nodes_and_one_are_faster_than_three_of_one() -> None:
    """Few micro-batches: a step through fewer stages waits less."""
    where = nodes(3, 4, bandwidth=3e10, latency=1e-6)
    equal = fa.pipeline(*deep(), where, micro_batches=4, groups=[4, 4, 4])
    found = fa.pipeline(*deep(), where, micro_batches=4)
    assert sorted(found.groups) == [4, 8] and found.step_s < 0.95 * equal.step_s
    assert found.imbalance < 0.15 and found.idle < equal.idle
    assert fa.pipeline(*deep(), where, micro_batches=4, stages=2).groups == found.groups
    two = fa.pipeline(*deep(), where, micro_batches=4, stages=2, cuts=found.cuts)
    assert two.groups == found.groups and two.cuts == found.cuts


@pytest.mark.parametrize("bandwidth", [1e9, 1e10, 1e11])
def test_never_slower_than_equal_groups(bandwidth: float) -> None:
    for where in (nodes(4, 2, bandwidth, 1e-6), nodes(5, 2, bandwidth, 1e-6)):
        found = fa.pipeline(*deep(7), where, micro_batches=8)
        for count in (2, 4, 5):
            if where.levels[0].size % count == 0:
                equal = fa.pipeline(*deep(7), where, micro_batches=8, groups=[where.num_devices // count] * count)
                slower = found.step_s - equal.step_s  # by itself: pytest would print the plans
                assert slower <= 0.0


def test_groups_are_said_by_all_that_show_a_pipeline() -> None:
    found = fa.pipeline(*deep(6), nodes(3, 2), micro_batches=4, groups=[1, 1, 4], name="uneven")
    assert found.describe().startswith("3 stages of 1 + 1 + 4 devices, 4 micro-batches")
    assert [line.split()[1] for line in found.describe().splitlines()[2:]] == ["1", "1", "4"]
    text = fa.page(found)
    assert re.findall(r"<td>(\d+ to \d+)</td>", text) == ["0 to 0", "1 to 1", "2 to 5"]
    assert {event["tid"] for event in fa.timeline(found)["traceEvents"] if event["ph"] == "X"} == {0, 1, 2}
    with pytest.raises(ValueError, match="needs 6 devices and 5 are here"):
        fa.PipelinedStep(found, jax.devices()[:5])


def test_groups_that_cannot_be_are_refused() -> None:
    training = fa.Training(language, optax.sgd(1e-3), splits=True)
    state = training.initial(weights(jax.random.key(0)), jax.random.key(1))
    for wrong, said in (
        ({"groups": [4, 2]}, r"groups=\[4, 2\] are 6 devices; two has 8, all of which are in a group"),
        ({"groups": [8]}, "stages=1; the 8 devices of two divide into 2 to 8 stages"),
        ({"groups": [8, 0]}, r"groups=\[8, 0\]; each is 1 device or more"),
        (
            {"groups": [3, 5]},
            r"groups=\[3, 5\]: devices 3 to 7 are no group of 2 halfs of 4 cards; a group is some members",
        ),
        ({"groups": [2, 4, 2]}, "devices 2 to 5 are no group"),
        ({"groups": [4, 4], "stages": 3}, "the number of stages is 3 by stages and 2 by groups; it must be the same"),
        ({"groups": [4, 2, 2], "cuts": [3]}, "the number of stages is 2 by cuts and 3 by groups; it must be the same"),
        (
            {"groups": [4, 2, 2], "examples": [4, 2, 4]},
            r"examples=4; the devices of stage 2 can spread them over \[1, 2\]",
        ),
        ({"examples": [4, 2, 2]}, r"the 2 halfs of two do not divide into 3 equal groups; give groups too"),
    ):
        with pytest.raises(ValueError, match=said):
            fa.pipeline(training, state, data(), cluster(), micro_batches=4, **wrong)  # type: ignore[arg-type]
