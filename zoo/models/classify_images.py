"""What a network says of images in files: the class, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from zoo.data.image_folder import read_image
from zoo.prediction import Predictor, Record, text_of

TOP = 5


def classifier(
    apply: Callable[[Any, jax.Array], jax.Array],
    variables: Any,
    classes: Sequence[str],
    mean: Sequence[float],
    std: Sequence[float],
    size: int,
    batch: int,
) -> Predictor:
    """{"image": FILE} to {"label", "probabilities" of the likeliest five}.

    Args:
        apply: variables and images [B, S, S, 3] to logits [B, K].
        variables: of the network.
        classes: a name for each logit.
        mean, std: of each channel, by which images (over 255) are normalised.
        size: S; images are cut to their middle square and resized.
        batch: B.
    """

    def named(shares: np.ndarray) -> Record:
        # A network may have more outputs than its data set had classes.
        names = [*classes, *(str(number) for number in range(len(classes), len(shares)))]
        return _named(shares, names)

    run = jax.jit(lambda variables, image: jax.nn.softmax(apply(variables, image)))

    def predict(some: Sequence[Record]) -> list[Record]:
        images = np.zeros((batch, size, size, 3), np.float32)
        for row, record in enumerate(some):
            pixels = read_image(Path(text_of(record, "image", "file of a picture")), size)
            images[row] = (pixels / np.float32(255) - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
        return [named(row) for row in np.asarray(run(variables, images))[: len(some)]]

    return predict


def _named(shares: np.ndarray, classes: Sequence[str]) -> Record:
    order = np.argsort(-shares)[:TOP]
    return {
        "label": classes[int(order[0])],
        "probabilities": {classes[int(one)]: round(float(shares[one]), 6) for one in order},
    }
