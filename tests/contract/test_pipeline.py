"""Stages give the numbers of the same micro-batches on one device."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import flowaware_core as fa
from flowaware_core.graph.residuals import residuals
from flowaware_core.graph.stage import results_of
from flowaware_core.order import order, timetable
from flowaware_core.planned import PlannedStage
from flowaware_core.search.partition import pipelined
from flowaware_core.search.templates import batch_classes
from tests.contract.staged import LAYERS, WIDTH, cluster, data, deep, language, normalised, weights

# Bytes with which the first stage keeps some of what it makes.
ENOUGH_FOR_SOME = 10_000


def differences(
    training: fa.Training, extra: Any, micro_batches: int, memory: int = 16 * fa.GIB
) -> tuple[list[float], float, fa.Pipeline]:
    """Of the losses of three steps, and the largest of the state after them; and the plan."""
    batch, state = data(), training.initial(weights(jax.random.key(0)), jax.random.key(1), extra)
    plan = fa.pipeline(training, state, batch, cluster(memory=memory), micro_batches=micro_batches)
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
    return losses, max(jax.tree.leaves(apart)), plan


@pytest.mark.usefixtures("x64")
def test_tied_weights_dropout_and_a_norm_over_all_stages() -> None:
    schedule = optax.linear_schedule(1e-2, 0.0, 100)
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(schedule))
    losses, apart, plan = differences(fa.Training(language, optimizer, splits=True), None, 4)
    assert plan.stages[0].kept
    assert losses[0] < 1e-12 and max(losses) < 1e-9 and apart < 1e-9


@pytest.mark.usefixtures("x64")
def test_batch_statistics_change_with_every_micro_batch() -> None:
    training = fa.Training(normalised, optax.sgd(1e-3), splits=True, extra="statistics")
    extra = {f"layer{index}": jnp.zeros(WIDTH) for index in range(LAYERS)}
    losses, apart, _ = differences(training, extra, 4)
    assert losses[0] < 1e-12 and max(losses) < 1e-9 and apart < 1e-9


@pytest.mark.usefixtures("x64")
def test_where_memory_is_short_activations_are_computed_again() -> None:
    training = fa.Training(language, optax.sgd(1e-2), splits=True)
    losses, apart, plan = differences(training, None, 4, memory=ENOUGH_FOR_SOME)
    assert losses[0] < 1e-12 and max(losses) < 1e-9 and apart < 1e-9
    first = plan.stages[0]
    parts = results_of(first.program.graph)
    wanted = residuals(first.program.graph, parts.forward, (*parts.held, *parts.back))
    assert plan.fits and 0 < len(first.kept) < len(wanted)
    none = fa.pipeline(training, plan.state, data(), cluster(memory=1), micro_batches=4, cuts=plan.cuts)
    assert not none.fits and not none.stages[0].kept


def test_given_cuts_and_meshes_are_what_comes_out() -> None:
    training = fa.Training(language, optax.sgd(1e-2), splits=True)
    state = training.initial(weights(jax.random.key(0)), jax.random.key(1))
    planned = functools.partial(fa.pipeline, training, state, data(), cluster(), micro_batches=4)
    plan = planned(cuts=["0['params']['layer1']"], examples=[4, 1])
    assert [len(stage.stage.own) for stage in plan.stages] == [3, 4]  # embedding and a layer, two layers
    assert [shares(stage) for stage in plan.stages] == [{4}, {1}]
    again = planned(cuts=plan.cuts, examples=[2, None], strategy="alpa")
    assert again.cuts == plan.cuts and {stage.candidate.strategy for stage in again.stages} == {"alpa"}
    assert again.stages[0].candidate.mesh.sizes == (2, 2) and shares(again.stages[0]) == {2}


def shares(planned: PlannedStage) -> set[int]:
    """Over how many devices tensors that have examples along dimension 0 are spread there."""
    structure, found = planned.program.structure, set()
    classes = batch_classes(planned.program.graph, structure)
    for tensor, (group, dims) in enumerate(zip(structure.group_of, structure.dims_of, strict=True)):
        if group >= 0 and dims and dims[0] >= 0 and structure.classes[group][dims[0]] in classes:
            axes = planned.placement.tensors[tensor][0]
            found.add(math.prod(planned.candidate.mesh.sizes[axis] for axis in axes))
    return found


def test_stages_are_chosen_where_they_are_faster() -> None:
    """A deep and narrow model on two halves: gradients are more to send than activations."""
    training, state, batch = deep(12, 2048, 2048)
    found = fa.fastest(training, state, batch, cluster(1e9, inside=1e12, latency=1e-6))
    whole = fa.plan(training.task(state, batch), cluster(1e9, inside=1e12, latency=1e-6))
    assert isinstance(found, fa.Pipeline) and found.imbalance < 0.15
    assert found.step_s < whole.predicted.step_s
    assert isinstance(fa.fastest(training, state, batch, cluster(1e11, inside=1e12, latency=1e-6)), fa.Plan)
    assert isinstance(
        fa.fastest(fa.Training(training.loss, optax.sgd(0.1)), state, batch, cluster(1e9, 1e12, 1e-6)), fa.Plan
    )


def test_an_update_of_all_parameters_together_cannot_be_split() -> None:
    training = fa.Training(language, optax.flatten(optax.adam(1e-3)), splits=True)
    state = training.initial(weights(jax.random.key(0)), jax.random.key(1))
    with pytest.raises(ValueError, match="mixes arrays of stages 0 and 1"):
        fa.pipeline(training, state, data(), cluster(), micro_batches=4)


def test_a_single_node_is_cut_between_its_cards() -> None:
    training = fa.Training(language, optax.sgd(1e-3), splits=True)
    state = training.initial(weights(jax.random.key(0)), jax.random.key(1))
    one = fa.Cluster("one", cluster().device, (fa.Level("node", 1, 1e9, 1e-9), fa.Level("card", 4, 1e10, 1e-9)))
    plan = fa.pipeline(training, state, data(), one, stages=2, micro_batches=4)
    assert [stage.candidate.mesh.sizes for stage in plan.stages] == [(2,), (2,)]


def test_what_is_asked_for_must_be_possible() -> None:
    training = fa.Training(language, optax.sgd(1e-3), splits=True)
    state = training.initial(weights(jax.random.key(0)), jax.random.key(1))
    with pytest.raises(ValueError, match="stages=9; the 8 devices of two divide into 2 to 8 stages"):
        fa.pipeline(training, state, data(), cluster(), stages=9)
    with pytest.raises(ValueError, match=r"micro_batches=5; this batch and loss allow \[1, 2, 4, 8, 16, 32\]"):
        fa.pipeline(training, state, data(), cluster(), micro_batches=5)
    for wrong, said in (
        ({"cuts": ["0['params']['layer7']"]}, "begins no parameter's name; the nearest are 0\\['params'\\]\\['layer"),
        ({"cuts": [0]}, r"cuts=\[0\] are before the equations \[0\]; they must ascend between 1 and"),
        ({"cuts": []}, "stages=1; the 8 devices of two divide into 2 to 8 stages"),
        ({"cuts": [3], "stages": 3}, "the number of stages is 3 by stages and 2 by cuts; it must be the same"),
        ({"examples": [4, 3]}, r"examples=3; the devices of stage 1 can spread them over \[1, 2, 4\]"),
        ({"strategy": "best"}, "strategy='best'; allowed are auto, data"),
    ):
        with pytest.raises(ValueError, match=said):
            fa.pipeline(training, state, data(), cluster(), micro_batches=4, **wrong)


def test_the_timetable_takes_as_long_as_the_formula_says() -> None:
    for stages, count in ((2, 4), (4, 8), (3, 1)):
        forward, backward = [1.0] * (stages - 1) + [0.0], [2.0] * (stages - 1) + [3.0]
        table = timetable(forward, backward, [0.0] * stages, count)
        end = max(one.start_s + one.seconds for one in table)
        assert end == pytest.approx(pipelined([3.0] * stages, count))
        for stage in range(stages):
            own = sorted((one.start_s, one.start_s + one.seconds) for one in table if one.stage == stage)
            assert all(first[1] <= second[0] + 1e-12 for first, second in itertools.pairwise(own))


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
