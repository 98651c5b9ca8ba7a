"""PNASNet: published counts, both forms of convolution, shapes and names."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.errors import UserError
from zoo.models.exchange import flat
from zoo.models.pnasnet.config import PNASNetConfig
from zoo.models.pnasnet.convert import from_timm, to_timm
from zoo.models.pnasnet.model import PNASNet, abstract_variables, parameter_count

TINY = PNASNetConfig((1, 2), 4, "cifar", 4, 5, convolution="products")


def test_sizes_of_the_published_models() -> None:
    assert parameter_count(PNASNetConfig()) == 86_057_668  # timm's pnasnet5large
    mobile = parameter_count(PNASNetConfig((3, 3, 3), 54, stem_width=32))
    assert round(mobile / 1e6, 1) == 5.1  # the paper, N=3 and F=54


@pytest.mark.slow  # compiles for half a minute
def test_evaluation_keeps_the_statistics_and_both_forms_agree() -> None:
    images = jax.random.normal(jax.random.key(1), (3, 9, 9, 3))
    variables = jax.jit(lambda key: PNASNet(TINY).init(key, images, train=False))(jax.random.key(0))
    apply = lambda config: jax.jit(lambda v, x: PNASNet(config).apply(v, x, train=False))(variables, images)
    logits = apply(TINY)
    assert logits.shape == (3, 5) and logits.dtype == jnp.float32
    np.testing.assert_allclose(apply(dataclasses.replace(TINY, convolution="lax")), logits, atol=1e-4)


def test_there_and_back_by_timms_names_is_exact() -> None:
    rng = np.random.default_rng(0)
    config = PNASNetConfig((1,), 8, "imagenet", 6, 5)
    variables = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), abstract_variables(config))
    weights = to_timm(variables)
    assert weights["cell_stem_0.comb_iter_0_left.separable_1.depthwise_conv2d.weight"].shape == (6, 1, 5, 5)
    for name in ("conv_0.conv.weight", "conv_0.bn.running_var", "cell_stem_0.comb_iter_0_right.conv.weight"):
        assert name in weights
    for name in ("cell_stem_1.conv_prev_1x1.path_2.conv.weight", "cell_0.conv_1x1.bn.bias", "last_linear.weight"):
        assert name in weights
    found = from_timm(weights | {"conv_0.bn.num_batches_tracked": np.asarray(3)}, config)
    assert set(found.used) == set(weights)
    for name, value in flat(variables).items():
        np.testing.assert_array_equal(flat(found.params)[name], value, err_msg=name)
    with pytest.raises(UserError, match="which this model does not know"):
        from_timm(weights | {"cell_9.x": np.zeros(1)}, config)


def test_config_refuses_what_makes_no_network() -> None:
    with pytest.raises(ValueError, match="filters=3; it must be at least 4"):
        PNASNetConfig(filters=3)
    with pytest.raises(ValueError, match="convolution='fast'; allowed are None, lax, products"):
        PNASNetConfig(convolution="fast")  # type: ignore[arg-type]
