"""Pictures of one prediction: what the alignment covers, pLDDT along the chain, aligned errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from zoo.folding.predictor import Prediction
from zoo.proteins.residues import GAP

MOST_ROWS = 2000  # of an alignment that are drawn; more are thinned out evenly
MOST_PIXELS = 1024  # of each side of the aligned errors


def available() -> bool:
    """Whether matplotlib is installed, without which there are no plots."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def write_plots(folder: Path, stem: str, msa: np.ndarray, found: Prediction, lengths: list[int], mark: str) -> None:
    """coverage.png, plddt_STEM.png and, where the model says errors, pae_STEM.png.

    Args:
        folder: of the protein.
        stem: of the model and seed.
        msa: [S, N] letters; 21 is a gap.
        found: the prediction.
        lengths: residues of each chain; lines are drawn between chains.
        mark: a sentence below every title.
    """
    coverage(folder / "coverage.png", msa, lengths, mark)
    local_confidence(folder / f"plddt_{stem}.png", found.plddt, lengths, mark)
    if found.error is not None:
        errors(folder / f"pae_{stem}.png", found.error, found.max_error, lengths, mark)


def figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # a figure of its own: nothing global, no display

    drawing = Figure(figsize=(width, height), layout="constrained")
    return drawing, drawing.subplots()


def save(drawing: Any, path: Path) -> None:
    drawing.savefig(path, dpi=110, metadata={"Software": None})  # the same bytes for the same numbers


def between_chains(axes: Any, lengths: list[int], both: bool) -> None:
    for place in np.cumsum(lengths)[:-1]:
        axes.axvline(place + 0.5, color="black", linewidth=0.8)
        if both:
            axes.axhline(place + 0.5, color="black", linewidth=0.8)


def coverage(path: Path, msa: np.ndarray, lengths: list[int], mark: str) -> None:
    """Rows by their identity to the query, coloured by it, and how many rows cover each residue."""
    rows = msa[np.linspace(0, len(msa) - 1, min(len(msa), MOST_ROWS)).astype(int)]
    letters = rows != GAP
    same = (rows == msa[:1]).mean(axis=1)
    order = np.argsort(same, kind="stable")
    drawing, axes = figure(7, 4)
    shown = np.where(letters, same[:, None], np.nan)[order]
    image = axes.imshow(
        shown, aspect="auto", origin="lower", interpolation="nearest", cmap="rainbow_r", vmin=0, vmax=1,
        extent=(0.5, msa.shape[1] + 0.5, 0, len(msa)),
    )  # fmt: skip
    axes.plot(np.arange(1, msa.shape[1] + 1), (msa != GAP).sum(axis=0), color="black", linewidth=1)
    between_chains(axes, lengths, both=False)
    drawing.colorbar(image, label="identity to the query")
    axes.set(
        xlabel="residue", ylabel="rows", title=titled(f"alignment: {len(msa)} row{'' if len(msa) == 1 else 's'}", mark)
    )
    save(drawing, path)


def local_confidence(path: Path, plddt: np.ndarray, lengths: list[int], mark: str) -> None:
    drawing, axes = figure(7, 3)
    axes.plot(np.arange(1, len(plddt) + 1), plddt, color="tab:blue", linewidth=1)
    for limit in (50, 70, 90):
        axes.axhline(limit, color="lightgrey", linewidth=0.8, zorder=0)
    between_chains(axes, lengths, both=False)
    axes.set(xlabel="residue", ylabel="pLDDT", ylim=(0, 100), title=titled(f"mean pLDDT {plddt.mean():.1f}", mark))
    save(drawing, path)


def errors(path: Path, error: np.ndarray, bound: float, lengths: list[int], mark: str) -> None:
    step = -(-len(error) // MOST_PIXELS)
    drawing, axes = figure(5, 4.2)
    size = len(error) + 0.5
    image = axes.imshow(
        error[::step, ::step],
        cmap="Greens_r",
        vmin=0,
        vmax=bound,
        extent=(0.5, size, size, 0.5),
        interpolation="nearest",
    )
    between_chains(axes, lengths, both=True)
    drawing.colorbar(image, label="angstrom")
    axes.set(xlabel="scored residue", ylabel="aligned residue", title=titled("predicted aligned error", mark))
    save(drawing, path)


def titled(text: str, mark: str) -> str:
    return f"{text}\n{mark}" if mark else text
