"""Weights to and from the formats of others: what `python -m zoo.checkpoint convert` does.

A run of the zoo becomes a file by the names of others, or a folder in Hugging Face's layout; such a file or folder becomes a
checkpoint that `init_from` takes, or a file of another kind.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.config import RecipeConfig
from zoo.errors import UserError
from zoo.models import peft, weight_files
from zoo.models.bert import convert as bert
from zoo.models.bert.config import BertConfig
from zoo.models.exchange import Imported
from zoo.models.pnasnet import convert as pnasnet
from zoo.models.pnasnet.config import PNASNetConfig
from zoo.models.pretrained import PROBLEMS, facts_of, read_description
from zoo.models.resnet import convert as resnet
from zoo.models.resnet.config import ResNetConfig
from zoo.models.t5 import convert as t5
from zoo.models.t5.config import T5Config
from zoo.training import adapters
from zoo.training.checkpoints import Checkpoints, locate
from zoo.typed import typed

Arrays = dict[str, np.ndarray]
TOKENIZER = "tokenizer_config.json"
# What Hugging Face keeps beside a vocabulary.
SETTINGS = ("tokenizer.json", TOKENIZER, "special_tokens_map.json")
COMPANIONS = ("vocab.txt", "spiece.model", *SETTINGS)
LEARNED = ("params", "batch_stats")


@dataclasses.dataclass(frozen=True)
class Family:
    """How one kind of model exchanges weights.

    Attributes:
        known_by: parts of names that only its weights have.
        to_theirs: our variables and configuration -> their arrays.
        from_theirs: their arrays, our configuration, where they are from, heads that may start anew -> what came of them.
        config_to, config_from: their config.json from our configuration, and back; None where they have none.
    """

    known_by: tuple[str, ...]
    to_theirs: Callable[[Mapping[str, Any], Any], Arrays]
    from_theirs: Callable[[Mapping[str, np.ndarray], Any, str, Sequence[str]], Imported]
    config_to: Callable[[Any], dict[str, Any]] | None = None
    config_from: Callable[..., Any] | None = None


def _in_params(found: Imported) -> Imported:
    return dataclasses.replace(found, params={"params": found.params})


FAMILIES = {
    "bert": Family(
        ("embeddings.word_embeddings",),
        lambda variables, config: bert.to_hugging_face(variables["params"], config.head),
        lambda *found: _in_params(bert.from_hugging_face(*found)),
        bert.config_to,
        bert.config_from,
    ),
    "t5": Family(
        ("SelfAttention.relative_attention_bias",),
        lambda variables, config: t5.to_hugging_face(variables["params"], config),
        lambda *found: _in_params(t5.from_hugging_face(*found)),
        t5.config_to,
        t5.config_from,
    ),
    "resnet": Family(
        ("layer1.0.conv1", "embedder.embedder.convolution"),
        lambda variables, config: resnet.to_torch(variables),
        resnet.from_torch,
    ),
    "pnasnet": Family(("comb_iter_0_left",), lambda variables, config: pnasnet.to_timm(variables), pnasnet.from_timm),
}


def is_foreign(path: Path) -> bool:
    """Whether a path is a file of weights, or a folder with one, rather than a run of the zoo."""
    if path.is_dir():
        return any((path / name).exists() for name in weight_files.IN_FOLDERS)
    return path.suffix in weight_files.SUFFIXES or path.name.endswith(".index.json")


def share_of_tokens(place: Path | None) -> float:
    """The part of an embedding's rows that the vocabulary which belongs to some weights has tokens for, at least.

    Those of others are made a round number at most; in a run of the zoo few texts may have had few tokens to give.
    """
    return 0.0 if place is None else 0.9 if is_foreign(place) else 0.5


def convert(
    source: Path, target: Path, load: Callable[[RecipeConfig, Path], Any], adapter: bool = False
) -> Iterator[str]:
    """Converts, and yields a line for every key.

    Args:
        source: a run of the zoo, or weights of others.
        target: a file with one of the known endings, or a folder that is empty or not there.
        load: makes a recipe of its configuration.
        adapter: of a run with LoRA write the products alone, as PEFT does; else they are added to their matrices.

    Raises:
        UserError: what the source is cannot become what the target says.
    """
    is_file = target.suffix in weight_files.SUFFIXES
    ending = target.suffix[1:] or target.name.rpartition(".")[1]
    if not is_file and ending and not ending.isdecimal() and not target.is_dir():
        raise UserError(
            f"to={target}: no file of weights ends in .{target.suffix[1:]} ({', '.join(weight_files.SUFFIXES)} do); the name of "
            "a new folder has no ending"
        )
    if not is_file and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(
            f"to={target} is there already; name a new folder, or a file ({', '.join(weight_files.SUFFIXES)})"
        )
    if is_file and target.exists():
        raise UserError(f"to={target} is there already; name another file")
    if adapter and (is_foreign(source) or is_file):
        raise UserError(f"adapter=true turns a run with LoRA into a folder; got from={source} to={target}")
    if adapter:
        yield from _adapter(source, target, load)
    elif not is_foreign(source):
        yield from _from_run(source, target, is_file, load)
    elif is_file:
        arrays = weight_files.read(source)
        _check_described(arrays, source)
        weight_files.write(target, arrays)
        yield from (f"{name} {array.dtype}{list(array.shape)}" for name, array in arrays.items())
    else:
        yield from _to_run(source, target)


def _from_run(source: Path, target: Path, is_file: bool, load: Callable[[RecipeConfig, Path], Any]) -> Iterator[str]:
    checkpoints, step = locate(source, "from")
    meta = checkpoints.meta(step)
    family, config = _model_of(meta, load)
    arrays = family.to_theirs(learned(checkpoints, step), config)
    if is_file:
        weight_files.write(target, arrays)
    else:
        if family.config_to is None:
            raise UserError(
                f"to={target}: this model has no folder layout; name a file ({', '.join(weight_files.SUFFIXES)})"
            )
        weight_files.write(target / "model.safetensors", arrays)
        described = family.config_to(config)
        if "id2label" in described and len(meta.get("labels", ())) == len(described["id2label"]):
            described["id2label"] = {str(number): name for number, name in enumerate(meta["labels"])}
            described["label2id"] = {name: number for number, name in enumerate(meta["labels"])}
        kind = meta.get("recipe", {}).get("data", {}).get("kind", meta.get("kind"))
        if kind in PROBLEMS and "id2label" in described:
            described["problem_type"] = PROBLEMS[kind]
        (target / "config.json").write_text(json.dumps(described, indent=2) + "\n")
        _copy_companions(checkpoints.directory.parent, target)
    yield from (f"{name} {array.dtype}{list(array.shape)}" for name, array in arrays.items())


def _adapter(source: Path, target: Path, load: Callable[[RecipeConfig, Path], Any]) -> Iterator[str]:
    checkpoints, step = locate(source, "from")
    meta = checkpoints.meta(step)
    if "lora" not in meta:
        raise UserError(f"from={source} was trained without LoRA; leave out adapter=true to write all of it")
    _, config = _model_of(meta, load)
    name = meta["family"]
    table, task = (t5.names(config.gated), "SEQ_2_SEQ_LM") if name == "t5" else (bert.names(), bert.TASKS[config.head])
    params = learned(checkpoints, step, apart=True)["params"]
    arrays, described = peft.adapter(params, table, meta["lora"], task, ("classifier", "spans"))
    weight_files.write(target / "adapter_model.safetensors", arrays)
    (target / "adapter_config.json").write_text(json.dumps(described, indent=2) + "\n")
    yield from (f"{key} {array.dtype}{list(array.shape)}" for key, array in arrays.items())


def _model_of(meta: Mapping[str, Any], load: Callable[[RecipeConfig, Path], Any]) -> tuple[Family, Any]:
    if "model" in meta:
        kinds: dict[str, type] = {"bert": BertConfig, "t5": T5Config, "resnet": ResNetConfig, "pnasnet": PNASNetConfig}
        return FAMILIES[meta["family"]], typed(kinds[meta["family"]], meta["model"], "model")
    recipe = load(typed(RecipeConfig, meta["recipe"], "recipe"), Path("."))
    name = getattr(recipe, "family", None)
    if name not in FAMILIES:
        raise UserError(f"the recipe {recipe.name} has weights that no other format here takes")
    return FAMILIES[name], recipe.model_config


def learned(checkpoints: Checkpoints, step: int, apart: bool = False) -> dict[str, Any]:
    """The parameters and statistics of a checkpoint, as NumPy arrays on the host.

    Products of LoRA are added to their matrices, or with `apart` stay what they are.
    """
    wanted: dict[str, Any] = {}
    for name, record in checkpoints.records(step).items():
        kind, *rest = name.split(".")
        if kind not in LEARNED:
            continue
        tree = wanted.setdefault(kind, {})
        for part in rest[:-1]:
            tree = tree.setdefault(part, {})
        tree[rest[-1]] = np.zeros(record.shape, record.dtype)
    found, meta = checkpoints.restore(step, wanted, partial=True)
    if "lora" in meta and not apart:
        found["params"] = adapters.merged(found["params"], meta["lora"]["alpha"])
    return found


def variables_from(place: Path, family: str, config: Any) -> dict[str, Any]:
    """The variables {"params", ...} of a run of the zoo or of weights of others, as NumPy arrays.

    Raises:
        UserError: there is nothing, or it does not fit the configuration.
    """
    if is_foreign(place):
        return FAMILIES[family].from_theirs(weight_files.read(place), config, str(place), ()).params
    return learned(*locate(place, "init_from"))


def _to_run(source: Path, target: Path) -> Iterator[str]:
    folder = source if source.is_dir() else source.parent
    arrays = weight_files.read(source)
    name = family_of(arrays, source)
    family = FAMILIES[name]
    described = folder / "config.json"
    if family.config_from is None or not described.is_file():
        raise UserError(
            f"from={source} does not say what model it is of: a config.json is missing; "
            "give the file itself to a recipe of the model, with init_from"
        )
    config = read_description(described, family.config_from)
    found = family.from_theirs(arrays, config, str(source), ())
    checkpoints = Checkpoints(target / "checkpoints")
    meta = {"family": name, "model": dataclasses.asdict(config), "level": "converted", "recipe": {}, "seed": 0}
    meta |= facts_of(folder)
    checkpoints.save(0, found.params, meta)
    checkpoints.wait()
    _copy_companions(folder, target)
    yield from found.report()


def _check_described(arrays: Arrays, source: Path) -> None:
    """Raises UserError where a config.json says what model the arrays are of, and they are not."""
    if not source.is_dir() and source.name not in weight_files.IN_FOLDERS:
        return  # what lies beside a file of any other name need not be about it
    folder = source if source.is_dir() else source.parent
    name = _kind_of(arrays)
    described = folder / "config.json"
    if name is not None and (config_from := FAMILIES[name].config_from) is not None and described.is_file():
        FAMILIES[name].from_theirs(arrays, read_description(described, config_from), str(source), ())


def family_of(arrays: Mapping[str, np.ndarray], source: Path) -> str:
    """The kind of model that arrays are of, by their names."""
    if (name := _kind_of(arrays)) is not None:
        return name
    raise UserError(
        f"{source} has weights of no model that is known here ({', '.join(FAMILIES)}); {next(iter(arrays), 'none')}"
    )


def _kind_of(arrays: Mapping[str, np.ndarray]) -> str | None:
    known = (
        name for name, family in FAMILIES.items() for part in family.known_by if any(part in key for key in arrays)
    )
    return next(known, None)


def _copy_companions(source: Path, target: Path) -> None:
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
