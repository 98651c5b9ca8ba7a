"""From text to the numbers of tokens and back: BERT's WordPiece and T5's SentencePiece, read or trained."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import UserError

INSTALL = "pip install 'flowaware-zoo[text]'"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
EXTRA_IDS = 100
SENTINEL = re.compile(r"<extra_id_(\d+)>")


class WordPiece:
    """BERT's tokens.

    Attributes:
        size: number of tokens.
        pad_id, unknown_id, class_id, separator_id, mask_id: numbers of the special ones.
        key: differs where the vocabulary does.
    """

    def __init__(self, words: Sequence[str], lowercase: bool = True, source: str = "the vocabulary") -> None:
        """Args: the tokens by number; whether text is made lower-case and loses accents; a name for messages."""
        numbers = {word: number for number, word in enumerate(words)}
        missing = [word for word in SPECIAL if word not in numbers]
        if len(numbers) < len(words):
            twice = next(word for number, word in enumerate(words) if numbers[word] != number)
            raise UserError(f"{source} has the token {twice!r} twice; its lines are the numbers of the tokens")
        if missing:
            raise UserError(f"{source} has no {missing[0]}; it should be a vocabulary of BERT, a token a line")
        self.size, self.words, self.lowercase = len(words), tuple(words), lowercase
        self.pad_id, self.unknown_id, self.class_id, self.separator_id, self.mask_id = (numbers[w] for w in SPECIAL)
        self.key = hashlib.sha256(f"{lowercase}\n{chr(10).join(words)}".encode()).hexdigest()[:16]

    @functools.cached_property
    def _tokenizer(self) -> Any:
        models, *_ = _library()
        numbers = {word: number for number, word in enumerate(self.words)}
        tokenizer = _bare(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100), self.lowercase)
        tokenizer.add_special_tokens(list(SPECIAL))
        return tokenizer

    @functools.cached_property
    def continues(self) -> np.ndarray:
        """Whether each token goes on with the word before it, bool [size]."""
        return np.asarray([word.startswith("##") for word in self.words])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, with no special ones around them."""
        return [found.ids for found in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of a text, and where in it (characters from, to) each stands."""
        found = self._tokenizer.encode(text, add_special_tokens=False)
        return found.ids, found.offsets

    def decode(self, ids: Iterable[int]) -> str:
        """Text of tokens; special ones are left out."""
        return self._tokenizer.decode([int(number) for number in ids])


class SentencePiece:
    """T5's tokens: a SentencePiece model, and after it the sentinels, the first of which has the last number.

    Attributes:
        size: number of tokens with the sentinels.
        pad_id, end_id, unknown_id: numbers of the special ones.
        key: differs where the vocabulary does.
    """

    def __init__(self, model: bytes, source: str = "the vocabulary", extra_ids: int = EXTRA_IDS) -> None:
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise UserError(f"{source} needs sentencepiece; run: {INSTALL}") from None
        self._processor = SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except (RuntimeError, OSError):
            raise UserError(f"{source} is no SentencePiece model, or is damaged; get it again") from None
        self.model, self.extra_ids = model, extra_ids
        self.size = self._processor.GetPieceSize() + extra_ids
        self.pad_id, self.end_id = self._processor.pad_id(), self._processor.eos_id()
        self.unknown_id = self._processor.unk_id()
        if min(self.pad_id, self.end_id) < 0:
            raise UserError(f"{source} has no token for padding or for the end; T5 needs both")
        self.key = hashlib.sha256(model).hexdigest()[:16]

    def sentinel(self, number: int) -> int:
        """The token <extra_id_number>."""
        assert 0 <= number < self.extra_ids, number
        return self.size - 1 - number

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, with no end token; <extra_id_N> in it is the sentinel."""
        if not any("<extra_id_" in text for text in texts):
            return self._processor.EncodeAsIds(list(texts))
        return [self._encode_with_sentinels(text) for text in texts]

    def _encode_with_sentinels(self, text: str) -> list[int]:
        ids: list[int] = []
        parts = SENTINEL.split(text)
        for position, part in enumerate(parts):
            if position % 2 == 0:
                ids += self._processor.EncodeAsIds(part.strip()) if part.strip() else []
            elif int(part) < self.extra_ids:
                ids.append(self.sentinel(int(part)))
            else:
                raise UserError(
                    f"<extra_id_{part}> is not one of the {self.extra_ids} sentinels, 0 to {self.extra_ids - 1}"
                )
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of tokens; sentinels appear as <extra_id_N>, pad and end are left out."""
        pieces = self._processor.GetPieceSize()
        words: list[str] = []
        run: list[int] = []
        for number in [*(int(one) for one in ids), None]:
            if number is not None and number < pieces:
                run += [] if number in (self.pad_id, self.end_id) else [number]
                continue
            if run:
                words.append(self._processor.DecodeIds(run))
                run = []
            if number is not None and number < self.size:
                words.append(f"<extra_id_{self.size - 1 - number}>")
        return " ".join(words)


def check_belongs(size: int, place: Path | None, rows: int, share: float) -> None:
    """Whether a vocabulary can be that of a model whose embedding has so many rows.

    Args:
        size: tokens of the vocabulary.
        place: where it was read; None where it was learned for this model.
        rows: of the embedding.
        share: of the rows that were trained with tokens of their own, at least.

    Raises:
        UserError: it has more tokens than the embedding rows, or so few that the rows are another vocabulary's.
    """
    if size > rows or (place and size < share * rows):
        raise UserError(
            f"the vocabulary {place} has {size} tokens and the model {rows}; take the vocabulary that belongs to the weights"
        )


def read_wordpiece(path: Path, lowercase: bool | None = None) -> WordPiece:
    """A vocab.txt, or the folder that holds one; `lowercase` None: as tokenizer_config.json beside it says, else true."""
    path = path / "vocab.txt" if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"{path} does not exist; it should be a vocabulary of BERT (vocab.txt), a token a line")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a vocabulary of BERT (vocab.txt), a token a line: it is not text") from None
    if lowercase is None:
        lowercase = _lowercases(path.with_name("tokenizer_config.json"))
    # Not splitlines: a token may be a sign that it takes for the end of a line.
    return WordPiece(text.removesuffix("\n").replace("\r\n", "\n").split("\n"), lowercase, str(path))


def _lowercases(settings: Path) -> bool:
    if not settings.is_file():
        return True
    try:
        return bool(json.loads(settings.read_text()).get("do_lower_case", True))
    except (ValueError, AttributeError):
        raise UserError(f"{settings} is no JSON object; get it again") from None


def check_not_learned(named: str | None) -> None:
    """Raises UserError where a fine-tuning is asked to learn a vocabulary: it has that of its weights."""
    if named == "train":
        raise UserError(
            "recipe.data.vocabulary=train is for pretraining; a fine-tuning has the vocabulary of its weights"
        )


def read_sentencepiece(path: Path) -> SentencePiece:
    """A spiece.model, or the folder that holds one."""
    path = path / "spiece.model" if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"{path} does not exist; it should be a SentencePiece model (spiece.model)")
    return SentencePiece(path.read_bytes(), str(path))


def train_wordpiece(texts: Iterable[str], size: int, lowercase: bool = True) -> WordPiece:
    """A vocabulary of at most `size` tokens, learned from texts; the same for the same texts, whatever their order."""
    models, trainers, *_ = _library()
    tokenizer = _bare(models.WordPiece(unk_token="[UNK]"), lowercase)
    documents = list(texts)
    # Of equally frequent pairs the library joins the one with the lower numbers first, and it numbers the signs within words in the
    # order of a hash table. Named beforehand they have the same numbers in every run, and so every run joins the same pairs.
    signs = sorted(
        {sign for text in documents for sign in tokenizer.normalizer.normalize_str(text) if not sign.isspace()}
    )
    first = [*SPECIAL, *signs, *(f"##{sign}" for sign in signs)]
    trainer = trainers.WordPieceTrainer(vocab_size=max(size, len(first)), special_tokens=first, show_progress=False)
    tokenizer.train_from_iterator(documents, trainer)
    learned = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return WordPiece([word for word, _ in learned][:size], lowercase)


def train_sentencepiece(texts: Iterable[str], size: int) -> SentencePiece:
    """A vocabulary of at most `size` tokens, the sentinels among them, learned from texts."""
    try:
        from sentencepiece import SentencePieceTrainer
    except ImportError:
        raise UserError(f"training a vocabulary needs sentencepiece; run: {INSTALL}") from None
    written = io.BytesIO()
    SentencePieceTrainer.Train(
        sentence_iterator=iter([line for text in texts for line in text.split("\n") if line.strip()]),
        model_writer=written,
        vocab_size=size - EXTRA_IDS,
        hard_vocab_limit=False,  # a small text may not give as many
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    return SentencePiece(written.getvalue())


def _bare(model: Any, lowercase: bool) -> Any:
    _, _, decoders, normalizers, pre_tokenizers, tokenizer_class = _library()
    tokenizer = tokenizer_class(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _library() -> tuple[Any, ...]:
    try:
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    except ImportError:
        raise UserError(f"BERT's vocabulary needs the package tokenizers; run: {INSTALL}") from None
    return models, trainers, decoders, normalizers, pre_tokenizers, Tokenizer
