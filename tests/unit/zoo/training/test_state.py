"""Beginning from other weights: what is taken, which heads start anew and why, and products of LoRA."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.conversion import FAMILIES
from zoo.errors import UserError
from zoo.models import weight_files
from zoo.models.bert.config import BertConfig
from zoo.models.bert.model import abstract_params
from zoo.training import adapters, state
from zoo.training.adapters import Lora
from zoo.training.checkpoints import Checkpoints

LORA = Lora(2, ("layer",), 4.0)


def recipe(outputs: int = 3, labels: tuple[str, ...] = (), lora: Lora | None = None) -> Any:
    """One with a matrix and a head."""

    def initial_state(key: jax.Array) -> Any:
        del key
        params: Any = {"layer": {"kernel": jnp.zeros((2, 2))}, "classifier": {"kernel": jnp.zeros((2, outputs))}}
        return {
            "params": params if lora is None else adapters.added(params, lora, jax.random.key(1)),
            "step": jnp.int32(0),
        }

    found = SimpleNamespace(initial_state=initial_state, heads=("classifier",), training=SimpleNamespace(lora=lora))
    if labels:
        found.labels = labels
    return found


def begun(place: Path, one: Any) -> tuple[Any, list[str]]:
    shardings = jax.tree.map(
        lambda _: jax.sharding.SingleDeviceSharding(jax.devices()[0]),
        jax.eval_shape(one.initial_state, jax.random.key(0)),
    )
    said: list[str] = []
    abstract = jax.eval_shape(one.initial_state, jax.random.key(0))
    return jax.device_get(state.begun_from(place, one, 0, abstract, shardings, said.append)["params"]), said


@pytest.fixture
def run(tmp_path: Path) -> Path:
    params = {"layer": {"kernel": np.ones((2, 2), np.float32)}, "classifier": {"kernel": np.ones((2, 3), np.float32)}}
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    checkpoints.save(5, {"params": params}, {"labels": ["a", "b", "c"]})
    checkpoints.wait()
    return tmp_path / "run"


def test_a_head_is_kept_or_starts_anew_and_that_is_said(run: Path) -> None:
    same, said = begun(run, recipe(3, ("a", "b", "c")))
    assert same["classifier"]["kernel"].all() and same["layer"]["kernel"].all() and not said
    for other, sentence in (
        (recipe(4), "classifier starts anew: [2, 3] there, [2, 4] here"),
        (recipe(3, ("x", "y", "z")), "classifier starts anew: its labels were a, b, c"),
    ):
        found, said = begun(run, other)
        assert said == [sentence] and found["layer"]["kernel"].all() and not found["classifier"]["kernel"].any()


def test_a_head_of_hugging_face_is_kept_for_its_own_labels_alone(tmp_path: Path) -> None:
    config = BertConfig(11, 8, 1, 2, 12, max_positions=16, num_labels=2, head="classification")
    variables = jax.tree.map(lambda leaf: np.full(leaf.shape, 0.5, np.float32), dict(abstract_params(config)))
    weight_files.write(tmp_path / "model.safetensors", FAMILIES["bert"].to_theirs({"params": variables}, config))

    def of(*labels: str) -> Any:
        init = lambda key: {"params": jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), dict(abstract_params(config)))}
        return SimpleNamespace(
            initial_state=init, heads=("classifier",), family="bert", model_config=config, labels=labels
        )

    for names, kept in ((("a", "b"), True), (("b", "a"), False), (("LABEL_0", "LABEL_1"), True)):
        (tmp_path / "config.json").write_text(json.dumps({"id2label": dict(enumerate(names))}))
        found, said = begun(tmp_path, of("a", "b"))
        assert found["classifier"]["kernel"].any() == kept and found["embeddings"]["word"]["embedding"].all()
        assert said == ([] if kept else ["classifier starts anew: its labels were b, a"])


def test_what_lora_learned_is_not_lost(run: Path, tmp_path: Path) -> None:
    found, said = begun(run, recipe(lora=LORA))
    assert not said and found["layer"]["kernel"].all() and not found["lora"]["layer"]["b"].any()
    found["lora"]["layer"] = {"a": np.ones((2, 2), np.float32), "b": np.ones((2, 2), np.float32)}
    checkpoints = Checkpoints(tmp_path / "tuned")
    meta = {"lora": {"rank": 2, "targets": ["layer"], "alpha": 4.0}}
    checkpoints.save(1, {"params": found}, meta)
    checkpoints.wait()
    merged, _ = begun(tmp_path / "tuned", recipe())
    np.testing.assert_array_equal(merged["layer"]["kernel"], np.full((2, 2), 5.0))
    goes_on, _ = begun(tmp_path / "tuned", recipe(lora=LORA))
    assert goes_on["layer"]["kernel"].max() == 1 and goes_on["lora"]["layer"]["b"].all()


def test_what_does_not_fit_is_known_before_an_array_is_read(run: Path) -> None:
    def check(one: Any) -> None:
        checkpoints = Checkpoints(run / "checkpoints")
        state.check_beginning(checkpoints, 5, one, jax.eval_shape(one.initial_state, jax.random.key(0)))

    check(recipe(3))
    check(recipe(7))  # another head starts anew
    other = recipe(7)
    other.heads = ()
    with pytest.raises(UserError, match=r"params.classifier.kernel"):
        check(other)
