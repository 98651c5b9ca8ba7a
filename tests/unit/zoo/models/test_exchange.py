"""Foreign arrays that cannot be right are named before anything is made of them."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.errors import UserError
from zoo.models.exchange import Name, imported

NAMES = [Name("layers/kernel", "layer.{i}.weight", "linear")]
WANTED = {"layers": {"kernel": np.zeros((2, 3, 4), np.float32)}}


def arrays(**changed: np.ndarray) -> dict[str, np.ndarray]:
    return {"layer.0.weight": np.ones((4, 3), np.float32), "layer.1.weight": np.ones((4, 3), np.float32)} | {
        f"layer.{name[1:]}.weight": value for name, value in changed.items()
    }


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (np.ones((3, 3), np.float32), r"layer.1.weight is of shape \[3, 3\], and layer.0.weight of \[3, 4\]"),
        (np.full((4, 3), np.nan, np.float32), "layer.1.weight has values that are not finite"),
        (np.ones((4, 3), np.int32), "layer.1.weight is of dtype int32; weights are floating-point numbers"),
    ],
)
def test_one_layer_that_is_not_like_the_others(changed: np.ndarray, said: str) -> None:
    assert imported(arrays(), NAMES, WANTED, {}, "file").params["layers"]["kernel"].shape == (2, 3, 4)
    with pytest.raises(UserError, match=f"file: {said}"):
        imported(arrays(_1=changed), NAMES, WANTED, {}, "file")
