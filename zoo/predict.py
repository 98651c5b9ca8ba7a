"""`python -m zoo.predict recipe=NAME init_from=MODEL input=FILE output=FILE`: what a trained model says of records.

input is JSON lines, CSV, TSV or Parquet (for images also a folder), output JSON lines. task= chooses where a model can do several
things; batch= is the number of records at a time. The same command goes on where it stopped.

For potentials input names folders or files of frames, separated by commas, and output a folder; model= names .dp or .yaml files in
place of the one in run_dir (several give their deviation), and most= limits the frames of each system.

For proteins (alphafold2) input is a file or folder and output a folder; the options are those of the recipe's section `predict`,
each with a line in conf/recipe/alphafold2.yaml.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

import jax

from zoo.config import GROUPS, Config, RecipeConfig, compose, quoted
from zoo.conversion import is_foreign
from zoo.data.corpus import records
from zoo.data.image_folder import SUFFIXES
from zoo.errors import DONE, UserError, exit_code
from zoo.models import weight_files
from zoo.models.pretrained import facts_of, fingerprint, folder_of
from zoo.prediction import Record, run
from zoo.runtime import memory
from zoo.runtime.signals import StopSignals
from zoo.training.checkpoints import BEST, locate
from zoo.training.job import load
from zoo.typed import nearest

BATCH = 32
# This command's own options; the last two are of potentials.
OWN = ("input", "output", "task", "batch", "model", "most")
# What a run was told of its data that says nothing about others.
OF_TRAINING = ("name", "train", "test", "labels", "vocabulary", "global_batch", "readers")
# Options of a section `predict` whose values are paths, which never pass through Hydra's grammar.
PATHS = ("params", "alignments", "databases", "templates", "structures", "hits", "references")


def main(argv: list[str]) -> int:
    """Predicts; says how many records are done.

    Raises:
        UserError: an option or the input is wrong. PartlyFailed: some records could not be predicted. Stopped: a signal
            came; what was predicted is kept.
    """
    if argv[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return DONE
    own, rest = own_words(argv)
    if not any(word.startswith("cluster=") for word in rest):
        rest.append("cluster=local")
    config = compose(sectioned(rest))
    if config.init_from is not None and not (config.init_from.exists() or config.init_from.name == BEST):
        raise UserError(
            f"init_from={config.init_from} does not exist; name a run of the zoo, a folder of Hugging Face or a file of weights"
        )
    if config.init_from is not None and config.init_from.name == BEST:
        locate(config.init_from, "init_from")
    trained = as_trained(config, rest)
    recipe = load(trained, config.data_dir)
    family, own_family = facts_of(config.init_from).get("family"), getattr(recipe, "family", None)
    if family is not None and own_family is not None and family != own_family:
        raise UserError(f"init_from={config.init_from} is of family {family}, and recipe={recipe.name} of {own_family}")
    if config.recipe.predict and not hasattr(recipe, "options"):
        wrong = next(iter(config.recipe.predict))
        raise UserError(
            f"{wrong}= is not an option of recipe={recipe.name}{nearest(wrong, OWN)}; allowed are {', '.join(OWN[:4])} and what "
            "zoo.train takes"
        )
    if hasattr(recipe, "predict"):  # what it takes are no records: frames of atoms, proteins
        own["seed"] = str(config.seed)
        recipe.predict(own, config.run_dir, lambda line: print(line, flush=True))
        return DONE
    if not hasattr(recipe, "predictor"):
        raise UserError(f"recipe={recipe.name} has no predictions")
    for name in ("input", "output"):
        if name not in own:
            raise UserError(
                f"{name}=FILE is missing; JSON lines" + (", CSV, TSV or Parquet" if name == "input" else "")
            )
    if config.init_from is None:
        raise UserError(
            "init_from=MODEL is missing; name a run of the zoo, a folder of Hugging Face or a file of weights"
        )
    if config.init_from.is_file() and not is_foreign(config.init_from):
        raise UserError(
            f"init_from={config.init_from} is no file of weights; known are {', '.join(weight_files.SUFFIXES)}"
        )
    if Path(own["output"]).is_dir():
        raise UserError(f"output={own['output']} is a folder; name a file of JSON lines in it")
    batch = own.get("batch", str(BATCH))
    if not batch.isdigit() or int(batch) < 1:
        raise UserError(f"batch={batch}; it must be a whole number of at least 1")
    memory.keep_freed()
    if Path(own["output"]).resolve() == Path(own["input"]).resolve():
        raise UserError(f"output={own['output']} is the input; name another file")
    predict = recipe.predictor(config.init_from, own.get("task"), int(batch), jax.random.key(config.seed))
    maker = {
        "recipe": recipe.name,
        "init_from": fingerprint(config.init_from),
        "task": own.get("task", getattr(recipe, "default_task", "")),
        "seed": str(config.seed),
        "labels": ", ".join(getattr(recipe, "labels", ())),
        "vocabulary": vocabulary_of(config, trained),
        **{name: str(value) for name, value in trained.data.items() if name not in OF_TRAINING},
        **{f"model.{name}": str(value) for name, value in trained.model.items()},
    }
    with StopSignals() as stop:
        given = inputs(Path(own["input"]), getattr(recipe, "pictures", False))
        done = run(given, predict, Path(own["output"]), int(batch), print, stop.wanted, maker)
    print(f"finished: {done} records in {own['output']}")
    return DONE


def vocabulary_of(config: Config, recipe: RecipeConfig) -> str:
    """A digest of the vocabulary that texts are read with; empty where there is none."""
    named = recipe.data.get("vocabulary")
    places = [Path(named)] if named else [folder_of(place) for place in (config.init_from, config.data_dir) if place]
    files = [
        file for place in places for file in (place, place / "vocab.txt", place / "spiece.model") if file.is_file()
    ]
    return hashlib.sha256(files[0].read_bytes()).hexdigest() if files else ""


def as_trained(config: Config, words: list[str]) -> RecipeConfig:
    """The recipe with what the run in `init_from` was told of its texts: columns, lengths and the like.

    Raises:
        UserError: one of the words says otherwise where that makes no sense.
    """
    recipe = config.recipe
    facts = facts_of(config.init_from)
    before = facts.get("recipe", {})
    if before.get("target", before.get("_target_")) == recipe.target:
        known = {name: value for name, value in before["data"].items() if name not in OF_TRAINING}
    else:
        known = {"kind": facts["kind"]} if "kind" in facts and "kind" in recipe.data else {}
    for word in words:
        name = word.partition("=")[0].removeprefix("recipe.data.")
        if not word.startswith("recipe.data.") or name not in known:
            continue
        ours, theirs = recipe.data.get(name), known.pop(name)
        if (name == "kind" and ours != theirs) or (ours is None) != (theirs is None):
            raise UserError(f"{word}, and {config.init_from} was trained with {name}={theirs}; leave it out")
    most = facts.get("max_positions", facts.get("model", {}).get("max_positions"))
    if (
        most is not None
        and "length" in recipe.data
        and not any(word.startswith("recipe.data.length=") for word in words)
    ):
        known["length"] = min(known.get("length", recipe.data["length"]), most)
        stride = known.get("stride", recipe.data.get("stride"))
        if stride is not None and not any(word.startswith("recipe.data.stride=") for word in words):
            known["stride"] = min(stride, known["length"] // 3)
    return dataclasses.replace(recipe, data={**recipe.data, **known}, predicts=True)


def inputs(place: Path, pictures: bool) -> Iterable[Record]:
    """The records of a file, or one {"image": FILE} for every picture below a folder; says which files it passes over.

    Args:
        pictures: whether the recipe looks at pictures.
    """
    if not place.exists():
        raise UserError(
            f"input={place} does not exist; name a file of records" + (", or a folder of pictures" if pictures else "")
        )
    if not place.is_dir():
        return records(place, ())
    if not pictures:
        raise UserError(f"input={place} is a folder; name a file of records")
    files = [path for path in sorted(place.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    found = [{"image": str(path)} for path in files if path.suffix.lower() in SUFFIXES]
    others = [path.name for path in files if path.suffix.lower() not in SUFFIXES]
    if found and others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        print(f"passed over, since they are none of {', '.join(SUFFIXES)}: {', '.join(others[:3])}{more}")
    if not found:
        raise UserError(
            f"input={place} has no pictures ({', '.join(SUFFIXES)}); name a file of records, or another folder"
        )
    return found


def own_words(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """This command's own options, and the words that configure the recipe."""
    own: dict[str, str] = {}
    rest = []
    for word in argv:
        key, _, value = word.partition("=")
        if key in OWN and value:
            own[key] = value
        else:
            rest.append(word)
    return own, rest


def sectioned(words: list[str]) -> list[str]:
    """The same words; a key that the configuration does not have is one of the recipe's section `predict`."""
    fields = {field.name for field in dataclasses.fields(Config)} | {*GROUPS, "conf_dir"}
    placed = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key in fields or not key.isidentifier():
            placed.append(word)
        else:
            if key == "models":  # a list such as model_1,model_2, which Hydra would take for a choice
                value = quoted(value.strip("[]'\""))
            elif key in PATHS and value != "null":
                value = quoted(value)
            placed.append(f"recipe.predict.{key}={value}")
    return placed


if __name__ == "__main__":
    sys.exit(exit_code(main)(sys.argv[1:]))
