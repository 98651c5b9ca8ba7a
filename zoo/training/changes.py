"""What changed between the configuration of a checkpoint and that of the run that resumes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zoo.errors import UserError

ABSENT = "(absent)"


def differences(before: Any, after: Any, path: str = "recipe") -> list[str]:
    """One line `recipe.optimizer.learning_rate: 0.1 -> 0.2` for each value that differs, in the order of the paths.

    Args:
        before: configuration as read back from JSON; a tuple and a list of the same items are equal.
        after: configuration of this run.
        path: what the first part of every path is called.
    """
    return sorted(_lines(before, after, path))


def refuse(before: Any, after: Any, allowed: bool, path: str = "recipe") -> list[str]:
    """The differences, for the run to print. Raises UserError when there are some and they are not allowed."""
    lines = differences(before, after, path)
    if lines and not allowed:
        raise UserError(
            f"the {path} is not the one of the checkpoint (checkpoint -> this run): {'; '.join(lines)}. "
            "Undo the change, or give allow_changed_recipe=true to go on with it, or another run_dir to start afresh"
        )
    return lines


def _lines(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in before.keys() | after.keys():
            yield from _lines(before.get(key, ABSENT), after.get(key, ABSENT), f"{path}.{key}")
    elif isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _lines(old, new, f"{path}[{index}]")
    elif not _same(before, after):
        yield f"{path}: {_text(before)} -> {_text(after)}"


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        return False  # of other lengths
    not_numbers = before != before and after != after  # NaN is the same setting as NaN
    return not_numbers or (before == after and isinstance(before, bool) == isinstance(after, bool))


def _text(value: Any) -> str:
    return value if value is ABSENT else repr(value)
