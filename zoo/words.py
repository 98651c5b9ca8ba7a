"""Words of a command line that belong to one command alone, beside those of the configuration."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import yaml

from zoo.errors import UserError
from zoo.typed import typed

EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
"""Numbers such as 1e-3, which YAML takes for text."""

Options = TypeVar("Options")


def own(cls: type[Options], argv: Sequence[str], texts: Sequence[str] = ()) -> tuple[Options, list[str]]:
    """Splits a command line into a command's own options and the other words.

    Args:
        cls: a dataclass; a word `name=value` with the name of a field is the command's own. Values are read as YAML.
        texts: fields whose values are taken as they are, such as paths; several are separated by commas.

    Raises:
        UserError: a value has a wrong type or is refused by the dataclass.
    """
    names = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    rest = []
    for word in argv:
        key, equals, value = word.partition("=")
        if not equals or key not in names:
            rest.append(word)
        elif key in texts:
            found[key] = os.path.expanduser(value)
        else:
            try:
                found[key] = float(value) if EXPONENT.fullmatch(value) else yaml.safe_load(value)
            except yaml.YAMLError:
                raise UserError(f"{word}: the value is malformed") from None
    return typed(cls, found), rest
