"""A device is judged by known numbers, and a wrong one is said."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from zoo import doctor
from zoo.errors import DONE, PartlyFailed
from zoo.models.alphafold2 import selftest


def known(scale: float = 1.0) -> dict[str, np.ndarray]:
    return {stage: scale * np.array(values) for stage, values in selftest.EXPECTED.items()}


@pytest.mark.parametrize(
    ("scale", "words", "ok"),
    [(1.0, "right", True), (1.01, "precision of bfloat16", True), (1.5, "wrong", False), (np.nan, "not finite", False)],
)
def test_numbers_are_judged_by_the_largest_of_their_stage(scale: float, words: str, ok: bool) -> None:
    verdicts = selftest.judged(known(scale))
    assert len(verdicts) == 6 and all(words in one.words and one.ok == ok for one in verdicts)


def test_the_command_names_the_device_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = jax.local_devices()[:2]
    monkeypatch.setattr(jax, "local_devices", lambda: [first, second])
    monkeypatch.setattr(doctor, "numbers", lambda device: known(1.0 if device is first else -1.0))
    with pytest.raises(PartlyFailed, match=f"{second}: the numbers are wrong"):
        doctor.main([])
    assert "pLDDT: wrong" in capsys.readouterr().out


@pytest.mark.slow
def test_this_processor_is_right(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
    assert doctor.main([]) == DONE
    assert capsys.readouterr().out.count(": right (") == 6
