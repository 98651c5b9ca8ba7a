"""Embedding nets as series: the same energies and forces, a straight line beyond their range, and what cannot be one."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowaware_core import versions
from zoo.errors import UserError
from zoo.models.deepmd import se_e2_a, series
from zoo.models.deepmd.config import potential
from zoo.models.deepmd.convert import Model
from zoo.models.deepmd.descriptors import SeA
from zoo.models.deepmd.evaluate import Evaluator
from zoo.models.deepmd.layout import Layout
from zoo.models.deepmd.model import initial_parameters, initial_statistics
from zoo.models.deepmd.networks import embedding_parameters, network

CELL = np.diag([5.0, 5.5, 6.0])
TYPES = np.asarray([0, 1, 1, 0, 1])
LAYOUT = Layout((2, 3), (7, 9))
COORD = np.asarray([[0.5, 0.5, 0.5], [1.4, 0.6, 0.5], [0.4, 1.5, 0.6], [3.0, 3.0, 3.0], [3.8, 3.1, 2.9]])


def model(descriptor: dict) -> Model:
    section = {"type_map": ["O", "H"], "descriptor": {"sel": [8, 16], "rcut": 3.0, "neuron": [4, 8], **descriptor}}
    columns = 1 if descriptor["type"] == "se_e2_r" else 4
    config = potential({**section, "fitting_net": {"neuron": [6, 6]}}, "model")
    with versions.enable_x64():
        params = jax.device_get(jax.jit(lambda: initial_parameters(config, jax.random.key(2)))())
        statistics = jax.device_get(initial_statistics(config))
    rows = {"davg": np.asarray([[0.1, 0, 0, 0], [0.2, 0, 0, 0]]), "dstd": np.asarray([[0.2] * 4, [0.3] * 4])}
    statistics["descriptor"]["0"] = {name: value[:, :columns] for name, value in rows.items()}
    return Model(config, params, statistics, nearest_a=0.9)


ANGULAR = {"type": "se_e2_a", "axis_neuron": 3, "type_one_side": True}
RADIAL = {"type": "se_e2_r"}
PAIRS = {"type": "se_e2_a", "axis_neuron": 3, "exclude_types": [[1, 1]]}
TYPED = {"type": "se_atten_v2", "sel": 24, "axis_neuron": 3, "attn_layer": 0, "exclude_types": [[1, 1]]}
ROUGH = {
    **TYPED,
    "type": "se_atten",
    "tebd_input_mode": "strip",
    "smooth_type_embedding": False,
    "set_davg_zero": False,
}


@pytest.mark.parametrize(
    "descriptor", [ANGULAR, *(pytest.param(one, marks=pytest.mark.slow) for one in (RADIAL, PAIRS, TYPED, ROUGH))]
)
def test_energies_and_forces_stay_the_same(descriptor: dict) -> None:
    original = model(descriptor)
    nets, fast = (
        Evaluator(one)(COORD, TYPES, CELL) for one in (original, dataclasses.replace(original, compressed=True))
    )
    np.testing.assert_allclose(fast.energy, nets.energy, rtol=0, atol=1e-10)
    np.testing.assert_allclose(fast.force, nets.force, rtol=0, atol=1e-9)
    np.testing.assert_allclose(fast.virial, nets.virial, rtol=0, atol=1e-9)
    assert np.abs(nets.force).max() > 1e-4


def test_beyond_its_range_a_series_is_a_straight_line() -> None:
    part = SeA(rcut=3.0, neuron=(4, 8))
    with versions.enable_x64():
        draw = np.random.default_rng(0).normal
        net = embedding_parameters(lambda shape: jnp.asarray(draw(size=shape)), 1, part.neuron, False)
        fitted = jax.tree.map(jnp.asarray, series.fitted(part, net, -1.0, 4.0))

        def embedding(x: jax.Array) -> jax.Array:
            return series.moments(fitted, jnp.ones((1, 1, 1)), x[None, None])[0, 0]

        slope = jax.jacrev(embedding)
        for end, further in ((4.0, 4.5), (-1.0, -1.75)):
            exact = network(net, jnp.asarray([end]), "tanh")
            np.testing.assert_allclose(embedding(jnp.asarray(end)), exact, atol=1e-10)
            line = exact + (further - end) * slope(jnp.asarray(end))
            np.testing.assert_allclose(embedding(jnp.asarray(further)), line, atol=1e-9)
            np.testing.assert_allclose(slope(jnp.asarray(further)), slope(jnp.asarray(end)), atol=1e-9)
            exact_slope = jax.jacfwd(lambda x: network(net, x[None], "tanh"))(jnp.asarray(end))
            np.testing.assert_allclose(slope(jnp.asarray(end)), exact_slope, atol=1e-8)


def test_what_has_no_such_net_is_refused() -> None:
    other = model({"type": "se_atten", "sel": 24, "axis_neuron": 3, "attn_layer": 0})
    with pytest.raises(UserError, match="a descriptor se_atten cannot be compressed"):
        Evaluator(dataclasses.replace(other, compressed=True))
    rough = model({"type": "se_e2_a", "axis_neuron": 3, "activation_function": "relu"})
    with pytest.raises(UserError, match="too rough for a series"):
        Evaluator(dataclasses.replace(rough, compressed=True))


def test_factors_of_products_and_of_polynomials_are_of_the_same_function() -> None:
    count, u = 64, np.linspace(-1, 1, 9)
    terms = np.random.default_rng(0).normal(size=count)
    products = (series.to_products(count) @ terms).reshape(-1, series.BLOCK)
    angle = np.arccos(u)
    high, low = (np.cos(np.arange(n)[:, None] * step * angle) for n, step in ((4, series.BLOCK), (series.BLOCK, 1)))
    expected = np.cos(np.arange(count)[:, None] * angle).T @ terms
    np.testing.assert_allclose(np.einsum("ij,iu,ju->u", products, high, low), expected, atol=1e-11)
    np.testing.assert_allclose(
        series.to_terms(count) @ np.cos(3 * np.arccos(series.nodes(count))), np.eye(count)[3], atol=1e-13
    )


def test_series_made_in_a_step_have_the_derivatives_of_the_nets_and_say_when_not() -> None:
    original = model(ANGULAR)
    config = original.config
    with versions.enable_x64():
        params, statistics = jax.tree.map(jnp.asarray, (original.params, original.statistics))
        rows = jnp.asarray(np.random.default_rng(1).uniform(0.0, 1.0, (5, 7, 4)))  # s of neighbours at 1 A and beyond

        def pull(params: Any, ready: Any) -> jax.Array:
            """A function of slopes by rows, as forces are."""
            layers = ready(params)["descriptor"]["0"]["0"]

            def total(rows: jax.Array) -> jax.Array:
                return jnp.sum(jnp.tanh(se_e2_a.moments(config.descriptor, {"0": layers}, LAYOUT, 0, rows)))

            return jnp.sum(jax.grad(total)(rows) ** 2)

        def tabulated(params: Any) -> Any:
            return series.tabulated(config, params, statistics, jnp.asarray(0.9), 64)[0]

        exact, found = (jax.jit(jax.grad(functools.partial(pull, ready=one)))(params) for one in (dict, tabulated))
        for one, other in zip(jax.tree.leaves(exact), jax.tree.leaves(found), strict=True):
            np.testing.assert_allclose(other, one, rtol=0, atol=1e-10 * max(np.abs(one).max(), 1e-3))
        rest = jax.jit(lambda p: series.tabulated(config, p, statistics, jnp.asarray(0.9), 64)[1])
        assert rest(params) < series.REST["float64"]
        single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (params, statistics))
        ready, left = series.tabulated(config, *single, jnp.asarray(0.9, jnp.float32), 64)
        assert {leaf.dtype for leaf in jax.tree.leaves(ready)} == {np.dtype("float32")} and left < series.REST[
            "float32"
        ]
        rough = jax.tree.map(lambda leaf: 30 * leaf, params)
        assert rest(rough) > series.REST["float64"]
