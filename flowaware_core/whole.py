"""Loss and update of one micro-batch, which can be cut into stages."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from flowaware_core.graph.owners import ALL, Inseparable, Split, split
from flowaware_core.graph.sections import Section, Trunk
from flowaware_core.graph.stage import Leafs, Stage, wide
from flowaware_core.training import Mean, Outcome, Training


class Whole:
    """Loss and update of one micro-batch, before they are cut; `counts` are the normalisers of the loss."""

    def __init__(self, training: Training, state: Any, batch: Any, parts: int, counts: Any):
        self.training, self.batch = training, batch
        params = state["params"]
        paths = jax.tree_util.tree_leaves_with_path(params)
        self.names = [f"0['params']{jax.tree_util.keystr(path)}" for path, _ in paths]
        extra = None if training.extra is None else state[training.extra]
        rows = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((leaf.shape[0] // parts, *leaf.shape[1:]), leaf.dtype), batch
        )
        key = state["rng"]
        args = (params, extra, rows, key, counts)
        self.trunk = Trunk(self._part, args, weights=(0, 1))
        ends = list(itertools.accumulate(len(jax.tree.leaves(argument)) for argument in args))
        self.leafs = Leafs(*ends)
        self.loss_shapes = jax.tree.leaves(args)
        found = self.trunk.shapes[1]
        self.num_sums = len(jax.tree.leaves(found))
        gradients, sums = jax.tree.map(wide, (params, found))
        self.update_args = (params, state["opt_state"], state["step"], gradients, sums)
        self.update_shapes = jax.tree.leaves(self.update_args)
        self.starts = dict(
            zip(
                ("params", "slots", "step", "gradients", "sums", "end"),
                itertools.accumulate((len(jax.tree.leaves(argument)) for argument in self.update_args), initial=0),
                strict=True,
            )
        )

    def _part(self, params: Any, extra: Any, rows: Any, key: Any, counts: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        found = self.training.loss(params, extra, rows, key)
        share = sum((Mean(mean.total, counts[name]).value for name, mean in found.terms.items()), jnp.zeros(()))
        return share, (found.terms, found.metrics), found.extra

    def _finish(self, params: Any, opt_state: Any, step: Any, gradients: Any, sums: Any) -> Any:
        gradients = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), gradients, params)
        state = {"params": params, "opt_state": opt_state, "step": step}
        after, metrics = self.training.finish(state, gradients, Outcome(*sums))
        return after["params"], after["opt_state"], after["step"], metrics

    def equation(self, name: str) -> int:
        """The first equation that reads a parameter whose name begins so.

        Raises:
            ValueError: there is none.
        """
        leaves = [leaf for leaf, known in enumerate(self.names) if known.startswith(name)]
        first = self.trunk.first(leaves)
        if not leaves or first == len(self.trunk.equations):
            near = difflib.get_close_matches(name, self.names, 3, 0.0)
            raise ValueError(
                f"the cut is before {name!r}, which begins no parameter's name; the nearest are {', '.join(near)}"
            )
        return first

    def at(self, what: str, leaf: int) -> int:
        """The position among the update's argument leaves of a parameter, its gradient, a slot, or a sum of the loss."""
        return self.starts[what] + leaf - (1 if what == "sums" else 0)

    def stages(self, cuts: Sequence[int]) -> tuple[Split, list[Stage]]:
        """The stages between cuts, and how the update is split among them."""
        sections = self.trunk.cut(cuts)
        owner: dict[int, int] = {}
        for number, section in enumerate(sections):
            for leaf in section.leaves:
                owner.setdefault(leaf, number)
        params = range(self.leafs.extra)
        owned = {self.at("params", leaf): owner.get(leaf, 0) for leaf in params}
        owned |= {self.at("gradients", leaf): owner.get(leaf, 0) for leaf in params}
        for number, section in enumerate(sections):
            owned |= {self.at("sums", result): number for result in section.results if 1 <= result <= self.num_sums}
        carried = {leaf: leaf for leaf in range(self.starts["gradients"])}
        division = split(self._finish, self.update_args, owned, carried, len(sections))
        return division, [
            self._stage(number, section, owner, division, sections) for number, section in enumerate(sections)
        ]

    def _stage(
        self, number: int, section: Section, owner: Mapping[int, int], division: Split, sections: Sequence[Section]
    ) -> Stage:
        params = range(self.leafs.extra)
        own = tuple(leaf for leaf in params if owner.get(leaf, 0) == number)
        borrowed = tuple(leaf for leaf in section.leaves if leaf < self.leafs.extra and owner[leaf] != number)
        lent = tuple(
            leaf for other, another in enumerate(sections) if other != number for leaf in another.leaves if leaf in own
        )
        slots = range(self.starts["slots"], self.starts["step"])
        share = division.shares[number]
        first = 1 + self.num_sums
        extra_results = {self.leafs.extra + index: first + index for index in range(self.leafs.rows - self.leafs.extra)}
        for leaf, result in extra_results.items():
            if (leaf in section.leaves) != (result in section.results):
                raise Inseparable(
                    "what the model carries beside its parameters is read in one stage and made in another"
                )
        return Stage(
            section=section,
            share=share,
            leafs=self.leafs,
            own=own,
            borrowed=borrowed,
            slots=tuple(leaf - slots.start for leaf in slots if division.owners[leaf] == number),
            numbers=tuple(leaf for leaf in share.leaves if division.owners[leaf] == ALL),
            lent=lent,
            sums=tuple(result for result in section.results if 1 <= result <= self.num_sums),
            extra_results=extra_results,
            update_leaf=self.at,
            loss_shapes=self.loss_shapes,
            update_shapes=self.update_shapes,
        )
