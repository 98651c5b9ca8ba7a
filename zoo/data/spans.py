"""What T5 is to guess: spans of a text, each replaced by a sentinel; and the text put together again.

Reference: Raffel et al. Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer. 2020, 3.1.4.
"""

from __future__ import annotations

import numpy as np


def counts(length: int, share: float, mean_span: float) -> tuple[int, int]:
    """How many of `length` tokens are taken out, and in how many spans."""
    taken = min(max(round(length * share), 1), length - 1)
    return taken, min(max(round(taken / mean_span), 1), taken, length - taken)


def lengths(length: int, share: float, mean_span: float) -> tuple[int, int]:
    """Lengths of source and target, each with its end token, that a text of `length` tokens becomes."""
    taken, spans = counts(length, share, mean_span)
    return length - taken + spans + 1, taken + spans + 1


def longest_text(source_length: int, share: float, mean_span: float) -> int:
    """The longest text whose source has at most `source_length` tokens: 568 for 512, 0.15 and 3."""
    length = 2
    while lengths(length + 1, share, mean_span)[0] <= source_length:
        length += 1
    return length


def corrupted(
    ids: np.ndarray,
    first_sentinel: int,
    end_id: int,
    rng: np.random.Generator,
    share: float = 0.15,
    mean_span: float = 3.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Source and target: what is left, with a sentinel for each span; and each sentinel with its span.

    The text begins with what is left and ends with a span; all lengths are equally likely, given their number.

    Args:
        ids: tokens [n], at least 2.
        first_sentinel: the others count down from it.
        end_id: stands at the end of both.
        rng: decides.
        share, mean_span: of the tokens, about how many are taken out, and about how long spans are.
    """
    taken, spans = counts(len(ids), share, mean_span)
    kept_runs, taken_runs = _parts(len(ids) - taken, spans, rng), _parts(taken, spans, rng)
    source: list[np.ndarray] = []
    target: list[np.ndarray] = []
    at = 0
    for number, (kept, gone) in enumerate(zip(kept_runs, taken_runs, strict=True)):
        sentinel = np.asarray([first_sentinel - number], ids.dtype)
        source += [ids[at : at + kept], sentinel]
        target += [sentinel, ids[at + kept : at + kept + gone]]
        at += kept + gone
    end = np.asarray([end_id], ids.dtype)
    return np.concatenate([*source, end]), np.concatenate([*target, end])


def restored(
    source: np.ndarray, target: np.ndarray, first_sentinel: int, num_sentinels: int, end_id: int
) -> np.ndarray:
    """The text that `corrupted` made the two of."""
    is_sentinel = lambda ids: (ids <= first_sentinel) & (ids > first_sentinel - num_sentinels)
    assert source[-1] == end_id and target[-1] == end_id
    source, target = source[:-1], target[:-1]
    starts = np.flatnonzero(is_sentinel(target))
    spans = {int(span[0]): span[1:] for span in np.split(target, starts)[1:]}
    parts = [
        spans[int(one)] if mark else np.asarray([one]) for one, mark in zip(source, is_sentinel(source), strict=True)
    ]
    return np.concatenate(parts).astype(source.dtype)


def _parts(total: int, number: int, rng: np.random.Generator) -> np.ndarray:
    """`total` as a sum of `number` whole numbers of at least 1, every such sum equally likely."""
    borders = np.sort(rng.choice(total - 1, number - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], borders, [total]]))
