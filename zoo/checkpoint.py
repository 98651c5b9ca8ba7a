"""What a checkpoint holds, and whether it is whole.

    python -m zoo.checkpoint show DIR       step, meta, and the tree with shapes, dtypes and placements as saved
    python -m zoo.checkpoint show FILE      what is in a potential's .dp, .yaml or .pt file
    python -m zoo.checkpoint verify DIR     reads every file and holds it against the manifest
    python -m zoo.checkpoint convert from=PATH to=PATH [adapter=true]
        a run to a file of weights (.safetensors, .npz, .pt) or a folder in Hugging Face's layout; these to a checkpoint
        that init_from takes, or to a file of another kind; prints every key. Products of LoRA are added to their matrices; with
        adapter=true they alone become a folder in the layout of PEFT
        potentials: a run, .dp, .yaml or .pt of deepmd-kit to .dp or .yaml
    python -m zoo.checkpoint compress from=PATH to=FILE.dp [data=SYSTEM,...] [min_distance_a=A]
        a potential that runs almost twice as fast; deepmd-kit reads the file as any other
    python -m zoo.checkpoint change-bias from=PATH to=FILE.dp data=SYSTEM,... [mode=change|set]
        a potential with its energy per type fitted to other frames

DIR is a run folder, its checkpoints folder (both mean the newest step), the folder of one step, or RUN/best: the step with the best
evaluation.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from zoo.errors import UserError, exit_code
from zoo.training import checkpoints


def main(argv: list[str]) -> int:
    """Runs one subcommand. Raises UserError when DIR is no checkpoint or a damaged one."""
    options = _parser().parse_args(argv)
    if options.command == "convert":
        return convert(options.words)
    if options.command in ("compress", "change-bias"):
        return change(options.command, options.words)
    if options.command == "show" and potential_file(options.dir):
        return 0
    found, step = checkpoints.locate(options.dir)
    if options.command == "show":
        print(found.describe(step))
    else:
        found.verify(step)
        print(f"checkpoint {found.directory / str(step)} is whole: every file is as it was written")
    return 0


def potential_file(path: Path) -> bool:
    """Prints what is in a file of a potential; False where the path is none."""
    from zoo import potentials  # here: the other commands need no model

    if not potentials.is_file(path):
        return False
    print("\n".join(potentials.shown(path)))
    return True


def convert(words: list[str]) -> int:
    """Converts what `from=` names to what `to=` names. Raises UserError where one is missing or does not fit."""
    from zoo import conversion, potentials  # here: the other commands need no model
    from zoo.models.exchange import LEFT_OUT
    from zoo.training.job import load

    given = dict(word.split("=", 1) for word in words if "=" in word)
    adapter = given.pop("adapter", "false")
    once = len({word.partition("=")[0] for word in words}) == len(words)
    if (
        set(given) != {"from", "to"}
        or not all("=" in word for word in words)
        or not once
        or adapter not in ("true", "false")
    ):
        raise UserError(
            f"convert takes from=PATH to=PATH and adapter=true or false; got {' '.join(words) or 'nothing'}"
        )
    source, target = Path(given["from"]), Path(given["to"])
    if not source.exists() and source.name != checkpoints.BEST:
        raise UserError(f"from={source} does not exist; name a run folder, a file of weights, or a folder with one")
    if potentials.is_potential(source, target):
        print("\n".join([*potentials.converted(source, target), f"written to {target}"]))
        return 0
    lines = list(conversion.convert(source, target, load, adapter == "true"))
    left = sum(LEFT_OUT in line for line in lines)
    beside = f", {left} of them left out" if left else ""
    print("\n".join([*lines, f"{len(lines)} keys{beside}; written to {target}"]))
    return 0


def change(command: str, words: list[str]) -> int:
    """Makes another potential of the one that `from=` names. Raises UserError where a word is missing or wrong."""
    from zoo import potentials

    action, options = potentials.CHANGES[command]
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if not {"from", "to"} <= set(given) <= {"from", "to", *options} or len(words) != len(given):
        optional = "".join(f" [{name}=...]" for name in options)
        raise UserError(f"{command} takes from=PATH to=PATH{optional}; got {' '.join(words) or 'nothing'}")
    source, target = Path(given.pop("from")), Path(given.pop("to"))
    print("\n".join([*action(source, target, given), f"written to {target}"]))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m zoo.checkpoint", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("show", "print what it holds"), ("verify", "read every file and check it")):
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "dir", type=Path, metavar="DIR", help="run folder, checkpoints folder or folder of one step"
        )
    for name, text in (
        ("convert", "to and from the formats of others"),
        ("compress", "make a potential fast"),
        ("change-bias", "fit a potential's energies per type to other frames"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("words", nargs="*", metavar="from=PATH to=PATH")
    return parser


if __name__ == "__main__":
    sys.exit(exit_code(main)(sys.argv[1:]))
