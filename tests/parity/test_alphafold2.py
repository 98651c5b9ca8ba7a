"""AlphaFold2 against the original: same parameters, same features, same outputs; every weight is drawn, none is trained.

The numbers of the original are committed (alphafold2_fast.npz, alphafold2_model_1_ptm.npz, and alphafold2_model_1_multimer_v3.npz
with what it drew); they were made by

    PYTHONPATH=ORIGINAL ZOO_PARITY_ALPHAFOLD=PYTHON pytest -m slow tests/parity/test_alphafold2.py -k original

where PYTHON is that of an environment as alphafold2_reference.py wants it. Some minutes each; `-k deep` alone a quarter of an hour.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.parity.alphafold2_cases import HERE, Case, both, compare, ours, sampled, varies

FAST = Case("model_1_ptm", blocks=1, further_blocks=1, recycles=0)
FOUR = {"blocks": 4, "further_blocks": 4}
WHOLE = {"blocks": 48, "further_blocks": 4, "recycles": 3}


def name_of(case: Case) -> str:
    words = [case.name, f"{case.blocks}_blocks", f"{case.recycles}_recycles"]
    words += ["" if case.templates else "no_templates", f"{case.ensemble}_draws" if case.ensemble > 1 else ""]
    return "-".join(word for word in words if word)


def test_a_pass_of_the_smallest_network_is_that_of_the_original() -> None:
    """The fast one, compiled without optimisation, which takes longer than the pass; other versions of jax round differently."""
    outputs = ours(FAST, optimised=False)[0]
    assert varies(outputs)
    with np.load(HERE / "alphafold2_fast.npz") as wanted:
        compare(sampled(outputs), dict(wanted), angstrom=1e-2)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_committed_numbers_of_the_original() -> None:
    outputs = ours(Case("model_1_ptm"))[0]
    assert varies(outputs)
    with np.load(HERE / "alphafold2_model_1_ptm.npz") as wanted:
        compare(sampled(outputs), dict(wanted))


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_committed_numbers_of_the_original_on_a_complex() -> None:
    with np.load(HERE / "alphafold2_model_1_multimer_v3.npz") as file:
        wanted = dict(file)
    drawn = {key.removeprefix("drawn/"): value for key, value in wanted.items() if key.startswith("drawn/")}
    outputs = ours(Case("model_1_multimer_v3"), drawn)[0]
    assert varies(outputs)
    compare(sampled(outputs), {key: value for key, value in wanted.items() if not key.startswith("drawn/")})


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "case",
    [
        FAST,
        Case("model_1_ptm", **FOUR),
        Case("model_1_ptm", recycles=3, **FOUR),
        Case("model_1_ptm", templates=False, **FOUR),
        Case("model_1_ptm", ensemble=2, **FOUR),
        Case("model_3", **FOUR),
        Case("model_3", recycles=3, **FOUR),
        Case("model_1_multimer", **FOUR),
        Case("model_1_multimer_v3", **FOUR),
        Case("model_1_multimer_v3", recycles=3, **FOUR),
        Case("model_1_multimer_v3", templates=False, **FOUR),
    ],
    ids=name_of,
)
def test_the_original_run_beside_ours(case: Case, tmp_path: Path) -> None:
    found, wanted = both(case, tmp_path)
    assert varies(found)
    compare(found, wanted)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", ["model_1_ptm", "model_3", "model_1_multimer_v3"])
def test_the_deep_original_run_beside_ours(name: str, tmp_path: Path) -> None:
    """Whole depth and four passes: what rounding does to positions grows with both."""
    found, wanted = both(Case(name, **WHOLE), tmp_path)
    assert varies(found)
    compare(found, wanted, angstrom=1e-2)
