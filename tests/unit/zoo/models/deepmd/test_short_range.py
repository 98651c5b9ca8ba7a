"""The short-range table: what takes over, smoothly; its file; the repulsion of nuclei; models with one, written and read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from flowaware_core import versions
from zoo.errors import UserError
from zoo.models.deepmd import short_range
from zoo.models.deepmd.config import potential
from zoo.models.deepmd.convert import Model, read, write
from zoo.models.deepmd.evaluate import Evaluator
from zoo.models.deepmd.model import initial_parameters, initial_statistics
from zoo.models.deepmd.short_range import ShortRange, screened, splines, table

DESCRIPTOR = {"type": "se_atten_v2", "sel": 8, "rcut": 3.0, "neuron": [2, 4], "axis_neuron": 2, "attn_layer": 0}
SECTION = {"type_map": ["O", "H"], "descriptor": DESCRIPTOR, "fitting_net": {"neuron": [3, 3]}}
BLEND = {"use_srtab": "zbl", "sw_rmin": 0.5, "sw_rmax": 1.0, "smin_alpha": 0.1}


@pytest.fixture(scope="module")
def model() -> Model:
    config = potential({**SECTION, **BLEND}, "model")
    short = config.short_range
    assert short is not None
    rows = table(short, config.type_map, config.rcut)
    config = dataclasses.replace(config, short_range=short_range.settled(short, rows))
    with versions.enable_x64():
        params = jax.device_get(jax.jit(lambda: initial_parameters(config, jax.random.key(0)))())
        constants = jax.device_get(initial_statistics(config))
    constants["bias"] = np.asarray([-3.0, 2.0])
    constants["short_range"] = {"splines": splines(rows, 2), "inside": np.asarray([0.25, -0.5])}
    return Model(config, params, constants)


def pair(model: Model, distance: float) -> tuple[float, float]:
    """Energy and force along x on the second of an O and an H, in eV and eV/A."""
    found = Evaluator(model)(np.asarray([[0.0, 0, 0], [distance, 0, 0]]), np.asarray([0, 1]), None)
    return float(found.energy), float(found.force[1, 0])


def test_the_table_takes_over_and_leaves_smoothly(model: Model) -> None:
    net = Model(
        dataclasses.replace(model.config, short_range=None),
        model.params,
        {**model.statistics, "bias": model.statistics["short_range"]["inside"]},
    )
    assert abs(pair(model, 1.2)[0] - (pair(net, 1.2)[0] - 1.0)) < 1e-12  # all net, and the outer bias of -3 + 2
    u = 0.3
    length = 0.8854 * 0.529177210903 / (8**0.23 + 1)
    screen = sum(a * np.exp(-b * u / length) for a, b in short_range.SCREENING)
    np.testing.assert_allclose(pair(model, u)[0], 14.399645 * 8 / u * screen - 1.0, rtol=1e-6)  # all repulsion
    for distance in (0.31, 0.502, 0.71, 0.998, 1.3):
        up, down = (pair(model, distance + step)[0] for step in (1e-5, -1e-5))
        np.testing.assert_allclose(pair(model, distance)[1], -(up - down) / 2e-5, rtol=1e-6, atol=1e-6)
    alone = Evaluator(model)(np.zeros((1, 3)), np.asarray([1]), None)
    assert np.isfinite(alone.energy) and not alone.force.any()


def test_it_is_written_and_read(model: Model, tmp_path: Path) -> None:
    write(tmp_path / "model.dp", model)
    again = read(tmp_path / "model.dp")
    assert pair(again, 0.7) == pair(model, 0.7)
    short = again.config.short_range
    assert short is not None and short.points == model.config.short_range.points  # type: ignore[union-attr]
    rows = short_range.rows(short, again.statistics["short_range"]["splines"])
    np.testing.assert_allclose(rows, screened(("O", "H"), 3.0)[: len(rows)], rtol=1e-9, atol=1e-9)


def test_files_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "table.txt"
    config = ShortRange(str(file), 0.5, 1.0)
    with pytest.raises(UserError, match="does not exist"):
        table(config, ["O"], 3.0)
    distance = np.arange(1, 11) * 0.1
    np.savetxt(file, np.stack([distance, np.maximum(0.8 - distance, 0)], axis=1))
    rows = table(config, ["O"], 3.0)
    assert len(rows) == 30 and rows[-1, 0] == pytest.approx(3.0) and not rows[12:, 1].any()
    with pytest.raises(UserError, match="2 types need 4 columns"):
        table(config, ["O", "H"], 3.0)
    np.savetxt(file, np.stack([distance, 1 / distance], axis=1))
    with pytest.raises(UserError, match="before rcut=3.0"):
        table(config, ["O"], 3.0)
    np.savetxt(file, np.stack([distance**2, 1 / distance], axis=1))
    with pytest.raises(UserError, match="equal steps"):
        table(config, ["O"], 0.5)
    with pytest.raises(UserError, match="needs chemical symbols"):
        screened(["OW"], 3.0)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sw_rmin": 1.0, "sw_rmax": 0.5, "use_srtab": "zbl"}, "give 0 <= sw_rmin < sw_rmax"),
        ({"sw_rmin": 1.0}, "sw_rmin needs use_srtab"),
        ({"use_srtab": "zbl"}, "sw_rmin is missing"),
    ],
)
def test_bad_options_are_named(changes: dict, text: str) -> None:
    with pytest.raises(UserError, match=text):
        potential({**SECTION, **changes}, "recipe.model")
