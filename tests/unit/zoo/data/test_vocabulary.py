"""Tokens as the reference libraries give them, and vocabularies learned on the spot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")

from zoo.data import pydoc
from zoo.data.vocabulary import check_belongs, read_sentencepiece, read_wordpiece, train_sentencepiece, train_wordpiece
from zoo.errors import UserError


def test_the_reference_tokenizations_are_reproduced(reference_data: Path) -> None:
    folder = reference_data / "text/tokenizers"
    bert, t5 = read_wordpiece(folder / "bert_base_uncased_vocab.txt"), read_sentencepiece(folder / "t5_spiece.model")
    small = read_sentencepiece(folder / "seqio_small.model")
    cases = json.loads((folder / "reference_tokenization.json").read_text())["cases"]
    texts = [case["text"] for case in cases]
    found = [[bert.class_id, *ids, bert.separator_id] for ids in bert.encode(texts)]
    assert found == [case["bert_ids_with_cls_sep"] for case in cases]
    assert t5.encode(texts) == [case["t5_ids"] for case in cases]
    assert small.encode(texts) == [case["seqio_small_ids"] for case in cases]


def test_sentinels_are_exact_and_survive_decoding(reference_data: Path) -> None:
    t5 = read_sentencepiece(reference_data / "text/tokenizers/t5_spiece.model")
    assert (t5.size, t5.sentinel(0), t5.sentinel(99), t5.pad_id, t5.end_id) == (32100, 32099, 32000, 0, 1)
    ids = t5.encode(["Thank you <extra_id_0> me to <extra_id_1> week."])[0]
    assert [number for number in ids if number >= 32000] == [32099, 32098]
    assert t5.decode([*ids, 1, 0]) == "Thank you <extra_id_0> me to <extra_id_1> week."
    with pytest.raises(UserError, match="<extra_id_100> is not one of the 100 sentinels"):
        t5.encode(["<extra_id_100>"])


def test_learned_vocabularies_cover_the_text(tmp_path: Path) -> None:
    texts = list(pydoc.documents("test"))[:8]
    bert = train_wordpiece(texts, 300)
    assert bert.size <= 300 and bert.words == train_wordpiece(texts[::-1], 300).words
    ids = bert.encode(["the statement"])[0]
    assert bert.unknown_id not in ids and bert.decode(ids) == "the statement"
    assert np.array_equal(bert.continues, [word.startswith("##") for word in bert.words])
    t5 = train_sentencepiece(texts, 400)
    assert t5.model == train_sentencepiece(texts, 400).model and t5.size <= 400
    assert t5.decode(t5.encode(["the statement"])[0]) == "the statement"


def test_offsets_point_into_the_text(reference_data: Path) -> None:
    bert = read_wordpiece(reference_data / "text/tokenizers/bert_base_uncased_vocab.txt")
    text = "Où est Zürich?"
    _, offsets = bert.encode_with_offsets(text)
    assert [text[a:b] for a, b in offsets] == ["Où", "est", "Zürich", "?"]


def test_wrong_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match=r"vocab.txt has no \[PAD\]; it should be a vocabulary of BERT"):
        read_wordpiece(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"nothing")
    with pytest.raises(UserError, match="spiece.model is no SentencePiece model"):
        read_sentencepiece(tmp_path)
    with pytest.raises(UserError, match="none does not exist"):
        read_sentencepiece(tmp_path / "none")


@pytest.mark.parametrize(
    ("size", "share", "fits"),
    [(100, 0.9, True), (89, 0.9, False), (60, 0.5, True), (49, 0.5, False), (49, 0.0, True), (101, 0.0, False)],
)
def test_a_vocabulary_that_cannot_be_that_of_the_weights_is_refused(size: int, share: float, fits: bool) -> None:
    if fits:
        return check_belongs(size, Path("vocab.txt"), 100, share)
    with pytest.raises(
        UserError, match=f"vocab.txt has {size} tokens and the model 100; take the vocabulary that belongs"
    ):
        check_belongs(size, Path("vocab.txt"), 100, share)


def test_a_token_that_stands_twice_is_named(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n")
    with pytest.raises(UserError, match="has the token 'a' twice"):
        read_wordpiece(tmp_path)


def test_case_is_kept_where_the_settings_beside_the_vocabulary_say_so(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsoup\nSoup\n")
    assert read_wordpiece(tmp_path).encode(["Soup"]) == [[5]]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert read_wordpiece(tmp_path).encode(["Soup"]) == [[6]]
    assert read_wordpiece(tmp_path, lowercase=True).encode(["Soup"]) == [[5]]
