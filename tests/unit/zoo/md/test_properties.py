"""Equation of state and elastic constants, of copper with ASE's EMT potential."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zoo.errors import UserError
from zoo.md.properties import elastic_constants, equation_of_state, relaxed


@pytest.fixture(scope="module")
def copper() -> Any:
    build, emt = pytest.importorskip("ase.build"), pytest.importorskip("ase.calculators.emt")
    atoms = build.bulk("Cu", "fcc", a=3.7, cubic=True)
    atoms.rattle(0.02, seed=0)
    atoms.calc = emt.EMT()
    return relaxed(atoms, 1e-4, cell=True)


def test_moduli_agree_with_each_other(copper: Any) -> None:
    found = equation_of_state(copper, 0.04, 7, 1e-3)
    np.testing.assert_allclose(found.best_volume, copper.get_volume(), rtol=2e-4)
    elastic = elastic_constants(copper, 0.004, 1e-4)
    c = elastic.stiffness
    cubic = np.zeros((6, 6))
    cubic[:3, :3] = c[0, 1]
    np.fill_diagonal(cubic, [*[c[0, 0]] * 3, *[c[3, 3]] * 3])
    np.testing.assert_allclose(c, cubic, atol=0.5)
    np.testing.assert_allclose(elastic.bulk_modulus, (c[0, 0] + 2 * c[0, 1]) / 3, rtol=1e-3)
    np.testing.assert_allclose(elastic.bulk_modulus, found.bulk_modulus, rtol=0.02)
    low, high = sorted([c[3, 3], (c[0, 0] - c[0, 1]) / 2])
    assert low < elastic.shear_modulus < high


def test_a_structure_far_from_rest_is_named(copper: Any) -> None:
    wide = copper.copy()
    wide.calc = copper.calc
    wide.set_cell(np.asarray(copper.cell) * 1.05, scale_atoms=True)
    with pytest.raises(UserError, match="relax the cell first"):
        equation_of_state(wide, 0.04, 5, 1e-3)
