"""Every leaf gets a name and a kind of its own, and what cannot be saved is refused by name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from zoo.training import leaves


def test_names_kinds_and_empty_nodes():
    state = {"a.b": [jnp.ones(2), None], "c": optax.EmptyState(), "k": jax.random.key(0), "n": np.int64(3), "p": 2.5}
    records, arrays = leaves.split(state)
    assert {record.name: record.kind for record in records} == {
        "a%2Eb.0": "array",
        "a%2Eb.1": "empty",
        "c": "empty",
        "k": "key",
        "n": "numpy",
        "p": "python",
    }
    assert set(arrays) == {"a%2Eb.0", "k", "n"} and arrays["k"].dtype == "uint32"
    assert [leaves.Leaf.from_json(record.to_json()) for record in records] == records


def test_keys_that_look_alike_get_names_of_their_own():
    records, _ = leaves.split({"a": {"b": 1}, "a.b": 2, "a%2Eb": 3})
    assert [record.name for record in records] == ["a.b", "a%252Eb", "a%2Eb"]


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_random_keys_of_every_implementation_come_back(implementation):
    state = {"keys": jax.random.split(jax.random.key(1, impl=implementation), 2)}
    records, arrays = leaves.split(state)
    known = {record.name: record for record in records}
    assert leaves.wanted(known, state, partial=False)["keys"].shape == arrays["keys"].shape
    found = leaves.join(known, state, arrays)["keys"]
    assert found.dtype == state["keys"].dtype
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(state["keys"]))


@pytest.mark.parametrize(
    "leaf, found", [(object(), "object"), (np.array(["x"]), "ndarray of dtype <U1"), (1j, "complex"), (len, "builtin")]
)
def test_a_leaf_that_cannot_be_saved_is_named(leaf, found):
    with pytest.raises(ValueError, match=f"a.b is a {found}.*; use an array, a number, a str or None"):
        leaves.split({"a": {"b": leaf}})


def test_many_differences_are_cut_short():
    records, _ = leaves.split({str(i): 1 for i in range(20)})
    with pytest.raises(leaves.UserError, match="; and 11 more. Give the recipe"):
        leaves.wanted({record.name: record for record in records}, {"0": 1}, partial=False)
