"""ResNet on images: model, data, loss, metrics and optimizer of one training; the numbers are in conf/recipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from flowaware_core.task import Task
from zoo.data.choice import open_dataset
from zoo.data.images import DataConfig, ImageDataset
from zoo.errors import UserError
from zoo.models.resnet.config import ResNetConfig
from zoo.models.resnet.model import ResNet, initial_variables, parameter_count
from zoo.training.optimizer import OptimizerConfig, learning_rate, optimizer
from zoo.typed import typed

if TYPE_CHECKING:
    from zoo.config import RecipeConfig

State = dict[str, Any]
Batch = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How long, and towards what.

    Attributes:
        steps: length of the whole training, which the learning-rate schedule spans, also when a run stops earlier.
        label_smoothing: share of the target spread evenly over all classes.
    """

    steps: int
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps={self.steps}; it must be at least 1")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing={self.label_smoothing}; it must be at least 0 and below 1")


class ResNetRecipe:
    """Trains a ResNet to classify images.

    A batch is {"image": float32 [B, H, W, 3], normalised per channel, "label": int32 [B]}; for evaluation also
    "weight": float32 [B], 0 for the rows that only fill up the last batch.
    The state is {"params", "batch_stats", "opt_state", "step", "rng"}; a ResNet draws no numbers: `rng` stays as it is.
    """

    metrics = ("loss", "accuracy", "learning_rate")
    family = "resnet"  # of zoo.conversion, for weights of others
    config_class: type = ResNetConfig
    model_class: type = ResNet

    def __init__(self, config: RecipeConfig, data_dir: Path) -> None:
        """Checks the configuration; makes no array and reads no file.

        Raises:
            UserError: an option is unknown or has a value that is not allowed.
        """
        self.name = config.name
        self.data_dir = Path(data_dir)
        self.model_config: Any = typed(self.config_class, config.model, "recipe.model")
        self.data_config = typed(DataConfig, config.data, "recipe.data")
        self.optimizer_config = typed(OptimizerConfig, config.optimizer, "recipe.optimizer")
        self.training = typed(TrainingConfig, config.training, "recipe.training")
        self.model = self.model_class(self.model_config)
        try:
            self.learning_rate = learning_rate(self.optimizer_config, self.training.steps)
            self.optimizer = optimizer(self.optimizer_config, self.training.steps)
        except ValueError as error:
            raise UserError(f"recipe.optimizer: {error}") from None
        self._dataset: ImageDataset | None = None
        self._rehearsal = False

    def summary(self) -> str:
        """The model in one line, with its number of parameters."""
        model = self.model_config
        return (
            f"ResNet-{model.depth}: {model.block_kind} blocks {list(model.blocks)}, {model.stem} stem, "
            f"width {model.width}, {model.num_classes} classes, {parameter_count(model):,} parameters"
        )

    def task(self, global_batch: int | None = None) -> Task:
        """One training step on `global_batch` examples (by default the recipe's), for the engine to plan."""
        state = jax.eval_shape(lambda: self.initial_state(jax.random.key(0)))
        batch = self.abstract_batch(global_batch or self.data_config.global_batch)
        return Task(self.step, (state, batch), mode="training", carried={0: 0}, batch=(1,), name=self.name)

    def abstract_batch(self, global_batch: int) -> Batch:
        size = self.data_config.image_size
        return {
            "image": jax.ShapeDtypeStruct((global_batch, size, size, 3), np.float32),
            "label": jax.ShapeDtypeStruct((global_batch,), np.int32),
        }

    def initial_state(self, key: jax.Array) -> State:
        """The state before the first step, from a PRNG key; pure, for jit."""
        params_key, rng = jax.random.split(key)
        variables = initial_variables(self.model_config, params_key)
        params = variables["params"]
        return {
            "params": params,
            "batch_stats": variables["batch_stats"],
            "opt_state": self.optimizer.init(params),
            "step": jnp.zeros((), jnp.int32),
            "rng": rng,
        }

    def step(self, state: State, batch: Batch) -> tuple[State, dict[str, jax.Array]]:
        """One step of training: the next state, and the metrics (scalars) of this batch before the update."""

        def loss_of(params: Any) -> tuple[jax.Array, tuple[Any, jax.Array]]:
            variables = {"params": params, "batch_stats": state["batch_stats"]}
            options = {"mutable": ["batch_stats"], "rngs": self._draws(state)}
            result: Any = self.model.apply(variables, batch["image"], train=True, **options)
            logits, updated = result
            losses = cross_entropy(logits, batch["label"], self.training.label_smoothing)
            return jnp.mean(losses), (updated["batch_stats"], logits)

        (loss, (batch_stats, logits)), grads = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
        updates, opt_state = self.optimizer.update(grads, state["opt_state"], state["params"])
        after = {
            "params": optax.apply_updates(state["params"], updates),
            "batch_stats": batch_stats,
            "opt_state": opt_state,
            "step": state["step"] + 1,
            "rng": state["rng"],
        }
        metrics = {
            "loss": loss,
            "accuracy": jnp.mean(correct(logits, batch["label"])),
            "learning_rate": self.learning_rate(state["step"]),
        }
        return after, metrics

    def _draws(self, state: State) -> dict[str, jax.Array] | None:
        """The keys of this step's random numbers, by their names; None where the model draws none."""
        del state
        return None

    def evaluate(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """Sums over the rows that count: {"loss", "accuracy", "count"}; the first two over the last are the means."""
        variables = {"params": state["params"], "batch_stats": state["batch_stats"]}
        logits: Any = self.model.apply(variables, batch["image"], train=False)
        weight = batch["weight"]
        return {
            "loss": jnp.sum(weight * cross_entropy(logits, batch["label"], 0.0)),
            "accuracy": jnp.sum(weight * correct(logits, batch["label"])),
            "count": jnp.sum(weight),
        }

    def dataset(self, rehearsal: bool = False) -> ImageDataset:
        """Opens the data set; its `announcement` is for the user to read, and empty where there is nothing to say.

        Args:
            rehearsal: where the data set is missing, take scikit-learn's digits in its place and announce it.

        Raises:
            UserError: the data set is missing, damaged, or has more classes than the model.
        """
        if self._dataset is None or self._rehearsal != rehearsal:
            self._dataset = open_dataset(self.data_config, self.data_dir, self.model_config.num_classes, rehearsal)
            self._rehearsal = rehearsal
        return self._dataset

    def batches(
        self, split: str, seed: int, start_step: int, global_batch: int, slice_of: tuple[int, int] = (0, 1)
    ) -> Iterator[dict[str, np.ndarray]]:
        """Batches of a split from `start_step` on; "train" never ends, "test" ends when all was seen once.

        Args:
            split: "train" or "test".
            seed: fixes the order and the augmentation.
            start_step: number of batches to leave out, at no cost.
            global_batch: examples per batch over all processes.
            slice_of: (index, count): this process' part; the parts of all processes, in order, make the batch of one.
        """
        dataset = self._dataset or self.dataset()
        return dataset.batches(split, self.data_config, seed, start_step, global_batch, slice_of)


def cross_entropy(logits_BK: jax.Array, label_B: jax.Array, smoothing: float) -> jax.Array:
    """The loss [B] of each example."""
    log_probs_BK = jax.nn.log_softmax(logits_BK)
    # A comparison in place of a gather: it splits over any dimension.
    target_BK = (label_B[:, None] == jnp.arange(logits_BK.shape[1])).astype(logits_BK.dtype)
    target_BK = target_BK * (1 - smoothing) + smoothing / logits_BK.shape[1]
    return -jnp.sum(target_BK * log_probs_BK, axis=1)


def correct(logits_BK: jax.Array, label_B: jax.Array) -> jax.Array:
    """1 for each example [B] whose largest logit is at its label, else 0; float32."""
    return (jnp.argmax(logits_BK, axis=1) == label_B).astype(jnp.float32)
