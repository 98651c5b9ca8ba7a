"""What BERT is to guess: words of a text that are masked as a whole, and whether a text follows another.

Reference: Devlin, Chang, Lee, Toutanova. BERT: Pre-training of Deep Bidirectional Transformers. 2018, with whole words as in
the authors' later models.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from zoo.data.vocabulary import WordPiece


@dataclasses.dataclass(frozen=True)
class Masked:
    """A text with masked words.

    Attributes:
        ids: tokens [n] with the masked ones replaced.
        positions, words: where, and which tokens stood there, [p] each, in rising order.
    """

    ids: np.ndarray
    positions: np.ndarray
    words: np.ndarray


def masked(
    ids: np.ndarray,
    vocabulary: WordPiece,
    rng: np.random.Generator,
    share: float = 0.15,
    most: int = 80,
    whole_words: bool = True,
) -> Masked:
    """Chooses words at random and replaces them: 8 of 10 tokens by the mask, 1 by any token, 1 stays.

    Args:
        ids: tokens [n]; special ones are never chosen.
        vocabulary: says which tokens go on with a word.
        rng: decides.
        share, most: of the tokens, as many are chosen as fit into `share` and `most`, but at least one.
        whole_words: choose all tokens of a word or none; else each token for itself.
    """
    special = np.isin(ids, [vocabulary.class_id, vocabulary.separator_id, vocabulary.pad_id])
    joined = vocabulary.continues[ids] & ~special if whole_words else np.zeros(len(ids), bool)
    joined[1:] &= ~special[:-1]
    starts = np.flatnonzero(~joined & ~special)
    ends = np.append(starts[1:], len(ids))
    # A word ends where a special token stands.
    words = [np.arange(a, b)[~special[a:b]] for a, b in zip(starts, ends, strict=True)]
    wanted = min(most, max(1, round(float(len(ids) - special.sum()) * share)))
    chosen: list[np.ndarray] = []
    count = 0
    for number in rng.permutation(len(words)):
        if count + len(words[number]) > wanted and (chosen or len(words[number]) > most):
            continue
        chosen.append(words[number])
        count += len(words[number])
        if count >= wanted:
            break
    positions = np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.int64)
    draw = rng.random(len(positions))
    anything = rng.integers(0, vocabulary.size, len(positions))
    replaced = ids.copy()
    replaced[positions] = np.where(draw < 0.8, vocabulary.mask_id, np.where(draw < 0.9, anything, ids[positions]))
    return Masked(replaced, positions, ids[positions])
