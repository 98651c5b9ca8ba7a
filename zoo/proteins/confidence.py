"""Confidences from the logits of the network: pLDDT, aligned error, pTM and ipTM; numpy, in float64 where sums are long."""

from __future__ import annotations

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def plddt(logits: np.ndarray) -> np.ndarray:
    """[N] in 0..100 from logits [N, bins] over lDDT in 0..1 (algorithm 29)."""
    num_bins = logits.shape[-1]
    centres = (np.arange(num_bins) + 0.5) / num_bins
    return 100 * (softmax(logits) @ centres)


def bin_centres(breaks: np.ndarray) -> np.ndarray:
    """[bins] from breaks [bins - 1]; the last bin is as wide as the others."""
    step = breaks[1] - breaks[0]
    return np.append(breaks, breaks[-1] + step) + step / 2


def aligned_error(logits: np.ndarray, breaks: np.ndarray) -> tuple[np.ndarray, float]:
    """Expected error [N, N] in angstrom of residue j where residue i is superposed, and the largest it can be."""
    centres = bin_centres(breaks.astype(np.float64))
    return softmax(logits) @ centres, float(centres[-1])


def tm_scores(logits: np.ndarray, breaks: np.ndarray) -> np.ndarray:
    """[N, N]: the expected TM-score term of residue j where residue i is superposed."""
    num_res = max(len(logits), 19)
    d0 = 1.24 * (num_res - 15) ** (1 / 3) - 1.8
    terms = 1 / (1 + np.square(bin_centres(breaks.astype(np.float64)) / d0))
    return softmax(logits) @ terms


def ptm(logits: np.ndarray, breaks: np.ndarray) -> float:
    """Predicted TM-score of the whole: of the superposition that is best (section 1.9.7)."""
    return float(tm_scores(logits, breaks).mean(axis=1).max())


def iptm(logits: np.ndarray, breaks: np.ndarray, asym_id: np.ndarray) -> float:
    """Predicted TM-score over pairs of different chains; 0 for a single chain."""
    other = asym_id[:, None] != asym_id[None]
    return best(tm_scores(logits, breaks), other)


def best(scores: np.ndarray, pairs: np.ndarray) -> float:
    means = (scores * pairs).sum(axis=1) / (1e-8 + pairs.sum(axis=1))
    return float(means.max())


def chain_pair_iptm(logits: np.ndarray, breaks: np.ndarray, asym_id: np.ndarray) -> np.ndarray:
    """[chains, chains]: ipTM of each pair of chains alone, on the diagonal the pTM of each chain; in the order of asym_id."""
    scores = tm_scores(logits, breaks)
    chains = np.unique(asym_id)
    result = np.zeros((len(chains), len(chains)))
    for i, first in enumerate(chains):
        for j, second in enumerate(chains):
            a, b = asym_id == first, asym_id == second
            pairs = (a[:, None] & b[None]) | (b[:, None] & a[None])
            result[i, j] = best(scores, pairs)
    return result


def chain_pair_error(error: np.ndarray, asym_id: np.ndarray) -> np.ndarray:
    """[chains, chains]: the smallest aligned error between two chains, angstrom."""
    chains = np.unique(asym_id)
    return np.array([[error[np.ix_(asym_id == a, asym_id == b)].min() for b in chains] for a in chains])


def ranking(confidences: dict[str, float], multimer: bool) -> float:
    """What predictions are ranked by: 0.8 ipTM + 0.2 pTM for complexes, else the mean pLDDT."""
    if multimer:
        return 0.8 * confidences["iptm"] + 0.2 * confidences["ptm"]
    return confidences["mean_plddt"]
