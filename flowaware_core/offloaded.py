"""Runs a training step whose optimizer state lies on the hosts: one program for the gradients, one for each part of the update."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flowaware_core import versions
from flowaware_core.execute import hosted, spmd, transfer
from flowaware_core.graph.model import Graph
from flowaware_core.graph.update import Part
from flowaware_core.offload import Offloaded
from flowaware_core.step import apart


class OffloadedStep:
    """An offloaded step on real devices: call it like the step of its training.

    Args:
        plan: the step.
        devices: as many as its cluster has, in the order of its mesh; the first of `jax.devices()` if not given. They may belong to
            one process or to several.

    Attributes:
        in_shardings: of state and batch; the arrays of the optimizer's state in the memory of the hosts. A backend without such
            a memory keeps them on the devices, and a warning says so.

    Raises:
        ValueError: too few devices.
    """

    def __init__(self, plan: Offloaded, devices: Sequence[Any] | None = None):
        available = list(jax.devices() if devices is None else devices)
        axes, count = plan.candidate.mesh, plan.cluster.num_devices
        if len(available) < count:
            raise ValueError(f"the step needs {count} devices and {len(available)} are here; emulate devices")
        self.plan = plan
        self.mesh = versions.mesh(np.array(available[:count]).reshape(axes.sizes), axes.names)
        self._graph, kind = plan.cut.whole, hosted.kind(self.mesh)
        if kind is None:
            warnings.warn(
                "this backend has no memory of hosts beside that of the devices, so the optimizer's state stays where it is",
                stacklevel=2,
            )
        layouts = [spmd.sharding(plan.placement.tensors[tensor], self.mesh) for tensor in self._graph.inputs]
        self._devices = dict(zip(self._graph.inputs, layouts, strict=True))
        self._hosts = {
            tensor: self._devices[tensor].with_memory_kind(kind) if kind else self._devices[tensor]
            for tensor in plan.cut.gradients.hosted
        }
        self.in_shardings = jax.tree.unflatten(
            self._graph.in_tree, [self._hosts.get(tensor, self._devices[tensor]) for tensor in self._graph.inputs]
        )
        division = plan.division
        self.gradients = self._program(plan.cut.gradients)
        self.updates = [self._program(part.graph) for part in division.parts]
        self._numbers = [part.numbers and self._program(part.numbers) for part in division.parts]
        self._joined = division.joined and self._program(division.joined)

    def __call__(self, state: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        """One step; the memory of the state goes to the results.

        Args:
            state, batch: as the training's step takes them, laid out as `in_shardings` say.

        Returns:
            the next state, laid out alike, and the metrics.
        """
        graph, division = self._graph, self.plan.division
        values = dict(zip(graph.inputs, jax.tree.leaves(apart((state, batch))), strict=True))
        found = self._run(self.gradients, self.plan.cut.gradients, values, self.plan.cut.results)
        for part, program in zip(division.parts, self._numbers, strict=True):
            if part.numbers is not None:
                self._run(program, part.numbers, values | self._brought(part, values), (), known=values)
        if division.joined is not None:
            found |= self._run(self._joined, division.joined, values, division.results)
        for part, program in zip(division.parts, self.updates, strict=True):
            found |= self._updated(part, program, values)
        whole = [found[index] if index in found else self._read(output, values) for index, output in self._kept()]
        after, metrics, _ = jax.tree.unflatten(graph.out_tree, whole + [None] * (len(graph.outputs) - len(whole)))
        return after, metrics

    def initial(self, make: Callable[..., Any], *args: Any) -> Any:
        """The state that `make(*args)` returns, every leaf born where it lives, the optimizer's state one part at a time.

        Args:
            make: traceable; the same on every process.
            args: arrays or numbers that every process has.
        """
        leaves, tree = jax.tree.flatten(self.in_shardings[0])
        tensors = self._graph.inputs[: len(leaves)]
        groups = [[tensor for tensor in tensors if tensor not in self._hosts]]
        groups += [list(part.hosted) for part in self.plan.division.parts]
        born: dict[int, Any] = {}
        for group in groups:

            def chosen(*args: Any, group: Sequence[int] = group) -> list[Any]:
                made = dict(zip(tensors, jax.tree.leaves(make(*args)), strict=True))
                return [made[tensor] for tensor in group]

            fresh = jax.jit(chosen, out_shardings=[self._devices[tensor] for tensor in group])(*args)
            if group and group[0] in self._hosts:
                fresh = jax.block_until_ready(hosted.moved(fresh, [self._hosts[tensor] for tensor in group]))
            born |= zip(group, fresh, strict=True)
        return jax.tree.unflatten(tree, [born[tensor] for tensor in tensors])

    def placed(self, batch: Any) -> Any:
        """A batch that every process has, laid out as `in_shardings` say."""
        leaves, tree = jax.tree.flatten(batch)
        return jax.tree.unflatten(tree, transfer.moved(leaves, jax.tree.leaves(self.in_shardings[1])))

    def _program(self, graph: Graph) -> Any:
        return spmd.program(graph, self.plan.placement, self.mesh)

    def _run(
        self, program: Any, graph: Graph, values: Any, results: Sequence[int], known: dict[int, Any] | None = None
    ) -> dict[int, Any]:
        """Runs a program on the values of tensors. Returns its first outputs by their positions in the whole; the others become
        values, of `known` if that is another.
        """
        made = program(*[values[tensor] for tensor in graph.inputs])
        count = len(results)
        fresh = zip(graph.outputs[count:], made[count:], strict=True)
        (values if known is None else known).update({t: value for t, value in fresh if isinstance(t, int)})
        return dict(zip(results, made[:count], strict=True))

    def _brought(self, part: Part, values: dict[int, Any]) -> dict[int, Any]:
        """The part's state on the devices."""
        targets = [self._devices[tensor] for tensor in part.hosted]
        return dict(zip(part.hosted, hosted.moved([values[tensor] for tensor in part.hosted], targets), strict=True))

    def _updated(self, part: Part, program: Any, values: dict[int, Any]) -> dict[int, Any]:
        """The part's results; those of the state are on the hosts, and what it alone needed is gone."""
        found = self._run(program, part.graph, values | self._brought(part, values), part.results)
        for tensor in (*part.gradients, *part.hosted):
            values.pop(tensor, None)
        graph = self._graph
        homes = {
            graph.carried[leaf]: self._hosts[tensor]
            for leaf, tensor in enumerate(graph.inputs)
            if tensor in part.hosted
        }
        back = hosted.moved([found[position] for position in homes], list(homes.values()))
        # Else the next part would come while this one is still there.
        return found | dict(zip(homes, jax.block_until_ready(back), strict=True))

    def _kept(self) -> list[tuple[int, Any]]:
        """Outputs without the gradients, which stand behind the others."""
        _, _, slopes = jax.tree.unflatten(self._graph.out_tree, range(len(self._graph.outputs)))
        return list(enumerate(self._graph.outputs))[: len(self._graph.outputs) - len(jax.tree.leaves(slopes))]

    def _read(self, output: Any, values: dict[int, Any]) -> Any:
        """What no program makes: an argument that stays, or a literal."""
        return values[output] if isinstance(output, int) else jnp.asarray(output.value)
