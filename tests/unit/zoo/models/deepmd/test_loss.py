"""The loss: atoms that are not there and labels that are missing count for nothing; weights and rates as deepmd-kit has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flowaware_core import versions
from zoo.models.deepmd import loss
from zoo.models.deepmd.loss import LossConfig, RateConfig
from zoo.models.deepmd.model import Outputs

CONFIG = LossConfig(start_pref_v=0.5, limit_pref_v=0.2)


def frames(rng: np.random.Generator, atoms: int, room: int) -> tuple[Outputs, dict[str, Any]]:
    """Two frames of `atoms` atoms in a layout of `room`; the second has no virial. The rest of the layout holds nonsense."""
    found, label = rng.normal(size=(2, 2, atoms, 3))
    spare = np.full((2, room - atoms, 3), 99.0)
    energy, wanted, virial, stated = rng.normal(size=2), rng.normal(size=2), *rng.normal(size=(2, 2, 3, 3))
    batch = {
        "real": np.tile(np.arange(room) < atoms, (2, 1)),
        "energy": wanted,
        "force": np.concatenate([label, 0 * spare], axis=1),
        "virial": stated,
        "known_energy": np.ones(2),
        "known_force": np.ones(2),
        "known_virial": np.asarray([1.0, 0.0]),
    }
    return Outputs(energy, np.concatenate([found, spare], axis=1), virial, None), batch


def numbers(outputs: Outputs, batch: dict[str, Any]) -> tuple[float, dict[str, float]]:
    with versions.enable_x64():
        errors = loss.squares(outputs, batch)
        totals = loss.sums(errors, batch, np.ones(2))
        whole = loss.batch_loss(CONFIG, errors, batch, 0.25)
    return float(whole), loss.root_mean_squares({name: float(value) for name, value in totals.items()})


def test_room_that_no_atom_fills_changes_neither_loss_nor_errors() -> None:
    tight, wide = (numbers(*frames(np.random.default_rng(0), 3, room)) for room in (3, 8))
    assert wide[0] == pytest.approx(tight[0], rel=1e-14) and wide[1] == pytest.approx(tight[1], rel=1e-14)


def test_the_loss_is_that_of_deepmd_kit() -> None:
    """weight * square / atoms for energy and virial, weight * mean square for force, each over the frames that have it."""
    outputs, batch = frames(np.random.default_rng(1), 3, 3)
    energy = 1 + (0.02 - 1) * 0.25, np.mean((outputs.energy - batch["energy"]) ** 2) / 3
    force = 1 + (1000 - 1) * 0.25, np.mean((outputs.force - batch["force"]) ** 2)
    virial = 0.2 + (0.5 - 0.2) * 0.25, np.mean((outputs.virial - batch["virial"])[0] ** 2) / 3
    value, errors = numbers(outputs, batch)
    assert value == pytest.approx(sum(weight * error for weight, error in (energy, force, virial)), rel=1e-12)
    assert errors["rmse_e"] == pytest.approx(np.sqrt(energy[1] / 3), rel=1e-12)
    assert errors["rmse_f"] == pytest.approx(np.sqrt(force[1]), rel=1e-12)
    assert errors["rmse_v"] == pytest.approx(np.sqrt(virial[1] / 3), rel=1e-12)


def test_errors_of_labels_that_no_frame_has_are_left_out() -> None:
    outputs, batch = frames(np.random.default_rng(2), 2, 2)
    _, errors = numbers(outputs, {**batch, "known_virial": np.zeros(2)})
    assert set(errors) == {"rmse_e", "rmse_f"}


def test_the_rate_falls_in_drops_to_its_end() -> None:
    with versions.enable_x64():
        rate = loss.learning_rate(RateConfig(start_lr=1e-3, stop_lr=3.51e-8, decay_steps=50), 1000)
        drop = (3.51e-8 / 1e-3) ** (50 / 1000)
        assert [float(rate(step)) for step in (0, 49)] == [1e-3, 1e-3]
        assert [float(rate(step)) for step in (50, 200, 1000)] == pytest.approx(
            [1e-3 * drop, 1e-3 * drop**4, 3.51e-8], rel=1e-12
        )
        cosine = loss.learning_rate(RateConfig(schedule="cosine", stop_lr=1e-6), 100)
        assert [float(cosine(step)) for step in (0, 50, 100, 200)] == pytest.approx(
            [1e-3, (1e-3 + 1e-6) / 2, 1e-6, 1e-6], rel=1e-12
        )
