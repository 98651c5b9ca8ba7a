"""Files of potentials on the command line: converted, compressed, with another bias; what frames ask of `sel`."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

from flowaware_core import versions
from zoo import potential as command
from zoo.checkpoint import main
from zoo.errors import UserError
from zoo.models.deepmd.config import potential
from zoo.models.deepmd.convert import Model, read, write
from zoo.models.deepmd.evaluate import Evaluator
from zoo.models.deepmd.model import initial_parameters, initial_statistics

TYPES = "0 1 1 0 1 1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model.dp, and a system "data" whose energies are those of the model and 3 eV per first, 1 eV per second type."""
    place = tmp_path_factory.mktemp("potential")
    descriptor = {"type": "se_e2_a", "sel": [6, 8], "rcut": 3.0, "neuron": [2, 4], "axis_neuron": 2}
    config = potential({"type_map": ["O", "H"], "descriptor": descriptor, "fitting_net": {"neuron": [3]}}, "model")
    with versions.enable_x64():
        params = jax.device_get(jax.jit(lambda: initial_parameters(config, jax.random.key(0)))())
        statistics = jax.device_get(initial_statistics(config))
    model = Model(config, params, statistics)
    write(place / "model.dp", model)
    kinds = [[0, 1, 1, 0, 1, 1], [0, 1, 0, 0, 1, 1]]
    for number, types in enumerate(kinds):
        inside = place / "data" / str(number) / "set.000"
        inside.mkdir(parents=True)
        coord = np.arange(6)[:, None] * [1.25, 0.0, 0.0] + np.asarray([0.0, 0.1, 0.0])
        energy = float(Evaluator(model)(coord, np.asarray(types), None).energy)
        np.save(inside / "coord.npy", coord.reshape(1, -1))
        np.save(inside / "energy.npy", np.asarray([energy + 3.0 * types.count(0) + 1.0 * types.count(1)]))
        (inside.parent / "type.raw").write_text(" ".join(map(str, types)))
        (inside.parent / "type_map.raw").write_text("O H")
        (inside.parent / "nopbc").touch()
    return place


def test_converted_there_and_back(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["convert", f"from={folder / 'model.dp'}", f"to={tmp_path / 'm.yaml'}"]) == 0
    assert "se_e2_a potential for O, H, cutoff 3.0 A" in capsys.readouterr().out
    assert main(["convert", f"from={folder}", f"to={tmp_path / 'n.dp'}"]) == 0  # a run folder has a model.dp
    ours, yaml, dp = (read(file) for file in (folder / "model.dp", tmp_path / "m.yaml", tmp_path / "n.dp"))
    for other in (yaml, dp):
        assert other.config == ours.config
        assert jax.tree.all(jax.tree.map(np.array_equal, ours.params, other.params))
    with pytest.raises(UserError, match="is there already"):
        main(["convert", f"from={folder}", f"to={tmp_path / 'n.dp'}"])


def test_compressed(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = [f"from={folder / 'model.dp'}", f"to={tmp_path / 'fast.dp'}"]
    with pytest.raises(UserError, match="does not know its training frames"):
        main(["compress", *words])
    with pytest.raises(UserError, match="min_distance_a=9; it must be a number between 0 and rcut=3.0"):
        main(["compress", *words, "min_distance_a=9"])
    assert main(["compress", *words, f"data={folder / 'data'}"]) == 0
    assert "smallest distance 1.2500 A" in capsys.readouterr().out
    fast = read(tmp_path / "fast.dp")
    assert fast.compressed and fast.nearest_a == 1.25
    coord, types = np.arange(6)[:, None] * [1.3, 0.2, 0.0], np.asarray([0, 1, 1, 0, 1, 1])
    plain = Evaluator(read(folder / "model.dp"))(coord, types, None)
    found = Evaluator(fast)(coord, types, None)
    np.testing.assert_allclose(found.force, plain.force, atol=1e-9)
    with pytest.warns(UserWarning, match=r"two atoms are 0.8000 A apart, and .* made for distances from 0.8750 A on"):
        Evaluator(fast)(np.arange(6)[:, None] * [0.8, 0.0, 0.0], types, None)
    words = [f"from={tmp_path / 'fast.dp'}", f"to={tmp_path / 'again.dp'}", "min_distance_a=1"]
    assert main(["compress", *words]) == 0
    assert "compressed before, for a smallest distance of 1.2500 A" in capsys.readouterr().out


def test_shown(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["show", str(folder / "model.dp")]) == 0
    said = capsys.readouterr().out
    for line in ("potential for O, H", "rcut 3.0", "sel (6, 8)", "energy of H: 0.000000 eV"):
        assert line in said
    (tmp_path / "broken.dp").write_bytes(b"nothing")
    with pytest.raises(UserError, match="broken.dp"):
        main(["show", str(tmp_path / "broken.dp")])


@pytest.mark.parametrize("mode", ["change", "set"])
def test_another_bias(folder: Path, tmp_path: Path, mode: str) -> None:
    words = [f"from={folder / 'model.dp'}", f"to={tmp_path / 'shifted.dp'}"]
    with pytest.raises(UserError, match="data= is missing"):
        main(["change-bias", *words])
    with pytest.raises(UserError, match="allowed are change"):
        main(["change-bias", *words, f"data={folder / 'data'}", "mode=add"])
    assert main(["change-bias", *words, f"data={folder / 'data'}", f"mode={mode}"]) == 0
    bias = read(tmp_path / "shifted.dp").statistics["bias"]
    if mode == "change":
        np.testing.assert_allclose(bias, [3.0, 1.0], atol=1e-9)
    else:  # to the energies alone: what the nets give is not taken off
        energies = [np.load(folder / "data" / str(k) / "set.000/energy.npy")[0] for k in (0, 1)]
        np.testing.assert_allclose(np.asarray([[2, 4], [3, 3]]) @ bias, energies, atol=1e-9)


def test_neighbours_of_frames(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert command.main(["neighbor-stat", f"data={folder / 'data'}", "rcut=2.6"]) == 0
    said = capsys.readouterr().out
    assert "2 frames of 2 systems" in said and "min_nbor_dist: 1.250000" in said
    assert "type_map: O H" in said and "max_nbor_size: [3, 4]" in said
    assert command.main(["neighbor-stat", f"data={folder / 'data'}", "rcut=2.6", "mixed_type=true"]) == 0
    assert "max_nbor_size: 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "'nothing' is no subcommand"),
        (["neighbor-stat"], "data= is missing"),
        (["eos", "model=m.dp"], "structure=FILE is missing"),
        (["elastic", "model=missing.dp", "structure=x.xyz"], "missing.dp does not exist"),
        (["eos", "points=2"], "points=2"),
        (["relax", "speed=1"], "'speed=1' is not an option"),
        (["relax", "output=x.weird"], "output=x.weird: ASE writes no format of this ending"),
        (["eos", "output=/"], "output=/ is a folder; name a file"),
        (["eos", "max_force=-1e-3"], "max_force=-0.001; it must be above 0"),
    ],
)
def test_bad_words_are_named(words: list[str], text: str) -> None:
    with pytest.raises(UserError, match=text):
        command.main(words)
