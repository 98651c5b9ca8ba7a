"""ResNet against published counts, a hand-written batch norm, and what every dtype promises."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.models.resnet.config import ResNetConfig
from zoo.models.resnet.model import BatchNorm, ResNet, abstract_variables, initial_variables, parameter_count

TINY = ResNetConfig(blocks=(1, 2), width=4, num_classes=5, stem="cifar")


def initialised(config: ResNetConfig, size: int = 8, batch: int = 4) -> tuple[ResNet, dict, jax.Array]:
    model = ResNet(config)
    images = jax.random.normal(jax.random.key(1), (batch, size, size, 3))
    return model, jax.jit(lambda key: initial_variables(config, key))(jax.random.key(0)), images


def evaluated(config: ResNetConfig, variables: dict, images: jax.Array) -> jax.Array:
    return jax.jit(lambda v, x: ResNet(config).apply(v, x, train=False))(variables, images)


def trained(config: ResNetConfig, variables: dict, images: jax.Array) -> tuple[jax.Array, dict]:
    return jax.jit(lambda v, x: ResNet(config).apply(v, x, train=True, mutable=["batch_stats"]))(variables, images)


@pytest.fixture
def x64() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # torchvision's documented numbers
        (ResNetConfig(blocks=(3, 4, 6, 3)), 25_557_032),
        (ResNetConfig(blocks=(3, 8, 36, 3)), 60_192_808),
        (ResNetConfig(blocks=(2, 2, 2, 2), block_kind="basic"), 11_689_512),
        # the CIFAR ResNet-20 with parameter-free shortcuts
        (
            ResNetConfig((3, 3, 3), block_kind="basic", shortcut="padding", stem="cifar", width=16, num_classes=10),
            269_722,
        ),
        # ten classes, 3x3 stem
        (ResNetConfig(blocks=(3, 4, 6, 3), stem="cifar", num_classes=10), 23_520_842),
    ],
)
def test_parameter_count_is_the_published_one(config: ResNetConfig, expected: int) -> None:
    assert parameter_count(config) == expected


@pytest.mark.parametrize(
    ("blocks", "depth"), [((3, 4, 6, 3), 50), ((3, 8, 36, 3), 152), ((5, 16, 50, 5), 230), ((5, 16, 72, 7), 302)]
)
def test_depth_counts_layers_with_weights(blocks: tuple[int, ...], depth: int) -> None:
    assert ResNetConfig(blocks=blocks).depth == depth


@pytest.mark.parametrize(("stem", "size", "expected"), [("cifar", 32, 4), ("imagenet", 32, 1), ("imagenet", 224, 7)])
def test_stem_sets_the_resolution_of_the_last_stage(stem: str, size: int, expected: int) -> None:
    config = ResNetConfig(blocks=(1, 1, 1, 1), width=2, stem=stem)  # type: ignore[arg-type]
    image = jax.ShapeDtypeStruct((1, size, size, 3), jnp.float32)
    jaxpr = jax.make_jaxpr(lambda v, x: ResNet(config).apply(v, x, train=False))(abstract_variables(config), image)
    convolutions = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "conv_general_dilated"]
    assert convolutions[-1].outvars[0].aval.shape[1:3] == (expected, expected)


def test_batch_norm_normalises_the_batch_and_keeps_running_statistics() -> None:
    # A large mean beside a small spread: the case in which E[x^2] - E[x]^2 has no digits left in float32.
    x = np.random.default_rng(0).normal(1000.0, 0.01, (8, 3, 3, 2)).astype(np.float32)
    layer = BatchNorm()
    variables = layer.init(jax.random.key(0), x, train=False)
    y, updated = layer.apply(variables, x, train=True, mutable=["batch_stats"])
    wide = x.astype(np.float64)
    mean, var = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
    np.testing.assert_allclose(y, (wide - mean) / np.sqrt(var + 1e-5), atol=2e-2)
    np.testing.assert_allclose(updated["batch_stats"]["mean"], 0.1 * mean, rtol=1e-5)
    np.testing.assert_allclose(updated["batch_stats"]["var"], 0.9 + 0.1 * var, rtol=1e-5)


def test_evaluation_uses_the_running_statistics_and_keeps_them() -> None:
    _, variables, images = initialised(TINY)
    _, statistics = trained(TINY, variables, images)
    moved = {"params": variables["params"], **statistics}
    one = evaluated(TINY, moved, images[:1])
    # Without statistics of the batch, an example's logits do not depend on the others.
    np.testing.assert_allclose(evaluated(TINY, moved, images)[:1], one, atol=1e-5)
    assert not np.allclose(evaluated(TINY, variables, images)[:1], one, atol=1e-3)


def test_initial_variables_are_distributed_as_init_has_them() -> None:
    config = ResNetConfig(blocks=(1, 1), width=16, num_classes=50, stem="imagenet", zero_init_residual=True)
    model = ResNet(config)
    plain = jax.jit(lambda key: model.init(key, jnp.zeros((1, 16, 16, 3)), train=False))(jax.random.key(0))
    ours = jax.jit(lambda key: initial_variables(config, key))(jax.random.key(0))
    assert jax.tree.structure(ours) == jax.tree.structure(plain)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        if one.ndim > 1:
            np.testing.assert_allclose(one.std(), other.std(), rtol=0.1)
            np.testing.assert_allclose(np.abs(one).max(), np.abs(other).max(), rtol=0.02)
        else:
            np.testing.assert_array_equal(one, other)


def test_zero_init_residual_makes_every_block_the_identity() -> None:
    config = ResNetConfig(blocks=(2,), width=4, expansion=1, num_classes=5, stem="cifar", zero_init_residual=True)
    _, variables, images = initialised(config)
    shorter = ResNetConfig(blocks=(1,), width=4, expansion=1, num_classes=5, stem="cifar", zero_init_residual=True)
    first = {
        kind: {name: value for name, value in tree.items() if name != "layer1_1"} for kind, tree in variables.items()
    }
    np.testing.assert_array_equal(evaluated(config, variables, images), evaluated(shorter, first, images))


def test_bfloat16_computes_in_bfloat16_and_keeps_float32() -> None:
    config = ResNetConfig(blocks=(1, 2), width=4, num_classes=5, stem="cifar", dtype="bfloat16")
    model, variables, images = initialised(config)
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    logits = evaluated(config, variables, images)
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits, evaluated(TINY, variables, images), atol=0.1)
    jaxpr = jax.make_jaxpr(lambda v, x: model.apply(v, x, train=False))(variables, images)
    dtypes = {eqn.outvars[0].aval.dtype for eqn in jaxpr.eqns if eqn.primitive.name == "conv_general_dilated"}
    assert dtypes == {jnp.dtype("bfloat16")}


def test_float64_agrees_with_float32(x64: None) -> None:
    _, variables, images = initialised(TINY)
    single = trained(TINY, variables, images.astype(jnp.float32))[0]
    assert single.dtype == jnp.float32
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), variables)
    config = ResNetConfig(blocks=(1, 2), width=4, num_classes=5, stem="cifar", dtype="float64")
    logits, updated = trained(config, wide, images)
    assert {leaf.dtype for leaf in jax.tree.leaves((logits, updated))} == {jnp.dtype("float64")}
    np.testing.assert_allclose(logits, single, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"blocks": ()}, "blocks=[]"),
        ({"blocks": (1, 0)}, "at least one block"),
        ({"blocks": (1,), "width": 0}, "width=0"),
        ({"blocks": (1,), "stem": "vgg"}, "stem='vgg'; allowed are imagenet, cifar"),
    ],
)
def test_config_refuses_what_makes_no_network(options: dict, text: str) -> None:
    with pytest.raises(ValueError, match="(?s)" + text.replace("[", r"\[").replace("]", r"\]")):
        ResNetConfig(**options)
