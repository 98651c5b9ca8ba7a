"""The configuration of one command: Hydra composes YAML files and overrides, frozen dataclasses check the result once.

Hydra's own `main` makes an outputs folder and exits 1 on a bad option, so only its compose functions are used.
Values that are paths never pass through its grammar, in which `=`, `(`, `,`, `~` and spaces mean something else.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from pathlib import Path
from typing import Any

import flowaware_core as fa
from zoo.clusters import ClusterConfig
from zoo.errors import UserError
from zoo.paths import conf_dir
from zoo.typed import nearest, typed

GROUPS = ("recipe", "cluster")
PATHS = ("run_dir", "data_dir", "init_from", "resume", "strategy", "conf_dir", "input_json")  # strategy may name a file


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """The run on virtual devices that shows a plan working where its cluster is not at hand."""

    steps: int
    examples_per_device: int

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("examples_per_device", self.examples_per_device)):
            if value < 1:
                raise ValueError(f"{name}={value}; it must be a whole number above 0")


@dataclasses.dataclass(frozen=True)
class RecipeConfig:
    """One conf/recipe/*.yaml.

    Attributes:
        name: as it stands on the command line.
        target: dotted name of the recipe's class, `_target_` in the YAML.
        model, data, optimizer, training: sections that the recipe's class converts to dataclasses of its own.
        init_from: what the command's `init_from` names; a recipe may take the sizes of its model from there.
        predict: the same for `zoo.predict`; empty where the recipe only trains.
        predicts: whether trained weights are used: then the names of labels are theirs, whatever table lies in data_dir.
    """

    name: str
    target: str
    model: dict[str, Any]
    data: dict[str, Any]
    optimizer: dict[str, Any]
    training: dict[str, Any]
    rehearsal: Rehearsal
    init_from: Path | None = None
    predict: dict[str, Any] = dataclasses.field(default_factory=dict)
    predicts: bool = False


@dataclasses.dataclass(frozen=True)
class Config:
    """One command, checked. conf/config.yaml says what each value means."""

    recipe: RecipeConfig
    cluster: ClusterConfig
    run_dir: Path
    data_dir: Path
    seed: int
    steps: int | None = None
    strategy: str = "auto"
    meshes: str = "few"
    resume: str = "auto"
    init_from: Path | None = None
    allow_changed_recipe: bool = False
    processes: int = 1
    log_every: int = 1
    eval_every: int = 1000
    checkpoint_every: int = 1000
    audit: bool = False
    audit_target: str | None = None
    compare: str = "none"

    def __post_init__(self) -> None:
        least = {"steps": 1, "seed": 0, "processes": 1, "log_every": 1, "eval_every": 1, "checkpoint_every": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise ValueError(f"{name}={value}; it must be a whole number of at least {bound}")
        if self.seed >= 2**32:
            raise ValueError(f"seed={self.seed}; it must be below 2**32")
        if self.audit_target is not None and self.audit_target not in fa.CARDS:
            raise ValueError(f"audit_target={self.audit_target}; cards to compile for are {', '.join(fa.CARDS)}")
        if self.meshes not in ("few", "all"):
            raise ValueError(f"meshes={self.meshes}; allowed are few and all")
        if self.compare not in ("none", "all"):
            raise ValueError(f"compare={self.compare}; allowed are none and all")


def compose(overrides: list[str]) -> Config:
    """The configuration that the words of a command line ask for.

    Args:
        overrides: `key=value` each, in Hydra's grammar except for the values of `PATHS`, which are taken as they are.

    Raises:
        UserError: a choice is missing or misspelt, a key is unknown, a value is malformed or out of its range.
    """
    paths, rest = split_paths(overrides)
    folders = [conf_dir(), *(Path(path) for path in [paths.pop("conf_dir", None)] if path is not None)]
    for folder in folders[1:]:
        if not folder.is_dir():
            raise UserError(f"conf_dir={folder} is no folder; name one that holds cluster/*.yaml or recipe/*.yaml")
    input_json = paths.pop("input_json", None)
    if input_json is not None and not any(word.startswith("cluster=") for word in rest):
        rest.append("cluster=local")  # such a file says all there is to say, as it does to deepmd-kit
    require_choices(rest, folders)
    if input_json is not None:
        other = next(
            (word for word in rest if word.startswith("recipe=") and word not in ("recipe=dp", "recipe=null")), None
        )
        if other is not None:
            raise UserError(
                f"input_json={input_json} describes model and data, and so does {other}; it goes with recipe=dp"
            )
        from zoo.models.deepmd.input_json import overrides as of_file  # here: only potentials have such a file

        rest = [*words_of(of_file(Path(input_json))), *rest]
    tree = composed(rest, folders)
    tree.update(paths)
    tree["recipe"]["target"] = tree["recipe"].pop("_target_", None)
    tree["recipe"]["init_from"] = tree.get("init_from")
    if tree["run_dir"] is None:
        tree["run_dir"] = str(Path("runs") / f"{tree['recipe'].get('name')}-{tree['cluster'].get('name')}")
    return typed(Config, tree)


def split_paths(overrides: list[str]) -> tuple[dict[str, str | None], list[str]]:
    """Takes the overrides whose values are paths out of the list; `null` means unset and a leading `~/` the home."""
    paths: dict[str, str | None] = {}
    rest = []
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals and not override.startswith("~"):
            raise UserError(
                f"{override!r} is not an option; options are written key=value, such as recipe=resnet50; "
                "python -m zoo.list names the recipes and clusters, and conf/config.yaml has the options"
            )
        if key not in PATHS:
            rest.append(override)
        elif not value:
            raise UserError(f"{key}= has no value; give a path or leave the option out")
        elif value == "null":
            paths[key] = None
        else:
            paths[key] = os.path.expanduser(value) if value.startswith("~/") else value
    return paths, rest


def choices(group: str, folders: list[Path] | None = None) -> list[str]:
    """The names that may stand behind `recipe=` or `cluster=`."""
    found = {file.stem for folder in folders or [conf_dir()] for file in (folder / group).glob("*.yaml")}
    return sorted(found, key=natural)


def natural(name: str) -> tuple[str, int]:
    """Sorts gpu16 before gpu128."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def require_choices(overrides: list[str], folders: list[Path]) -> None:
    chosen = dict(override.split("=", 1) for override in overrides if "=" in override)
    problems = []
    for group in GROUPS:
        known = choices(group, folders)
        name = chosen.get(group)
        if name is None:
            near = difflib.get_close_matches(group, [word.partition("=")[0] for word in overrides], n=1, cutoff=0.75)
            meant = f" ({near[0]}= is not known)" if near and near[0].isidentifier() else ""
            problems.append(f"{group}=NAME is missing{meant}: choose one of {', '.join(known)}")
        elif name not in known:
            problems.append(f"{group}={name} is not known{nearest(name, known)}: choose one of {', '.join(known)}")
    if problems:
        raise UserError("; ".join(problems))


def composed(overrides: list[str], folders: list[Path]) -> dict[str, Any]:
    """What Hydra composes, as plain dicts and lists.

    Every value is set whether or not the YAML lists its key (`++`): optional keys need no prefix, and `typed` finds the
    unknown ones.
    """
    from hydra import compose as hydra_compose  # here, so that importing this module stays cheap
    from hydra import initialize_config_dir
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException, OverrideParseException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    words = [word if word.startswith(("~", "+")) or word.split("=")[0] in GROUPS else f"++{word}" for word in overrides]
    words += [f"hydra.searchpath=[{quoted(f'file://{folder.absolute()}')}]" for folder in folders[1:]]
    try:
        OverridesParser.create().parse_overrides(words)
        with initialize_config_dir(config_dir=str(folders[0]), version_base="1.3"):
            tree = OmegaConf.to_container(hydra_compose("config", words), resolve=True)
    except OverrideParseException as error:
        word = str(error.override).removeprefix("++")
        raise UserError(f"{word}: {first_line(error)}; put a value with signs such as ( , = [ # into quotes") from None
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(first_line(error)) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{not_utf8(folders)} is not text in UTF-8: {error.reason}; save it as UTF-8") from None
    except YAMLError as error:
        raise UserError(f"a configuration file is not YAML: {' '.join(str(error).split())}") from None
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def not_utf8(folders: list[Path]) -> Path:
    """The first file of a configuration that cannot be decoded."""
    for file in (file for folder in folders for file in sorted(folder.rglob("*.yaml"))):
        try:
            file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return file
    raise AssertionError("every file can be decoded")


def quoted(text: str) -> str:
    """A string in Hydra's grammar."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def words_of(tree: dict[str, Any], path: str = "") -> list[str]:
    """A tree as overrides, one for each value that is no section."""
    words = []
    for key, value in tree.items():
        inside = f"{path}.{key}" if path else str(key)
        words += words_of(value, inside) if isinstance(value, dict) and value else [f"{inside}={written(value)}"]
    return words


def written(value: Any) -> str:
    """A value in Hydra's grammar."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{written(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(written(part) for part in value) + "]"
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].replace("++", "") if lines else type(error).__name__


def plain(config: Any) -> Any:
    """A configuration as plain dicts, lists, numbers and text: what config.yaml and the checkpoints hold."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: plain(getattr(config, field.name)) for field in dataclasses.fields(config)}
    if isinstance(config, dict):
        return {str(key): plain(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [plain(value) for value in config]
    return str(config) if isinstance(config, Path) else config
