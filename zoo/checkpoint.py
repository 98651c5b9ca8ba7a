"""What a checkpoint holds, and whether it is whole.

    python -m zoo.checkpoint show DIR       step, meta, and the tree with shapes, dtypes and placements as saved
    python -m zoo.checkpoint verify DIR     reads every file and holds it against the manifest

DIR is a run folder, its checkpoints folder (both mean the newest step) or the folder of one step.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from zoo.errors import exit_code
from zoo.training import checkpoints


def main(argv: list[str]) -> int:
    """Runs one subcommand. Raises UserError when DIR is no checkpoint or a damaged one."""
    options = _parser().parse_args(argv)
    found, step = checkpoints.locate(options.dir)
    if options.command == "show":
        print(found.describe(step))
    else:
        found.verify(step)
        print(f"checkpoint {found.directory / str(step)} is whole: every file is as it was written")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m zoo.checkpoint", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("show", "print what it holds"), ("verify", "read every file and check it")):
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "dir", type=Path, metavar="DIR", help="run folder, checkpoints folder or folder of one step"
        )
    return parser


if __name__ == "__main__":
    sys.exit(exit_code(main)(sys.argv[1:]))
