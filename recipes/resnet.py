"""ResNet on images: model, data, loss, metrics and optimizer of one training; the numbers are in conf/recipe."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from recipes.recipe import Batch, Recipe, State
from zoo.conversion import variables_from
from zoo.data.cards import card
from zoo.data.choice import open_dataset
from zoo.data.image_folder import MEAN, STD, FileExamples
from zoo.data.images import DataConfig, ImageDataset
from zoo.errors import UserError
from zoo.models import classify_images
from zoo.models.pretrained import facts_of
from zoo.models.resnet.config import ResNetConfig
from zoo.models.resnet.model import ResNet, initial_variables, parameter_count
from zoo.prediction import Predictor
from zoo.training.optimizer import OptimizerConfig, scheduled
from zoo.training.tuning import TuningConfig, tuned
from zoo.typed import typed

if TYPE_CHECKING:
    from zoo.config import RecipeConfig

CARDS = ("cifar10", "digits", "mnist")
"""Data sets whose cards tell statistics and classes."""


@dataclasses.dataclass(frozen=True)
class ImageTrainingConfig(TuningConfig):
    """How long, which parameters how fast, and towards what.

    Attributes:
        label_smoothing: share of the target spread evenly over all classes.
    """

    best: str | None = None
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing={self.label_smoothing}; it must be at least 0 and below 1")


class ResNetRecipe(Recipe):
    """Trains a ResNet to classify images.

    A batch is {"image": float32 [B, H, W, 3], normalised per channel, "label": int32 [B]}; for evaluation also
    "weight": float32 [B], 0 for the rows that only fill up the last batch.
    The state is {"params", "batch_stats", "opt_state", "step", "rng"}; a ResNet draws no numbers: `rng` stays as it is.
    """

    metrics = ("loss", "accuracy", "learning_rate")
    family = "resnet"  # of zoo.conversion, for weights of others
    config_class: type = ResNetConfig
    model_class: type = ResNet

    statistics = (MEAN, STD)  # by which published weights want photographs normalised

    heads = ("fc",)  # parts that start anew where init_from has other classes

    def __init__(self, config: RecipeConfig, data_dir: Path) -> None:
        """Checks the configuration; makes no array and reads no file but the description of `init_from`.

        Raises:
            UserError: an option is unknown or has a value that is not allowed.
        """
        self.name = config.name
        self.data_dir = Path(data_dir)
        self.model_config: Any = self.sized(config)
        self.data_config = typed(DataConfig, config.data, "recipe.data")
        self.optimizer_config = typed(OptimizerConfig, config.optimizer, "recipe.optimizer")
        self.training = typed(ImageTrainingConfig, config.training, "recipe.training")
        self.model = self.model_class(self.model_config)
        self.learning_rate, self.optimizer = scheduled(self.optimizer_config, self.training.steps)
        if self.training.lora is not None:
            raise UserError(
                "recipe.training.lora is for texts; freeze parts of an image network with recipe.training.frozen"
            )
        if self.training.frozen or self.training.layer_decay != 1:
            params = abstract(self.model, self.data_config.image_size)["params"]
            order = layer_order(params, self.heads)
            self.optimizer = tuned(self.optimizer, self.training, params, order, self.heads)
        self._dataset: ImageDataset | None = None
        self._rehearsal = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, where the data set is open."""
        return () if self._dataset is None else self._dataset.classes

    def for_processor(self) -> None:
        """Takes the form of convolutions that processors are fast at, where the configuration names none."""
        if self.model_config.convolution is None:
            self.model_config = dataclasses.replace(self.model_config, convolution="products")
            self.model = self.model_class(self.model_config)

    def sized(self, config: RecipeConfig) -> Any:
        """The configuration of the model, with the sizes of the weights that it starts from where those say them."""
        return typed(self.config_class, config.model, "recipe.model")

    def facts(self) -> dict[str, Any]:
        """What is remembered with the weights: also how images are prepared, and what the classes are called."""
        dataset = self._dataset or self.dataset()
        # Where the weights are used, the form of convolutions is that machine's own.
        model = {**dataclasses.asdict(self.model_config), "convolution": None}
        facts = {"family": self.family, "model": model, "labels": list(dataset.classes)}
        return facts | {"mean": list(dataset.mean), "std": list(dataset.std), "image_size": self.data_config.image_size}

    default_task = "classify"
    pictures = True  # what it predicts from

    def predictor(self, place: Path, task: str | None, batch: int, key: jax.Array) -> Predictor:
        """{"image": FILE} to its class and the probabilities of the likeliest.

        Raises:
            UserError: the task is another, or the weights do not fit.
        """
        del key
        if task not in (None, "classify"):
            raise UserError(f"task={task}; this recipe knows classify")
        facts = facts_of(place)
        if "model" in facts:
            config = typed(self.config_class, facts["model"], "model")
        else:
            config = self.model_config
            if "labels" in facts:
                config = dataclasses.replace(config, num_classes=len(facts["labels"]))
        if config.convolution is None and jax.default_backend() == "cpu":
            config = dataclasses.replace(config, convolution="products")
        variables = variables_from(place, self.family, config)
        model, size = self.model_class(config), facts.get("image_size", self.data_config.image_size)
        apply = lambda variables, image: model.apply(variables, image, train=False)
        known = {
            "mean": self.statistics[0],
            "std": self.statistics[1],
            "labels": [str(number) for number in range(config.num_classes)],
        }
        known |= facts if "mean" in facts else self._of_data_set(config.num_classes) | facts
        classes, mean, std = (known[name] for name in ("labels", "mean", "std"))
        return classify_images.classifier(apply, variables, classes, mean, std, size, batch)

    def _of_data_set(self, num_classes: int) -> dict[str, Any]:
        """What a file of weights does not say: how the images of the recipe's data set are prepared, and its classes.

        Weights for another number of classes are of another data set.
        """
        name = self.data_config.name
        if name == "arrays":
            dataset = self.dataset()
            found = {"mean": dataset.mean, "std": dataset.std, "labels": list(dataset.classes)}
        elif name in CARDS:
            said = card(name)
            found = {"mean": said.mean, "std": said.std, "labels": list(said.classes)}
        else:
            return {}
        return found if len(found["labels"]) == num_classes else {}

    def summary(self) -> str:
        """The model in one line, with its number of parameters."""
        model = self.model_config
        return (
            f"ResNet-{model.depth}: {model.block_kind} blocks {list(model.blocks)}, {model.stem} stem, "
            f"width {model.width}, {model.num_classes} classes, {parameter_count(model):,} parameters"
        )

    def abstract_batch(self, global_batch: int) -> Batch:
        size = self.data_config.image_size
        return {
            "image": jax.ShapeDtypeStruct((global_batch, size, size, 3), np.float32),
            "label": jax.ShapeDtypeStruct((global_batch,), np.int32),
        }

    def initial_state(self, key: jax.Array) -> State:
        """The state before the first step, from a PRNG key; pure, for jit."""
        params_key, rng = jax.random.split(key)
        variables = self._variables(params_key)
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

    def _variables(self, key: jax.Array) -> dict[str, Any]:
        """{"params", "batch_stats"} before training."""
        return initial_variables(self.model_config, key)

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
            opened = open_dataset(self.data_config, self.data_dir, self.model_config.num_classes, rehearsal)
            if isinstance(opened.train, FileExamples):
                opened = dataclasses.replace(opened, mean=self.statistics[0], std=self.statistics[1])
            self._dataset = opened
            self._rehearsal = rehearsal
        return self._dataset

    def batches(
        self, split: str, seed: int, start_step: int, global_batch: int, slice_of: tuple[int, int] = (0, 1)
    ) -> Iterator[dict[str, np.ndarray]]:
        """As of `Recipe.batches`; the seed fixes the order and the augmentation."""
        dataset = self._dataset or self.dataset()
        return dataset.batches(split, self.data_config, seed, start_step, global_batch, slice_of)


def abstract(model: Any, size: int) -> Any:
    """The variables of a network for images of this size, with shapes in place of arrays."""
    image = jax.ShapeDtypeStruct((1, size, size, 3), jnp.float32)
    return jax.eval_shape(lambda image: model.init(jax.random.key(0), image, train=False), image)


def layer_order(params: Mapping[str, Any], heads: Sequence[str]) -> list[str]:
    """The parts of a network below its head, from the image on: the stem, then blocks and cells by number."""
    number = lambda name: [int(part) for part in re.findall(r"\d+", name)]
    rank = lambda name: (not name.startswith(("conv", "bn")), not name.startswith("cell_stem"), number(name))
    return [re.escape(name) for name in sorted((name for name in params if name not in heads), key=rank)]


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
