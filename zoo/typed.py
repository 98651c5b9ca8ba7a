"""Plain trees of values, as YAML gives them, into frozen dataclasses: once, at the edge.

Unknown keys, missing keys and values of a wrong type are reported by their full path, with what is allowed.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from zoo.errors import UserError

Record = TypeVar("Record")

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}


def typed(cls: type[Record], mapping: Any, path: str = "") -> Record:
    """Makes the dataclass `cls` from a mapping.

    Args:
        cls: a dataclass; a field may be int, float, bool, str, Path, Any, a Literal, a tuple, a dict, another dataclass
            or a union of these with None.
        mapping: keys are field names.
        path: where the mapping stands in the whole configuration, such as `recipe.model`.

    Raises:
        UserError: a key is unknown or missing, a value has a wrong type, or the dataclass refuses its values
            (ValueError).
    """
    if not isinstance(mapping, Mapping):
        raise UserError(f"{path}={mapping!r}: expected a section with the keys {names(fields_of(cls))}")
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    for key in mapping:
        if key not in fields:
            raise UserError(f"{join(path, key)} is not known{nearest(str(key), fields)}; allowed here: {names(fields)}")
    values = {key: convert(hints[key], value, join(path, key)) for key, value in mapping.items()}
    for name, field in fields.items():
        if name not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise UserError(f"{join(path, name)} is missing; give it {describe(hints[name])}")
    try:
        return cls(**values)
    except ValueError as error:
        raise UserError(placed(str(error), path, fields)) from None


def placed(sentence: str, path: str, fields: Iterable[str]) -> str:
    """The sentence of a dataclass about itself, with the path of what it speaks of in front."""
    subject = sentence.partition("=")[0].partition(".")[0]
    if not path or subject in fields:
        return join(path, sentence)
    return f"{path}: {sentence}"


def convert(kind: Any, value: Any, path: str) -> Any:
    """One value as the annotation `kind` wants it; raises UserError with the path where it does not fit."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return convert_union(args, value, path)
    if origin is typing.Literal:
        if value not in args:
            raise UserError(f"{path}={value!r}: allowed are {names(args)}{nearest(str(value), args)}")
        return value
    if dataclasses.is_dataclass(kind):
        if isinstance(value, typing.cast(type, kind)):
            return value  # a section that was made before, such as one of several kinds
        return typed(typing.cast(type, kind), value, path)
    if origin is tuple and isinstance(value, list | tuple):
        return convert_tuple(args, value, path)
    if (kind is dict or origin is dict) and isinstance(value, Mapping):
        item = args[1] if args else Any
        return {str(key): convert(item, part, join(path, key)) for key, part in value.items()}
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if kind is float and type(value) in (int, float):
        if not math.isfinite(value):
            raise UserError(f"{path}={value}: expected a finite number")
        return float(value)
    if kind in WORDS and type(value) is kind:  # `type`, since True is an int to isinstance
        return value
    raise UserError(f"{path}={value!r}: expected {describe(kind)}")


def convert_union(args: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in args:
        return None
    kinds = [kind for kind in args if kind is not type(None)]
    if len(kinds) == 1:
        return convert(kinds[0], value, path)
    for kind in kinds:
        try:
            return convert(kind, value, path)
        except UserError:
            continue
    raise UserError(f"{path}={value!r}: expected {' or '.join(describe(kind) for kind in args)}")


def convert_tuple(args: tuple[Any, ...], value: Iterable[Any], path: str) -> tuple[Any, ...]:
    values = list(value)
    kinds = [args[0]] * len(values) if args[1:] == (...,) else list(args)
    if len(kinds) != len(values):
        raise UserError(f"{path}={values!r}: expected {len(kinds)} values, got {len(values)}")
    return tuple(convert(kind, part, f"{path}[{i}]") for i, (kind, part) in enumerate(zip(kinds, values, strict=True)))


def describe(kind: Any) -> str:
    """The annotation in words."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(part) for part in args)
    if kind is type(None):
        return "null"
    if origin is typing.Literal:
        return f"one of {names(args)}"
    if origin is tuple:
        return f"a list, each {describe(args[0])}"
    if kind is dict or origin is dict or dataclasses.is_dataclass(kind):
        return "a section"
    return WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def nearest(name: str, known: Iterable[Any]) -> str:
    """` (did you mean X?)`, or nothing where no known name is near."""
    found = difflib.get_close_matches(name, [str(one) for one in known], n=1, cutoff=0.5)
    return f" (did you mean {found[0]}?)" if found else ""


def names(known: Iterable[Any]) -> str:
    return ", ".join(str(one) for one in known)


def fields_of(cls: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


def join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)
