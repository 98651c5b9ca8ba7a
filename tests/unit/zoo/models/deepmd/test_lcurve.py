"""lcurve.out: the lines that `dp --tf train` writes, and how a training goes on with them."""

from __future__ import annotations

from pathlib import Path

from zoo.models.deepmd.lcurve import Lcurve

# As deepmd-kit 3.2.0 writes them.
WRITTEN = """\
# step       rmse_val    rmse_trn    rmse_e_val  rmse_e_trn    rmse_f_val  rmse_f_trn   lr      
# If there is no available reference data, rmse_*_{val,trn} will print nan
      0      2.58e+01    2.39e+01      6.67e-01    6.61e-01      8.16e-01    7.54e-01    1.0e-03
    200      3.87e+00    3.91e+00      3.99e-03         nan      3.40e-01    3.44e-01    1.3e-04
"""  # noqa: W291
LABELS = ("energy", "force")


def one(curve: Lcurve, step: int, train: dict[str, float], test: dict[str, float]) -> None:
    curve.training(step, train)
    curve.evaluation(step, test)


def first(curve: Lcurve) -> None:
    train = {"loss": 23.9**2, "rmse_e": 0.661, "rmse_f": 0.754, "learning_rate": 1e-3}
    one(curve, 0, train, {"loss": 25.8**2, "rmse_e": 0.667, "rmse_f": 0.816})


def second(curve: Lcurve) -> None:
    train = {"loss": 3.91**2, "rmse_f": 0.344, "learning_rate": 1.285e-4}
    one(curve, 200, train, {"loss": 3.87**2, "rmse_e": 3.99e-3, "rmse_f": 0.34})


def test_lines_are_those_of_deepmd_kit(tmp_path: Path) -> None:
    curve = Lcurve(tmp_path / "lcurve.out", 0, LABELS)
    first(curve)
    curve.training(100, {"loss": 1.0, "learning_rate": 1e-3})
    curve.evaluation(101, {"loss": 1.0})  # not of the step that was trained: no line
    second(curve)
    curve.close()
    assert (tmp_path / "lcurve.out").read_text() == WRITTEN


def test_what_was_written_after_the_checkpoint_is_written_again(tmp_path: Path) -> None:
    file = tmp_path / "lcurve.out"
    file.write_text(WRITTEN + "    300      1.00e")  # killed while writing
    curve = Lcurve(file, 100, LABELS)
    second(curve)
    curve.close()
    assert file.read_text() == WRITTEN
