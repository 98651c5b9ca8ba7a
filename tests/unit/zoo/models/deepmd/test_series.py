"""Embedding nets as series: the same energies and forces, a straight line beyond their range, and what cannot be one."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowaware_core import versions
from zoo.errors import UserError
from zoo.models.deepmd import series
from zoo.models.deepmd.config import SeA, potential
from zoo.models.deepmd.convert import Model
from zoo.models.deepmd.evaluate import Evaluator
from zoo.models.deepmd.model import initial_parameters, initial_statistics
from zoo.models.deepmd.networks import embedding_parameters, network

CELL = np.diag([5.0, 5.5, 6.0])
TYPES = np.asarray([0, 1, 1, 0, 1])
COORD = np.asarray([[0.5, 0.5, 0.5], [1.4, 0.6, 0.5], [0.4, 1.5, 0.6], [3.0, 3.0, 3.0], [3.8, 3.1, 2.9]])


def model(descriptor: dict) -> Model:
    section = {"type_map": ["O", "H"], "descriptor": {"sel": [8, 16], "rcut": 3.0, "neuron": [4, 8], **descriptor}}
    config = potential({**section, "fitting_net": {"neuron": [6, 6]}}, "model")
    with versions.enable_x64():
        params = jax.device_get(jax.jit(lambda: initial_parameters(config, jax.random.key(2)))())
        statistics = jax.device_get(initial_statistics(config))
    rows = {"davg": np.asarray([[0.1, 0, 0, 0], [0.2, 0, 0, 0]]), "dstd": np.asarray([[0.2] * 4, [0.3] * 4])}
    if descriptor["type"] == "se_e2_a":
        statistics["descriptor"]["0"] = rows
    return Model(config, params, statistics, nearest_a=0.9)


@pytest.mark.parametrize("one_side", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_energies_and_forces_stay_the_same(one_side: bool) -> None:
    pair = [[1, 1]] if not one_side else []
    original = model({"type": "se_e2_a", "axis_neuron": 3, "type_one_side": one_side, "exclude_types": pair})
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
        net = embedding_parameters(jax.random.key(0), 1, part.neuron, False, jnp.float64)
        fitted = jax.tree.map(jnp.asarray, series.fitted(part, net, -1.0, 4.0))

        def embedding(x: jax.Array) -> jax.Array:
            row = jnp.stack([x, jnp.ones_like(x)])[None, None]
            return series.moments(fitted, row)[0, 1]  # the second component is 1

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
    other = model({"type": "se_e2_r"})
    with pytest.raises(UserError, match="a descriptor se_e2_r cannot be compressed"):
        Evaluator(dataclasses.replace(other, compressed=True))
    rough = model({"type": "se_e2_a", "axis_neuron": 3, "activation_function": "relu"})
    with pytest.raises(UserError, match="too rough for a series"):
        Evaluator(dataclasses.replace(rough, compressed=True))
