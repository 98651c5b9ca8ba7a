"""Random small programs, and random plans for any program."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from flowaware_core import versions
from flowaware_core.cluster.mesh import Axis, Mesh
from flowaware_core.graph.placement import Choices, Placement, place
from flowaware_core.program import Program
from flowaware_core.search.space import group_assignments, operator_assignments
from flowaware_core.search.terms import viewed
from flowaware_core.step import Step, step_of
from flowaware_core.task import Task

Array = jax.Array
Values = Sequence[Array]
LENGTHS = (8, 16)
# More elements than this make a test slow and prove nothing more.
MOST = 2**13
FAST_LINK = {"bandwidth_bytes_per_s": 1e10, "latency_s": 1e-6}


@dataclasses.dataclass
class Draft:
    """A program that is being written.

    Attributes:
        choose: the source of all choices.
        shapes: of the values made so far; the first ones are arguments.
        weights: shapes of parameters, which come to be as steps need them.
        steps: each makes one more value from those before and from the parameters.
        names: what each step is, for a person.
    """

    choose: random.Random
    shapes: list[tuple[int, ...]]
    weights: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    steps: list[Callable[[Values, Values], Array]] = dataclasses.field(default_factory=list)
    names: list[str] = dataclasses.field(default_factory=list)

    def weight(self, *shape: int) -> int:
        """A parameter of this shape: perhaps one that is used already."""
        same = [index for index, other in enumerate(self.weights) if other == shape]
        if same and self.choose.random() < 0.3:
            return self.choose.choice(same)
        self.weights.append(shape)
        return len(self.weights) - 1

    def add(self, name: str, step: Callable[[Values, Values], Array]) -> None:
        values = [jax.ShapeDtypeStruct(shape, np.float64) for shape in self.shapes]
        weights = [jax.ShapeDtypeStruct(shape, np.float64) for shape in self.weights]
        shape = jax.eval_shape(step, values, weights).shape
        if 1 < math.prod(shape) <= MOST:
            self.shapes.append(shape)
            self.steps.append(step)
            self.names.append(f"{name} -> {shape}")


def draft(seed: int, length: int) -> Draft:
    """A program of at most `length` steps; equal seeds give equal programs."""
    choose = random.Random(seed)
    made = Draft(choose, [tuple(choose.choices(LENGTHS, k=choose.randint(2, 3)))])
    for _ in range(length):
        # Later values more often than earlier ones, so that programs get deep.
        source = len(made.shapes) - 1 - min(int(choose.expovariate(0.7)), len(made.shapes) - 1)
        choose.choice(STEPS)(made, source, made.shapes[source])
    return made


def _unary(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    name = made.choose.choice(["sin", "tanh", "softmax", "square", "negative", "normalised"])
    functions = {"softmax": jax.nn.softmax, "normalised": lambda x: jax.nn.standardize(x, axis=0, epsilon=1.0)}
    function = functions.get(name) or getattr(jnp, name)
    made.add(f"{name}({i})", lambda v, w: function(v[i]))


def _binary(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    j = made.choose.choice([index for index, other in enumerate(made.shapes) if other == shape])
    function = made.choose.choice([jnp.add, jnp.multiply, jnp.maximum, lambda a, b: jnp.where(a > 0, a, b)])
    made.add(f"binary({i}, {j})", lambda v, w: function(v[i], v[j]))


def _bias(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    k = made.weight(shape[-1])
    made.add(f"bias({i}, w{k})", lambda v, w: v[i] * w[k] + w[k])


def _dense(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    k = made.weight(shape[-1], made.choose.choice(LENGTHS))
    made.add(f"dense({i}, w{k})", lambda v, w: v[i] @ w[k] / shape[-1])


def _product(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    j = made.choose.choice([index for index, other in enumerate(made.shapes) if other == shape])
    if len(shape) > 1:
        made.add(f"product({i}, {j})", lambda v, w: v[i] @ jnp.swapaxes(v[j], -1, -2) / shape[-1])


def _reduce(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    axis, function = made.choose.randrange(len(shape)), made.choose.choice([jnp.mean, jnp.max, jnp.min])
    if len(shape) > 1:
        made.add(f"reduce({i}, {axis})", lambda v, w: function(v[i], axis))


def _broadcast(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    axis, size = made.choose.randrange(len(shape) + 1), made.choose.choice(LENGTHS)
    made.add(f"repeat({i}, {axis})", lambda v, w: jnp.repeat(jnp.expand_dims(v[i], axis), size, axis))


def _transpose(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    order = made.choose.sample(range(len(shape)), len(shape))
    made.add(f"transpose({i}, {order})", lambda v, w: jnp.transpose(v[i], order))


def _reshape(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    if len(shape) > 1 and made.choose.random() < 0.5:
        axis = made.choose.randrange(len(shape) - 1)
        target = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
    else:
        axis = made.choose.randrange(len(shape))
        target = (*shape[:axis], shape[axis] // 4, 4, *shape[axis + 1 :])
    made.add(f"reshape({i}, {target})", lambda v, w: v[i].reshape(target))


def _convolution(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    if len(shape) == 3:
        k = made.weight(3, shape[-1], made.choose.choice(LENGTHS))
        numbers = ("NWC", "WIO", "NWC")
        made.add(
            f"conv({i}, w{k})",
            lambda v, w: lax.conv_general_dilated(v[i], w[k], (1,), "SAME", dimension_numbers=numbers) / shape[-1],
        )


def _pool(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    if len(shape) == 3:
        size = (1, 2, 1)
        made.add(f"pool({i})", lambda v, w: lax.reduce_window(v[i], -np.inf, lax.max, size, size, "VALID"))


def _gather(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    rows = np.array(made.choose.choices(range(shape[0]), k=16), np.int32)
    made.add(f"gather({i})", lambda v, w: v[i][rows])


def _embed(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    k = made.weight(16, made.choose.choice(LENGTHS))
    made.add(f"embed({i}, w{k})", lambda v, w: w[k][(jnp.abs(v[i]) * 7).astype(jnp.int32) % 16])


def _scatter(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    rows = np.array(made.choose.choices(range(16), k=shape[0]), np.int32)
    made.add(f"scatter({i})", lambda v, w: jnp.zeros((16, *shape[1:])).at[rows].add(v[i]))


def _along(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    axis = made.choose.randrange(len(shape))
    function = made.choose.choice([jnp.cumsum, jnp.sort, jnp.flip])
    made.add(f"along({i}, {axis})", lambda v, w: function(v[i], axis))


def _slices(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    axis = made.choose.randrange(len(shape))
    half = shape[axis] // 2

    def halves(v: Values, w: Values) -> Array:
        first = lax.slice_in_dim(v[i], 0, half, axis=axis)
        return jnp.concatenate([lax.slice_in_dim(v[i], half, shape[axis], axis=axis), 2 * first], axis)

    made.add(f"halves({i}, {axis})", halves)


def _scan(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    if len(shape) > 1:
        k = made.weight(shape[-1], shape[-1])

        def loop(v: Values, w: Values) -> Array:
            body = lambda h, row: (jnp.tanh(h @ w[k] / shape[-1] + row), jnp.sin(h))
            last, rows = lax.scan(body, jnp.zeros(shape[1:]), v[i])
            return rows + last

        made.add(f"scan({i}, w{k})", loop)


def _remat(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    k = made.weight(shape[-1], shape[-1])
    made.add(f"remat({i}, w{k})", lambda v, w: jax.checkpoint(lambda x: jnp.sin(x @ w[k] / shape[-1]))(v[i]))


def _cond(made: Draft, i: int, shape: tuple[int, ...]) -> None:
    made.add(f"cond({i})", lambda v, w: lax.cond(v[i].sum() > 0, jnp.sin, lambda x: 2 * x, v[i]))


STEPS = [
    _unary,
    _binary,
    _bias,
    _dense,
    _dense,
    _product,
    _reduce,
    _broadcast,
    _transpose,
    _reshape,
    _convolution,
    _pool,
]
STEPS += [_gather, _embed, _scatter, _along, _slices, _scan, _remat, _cond]


def task(made: Draft, training: bool) -> tuple[Task, tuple[Any, ...]]:
    """The program as a task with arguments: a step of training, or the values that nothing reads."""

    def forward(weights: Values, x: Array) -> list[Array]:
        values = [x]
        for step in made.steps:
            values.append(step(values, weights))
        return values[-2:]

    def step(weights: list[Array], x: Array) -> Any:
        if not training:
            return weights, forward(weights, x)

        def loss(weights: list[Array]) -> tuple[Array, Array]:
            values = forward(weights, x)
            return sum((jnp.mean(value**2) for value in values), jnp.zeros(())), values[-1]

        gradients, last = jax.grad(loss, has_aux=True)(weights)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], {"last": last, "norm": (last**2).sum()}

    numbers = np.random.default_rng(0)
    args = [numbers.standard_normal(shape) for shape in made.weights], numbers.standard_normal(made.shapes[0])
    return Task(step, args, carried={0: 0}, batch=(1,)), args


def mesh_of(*sizes: int) -> Mesh:
    return Mesh(tuple(Axis(f"axis{index}", size, **FAST_LINK) for index, size in enumerate(sizes)))


def random_choices(program: Program, mesh: Mesh, seed: int) -> Choices:
    """Any assignment for every group, free operator and view."""
    choose = random.Random(seed)
    structure = program.structure
    groups = tuple(choose.choice(group_assignments(group, mesh.sizes)) for group in structure.groups)
    operators = {one.id: choose.choice(operator_assignments(one, mesh.sizes)) for one in structure.free}
    views = {
        tensor: choose.choice(group_assignments(structure.groups[structure.group_of[tensor]], mesh.sizes))
        for tensor in viewed(program.graph, structure)
    }
    return Choices(groups, operators, views)


def split(program: Program, choices: Choices, mesh: Mesh) -> tuple[Step, Placement]:
    """The program on real devices as chosen."""
    placed = place(program.graph, program.structure, choices)
    devices = np.array(jax.devices()[: mesh.num_devices]).reshape(mesh.sizes)
    return step_of(program, placed, versions.mesh(devices, mesh.names)), placed
