"""One model at work: compiled once per size, run for any number of recycles."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from zoo.folding.buckets import Size
from zoo.folding.splitting import Split
from zoo.models.alphafold2.model import DRAWN, SHAPES, AlphaFold2
from zoo.proteins import confidence
from zoo.proteins.complexes import chain_order

Features = Mapping[str, np.ndarray]


class NotFinite(Exception):
    """Numbers that are not finite came out of a stage of the network."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a model says about a protein; padding is removed.

    Attributes:
        positions: [N, 37, 3] angstrom; mask: [N, 37].
        plddt: [N] 0-100.
        error: [N, N] angstrom, or None where the model has no such head; its bound is `max_error`.
        scores: mean_plddt, and ptm and iptm where the model gives them.
        arrays: everything else, by path.
        recycles: how many were run after the first pass.
        trace: positions after every recycle, where asked for.
        pairs: of complexes iptm and smallest error [chains, chains] of each pair of chains.
    """

    positions: np.ndarray
    mask: np.ndarray
    plddt: np.ndarray
    error: np.ndarray | None
    max_error: float
    scores: dict[str, float]
    arrays: dict[str, np.ndarray]
    recycles: int
    trace: tuple[np.ndarray, ...] = ()
    pairs: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


class Predictor:
    """A model and its compiled programs; models of the same architecture share them."""

    def __init__(self, config: ConfigDict, say: Callable[[str], None] = lambda line: None) -> None:
        self.model = AlphaFold2(config)
        self._say = say
        self._sizes: set[tuple[Size, int]] = set()  # for which there is a program
        self._step = jax.jit(self._iterate)
        self._steps: dict[Any, Any] = {}  # over several devices, by shapes and devices

    def _iterate(self, params: Any, features: Any, previous: Any, key: Any) -> Any:
        outputs, following = self.model.iterate(params, features, previous, key)
        seen = outputs["representations"]
        stages = {"the Evoformer": (seen["pair"], seen["single"]), "the structure module": outputs["structure_module"]}
        stages["the heads"] = [outputs[name] for name in outputs if name not in ("representations", "structure_module")]
        finite = {
            stage: jnp.all(jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(values)]))
            for stage, values in stages.items()
        }
        return outputs, following, finite

    def _announce(self, size: Size, templates: int) -> None:
        if (size, templates) not in self._sizes:
            self._sizes.add((size, templates))
            rows = f"{size.rows} + {size.further} rows"
            self._say(
                f"preparing the program for {size.residues} residues and {rows}; a new one compiles for a minute or so"
            )

    def _split_step(self, split: Split, *args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        key = (split, tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
        if key not in self._steps:
            self._steps[key] = split.step(self._iterate, *args)
        return self._steps[key]

    def predict(
        self,
        params: Any,
        draws: Callable[[int], Features],
        num_res: int,
        size: Size,
        recycles: int,
        tolerance: float | None = None,
        seed: int = 0,
        keep: bool = False,
        stop_at: float | None = None,
        split: Split | None = None,
    ) -> Prediction:
        """Runs the network once and `recycles` times more.

        Args:
            params: haiku parameters.
            draws: features of each recycle, padded to `size`.
            num_res: residues without padding.
            size: of the program.
            recycles: at most so many further passes.
            tolerance: one more pass follows when the distances between CA atoms change by no more, in angstrom.
            seed: of dropout.
            keep: keep the positions of every pass.
            stop_at: stop when the mean pLDDT reaches this.
            split: the devices that share the protein; None: the one that holds `params`.

        Raises:
            NotFinite: names the stage and the recycle.
            fa.DoesNotFit: not even all devices of `split` hold it.
        """
        # Where the parameters are, as all that follows: a program for arrays of no place would be another one.
        place = next((leaf.sharding for leaf in jax.tree.leaves(params) if isinstance(leaf, jax.Array)), None)
        previous: Any = jax.device_put(self.model.first_previous(size.residues), place)
        trace: list[np.ndarray] = []
        outputs: Any = None
        dropout = self.model.config.model.global_config.eval_dropout
        key = jax.random.key(seed) if dropout else None
        last = recycles
        for recycle in range(recycles + 1):
            features = {name: value for name, value in draws(recycle).items() if name in self.model.feature_names()}
            self._announce(size, features["template_mask"].shape[0] if "template_mask" in features else 0)
            before = np.asarray(previous["prev_pos"])[:num_res, 1]
            own = key if key is None else jax.random.fold_in(key, recycle)
            step = self._step
            if split is not None:
                step = self._split_step(split, params, features, previous, own)
                places = step.in_shardings
                params, features, previous, own = jax.device_put((params, features, previous, own), places)
            outputs, previous, finite = step(params, features, previous, own)
            bad = [stage for stage in ("the Evoformer", "the structure module", "the heads") if not finite[stage]]
            if bad:
                raise NotFinite(f"numbers that are not finite came out of {bad[0]} in pass {recycle + 1}")
            now = np.asarray(previous["prev_pos"])[:num_res]
            if keep:
                trace.append(now)
            if recycle == last:
                break
            # As the original: once a pass moved nothing, one more follows.
            if tolerance is not None and tolerance >= 0 and moved(before, now[:, 1]) <= tolerance:
                last = recycle + 1
            if stop_at is not None and mean_plddt(outputs, num_res) >= stop_at:
                break
        asym_id = np.asarray(features["asym_id"])[:num_res] if self.model.multimer else None
        return prediction(outputs, num_res, recycle, tuple(trace), asym_id)


def moved(before: np.ndarray, now: np.ndarray) -> float:
    """Root mean square change of the distances between points, angstrom."""

    def apart(x: np.ndarray) -> np.ndarray:
        return np.sqrt(np.sum(np.square(x[:, None] - x[None]), axis=-1))

    return float(np.sqrt(np.mean(np.square(apart(before) - apart(now))) + 1e-8))


def mean_plddt(outputs: Any, num_res: int) -> float:
    return float(confidence.plddt(np.asarray(outputs["predicted_lddt"]["logits"])[:num_res]).mean())


RESIDUE_DIMS = {  # of each output, which dimensions count residues
    "distogram/logits": (0, 1), "experimentally_resolved/logits": (0,), "masked_msa/logits": (1,),
    "predicted_lddt/logits": (0,), "predicted_aligned_error/logits": (0, 1), "structure_module/final_atom_positions": (0,),
    "structure_module/final_atom_mask": (0,), "representations/msa": (1,), "representations/msa_first_row": (0,),
    "representations/pair": (0, 1), "representations/single": (0,), "representations/structure_module": (0,),
}  # fmt: skip


def prediction(
    outputs: Any, num_res: int, recycles: int, trace: tuple[np.ndarray, ...], asym_id: np.ndarray | None
) -> Prediction:
    """What the outputs say, without padding; `asym_id` [N] tells the chains of a complex."""
    arrays = {
        f"{head}/{name}": taken(f"{head}/{name}", np.asarray(value), range(num_res))
        for head, values in outputs.items()
        for name, value in values.items()
    }
    plddt = confidence.plddt(arrays["predicted_lddt/logits"])
    scores = {"mean_plddt": float(plddt.mean())}
    error, bound = None, 0.0
    pairs: dict[str, np.ndarray] = {}
    if "predicted_aligned_error/logits" in arrays:
        logits, breaks = arrays["predicted_aligned_error/logits"], arrays["predicted_aligned_error/breaks"]
        error, bound = confidence.aligned_error(logits, breaks)
        scores["ptm"] = confidence.ptm(logits, breaks)
        if asym_id is not None:
            scores["iptm"] = confidence.iptm(logits, breaks, asym_id)
            pairs["iptm"] = confidence.chain_pair_iptm(logits, breaks, asym_id)
            pairs["smallest_error"] = confidence.chain_pair_error(error, asym_id)
    return Prediction(
        arrays["structure_module/final_atom_positions"], arrays["structure_module/final_atom_mask"], plddt, error, bound,
        scores, arrays, recycles, trace, pairs,
    )  # fmt: skip


def in_input_order(found: Prediction, sequences: Sequence[str]) -> Prediction:
    """The chains of a complex in the order of the input, in place of that in which the network saw them."""
    order = chain_order(sequences)
    if order == sorted(order):
        return found
    starts = np.cumsum([0, *(len(sequences[chain]) for chain in order)])
    place = {chain: range(starts[i], starts[i + 1]) for i, chain in enumerate(order)}
    residues = [residue for chain in range(len(order)) for residue in place[chain]]
    chains = [order.index(chain) for chain in range(len(order))]
    assert found.error is not None
    return dataclasses.replace(
        found,
        positions=found.positions[residues],
        mask=found.mask[residues],
        plddt=found.plddt[residues],
        error=found.error[np.ix_(residues, residues)],
        arrays={path: taken(path, value, residues) for path, value in found.arrays.items()},
        trace=tuple(positions[residues] for positions in found.trace),
        pairs={name: value[np.ix_(chains, chains)] for name, value in found.pairs.items()},
    )


def taken(path: str, value: np.ndarray, residues: Sequence[int]) -> np.ndarray:
    """Some residues of an output, in this order."""
    for dim in RESIDUE_DIMS.get(path, ()):
        value = np.take(value, residues, axis=dim)
    return value


def to_size(features: Features, size: Size) -> dict[str, np.ndarray]:
    """Features padded with zeros to the size of a program."""
    lengths = {"N": size.residues, "S": size.rows, "K": size.further}
    result = {}
    for name, value in features.items():
        dims = SHAPES.get(name)
        if dims is None:
            continue
        target = [lengths.get(dim, have) for dim, have in zip(dims, value.shape, strict=True)]
        result[name] = np.pad(value, [(0, goal - have) for goal, have in zip(target, value.shape, strict=True)])
    return result


def with_ensemble(draws: Iterator[Features]) -> dict[str, np.ndarray]:
    """Several draws of the alignment, stacked; what does not depend on the draw once."""
    parts = list(draws)
    return {
        name: np.stack([part[name] for part in parts]) if name in DRAWN else value for name, value in parts[0].items()
    }
