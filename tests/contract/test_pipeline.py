"""Stages give the numbers of the same micro-batches on one device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import flowaware_core as fa
from flowaware_core.pipelined import order

LAYERS, WIDTH, WORDS, LENGTH, ROWS = 3, 8, 11, 4, 32


def cluster(bandwidth: float = 1e12) -> fa.Cluster:
    card = fa.Device("card", 16 * fa.GIB, {"float32": 1e13}, 1e12)
    return fa.Cluster("two", card, (fa.Level("half", 2, bandwidth, 1e-9), fa.Level("card", 4, 1e13, 1e-9)))


def weights(key: jax.Array) -> Any:
    keys = jax.random.split(key, LAYERS + 1)
    layers = {
        f"layer{i}": {"w": jax.random.normal(keys[i], (WIDTH, WIDTH)) / 2, "b": jnp.zeros(WIDTH)} for i in range(LAYERS)
    }
    return {"embed": jax.random.normal(keys[-1], (WORDS, WIDTH)), **layers}


def language(params: Any, extra: Any, batch: Any, key: jax.Array) -> fa.Outcome:
    """A tied embedding at either end, dropout, and a mean over tokens that are not masked."""
    del extra
    x = params["embed"][batch["x"]]
    for index, each in enumerate(jax.random.split(key, LAYERS)):
        layer = params[f"layer{index}"]
        x = x + jnp.tanh(x @ layer["w"] + layer["b"]) * jax.random.bernoulli(each, 0.9, x.shape)
    scores = jax.nn.log_softmax(x @ params["embed"].T)
    known = batch["y"] >= 0
    found = jnp.take_along_axis(scores, jnp.maximum(batch["y"], 0)[..., None], -1)[..., 0]
    right = jnp.sum((scores.argmax(-1) == batch["y"]) & known)
    return fa.Outcome(
        {"entropy": fa.Mean(-jnp.sum(found * known), jnp.sum(known))}, {"accuracy": fa.Mean(right, jnp.sum(known))}
    )


def normalised(params: Any, extra: Any, batch: Any, key: jax.Array) -> fa.Outcome:
    """Batch statistics, which micro-batches change in turn, in every layer."""
    del key
    x, after = params["embed"][batch["x"]].mean(1), {}
    for index in range(LAYERS):
        layer = params[f"layer{index}"]
        y = x @ layer["w"]
        mean = y.mean(0)
        after[f"layer{index}"] = 0.9 * extra[f"layer{index}"] + 0.1 * mean
        x = x + jnp.tanh(y - mean + layer["b"])
    error = jnp.sum((x.sum(-1) - batch["y"].sum(-1)) ** 2)
    return fa.Outcome({"error": fa.Mean(error, jnp.asarray(x.shape[0]))}, {}, after)


def data() -> Any:
    draw = np.random.default_rng(0)
    return {"x": draw.integers(0, WORDS, (ROWS, LENGTH)), "y": draw.integers(-2, WORDS, (ROWS, LENGTH))}


def differences(training: fa.Training, extra: Any, micro_batches: int) -> tuple[list[float], float]:
    """Of the losses of three steps, and the largest of the state after them."""
    batch, state = data(), training.initial(weights(jax.random.key(0)), jax.random.key(1), extra)
    plan = fa.pipeline(training, state, batch, cluster(), micro_batches=micro_batches)
    assert len(plan.stages) == 2 and all(stage.stage.own for stage in plan.stages)
    step = fa.PipelinedStep(plan)
    split = jax.device_put(jax.tree.map(jnp.copy, state), step.in_shardings[0])
    rows = jax.device_put(batch, step.in_shardings[1])
    plain, losses = jax.jit(training.step(fa.Schedule(micro_batches))), []
    for _ in range(3):
        split, found = step(split, rows)
        state, expected = plain(state, batch)
        assert set(found) == set(expected)
        losses.append(abs(float(found["loss"]) / float(expected["loss"]) - 1))
    pairs = [(split[name], state[name]) for name in state if name != "rng"]
    apart = [jax.tree.map(lambda a, b: float(np.abs(np.asarray(a) - np.asarray(b)).max()), *pair) for pair in pairs]
    return losses, max(jax.tree.leaves(apart))


@pytest.mark.usefixtures("x64")
def test_tied_weights_dropout_and_a_norm_over_all_stages() -> None:
    schedule = optax.linear_schedule(1e-2, 0.0, 100)
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(schedule))
    losses, apart = differences(fa.Training(language, optimizer, splits=True), None, 4)
    assert losses[0] < 1e-12 and max(losses) < 1e-9 and apart < 1e-9


@pytest.mark.usefixtures("x64")
def test_batch_statistics_change_with_every_micro_batch() -> None:
    training = fa.Training(normalised, optax.sgd(1e-3), splits=True, extra="statistics")
    extra = {f"layer{index}": jnp.zeros(WIDTH) for index in range(LAYERS)}
    losses, apart = differences(training, extra, 4)
    assert losses[0] < 1e-12 and max(losses) < 1e-9 and apart < 1e-9


def test_an_update_of_all_parameters_together_cannot_be_split() -> None:
    training = fa.Training(language, optax.flatten(optax.adam(1e-3)), splits=True)
    state = training.initial(weights(jax.random.key(0)), jax.random.key(1))
    with pytest.raises(ValueError, match="mixes arrays of stages 0 and 1"):
        fa.pipeline(training, state, data(), cluster(), micro_batches=4)


def test_what_is_asked_for_must_be_possible() -> None:
    training = fa.Training(language, optax.sgd(1e-3), splits=True)
    state = training.initial(weights(jax.random.key(0)), jax.random.key(1))
    with pytest.raises(ValueError, match=r"stages=3; the 2 halfs of two divide into \[2\]"):
        fa.pipeline(training, state, data(), cluster(), stages=3)
    with pytest.raises(ValueError, match=r"micro_batches=5; this batch and loss allow \[1, 2, 4, 8, 16, 32\]"):
        fa.pipeline(training, state, data(), cluster(), micro_batches=5)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (3, 2), (4, 8), (8, 3)])
def test_every_pass_comes_after_what_it_needs(stages: int, micro_batches: int) -> None:
    """And no stage holds more micro-batches than there are stages from it on."""
    done, waiting = set(), [0] * stages
    for stage, direction, number in order(stages, micro_batches):
        if direction == "forward":
            assert stage == 0 or (stage - 1, "forward", number) in done
            waiting[stage] += 1
        else:
            assert stage == stages - 1 or (stage + 1, "backward", number) in done
            assert stage < stages - 1 or (stage - 1, "forward", number) in done
            waiting[stage] -= stage < stages - 1
        assert waiting[stage] <= stages - stage
        assert (stage, direction, number) not in done
        done.add((stage, direction, number))
    assert len(done) == (2 * stages - 1) * micro_batches
