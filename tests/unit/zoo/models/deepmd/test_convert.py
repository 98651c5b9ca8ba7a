"""deepmd-kit's own models: its reference values, reading and writing, and the errors."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
import yaml

from flowaware_core import versions
from zoo.errors import UserError
from zoo.models.deepmd.config import potential
from zoo.models.deepmd.convert import Model, read, write
from zoo.models.deepmd.evaluate import Evaluator
from zoo.models.deepmd.model import initial_parameters, initial_statistics

SECTIONS = {
    "a": {"type": "se_e2_a", "sel": [6, 7], "rcut": 3.0, "neuron": [2, 4], "axis_neuron": 2, "resnet_dt": True},
    "r": {"type": "se_e2_r", "sel": [6, 7], "rcut": 3.0, "neuron": [2, 4], "type_one_side": True},
    "atten": {"type": "se_atten", "sel": 9, "rcut": 3.0, "neuron": [2, 4], "axis_neuron": 2, "attn": 3},
    "v2": {"type": "se_atten_v2", "sel": 9, "rcut": 3.0, "neuron": [2, 4], "axis_neuron": 2, "attn": 3},
}
SECTIONS["hybrid"] = {"type": "hybrid", "list": [SECTIONS["a"], SECTIONS["r"]]}


def model(kind: str) -> Model:
    config = potential(
        {"type_map": ["O", "H"], "descriptor": SECTIONS[kind], "fitting_net": {"neuron": [3, 3]}}, "model"
    )
    with versions.enable_x64():
        params = jax.jit(lambda: initial_parameters(config, jax.random.key(0)))()
        statistics = initial_statistics(config)
    return Model(config, jax.device_get(params), jax.device_get(statistics) | {"bias": np.asarray([1.5, -2.5])})


@pytest.mark.parametrize("name", ["deeppot_sea:deeppot-testcase", "deeppot-r:deeppot-r-testcase"])
def test_reference_values(reference_data: Path, name: str) -> None:
    folder = reference_data / "deepmd/reference_models"
    model_name, case = name.split(":")
    potential_of = Evaluator(read(folder / f"{model_name}.yaml"))
    for values in yaml.safe_load((folder / f"{case}.yaml").read_text())["results"]:
        numbers = {
            key: np.asarray(value, float) for key, value in values.items() if value is not None and key != "atype"
        }
        box = numbers["box"].reshape(3, 3) if "box" in numbers else None
        found = potential_of(numbers["coord"].reshape(-1, 3), np.asarray(values["atype"]), box)
        np.testing.assert_allclose(found.atom_energy, numbers["atomic_energy"], atol=1e-10, rtol=0)
        np.testing.assert_allclose(found.force, numbers["force"].reshape(-1, 3), atol=1e-10, rtol=0)
        virial = numbers["atomic_virial"].reshape(-1, 3, 3).sum(axis=0)
        np.testing.assert_allclose(found.virial, virial, atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", SECTIONS)
@pytest.mark.parametrize("suffix", [".dp", ".yaml"])
def test_written_models_read_back_exactly(tmp_path: Path, kind: str, suffix: str) -> None:
    original = model(kind)
    write(tmp_path / f"model{suffix}", original)
    again = read(tmp_path / f"model{suffix}")
    assert again.config == original.config
    same = jax.tree.map(np.array_equal, (original.params, original.statistics), (again.params, again.statistics))
    assert jax.tree.all(same)
    assert [file.name for file in tmp_path.iterdir()] == [f"model{suffix}"]


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    broken = model("a")
    layer = broken.params["fitting"]["0"]["0"]
    layer["w"] = np.full_like(layer["w"], np.nan)
    write(tmp_path / "model.dp", broken)
    with pytest.raises(UserError, match="model.dp: params/fitting/0/0/w holds numbers that are not finite"):
        read(tmp_path / "model.dp")


def test_other_formats_say_how_to_convert_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dp convert-backend .*frozen.pth .*frozen.dp"):
        read(tmp_path / "frozen.pth")
    with pytest.raises(UserError, match="does not exist"):
        read(tmp_path / "missing.dp")
    (tmp_path / "broken.dp").write_bytes(b"no hdf5")
    with pytest.raises(UserError, match="not a .dp model, or is damaged"):
        read(tmp_path / "broken.dp")
    (tmp_path / "broken.yaml").write_text("model: [")
    with pytest.raises(UserError, match="is not YAML"):
        read(tmp_path / "broken.yaml")
    (tmp_path / "other.yaml").write_text("model: {type: dos}")
    with pytest.raises(UserError, match="models of type 'dos' are not supported"):
        read(tmp_path / "other.yaml")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"type": "se_e3"}, r"model.descriptor.type='se_e3' is not supported.*se_e2_a"),
        ({"sel": [6]}, r"descriptor.sel=\[6\] has 1 numbers"),
        ({"sel": "atuo"}, "model.descriptor.sel='atuo'"),
        ({"rcut_smth": 4.0}, "model.descriptor.rcut_smth=4.0"),
        ({"axis_neuron": 9}, "model.descriptor.axis_neuron=9"),
        ({"rcutt": 1.0}, r"model.descriptor.rcutt is not known \(did you mean rcut"),
    ],
)
def test_bad_options_are_named(change: dict, text: str) -> None:
    with pytest.raises(UserError, match=text):
        potential({"type_map": ["O", "H"], "descriptor": SECTIONS["a"] | change}, "model")
