"""Products of a batch of sequences with a matrix, in two forms with the same numbers.

"batched" keeps batch and position apart, so that a plan can split either. "flat" joins them first: XLA on a processor otherwise
copies what reaches a product's gradient into another order, for every matrix once a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
from jax import lax

Form = Literal["batched", "flat"]
FORMS = ("batched", "flat")


def product(form: Form) -> Callable[..., jax.Array]:
    """`lax.dot_general` in this form, for `nn.Dense`."""
    return lax.dot_general if form == "batched" else flat


def flat(
    left: jax.Array, right: jax.Array, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None
) -> jax.Array:
    """The last dimension of `left` [..., D] with one of `right` [D, F] or [F, D]: [..., F]; nothing is batched."""
    ((inner,), (other,)), _ = dimension_numbers
    assert inner == left.ndim - 1 and right.ndim == 2, (left.shape, right.shape, dimension_numbers)
    rows = left.reshape(-1, left.shape[-1])
    found = lax.dot_general(rows, right, (((1,), (other,)), ((), ())), precision, preferred_element_type)
    return found.reshape(*left.shape[:-1], right.shape[1 - other])
