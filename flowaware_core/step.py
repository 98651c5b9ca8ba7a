"""A task split as planned, ready to be called or compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from flowaware_core import versions
from flowaware_core.execute import spmd
from flowaware_core.graph.model import Graph
from flowaware_core.graph.placement import Placement
from flowaware_core.program import Program
from flowaware_core.task import Task


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A task split as planned: call it like the task's function.

    Attributes:
        mesh: the devices.
        in_shardings, out_shardings: as the task's arguments and results, a `NamedSharding` per leaf.
        task: what is run.
        jitted: the function under `jax.jit`.
        graph, placement: the captured program and where each of its values lies.
    """

    mesh: jax.sharding.Mesh
    in_shardings: tuple[Any, ...]
    out_shardings: Any
    task: Task
    jitted: Any
    graph: Graph
    placement: Placement

    def __call__(self, *args: Any) -> Any:
        """One call on arrays; the memory of carried arguments goes to the results."""
        leaves = jax.tree.leaves(args)
        if self.task.carried and len({id(leaf) for leaf in leaves}) < len(leaves):
            args = apart(args)
        return self.jitted(*args)

    def lower(self) -> jax.stages.Lowered:
        """The program for abstract arguments; makes no array."""
        return self.jitted.lower(*self.task.args)

    def compile(self, optimise: bool = True) -> jax.stages.Compiled:
        """Compiles ahead of time, from abstract arguments.

        Args:
            optimise: False makes machine code in a third of the time that runs slower; collectives and memory are the
                same, so it is what an audit of a cluster that is not here needs.
        """
        platform = self.mesh.devices.flat[0].platform
        return self.lower().compile(compiler_options=versions.compiler_options(platform, optimise))


def step_of(program: Program, placed: Placement, mesh: jax.sharding.Mesh) -> Step:
    """The captured program, replayed with every value placed."""
    graph, task = program.graph, program.task
    run = spmd.replay(graph, placed, mesh)

    def step(*args: Any) -> Any:
        return jax.tree.unflatten(graph.out_tree, run(*jax.tree.leaves(args)))

    inputs = [spmd.sharding(placed.tensors[tensor], mesh) for tensor in graph.inputs]
    outputs = [
        spmd.sharding(placed.tensors[output] if isinstance(output, int) else (), mesh) for output in graph.outputs
    ]
    for index, output in graph.carried.items():
        outputs[output] = inputs[index]
    in_shardings = jax.tree.unflatten(graph.in_tree, inputs)
    out_shardings = jax.tree.unflatten(graph.out_tree, outputs)
    jitted = jax.jit(
        step, in_shardings=in_shardings, out_shardings=out_shardings, donate_argnums=tuple(sorted(task.carried))
    )
    return Step(mesh, in_shardings, out_shardings, task, jitted, graph, placed)


def apart(args: Sequence[Any]) -> Any:
    """The arguments with a copy of every array that was met before: memory can be given away once only.

    The CPU's runtime of jax 0.10 does not survive an array that is donated twice.
    """
    met: set[int] = set()

    def own(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and id(leaf) in met:
            return leaf.copy()
        met.add(id(leaf))
        return leaf

    return jax.tree.map(own, args)
