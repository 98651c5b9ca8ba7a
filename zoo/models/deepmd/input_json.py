"""deepmd-kit's input.json as overrides of our configuration: `recipe=dp input_json=FILE`.

What is not supported is named, with its place in the file; nothing is ignored in silence but what changes no result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.errors import UserError
from zoo.models.deepmd.config import potential
from zoo.typed import nearest

Tree = dict[str, Any]

# Changes how a run prints or how fast it is, not what it learns.
WITHOUT_EFFECT = {
    "training": set(
        "seed disp_training time_training profiling profiling_file enable_profiler tensorboard tensorboard_log_dir "
        "tensorboard_freq save_ckpt max_ckpt_keep stat_file change_bias_after_training zero_stage disp_avg".split()
    ),
    "learning_rate": {"scale_by_worker"},
    "model": {"data_stat_nbatch", "data_stat_protect", "data_bias_nsample", "srtab_add_bias"},
}
KNOWN = set("numb_steps training_data validation_data disp_freq save_freq disp_file systems batch_size".split())
"""Words that a misspelt one may have meant."""
SCHEDULES = {"exp", "cosine"}
OTHER_MODELS = set(
    "spin modifier compress type_embedding hessian_mode preset_out_bias model_dict models dim_case_embd".split()
)


def overrides(file: Path) -> Tree:
    """The file as a tree of our configuration: {"recipe": {...}, "log_every": ..., ...}.

    Raises:
        UserError: the file is missing or not JSON, or asks for something that is not supported.
    """
    tree = load(file)
    at = str(file)
    known = {"model", "learning_rate", "loss", "training", "nvnmd", "optimizer"}
    refuse(tree, known - {"nvnmd"}, at)
    for section in ("model", "training"):
        if section not in tree:
            raise UserError(f"{at}: the section {section} is missing")
    for section in known & set(tree):
        if not isinstance(tree[section], dict):
            raise UserError(f"{at}: {section}={tree[section]!r}; expected a section of options")
    training = dict(tree["training"])
    steps = taken(training, ("numb_steps", "stop_batch"), f"{at}: training.numb_steps is missing")
    data, numbers = data_section(training, file)
    shown, saved = (whole(training.pop(name, 1000), f"{at}: training.{name}") for name in ("disp_freq", "save_freq"))
    check_optimizer(training, tree.get("optimizer", {}), at)
    lcurve = training.pop("disp_file", "lcurve.out")
    if training.pop("mixed_precision", None):
        raise UserError(f"{at}: training.mixed_precision is not supported; set precision in the model instead")
    refuse(training, WITHOUT_EFFECT["training"], f"{at}: training")
    model = {key: value for key, value in tree["model"].items() if key not in WITHOUT_EFFECT["model"]}
    check_model(model, f"{at}: model")
    recipe = {
        "model": without_remarks(model),
        "data": data,
        "optimizer": rate_section(tree.get("learning_rate", {}), at),
        "training": {
            "steps": whole(steps, f"{at}: training.numb_steps"),
            "loss": loss_section(tree.get("loss", {}), at),
            "lcurve": str(lcurve),
        },
    }
    return {"recipe": recipe, "log_every": shown, "eval_every": shown, "checkpoint_every": saved, **numbers}


def load(file: Path) -> Tree:
    try:
        tree = json.loads(file.read_text())
    except FileNotFoundError:
        raise UserError(f"input_json={file} does not exist") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"input_json={file} is not JSON: {error}") from None
    if not isinstance(tree, dict):
        raise UserError(f"input_json={file} holds no sections; expected model, learning_rate, loss, training")
    return without_remarks(tree)


def without_remarks(node: Any) -> Any:
    """Without keys such as _comment."""
    if isinstance(node, dict):
        return {key: without_remarks(value) for key, value in node.items() if not key.startswith("_")}
    return [without_remarks(value) for value in node] if isinstance(node, list) else node


def refuse(section: Mapping[str, Any], known: set[str], place: str) -> None:
    for key in section:
        if key not in known:
            hint = nearest(key, {*known, *KNOWN})
            raise UserError(f"{place}.{key}={section[key]!r} is not supported{hint}; leave it out")


def whole(value: Any, place: str) -> int:
    """A whole number. Raises UserError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise UserError(f"{place}={value!r}; expected a whole number")
    return int(value)


def real(value: Any, place: str) -> float:
    """A number. Raises UserError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{place}={value!r}; expected a number")
    return float(value)


def check_model(model: Tree, place: str) -> None:
    """Raises UserError, with the file's name, for a model that cannot be made. Takes out its type, of which there is one."""
    kind = model.pop("type", "standard")
    if kind != "standard":
        raise UserError(f"{place}.type={kind!r} is not supported; supported is standard")
    for name in OTHER_MODELS & set(model):
        raise UserError(f"{place}.{name} is not supported; leave it out")
    potential(model, place)


def taken(section: Tree, names: tuple[str, ...], missing: str) -> Any:
    for name in names:
        if name in section:
            return section.pop(name)
    raise UserError(missing)


def data_section(training: Tree, file: Path) -> tuple[Tree, Tree]:
    """Where the frames are, relative to the file's folder as deepmd-kit takes them to the current one; and the seed."""
    at = f"{file}: training"
    if "systems" in training:  # as older versions have it
        old = {"systems": training.pop("systems"), "set_prefix": training.pop("set_prefix", "set")}
        training["training_data"] = {**old, "batch_size": training.pop("batch_size", "auto")}
    given = dict(training.pop("training_data", {}))
    test = dict(training.pop("validation_data", None) or {})
    systems = given.pop("systems", None)
    if not systems:
        raise UserError(f"{at}.training_data.systems is missing; name at least one system")
    size = batch_size(given.pop("batch_size", "auto"), f"{at}.training_data.batch_size")
    test_size = test.pop("batch_size", 1)
    if isinstance(test_size, list) or (isinstance(test_size, str) and not test_size.startswith("auto")):
        raise UserError(f"{at}.validation_data.batch_size={test_size!r} is not supported; give a number or auto")
    batches = whole(test.pop("numb_btch", test.pop("numb_batch", 1)), f"{at}.validation_data.numb_btch")
    found: Tree = {
        "train": listed(systems, f"{at}.training_data.systems"),
        "test": listed(test.pop("systems", []), f"{at}.validation_data.systems"),
        "batch_size": size,
    }
    for section, name in ((given, "training_data"), (test, "validation_data")):
        if section.pop("auto_prob", "prob_sys_size") != "prob_sys_size" or section.pop("sys_probs", None):
            raise UserError(f"{at}.{name}.auto_prob: only prob_sys_size is supported; leave it out")
        section.pop("set_prefix", None)
        refuse(section, set(), f"{at}.{name}")
    seed = training.get("seed")
    return {**found, "test_batches": batches}, ({} if seed is None else {"seed": whole(seed, f"{at}.seed") % 2**32})


def listed(systems: Any, at: str) -> list[str]:
    places = [systems] if isinstance(systems, str) else systems
    if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
        raise UserError(f"{at}={systems!r}; expected the name of a system, or a list of names")
    return [str(Path(place).absolute()) if "#" not in place else place for place in places]


def batch_size(size: Any, place: str) -> int | str:
    if isinstance(size, int) or (isinstance(size, str) and size.partition(":")[0] == "auto"):
        return size
    if isinstance(size, list) and len(set(size)) == 1:
        return int(size[0])
    raise UserError(f"{place}={size!r} is not supported; give a number, auto or auto:N")


def rate_section(section: Tree, at: str) -> Tree:
    rest = dict(section)
    schedule = rest.pop("type", "exp")
    if schedule not in SCHEDULES:
        raise UserError(
            f"{at}: learning_rate.type={schedule!r} is not supported; supported are {', '.join(sorted(SCHEDULES))}"
        )
    found: Tree = {"schedule": schedule}
    for name in ("start_lr", "stop_lr", "decay_steps", "decay_rate", "smooth"):
        if rest.get(name) is not None:
            found[name] = rest.pop(name)
    refuse(rest, WITHOUT_EFFECT["learning_rate"], f"{at}: learning_rate")
    numbers = ("start_lr", "stop_lr", "decay_rate")
    return {key: real(value, f"{at}: learning_rate.{key}") if key in numbers else value for key, value in found.items()}


def loss_section(section: Tree, at: str) -> Tree:
    names = [f"{end}_pref_{label}" for end in ("start", "limit") for label in "efv"]
    found = {}
    for name, value in section.items():
        if name in names:
            found[name] = real(value, f"{at}: loss.{name}")
        elif name == "type":
            found[name] = value
        elif value not in (0, 0.0, None, False):
            raise UserError(f"{at}: loss.{name}={value!r} is not supported; leave it out")
    return found


def check_optimizer(training: Tree, optimizer: Tree, at: str) -> None:
    for place, section in ((f"{at}: training", training), (f"{at}: optimizer", dict(optimizer))):
        name = str(section.pop("opt_type", section.pop("type", "Adam") if place.endswith("optimizer") else "Adam"))
        if name.lower() != "adam":
            raise UserError(f"{place}: the optimizer {name!r} is not supported; supported is Adam")
    refuse({key: value for key, value in optimizer.items() if key != "type"}, set(), f"{at}: optimizer")
