"""Deep potentials on frames of atoms: model, data, loss, metrics and optimizer; the numbers are in conf/recipe."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from flowaware_core.task import Task
from zoo.data.deepmd.bias import refitted
from zoo.data.deepmd.dataset import DataConfig, FrameDataset, most_atoms, open_dataset
from zoo.errors import UserError
from zoo.models.deepmd import convert, loss, prediction, series
from zoo.models.deepmd.config import potential, unlike
from zoo.models.deepmd.convert import Model
from zoo.models.deepmd.lcurve import Lcurve
from zoo.models.deepmd.loss import LossConfig, RateConfig
from zoo.models.deepmd.model import Outputs, dtype_of, initial_parameters, initial_statistics, outputs
from zoo.typed import typed

if TYPE_CHECKING:
    from zoo.config import RecipeConfig

State = dict[str, Any]
Batch = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How long, and towards what.

    Attributes:
        steps: length of the whole training, which learning rate and weights span, also when a run stops earlier.
        loss: weights of energy, force and virial.
        ema_decay: keep a running mean of the parameters with this decay, and evaluate with it; null: do not.
        frozen: patterns of parameters that stay as they are, such as "descriptor/*" (names as `zoo.checkpoint show`).
        lcurve: name of the file in run_dir with the learning curve in deepmd-kit's format.
        series: embedding nets run as series, made anew in every step (`zoo.models.deepmd.series`): the same numbers,
            sooner; 0: as nets. So many terms at first; where nets become too rough for them the training goes on
            with twice as many, and in the end with the nets themselves.
    """

    steps: int
    loss: LossConfig = LossConfig()
    ema_decay: float | None = None
    frozen: tuple[str, ...] = ()
    lcurve: str = "lcurve.out"
    series: int = 96

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps={self.steps}; it must be at least 1")
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise ValueError(f"ema_decay={self.ema_decay}; it must lie in (0, 1), or be null")
        if self.series < 0 or self.series % series.BLOCK:
            raise ValueError(f"series={self.series}; it must be 0 or a multiple of {series.BLOCK}")


class DeepmdRecipe:
    """Trains a potential on energies, forces and virials.

    A batch holds frames laid out as `zoo.data.deepmd.frames.laid_out` says, stacked along dimension 0.
    The state is {"params", "statistics", "opt_state", "step", "rng"} and with a running mean "ema"; statistics never
    change, and no numbers are drawn: `rng` stays as it is.
    """

    metrics = ("loss", "rmse_e", "rmse_f", "learning_rate")
    needs_float64 = True
    """Energies of many atoms are summed in float64, whatever the precision of the nets."""

    def __init__(self, config: RecipeConfig, data_dir: Path) -> None:
        """Checks the configuration; makes no array and reads no file.

        Raises:
            UserError: an option is unknown or has a value that is not allowed.
        """
        self.name = config.name
        self.data_dir = Path(data_dir)
        self._dataset: FrameDataset | None = None
        self._terms = 0
        self._empty = not config.model
        if self._empty:  # recipe=dp without an input.json: enough to predict with a model that is named
            return
        self.given = potential(config.model, "recipe.model")
        self.data_config = typed(DataConfig, config.data, "recipe.data")
        self.rate = typed(RateConfig, config.optimizer, "recipe.optimizer")
        self.training = typed(TrainingConfig, config.training, "recipe.training")
        self._terms = self.training.series
        self.learning_rate = loss.learning_rate(self.rate, self.training.steps)
        self.optimizer = optax.adam(self.learning_rate)

    def summary(self) -> str:
        """The model in one line, with its number of parameters."""
        data = self._open()
        shapes = jax.eval_shape(lambda: initial_parameters(data.model, jax.random.key(0)))
        count = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
        described = data.model.descriptor
        sel = getattr(described, "sel", None)
        seen = f"sel {list(sel) if isinstance(sel, tuple) else sel}, " if sel is not None else ""
        return (
            f"{described.type} potential for {', '.join(data.model.type_map)}: cutoff {data.model.rcut} A, {seen}"
            f"{data.layout.num_slots} neighbour slots for {data.layout.num_atoms} atoms, {count:,} parameters"
            + (f", embedding nets as series of {self._terms} terms" if self._is_sooner else "")
        )

    def task(self, global_batch: int | None = None) -> Task:
        """One training step on `global_batch` frames (by default the recipe's), for the engine to plan.

        The shapes follow from the frames; where they are missing, from frames made for a rehearsal.
        """
        state = jax.eval_shape(lambda: self.initial_state(jax.random.key(0)))
        self._check_frozen(state["params"])
        batch = self.abstract_batch(global_batch or self.frames_per_step)
        # A function of its own: what was traced for another number of terms is not taken for this one.
        return Task(
            functools.partial(self.step), (state, batch), mode="training", carried={0: 0}, batch=(1,), name=self.name
        )

    @property
    def frames_per_step(self) -> int:
        data = self._open()
        return self.data_config.frames_of(most_atoms((data.train,)))

    def abstract_batch(self, global_batch: int) -> Batch:
        layout, dtype = self._open().layout, dtype_of(self.given)
        atoms, slots = layout.num_atoms, layout.num_slots
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {
            "displacement": ((atoms, slots, 3), dtype),
            "neighbours": ((atoms, slots), np.int32),
            "real": ((atoms,), bool),
            "energy": ((), np.float64),
            "force": ((atoms, 3), np.float64),
            "virial": ((3, 3), np.float64),
            **{f"known_{label}": ((), np.float64) for label in loss.LABELS},
        }
        return {name: jax.ShapeDtypeStruct((global_batch, *shape), kind) for name, (shape, kind) in shapes.items()}

    def initial_state(self, key: jax.Array) -> State:
        """The state before the first step, from a PRNG key; pure, for jit."""
        data = self._open()
        params_key, rng = jax.random.split(key)
        params = initial_parameters(data.model, params_key)
        like = initial_statistics(data.model)
        statistics = jax.tree.map(lambda value, empty: jnp.asarray(value, empty.dtype), data.statistics, like)
        state = {
            "params": params,
            "statistics": statistics,
            "opt_state": self.optimizer.init(params),
            "step": jnp.zeros((), jnp.int32),
            "rng": rng,
        }
        return {**state, "ema": params} if self.training.ema_decay is not None else state

    def step(self, state: State, batch: Batch) -> tuple[State, dict[str, jax.Array]]:
        """One step of training: the next state, and the metrics (scalars) of this batch before the update."""
        rate = self.learning_rate(state["step"])
        share = rate / self.rate.start_lr

        def loss_of(params: Any) -> tuple[jax.Array, tuple[dict[str, jax.Array], dict[str, jax.Array]]]:
            ready, rest = self._sooner(self._thawed(params), state["statistics"], batch)
            errors = loss.squares(self._outputs(ready, state["statistics"], batch), batch)
            return loss.batch_loss(self.training.loss, errors, batch, share), (errors, rest)

        (value, (errors, rest)), grads = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
        updates, opt_state = self.optimizer.update(grads, state["opt_state"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        after = {**state, "params": params, "opt_state": opt_state, "step": state["step"] + 1}
        decay = self.training.ema_decay
        if decay is not None:
            after["ema"] = jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, state["ema"], params)
        return after, {"loss": value, **self._roots(errors, batch), "learning_rate": rate, **rest}

    def _roots(self, errors: dict[str, jax.Array], batch: Batch) -> dict[str, jax.Array]:
        """Root mean squares of this batch, of the labels that count; 0 where no frame has them."""
        totals = loss.sums(errors, batch, jnp.ones_like(errors["energy"]))
        return {
            f"rmse_{label[0]}": jnp.sqrt(totals[f"square_{label}"] / jnp.maximum(totals[f"number_{label}"], 1))
            for label in loss.LABELS
            if label != "virial" or self.training.loss.uses(label)
        }

    def _outputs(self, params: Any, statistics: Any, batch: Batch) -> Outputs:
        data = self._open()

        def one(displacement: jax.Array, neighbours: jax.Array, real: jax.Array) -> Outputs:
            return outputs(data.model, params, statistics, data.layout, displacement, neighbours, real)

        return jax.vmap(one)(batch["displacement"], batch["neighbours"], batch["real"])

    def _sooner(self, params: Any, statistics: Any, batch: Batch) -> tuple[Any, dict[str, jax.Array]]:
        """The parameters with embedding nets as series where that serves, and the metric that says how well."""
        if not self._is_sooner:
            return params, {}
        model = self._open().model
        nearest = nearest_distance(batch, model.rcut)
        ready, rest = series.tabulated(model, params, statistics, nearest, self._terms)
        return ready, {"series_rest": rest}

    @property
    def _is_sooner(self) -> bool:
        return bool(self._terms) and series.can_be_tabulated(self._open().model)

    def outgrown(self, metrics: Mapping[str, float]) -> bool:
        """Whether the embedding nets have become too rough for their series; from then on a step has longer ones."""
        if metrics.get("series_rest", 0.0) <= series.REST[self.given.fitting_net.precision]:
            return False
        self._terms = 2 * self._terms if 2 * self._terms <= series.MOST_TRAINED else 0
        return True

    def facts(self) -> dict[str, Any]:
        """What a checkpoint remembers: how long the series of its next step are."""
        return {"series_terms": self._terms}

    def recall(self, facts: Mapping[str, Any]) -> None:
        """Goes on with series as long as those of the checkpoint, unless others are asked for now."""
        asked = facts.get("recipe", {}).get("training", {}).get("series", TrainingConfig.series)
        if not self._empty and asked == self.training.series:
            self._terms = int(facts.get("series_terms", self._terms))

    def _check_frozen(self, params: Any) -> None:
        """Raises UserError where a pattern fits no parameter, or all fit every one."""
        frozen = self.training.frozen
        names = ["/".join(str(entry.key) for entry in path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
        hits = {pattern: set(fnmatch.filter(names, pattern)) for pattern in frozen}
        if unused := next((pattern for pattern, found in hits.items() if not found), None):
            raise UserError(
                f"recipe.training.frozen has {unused}, which fits no parameter; they are such as {names[0]} and {names[-1]}"
            )
        if set(names) == set().union(*hits.values()):
            raise UserError(f"recipe.training.frozen={list(frozen)} freezes everything; leave something to train")

    def _thawed(self, params: Any) -> Any:
        """The parameters, those that are frozen without a gradient."""
        patterns = list(self.training.frozen)
        part = self.given.descriptor
        patterns += [] if getattr(part, "trainable", True) else ["descriptor/*"]
        patterns += [] if self.given.fitting_net.trainable else ["fitting/*"]
        if not patterns:
            return params

        def keep(path: Any, leaf: jax.Array) -> jax.Array:
            name = "/".join(str(entry.key) for entry in path)
            return jax.lax.stop_gradient(leaf) if any(fnmatch.fnmatch(name, one) for one in patterns) else leaf

        return jax.tree_util.tree_map_with_path(keep, params)

    def evaluate(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """Sums over the frames that count, for `figures`."""
        params = state.get("ema", state["params"])
        errors = loss.squares(self._outputs(params, state["statistics"], batch), batch)
        share = self.learning_rate(state["step"]) / self.rate.start_lr
        losses = loss.frame_losses(self.training.loss, errors, batch, share)
        weight = batch["weight"]
        return {"loss": jnp.sum(weight * losses), "count": jnp.sum(weight), **loss.sums(errors, batch, weight)}

    def figures(self, totals: dict[str, float]) -> dict[str, float]:
        """From the sums of `evaluate` over all batches to loss, rmse_e (eV/atom), rmse_f (eV/A), rmse_v (eV/atom)."""
        found = loss.root_mean_squares(totals)
        return {"loss": totals["loss"] / totals["count"], **found, "examples": totals["count"]}

    def listener(self, folder: Path, start: int) -> Lcurve:
        """Writes the learning curve in deepmd-kit's format, going on after step `start`."""
        labels = tuple(label for label in loss.LABELS if label != "virial" or self.training.loss.uses(label))
        return Lcurve(folder / Path(self.training.lcurve).name, start, labels)

    def export(self, state: State, folder: Path) -> str:
        """Writes the trained model to model.dp, which deepmd-kit reads too; says where it is.

        Args:
            state: "params", "statistics" and, where there is one, "ema" as numpy arrays.
        """
        data = self._open()
        nearest = data.train.nearest if np.isfinite(data.train.nearest) else None
        model = Model(data.model, state.get("ema", state["params"]), state["statistics"], nearest)
        convert.write(folder / "model.dp", model)
        return f"the potential is in {folder / 'model.dp'}"

    def predict(self, words: Mapping[str, str], run_dir: Path, say: Callable[[str], None]) -> None:
        """Holds models against labelled frames, as `prediction.compared` says."""
        prediction.compared(words, run_dir, say)

    def read(self, file: Path) -> dict[str, Any]:
        """The parameters and statistics of a .dp or .yaml model to go on from, its energies per type fitted to these frames.

        Raises:
            UserError: the file cannot be read, or its model is another than this recipe's.
        """
        model = self.beginning(file)
        return {"params": model.params, "statistics": refitted(model, self._open().train)}

    def beginning(self, file: Path) -> Model:
        """The model that a file holds, if a training can go on from it; raises as `read` does, before anything is planned."""
        model = convert.read(file)
        if difference := unlike(model.config, self._open().model):
            raise UserError(f"init_from={file}: its model is another than the recipe's: {difference}")
        return model

    def dataset(self, rehearsal: bool = False) -> FrameDataset:
        """Opens the frames; `announcement` is for the user to read, and empty where there is nothing to say.

        Raises:
            UserError: frames are missing or make no sense.
        """
        data = self._open()
        if data.made_up and not rehearsal:
            return open_dataset(self.data_config, self.given, self.data_dir, rehearsal=False)  # says what is missing
        return data

    def _open(self) -> FrameDataset:
        if self._empty:
            raise UserError(
                f"recipe={self.name} says nothing of model and data; give input_json=FILE, or another recipe"
            )
        if self._dataset is None:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self._dataset = open_dataset(self.data_config, self.given, self.data_dir, rehearsal=True)
            words = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
            if words:
                told = "; ".join([self._dataset.announcement, *words] if self._dataset.announcement else words)
                self._dataset = dataclasses.replace(self._dataset, announcement=told)
        return self._dataset

    def batches(
        self, split: str, seed: int, start_step: int, global_batch: int, slice_of: tuple[int, int] = (0, 1)
    ) -> Iterator[dict[str, np.ndarray]]:
        """Batches of a split from `start_step` on; "train" never ends, "test" ends when enough was seen.

        Args:
            split: "train" or "test".
            seed: fixes the order.
            start_step: number of batches to leave out, at no cost.
            global_batch: frames per batch over all processes.
            slice_of: (index, count): this process' part; the parts of all processes, in order, make the batch of one.
        """
        found = self._open().batches(split, seed, start_step, global_batch, slice_of, self.data_config.readers)
        most = self.data_config.test_batches
        if split == "test" and most is not None:
            return (batch for _, batch in zip(range(most), found))
        return found


def nearest_distance(batch: Batch, rcut: float) -> jax.Array:
    """The smallest distance to a neighbour in a batch, in angstrom; at most half the cutoff."""
    square = jnp.sum(batch["displacement"] ** 2, axis=-1)
    near = jnp.min(jnp.where(batch["neighbours"] >= 0, square, jnp.inf))
    return jnp.minimum(jnp.sqrt(near), 0.5 * rcut)
