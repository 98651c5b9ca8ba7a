"""How near a prediction is to an experiment: lDDT and RMSD of CA atoms, TM-score; residues are matched by sequence."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from zoo.folding.inputs import Item
from zoo.folding.predictor import Prediction
from zoo.proteins import metrics
from zoo.proteins.experiments import STRUCTURES, KnownChain
from zoo.proteins.known_templates import PACKED, read_once, sequence_alignment
from zoo.proteins.problems import Problem

LEAST_IDENTITY = 0.9  # of a reference; less is another protein
FEWEST = 3  # residues that a superposition needs
CA = 1


def reference_chains(item: Item, folder: Path) -> tuple[list[KnownChain], list[Problem]]:
    """For each chain of the item the chain of its experiment, or nothing and the reason.

    NAME.cif (or .pdb, also packed) is the experiment of the item NAME; for an item such as 102m_A it is also chain A of 102m.cif.
    Copies of a chain are matched in the order of the file.
    """
    assert item.record is not None
    entry, _, letter = item.name.rpartition("_")
    for stem, only in ((item.name, ""), (entry, letter)):
        path = next((one for one in candidates(folder, stem) if stem and one.is_file()), None)
        if path is None:
            continue
        known, problems = read_once(path)
        if known is None:
            return [], problems
        left = [chain for chain in known.chains if not only or only in (chain.name, chain.label)]
        chosen: list[KnownChain] = []
        for sequence in item.record.chains:
            best = max(left, key=lambda chain: identity(sequence, chain.letters), default=None)
            if best is None or identity(sequence, best.letters) < LEAST_IDENTITY:
                return [], [Problem(str(path), "no chain of this sequence", item.name, fatal=False)]
            left.remove(best)
            chosen.append(best)
        return chosen, []
    return [], [Problem(str(folder), f"no reference {item.name}.cif or .pdb", item.name, fatal=False)]


def candidates(folder: Path, stem: str) -> list[Path]:
    names = dict.fromkeys((stem, stem.lower()))
    return [folder / f"{name}{ending}{packed}" for name in names for ending in STRUCTURES for packed in PACKED]


def identity(first: str, second: str) -> float:
    """Share of identical residues of the shorter sequence."""
    return sequence_alignment(first, second).same / max(min(len(first), len(second)), 1)


def likeness(item: Item, found: Prediction, chains: list[KnownChain]) -> dict[str, float]:
    """lddt_ca and tm_score in 0..1 and rmsd in angstrom over the residues that both have; empty for fewer than three.

    The TM-score counts all residues of the experiment that were seen.
    """
    assert item.record is not None
    predicted, wanted, start = [], [], 0
    for sequence, chain in zip(item.record.chains, chains, strict=True):
        pairs, _, _ = sequence_alignment(sequence, chain.letters)
        both = [(start + i, j) for i, j in pairs if chain.mask[j, CA] and found.mask[start + i, CA]]
        predicted += [found.positions[i, CA] for i, _ in both]
        wanted += [chain.positions[j, CA] for _, j in both]
        start += len(sequence)
    if len(wanted) < FEWEST:
        return {}
    ours, theirs = np.array(predicted, np.float64), np.array(wanted, np.float64)
    seen = int(sum(chain.mask[:, CA].sum() for chain in chains))
    return {
        "lddt_ca": metrics.lddt(ours, theirs),
        "tm_score": metrics.tm_score(ours, theirs, seen),
        "rmsd": metrics.rmsd(ours, theirs),
    }
