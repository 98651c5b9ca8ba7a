"""Parameters before the first step: distributed as deepmd-kit draws them, since learning curves are compared with its own."""

from __future__ import annotations

import jax
import numpy as np

from flowaware_core import versions
from zoo.models.deepmd.config import potential
from zoo.models.deepmd.model import initial_parameters

SECTION = {
    "type_map": ["O", "H"],
    "descriptor": {"type": "se_e2_a", "sel": [4, 8], "rcut": 3.0, "neuron": [25, 50, 100], "type_one_side": True},
    "fitting_net": {"neuron": [240, 240, 240]},
}


def test_weights_biases_and_step_sizes_have_the_spread_of_deepmd_kit() -> None:
    config = potential(SECTION, "model")
    with versions.enable_x64():
        drawn = jax.device_get(jax.jit(lambda key: initial_parameters(config, key))(jax.random.key(0)))
    nets = [*drawn["descriptor"]["0"].values(), *drawn["fitting"].values()]
    layers = [layer for net in nets for layer in net.values()]
    for layer in layers:
        inside, outside = layer["w"].shape
        spread = layer["w"].std() * np.sqrt(inside + outside)
        assert abs(spread - 1) < 4 / np.sqrt(2 * layer["w"].size), (inside, outside, spread)
    biases = np.concatenate([layer["b"] for layer in layers])
    assert abs(biases.std() - 1) < 0.1 and abs(biases.mean()) < 0.1
    steps = np.concatenate([layer["idt"] for layer in layers if "idt" in layer])
    assert steps.size == 4 * 240 and abs(steps.mean() - 0.1) < 2e-4 and abs(steps.std() - 1e-3) < 2e-4
    last = [net["3"]["b"][0] for net in drawn["fitting"].values()]
    assert len(set(last)) == 2 and 0.0 not in last
    assert len(np.unique(np.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(drawn)]))) == sum(
        leaf.size for leaf in jax.tree.leaves(drawn)
    )
