"""T5 by the names of Hugging Face's implementation, both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.errors import UserError
from zoo.models.exchange import Imported, Name, exported, imported
from zoo.models.t5.config import T5Config
from zoo.models.t5.model import abstract_params

IGNORED = {
    r"(encoder|decoder)\.embed_tokens\.weight": "it is tied to shared.weight",
    r"lm_head\.weight": "it is tied to shared.weight",
    # Saved by early versions and never used: the cross-attention of T5 has no positions.
    r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight": "the model does not use it",
}
# What follows from the weights; the rest of a configuration may be chosen anew.
SIZES = (
    *("vocabulary_size", "hidden", "num_layers", "num_decoder_layers", "num_heads", "head_size", "intermediate"),
    *("activation", "gated", "tied", "num_buckets", "max_distance", "norm_epsilon"),
)
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}


def names(gated: bool) -> tuple[Name, ...]:
    """The table; `gated` models have two projections up."""
    return tuple(_names(gated))


def _names(gated: bool) -> Iterator[Name]:
    yield Name("embedding/embedding", "shared.weight")
    yield Name("output", "lm_head.weight")
    for stack, rest in (("encoder", 1), ("decoder", 2)):
        block = stack + ".block.{i}.layer."
        yield Name(f"{stack}/relative", f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
        yield Name(f"{stack}/norm/scale", f"{stack}.final_layer_norm.weight")
        yield from _attention(f"{stack}/stack/layers/attention", f"{block}0.SelfAttention")
        yield Name(f"{stack}/stack/layers/attention_norm/scale", f"{block}0.layer_norm.weight")
        if stack == "decoder":
            yield from _attention(f"{stack}/stack/layers/cross", f"{block}1.EncDecAttention")
            yield Name(f"{stack}/stack/layers/cross_norm/scale", f"{block}1.layer_norm.weight")
        for ours, theirs in (("gate", "wi_0"), ("up", "wi_1")) if gated else (("up", "wi"),):
            yield _linear(f"{stack}/stack/layers/feed_forward/{ours}", f"{block}{rest}.DenseReluDense.{theirs}")
        yield _linear(f"{stack}/stack/layers/feed_forward/down", f"{block}{rest}.DenseReluDense.wo")
        yield Name(f"{stack}/stack/layers/norm/scale", f"{block}{rest}.layer_norm.weight")


def _attention(ours: str, theirs: str) -> Iterator[Name]:
    for one, other in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
        yield _linear(f"{ours}/{one}", f"{theirs}.{other}")


def _linear(ours: str, theirs: str) -> Name:
    return Name(f"{ours}/kernel", f"{theirs}.weight", "linear")


def from_hugging_face(
    arrays: Mapping[str, np.ndarray], config: T5Config, source: str = "the weights", heads: Sequence[str] = ()
) -> Imported:
    """Our parameters from theirs; `heads` as in `imported`.

    Raises:
        UserError: a name is unknown or missing, a shape does not fit, or tied weights differ.
    """
    arrays = dict(arrays)
    tied: tuple[str, ...] = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    tied += ("lm_head.weight",) if config.tied else ()
    first = next((name for name in tied if name in arrays), None)
    if first is None:
        raise UserError(f"{source} has no shared.weight; these are not the weights of a T5")
    for name in tied:
        if name in arrays and not np.array_equal(arrays[name], arrays[first]):
            raise UserError(
                f"{source}: {name} is not {first}, though the model ties the two; set recipe.model.tied=false?"
            )
    arrays["shared.weight"] = arrays[first]
    if config.tied:
        arrays.pop("lm_head.weight", None)
    elif config.gated:
        # What is written once for both is the same in both; T5 1.1 does not scale it.
        arrays.setdefault("lm_head.weight", arrays[first])
    found = imported(arrays, names(config.gated), abstract_params(config), IGNORED, source, heads)
    if found.missing:
        raise UserError(f"{source} has nothing for {found.missing[0]}; are gated and tied those of the weights?")
    return found


def to_hugging_face(params: Mapping[str, Any], config: T5Config) -> dict[str, np.ndarray]:
    """Their parameters from ours, with the tied ones only once."""
    return exported(params, names(config.gated))


def config_from(hugging_face: Mapping[str, Any], **changes: Any) -> T5Config:
    """Our configuration from their config.json.

    Raises:
        UserError: it is no T5, or has an activation that is not known.
    """
    if hugging_face.get("model_type", "t5") != "t5":
        raise UserError(f"config.json is of model_type={hugging_face['model_type']}, and this model is t5")
    projection = hugging_face.get("feed_forward_proj", "relu")
    gated, activation = projection.startswith("gated-"), projection.removeprefix("gated-")
    # "gated-gelu" has always meant the tanh form.
    ours = {"relu": "relu", "gelu": "gelu_tanh" if gated else "gelu", "gelu_new": "gelu_tanh", "silu": "silu"}
    if activation not in ours:
        raise UserError(f"config.json has feed_forward_proj={projection}; known are {', '.join(ours)}, also gated-")
    values = {
        "vocabulary_size": hugging_face["vocab_size"],
        "hidden": hugging_face["d_model"],
        "num_layers": hugging_face["num_layers"],
        "num_decoder_layers": hugging_face.get("num_decoder_layers") or 0,
        "num_heads": hugging_face["num_heads"],
        "head_size": hugging_face["d_kv"],
        "intermediate": hugging_face["d_ff"],
        "activation": ours[activation],
        "gated": gated,
        # Newer files call every model tied, and say by this whether the output is the embedding, scaled.
        "tied": hugging_face.get("scale_decoder_outputs", hugging_face.get("tie_word_embeddings", True)),
        "num_buckets": hugging_face.get("relative_attention_num_buckets", 32),
        "max_distance": hugging_face.get("relative_attention_max_distance", 128),
        "norm_epsilon": hugging_face.get("layer_norm_epsilon", 1e-6),
        "dropout": hugging_face.get("dropout_rate", 0.1),
    }
    return T5Config(**(values | changes))


def config_to(config: T5Config) -> dict[str, Any]:
    """Their config.json."""
    activation = ACTIVATIONS[config.activation]
    if config.gated:
        activation = "gated-" + ("gelu" if config.activation == "gelu_tanh" else activation)
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "is_encoder_decoder": True,
        "vocab_size": config.vocabulary_size,
        "d_model": config.hidden,
        "num_layers": config.num_layers,
        "num_decoder_layers": config.decoder_layers,
        "num_heads": config.num_heads,
        "d_kv": config.head_size,
        "d_ff": config.intermediate,
        "feed_forward_proj": activation,
        "tie_word_embeddings": config.tied,
        "relative_attention_num_buckets": config.num_buckets,
        "relative_attention_max_distance": config.max_distance,
        "layer_norm_epsilon": config.norm_epsilon,
        "dropout_rate": config.dropout,
        "pad_token_id": config.pad_id,
        "eos_token_id": config.end_id,
        "decoder_start_token_id": config.pad_id,
    }
