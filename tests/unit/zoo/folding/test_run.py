"""A set of proteins with a network that answers at once: ranking, failures that stop nothing, resuming, no network, same bytes."""

from __future__ import annotations

import csv
import json
import socket
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from zoo.errors import PartlyFailed, Stopped, UserError
from zoo.folding import run
from zoo.folding.models import Model
from zoo.folding.options import PredictOptions
from zoo.folding.predictor import NotFinite, Prediction, Predictor
from zoo.models.alphafold2.config import preset
from zoo.proteins.residues import LETTERS, THREE, tables


class Network:
    """Gives every residue a pLDDT that depends on the seed; fails on a protein of 13 residues."""

    def __init__(self, config: ConfigDict) -> None:
        self.model = Predictor(config).model
        self.calls: list[int] = []
        self.sizes: list[Any] = []
        self.devices: set[Any] = set()

    def predict(self, params: Any, draws: Any, num_res: int, size: Any, recycles: int, *rest: Any) -> Prediction:
        seed = rest[1]
        self.calls.append(seed)
        self.sizes.append(size)
        self.devices |= jnp.zeros(()).devices()
        features = draws(0)
        assert features["msa_feat"].shape[2] == size.residues >= num_res
        if num_res == 13:
            raise NotFinite("numbers that are not finite came out of the Evoformer in pass 1")
        rng = np.random.default_rng(seed)
        plddt = np.full(num_res, (37 * seed) % 100.0)
        kinds = features["aatype"][:num_res]
        positions = rng.normal(size=(num_res, 37, 3))
        return Prediction(
            positions,
            tables().atom37_mask[kinds],
            plddt,
            np.zeros((num_res, num_res)),
            31.75,
            {"mean_plddt": float(plddt[0])},
            {},
            recycles,
        )


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> list[Network]:
    made: list[Network] = []

    def loaded(networks: dict[str, ConfigDict], options: PredictOptions, say: Any) -> list[Model]:
        network = Network(preset("model_3"))
        made.append(network)
        return [Model(name, config, network, {}) for name, config in networks.items()]  # type: ignore[arg-type]

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a network was contacted")

    monkeypatch.setattr(run, "checked", lambda configs, options, say: configs)
    monkeypatch.setattr(run, "loaded", loaded)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return made


def folded(folder: Path, text: str, said: list[str] | None = None, **options: Any) -> dict[str, dict[str, str]]:
    """Runs, and returns the rows of summary.csv."""
    (folder / "in.fasta").write_text(text)
    chosen = PredictOptions(**({"params": "random", "models": "model_3", "plots": False, "recycles": 0} | options))
    try:
        run.predict(folder / "in.fasta", folder / "out", chosen, {}, 5, (said if said is not None else []).append)
    except PartlyFailed:
        pass
    with (folder / "out/summary.csv").open() as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def test_predictions_are_ranked_over_models_and_seeds(tmp_path: Path, networks: list[Network]) -> None:
    rows = folded(tmp_path, ">a\nACDEF\n", models="model_3,model_4", seeds=2)
    assert networks[0].calls == [10, 12, 11, 13]  # (seed + run) * models + number of the model
    ranking = json.loads((tmp_path / "out/a/ranking.json").read_text())
    scores = {"model_3_seed_5": 70, "model_4_seed_5": 7, "model_3_seed_6": 44, "model_4_seed_6": 81}
    assert ranking["scores"] == scores and ranking["order"] == sorted(scores, key=lambda stem: -scores[stem])
    assert rows["a"]["model"] == "model_4_seed_6" and float(rows["a"]["ranking"]) == 81
    best = (tmp_path / "out/a/unrelaxed_model_4_seed_6.pdb").read_text()
    assert (tmp_path / "out/a/ranked_0.pdb").read_text() == best
    assert (tmp_path / "out/index.html").exists() and "81" in (tmp_path / "out/a/view.js").read_text()


def test_a_failure_stops_nothing_and_is_tried_again(tmp_path: Path, networks: list[Network]) -> None:
    text = f">one\nACDEF\n>odd\n{'A' * 13}\n>bad\nA-C\n>two\nMKTAY\n>many\n{':'.join(['AC'] * 3)}\n"
    rows = folded(tmp_path, text)
    assert {name: row["status"] for name, row in rows.items()} == {
        "one": "done", "odd": "failed", "two": "done", "many": "failed", "bad": "failed",
    }  # fmt: skip
    assert "not finite" in rows["odd"]["reason"] and "models=multimer" in rows["many"]["reason"]
    folded(tmp_path, text)
    assert networks[1].calls == [5]  # only the one that failed


def test_what_is_not_read_and_what_is_left_from_before_is_said(tmp_path: Path, networks: list[Network]) -> None:
    source, options = tmp_path / "in", PredictOptions(params="random", models="model_3", plots=False, recycles=0)
    source.mkdir()
    (source / "a.fasta").write_text(">a\nACDEF\n")
    (source / "notes.docx").write_text("?")
    said: list[str] = []
    run.predict(source, tmp_path / "out", options, {}, 0, said.append)
    (line,) = (line for line in said if "notes.docx" in line)
    assert line.startswith("note: ") and "not read; proteins are in files that end in .fasta" in line
    assert any(line.startswith("1 protein in 1 bucket,") for line in said)
    (source / "a.fasta").write_text(">b\nACDEF\n")
    run.predict(source, tmp_path / "out", options, {}, 0, said.append)
    assert any("no longer in the input: a" in line for line in said)
    with pytest.raises(UserError, match="notes.docx: is no file of proteins; expected files that end in .fasta"):
        run.predict(source / "notes.docx", tmp_path / "out", options, {}, 0, said.append)


def test_a_command_that_cannot_run_leaves_nothing(tmp_path: Path) -> None:
    """Also not the status of what was wrong with the input, nor what a search would have found."""
    (tmp_path / "in.fasta").write_text(">a\nACDEF\n>bad\nA-C\n")
    np.savez(tmp_path / "params_model_3.npz", x=np.zeros(1))
    for params in (tmp_path / "params_model_3.npz", tmp_path / "none"):
        options = PredictOptions(params=str(params), models="model_3", databases=tmp_path)
        with pytest.raises(UserError, match="not the parameters of model_3|no such file"):
            run.predict(tmp_path / "in.fasta", tmp_path / "out", options, {}, 0, lambda line: None)
        assert not (tmp_path / "out").exists()


def test_a_file_in_the_way_fails_its_own_protein_alone(tmp_path: Path, networks: list[Network]) -> None:
    (tmp_path / "out").mkdir()
    for name in ("a", "bad"):
        (tmp_path / "out" / name).write_text("mine")
    rows = folded(tmp_path, ">a\nACDEF\n>bad\nA-C\n>summary.csv\nACDEFG\n>c\nACDEFGH\n")
    assert {name: row["status"] for name, row in rows.items()} == {
        "a": "failed", "bad": "failed", "summary.csv_2": "done", "c": "done",
    }  # fmt: skip
    assert (
        "out/a is a file, where the results would go; move it away" in rows["a"]["reason"]
        and (tmp_path / "out/a").read_text() == "mine"
    )


def test_nothing_of_a_run_with_other_options_is_left(tmp_path: Path, networks: list[Network]) -> None:
    folded(tmp_path, ">a\nACDEF\n", seeds=2, save_features=True)
    before = {path.name for path in (tmp_path / "out/a").iterdir()}
    (tmp_path / "out/a/notes.txt").write_text("mine")
    said: list[str] = []
    folded(tmp_path, ">a\nACDEF\n", said)
    after = {path.name for path in (tmp_path / "out/a").iterdir()}
    assert {name for name in before if "seed_6" in name} | {"features.npz", "ranked_1.pdb"} <= before - after
    assert "notes.txt" in after and any("is removed" in line for line in said)
    (tmp_path / "out/a/ranked_0.cif").unlink()
    folded(tmp_path, ">a\nACDEF\n")
    assert (tmp_path / "out/a/ranked_0.cif").exists() and len(networks) == 3  # what was deleted is made again


def test_the_output_may_not_be_the_input(tmp_path: Path, networks: list[Network]) -> None:
    (tmp_path / "a.fasta").write_text(">a\nACDEF\n")
    with pytest.raises(UserError, match="is the input; name another folder"):
        run.predict(tmp_path, tmp_path, PredictOptions(params="random", models="model_3"), {}, 0, lambda line: None)


def test_a_stopped_run_says_what_waits_and_goes_on_with_the_same_programs(
    tmp_path: Path, networks: list[Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
    lengths = (10, 11, 60, 64)
    (tmp_path / "in.fasta").write_text("".join(f">p{n}\n{(LETTERS * 4)[:n]}\n" for n in lengths))
    options = PredictOptions(params="random", models="model_3", plots=False, recycles=0)
    said: list[str] = []

    def run_until(count: float) -> None:
        made = len(networks)
        calls = lambda: len(networks[-1].calls) if len(networks) > made else 0
        run.predict(tmp_path / "in.fasta", tmp_path / "out", options, {}, 0, said.append, lambda: calls() >= count)

    with pytest.raises(Stopped, match="1 of 4 proteins wait; the same command goes on"):
        run_until(3)
    with (tmp_path / "out/summary.csv").open() as file:
        assert [row["status"] for row in csv.DictReader(file)] == ["done", "done", "done", "waiting"]
    assert (tmp_path / "out/index.html").exists() and not (tmp_path / "out/p64").exists()
    run_until(float("inf"))
    assert networks[1].sizes == networks[0].sizes[-1:] and any(
        line.startswith("1 protein in 1 bucket") for line in said
    )


def test_same_seed_same_bytes(tmp_path: Path, networks: list[Network]) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        folded(tmp_path / name, ">a\nACDEFGHIKL\n")
    names = sorted(path.name for path in (tmp_path / "x/out/a").iterdir() if path.suffix in (".pdb", ".cif", ".npz"))
    assert len(names) == 5
    for name in names:
        assert (tmp_path / "x/out/a" / name).read_bytes() == (tmp_path / "y/out/a" / name).read_bytes(), name


def test_every_short_protein_and_x_alone_has_a_structure(tmp_path: Path, networks: list[Network]) -> None:
    text = "".join(f">p{length}\n{(LETTERS * 2)[:length]}\n" for length in (1, 2, 5, 10, 26)) + ">x\nXXXX\n>u\nMUK\n"
    rows = folded(tmp_path, text)
    assert {row["status"] for row in rows.values()} == {"done"}
    assert "ATOM" not in (tmp_path / "out/x/ranked_0.pdb").read_text()


def test_a_complex_of_more_chains_than_a_pdb_file_can_name(tmp_path: Path, networks: list[Network]) -> None:
    """Chains have the names and the order of the input, residues count from 1 in each, and the file is mmCIF."""
    chains = [(LETTERS[:20] * 9)[number : number + 3] for number in range(63)]
    rows = folded(
        tmp_path, f">a_b_c\n{':'.join(chains)}\n", models="model_1_multimer_v3", max_clusters=4, max_further=4
    )
    assert rows["a_b_c"]["status"] == "done" and rows["a_b_c"]["chains"] == "63"
    folder = tmp_path / "out/a_b_c"
    assert not list(folder.glob("*.pdb"))
    atoms = [line.split() for line in (folder / "ranked_0.cif").read_text().splitlines() if line.startswith("ATOM")]
    residues = list(dict.fromkeys((atom[6], atom[8], atom[5]) for atom in atoms))
    names = list(dict.fromkeys(chain for chain, _, _ in residues))
    assert len(names) == 63 and names[:3] == ["A", "B", "C"]
    wanted = [(names[chain], str(place + 1), THREE[LETTERS.index(letter)])
              for chain, letters in enumerate(chains) for place, letter in enumerate(letters)]  # fmt: skip
    assert residues == wanted


def test_a_protein_that_cannot_fit_is_refused_with_what_would(tmp_path: Path, networks: list[Network]) -> None:
    rows = folded(tmp_path, f">small\nACDEF\n>large\n{'ACDEFGHIKL' * 300}\n", memory_gib=4.0)
    assert rows["small"]["status"] == "done" and rows["large"]["status"] == "failed"
    assert (
        "GiB are free on each of 8 devices; about" in rows["large"]["reason"]
        and "residues would fit" in rows["large"]["reason"]
    )


def test_what_cannot_be_relaxed_stays_and_the_summary_says_so(tmp_path: Path, networks: list[Network]) -> None:
    pytest.importorskip("openmm")
    rows = folded(tmp_path, ">x\nXXXX\n", relax="all")
    assert rows["x"]["status"] == "done" and "is not relaxed: no two residues" in rows["x"]["reason"]
    assert (tmp_path / "out/x/ranked_0.cif").exists() and not list((tmp_path / "out/x").glob("relaxed_*"))
    assert "failed" in (tmp_path / "out/x/relax_metrics.json").read_text()


def test_a_set_is_spread_over_the_devices_and_gives_the_same(
    tmp_path: Path, networks: list[Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f">p{number}\n{(LETTERS * 9)[: 20 + number]}\n" for number in range(16))
    said: list[str] = []
    (tmp_path / "many").mkdir()
    rows = folded(tmp_path / "many", text, said)
    assert list(rows) == [f"p{number}" for number in range(16)] and {row["status"] for row in rows.values()} == {"done"}
    (line,) = (line for line in said if line.startswith("spread over"))
    assert line.startswith("spread over 8 devices") and int(line.split()[-1].rstrip("%")) < 10
    assert networks[0].devices == set(jax.local_devices())
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
    (tmp_path / "one").mkdir()
    folded(tmp_path / "one", text)
    assert len(networks[1].devices) == 1
    for number in range(16):
        name = f"out/p{number}/ranked_0.cif"
        assert (tmp_path / "many" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
