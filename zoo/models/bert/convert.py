"""BERT by the names of Hugging Face's implementation, both ways."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.errors import UserError
from zoo.models.bert.config import BertConfig
from zoo.models.bert.model import abstract_params
from zoo.models.exchange import Imported, Name, exported, imported

ARCHITECTURES = {
    "encoder": "BertModel",
    "pretraining": "BertForPreTraining",
    "masked_words": "BertForMaskedLM",
    "classification": "BertForSequenceClassification",
    "tokens": "BertForTokenClassification",
    "answers": "BertForQuestionAnswering",
}
# What PEFT calls the things that these heads do.
TASKS = {"classification": "SEQ_CLS", "tokens": "TOKEN_CLS", "answers": "QUESTION_ANS"}
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}
IGNORED = {
    r"(bert\.)?embeddings\.position_ids": "positions are counted",
    r"cls\.predictions\.decoder\.weight": "it is tied to the word embedding",
    r"cls\.predictions\.decoder\.bias": "it is tied to cls.predictions.bias",
}
# Parts that one head has and another has not: weights of one start a training with another.
HEAD_PARTS = r"bert\.pooler\..*|cls\..*|classifier\..*|qa_outputs\..*"
# What follows from the weights; the rest of a configuration may be chosen anew.
SIZES = (
    *("vocabulary_size", "hidden", "num_layers", "num_heads", "intermediate", "max_positions", "num_types"),
    *("activation", "norm_epsilon", "pad_id"),
)
BLOCK = "bert.encoder.layer.{i}."


def names() -> tuple[Name, ...]:
    """The table, of every head."""
    return tuple(_names())


def _names() -> Iterator[Name]:
    for ours, theirs in (("word", "word"), ("position", "position"), ("type", "token_type")):
        yield Name(f"embeddings/{ours}/embedding", f"bert.embeddings.{theirs}_embeddings.weight")
    yield from _norm("embeddings/norm", "bert.embeddings.LayerNorm")
    for ours, theirs in (
        ("query", "attention.self.query"),
        ("key", "attention.self.key"),
        ("value", "attention.self.value"),
        ("output", "attention.output.dense"),
        ("up", "intermediate.dense"),
        ("down", "output.dense"),
    ):
        yield from _linear(f"encoder/layers/{ours}", BLOCK + theirs)
    yield from _norm("encoder/layers/attention_norm", BLOCK + "attention.output.LayerNorm")
    yield from _norm("encoder/layers/norm", BLOCK + "output.LayerNorm")
    yield from _linear("pooler", "bert.pooler.dense")
    yield from _linear("transform", "cls.predictions.transform.dense")
    yield from _norm("transform_norm", "cls.predictions.transform.LayerNorm")
    yield Name("output_bias", "cls.predictions.bias")
    yield from _linear("next_sentence", "cls.seq_relationship")
    yield from _linear("classifier", "classifier")
    yield from _linear("spans", "qa_outputs")


def _linear(ours: str, theirs: str) -> tuple[Name, Name]:
    return Name(f"{ours}/kernel", f"{theirs}.weight", "linear"), Name(f"{ours}/bias", f"{theirs}.bias")


def _norm(ours: str, theirs: str) -> tuple[Name, Name]:
    return Name(f"{ours}/scale", f"{theirs}.weight"), Name(f"{ours}/bias", f"{theirs}.bias")


def from_hugging_face(
    arrays: Mapping[str, np.ndarray], config: BertConfig, source: str = "the weights", heads: Sequence[str] = ()
) -> Imported:
    """Our parameters from theirs; `heads` as in `imported`.

    Names may lack "bert." (as BertModel saves them), and layer norms may have "gamma" and "beta". What belongs to another head is
    left out, and what the head lacks is in `missing`.

    Raises:
        UserError: a name is unknown, the encoder is not whole, a shape does not fit, or tied weights differ.
    """
    arrays = {_canonical(name): value for name, value in arrays.items()}
    word = arrays.get("bert.embeddings.word_embeddings.weight")
    tied = arrays.get("cls.predictions.decoder.weight")
    if word is None and tied is not None:
        arrays["bert.embeddings.word_embeddings.weight"] = tied
    elif tied is not None and word is not None and not np.array_equal(word, tied):
        raise UserError(
            f"{source}: cls.predictions.decoder.weight is not the word embedding; this model ties the two, as BERT does"
        )
    if "cls.predictions.decoder.bias" in arrays:
        arrays.setdefault("cls.predictions.bias", arrays["cls.predictions.decoder.bias"])
    wanted = abstract_params(config)
    needed = {name.theirs for name in names() if name.ours.split("/")[0] in wanted}
    other = {
        re.escape(key): f"it belongs to another head than {config.head}"
        for key in arrays
        if re.fullmatch(HEAD_PARTS, key) and key not in needed and key not in _ignored_keys()
    }
    found = imported(arrays, names(), wanted, IGNORED | other, source, heads)
    lost = [name for name in found.missing if name.startswith(("embeddings", "encoder"))]
    if lost:
        raise UserError(f"{source} has nothing for {lost[0]}; these are not the weights of a BERT")
    return found


def _ignored_keys() -> set[str]:
    return {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}


def _canonical(name: str) -> str:
    name = name.removeprefix("module.")
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
    return f"bert.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name


def to_hugging_face(params: Mapping[str, Any], head: str) -> dict[str, np.ndarray]:
    """Their parameters from ours, with the tied ones only once; BertModel's names have no "bert."."""
    arrays = exported(params, names())
    return {name.removeprefix("bert."): value for name, value in arrays.items()} if head == "encoder" else arrays


def config_from(hugging_face: Mapping[str, Any], **changes: Any) -> BertConfig:
    """Our configuration from their config.json.

    Raises:
        UserError: it is no BERT, or of a kind that this model is not.
    """
    if hugging_face.get("model_type", "bert") != "bert":
        raise UserError(f"config.json is of model_type={hugging_face['model_type']}, and this model is bert")
    if hugging_face.get("position_embedding_type", "absolute") != "absolute":
        raise UserError("config.json has relative positions, and this model's are absolute")
    ours = {theirs: ours for ours, theirs in ACTIVATIONS.items()} | {"gelu_pytorch_tanh": "gelu_tanh", "swish": "silu"}
    architecture = (hugging_face.get("architectures") or ["BertModel"])[0]
    heads = {theirs: ours for ours, theirs in ARCHITECTURES.items()}
    activation = hugging_face.get("hidden_act", "gelu")
    if activation not in ours:
        raise UserError(f"config.json has hidden_act={activation}; known are {', '.join(ours)}")
    labels = hugging_face.get("num_labels") or len(hugging_face.get("id2label") or {}) or 2
    values = {
        "vocabulary_size": hugging_face["vocab_size"],
        "hidden": hugging_face["hidden_size"],
        "num_layers": hugging_face["num_hidden_layers"],
        "num_heads": hugging_face["num_attention_heads"],
        "intermediate": hugging_face["intermediate_size"],
        "head": heads.get(architecture, "encoder"),
        "num_labels": labels,
        "max_positions": hugging_face.get("max_position_embeddings", 512),
        "num_types": hugging_face.get("type_vocab_size", 2),
        "activation": ours[activation],
        "norm_epsilon": hugging_face.get("layer_norm_eps", 1e-12),
        "dropout": hugging_face.get("hidden_dropout_prob", 0.1),
        "attention_dropout": hugging_face.get("attention_probs_dropout_prob", 0.1),
        "initializer_range": hugging_face.get("initializer_range", 0.02),
        "pad_id": hugging_face.get("pad_token_id") or 0,
    }
    return BertConfig(**(values | changes))


def config_to(config: BertConfig) -> dict[str, Any]:
    """Their config.json."""
    # An answer's first and last token have no names, but are counted there as two labels.
    labels = [f"LABEL_{number}" for number in range(2 if config.head == "answers" else config.num_labels)]
    return {
        "architectures": [ARCHITECTURES[config.head]],
        "model_type": "bert",
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.intermediate,
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.num_types,
        "hidden_act": ACTIVATIONS[config.activation],
        "layer_norm_eps": config.norm_epsilon,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "initializer_range": config.initializer_range,
        "pad_token_id": config.pad_id,
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        "tie_word_embeddings": True,
    }
