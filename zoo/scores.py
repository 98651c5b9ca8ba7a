"""Scores that need the words themselves: entities by seqeval, ROUGE and BLEU by their libraries, exact match and F1 of answers."""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Sequence
from typing import Any

from zoo.errors import UserError

INSTALL = "pip install 'flowaware-zoo[text]'"
ARTICLES = re.compile(r"\b(a|an|the)\b")


def entities(said: Sequence[Sequence[str]], meant: Sequence[Sequence[str]]) -> dict[str, float]:
    """{"precision", "recall", "f1"} of whole entities, from labels such as B-PER, I-PER, O (IOB2) of each row's words."""
    try:
        from seqeval.metrics import f1_score, precision_score, recall_score
    except ImportError:
        raise UserError(f"scores of entities need seqeval; run: {INSTALL}") from None
    scores = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    plain = [[list(row) for row in rows] for rows in (meant, said)]
    return {name: float(score(*plain, zero_division=0)) for name, score in scores.items()}


def overlaps(said: Sequence[str], meant: Sequence[str]) -> dict[str, float]:
    """{"rouge1", "rouge2", "rougeL": F1 in percent, "bleu"} of texts against one reference each."""
    try:
        import sacrebleu
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise UserError(f"ROUGE and BLEU need rouge_score and sacrebleu; run: {INSTALL}") from None
    kinds = ("rouge1", "rouge2", "rougeL")
    scorer = RougeScorer(list(kinds), use_stemmer=True)
    each = [scorer.score(reference, text) for text, reference in zip(said, meant, strict=True)]
    found = {kind: 100 * sum(one[kind].fmeasure for one in each) / max(len(each), 1) for kind in kinds}
    return {**found, "bleu": float(sacrebleu.corpus_bleu(list(said), [list(meant)]).score)}


def answers(said: Sequence[str], meant: Sequence[Sequence[str]]) -> dict[str, float]:
    """{"exact_match", "f1"} in percent, as SQuAD counts them: the best over each question's answers; none is "".

    Reference: Rajpurkar et al. SQuAD: 100,000+ Questions for Machine Comprehension of Text. 2016.
    """
    exact = [
        max(float(bare(text) == bare(one)) for one in all_of or [""]) for text, all_of in zip(said, meant, strict=True)
    ]
    shared = [
        max(_f1(bare(text), bare(one)) for one in all_of or [""]) for text, all_of in zip(said, meant, strict=True)
    ]
    count = max(len(exact), 1)
    return {"exact_match": 100 * sum(exact) / count, "f1": 100 * sum(shared) / count}


def exact_share(said: Sequence[str], meant: Sequence[str]) -> float:
    """Percent of texts that are their reference, but for spaces around."""
    return 100 * sum(one.strip() == two.strip() for one, two in zip(said, meant, strict=True)) / max(len(said), 1)


def bare(text: str) -> str:
    """Lower case, with no punctuation, articles or repeated spaces."""
    text = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(ARTICLES.sub(" ", text).split())


def _f1(said: str, meant: str) -> float:
    ours, theirs = said.split(), meant.split()
    if not ours or not theirs:
        return float(ours == theirs)
    common: Any = collections.Counter(ours) & collections.Counter(theirs)
    shared = sum(common.values())
    return 2 * shared / (len(ours) + len(theirs))
