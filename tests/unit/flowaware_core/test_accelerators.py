"""Audits for cards that are not attached."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import flowaware_core as fa
from flowaware_core import accelerators

INSTALLED = accelerators.installed()


def test_an_unknown_card_is_told_from_the_known() -> None:
    with pytest.raises(ValueError, match="no card 'h99' to compile for; known are a100, h100, h200"):
        fa.unattached("h99", 8)


@pytest.mark.skipif(INSTALLED, reason="the compiler is installed")
def test_without_the_compiler_the_extra_is_named() -> None:
    with pytest.raises(ValueError, match=r"pip install 'flowaware-zoo\[gpu-audit\]'"):
        fa.unattached("h100", 8)


@pytest.mark.skipif(not INSTALLED, reason="takes XLA's GPU compiler: pip install 'flowaware-zoo[gpu-audit]'")
@pytest.mark.parametrize("card", fa.CARDS)
def test_collectives_are_compiled_as_planned(card: str) -> None:
    def step(state: dict[str, jax.Array], batch: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
        def loss(weights: dict[str, jax.Array]) -> jax.Array:
            return jnp.mean((jnp.tanh(batch @ weights["in"]) @ weights["out"] - batch) ** 2)

        value, slopes = jax.value_and_grad(loss)(state)
        return jax.tree.map(lambda w, g: w - 0.1 * g, state, slopes), value

    state = {
        "in": jax.ShapeDtypeStruct((1024, 4096), jnp.float32),
        "out": jax.ShapeDtypeStruct((4096, 1024), jnp.float32),
    }
    task = fa.Task(step, (state, jax.ShapeDtypeStruct((1024, 1024), jnp.float32)), carried={0: 0}, batch=(1,))
    cluster = fa.Cluster(
        "cards", fa.Device(card, 80 * fa.GIB, {"float32": 6e13}, 3e12), (fa.Level("card", 8, 4e11, 5e-6),)
    )
    plan = fa.plan(task, cluster, strategy="fsdp")
    split = fa.apply(plan, task, devices=fa.unattached(card, 8))
    audit = fa.audit(split.compile(optimise=False), plan, split)
    assert audit.backend == "gpu" and audit.devices == 8
    for sides in audit.collectives.values():
        assert sides["predicted"]["bytes"] == sides["compiled"]["bytes"]
