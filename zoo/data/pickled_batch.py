"""The dictionary of a pickled CIFAR batch, read without unpickling.

A pickle is a program. This module reads its instructions with `pickletools.genops`, which runs nothing, and interprets
the few that build dictionaries, lists, numbers, text and bytes. What would be a call becomes a record of the name and
the arguments; only the two forms in which numpy writes an array are then understood. Everything else is refused.
"""

from __future__ import annotations

import dataclasses
import pickletools
from typing import Any

import numpy as np


class UnknownPickle(Exception):
    """The file holds something that a batch of images does not."""


@dataclasses.dataclass(frozen=True)
class Name:
    """A name that unpickling would import."""

    path: str


@dataclasses.dataclass
class Call:
    """A call that unpickling would make, and the state that it would set on the result."""

    name: Name
    arguments: tuple[Any, ...]
    state: Any = None


_MARK = Name("a mark on the stack")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1")
_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8")
_STRINGS = ("BINSTRING", "SHORT_BINSTRING")  # of Python 2: bytes, which genops gives as Latin-1
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS, _GETS = ("BINPUT", "LONG_BINPUT"), ("BINGET", "LONG_BINGET")


def parse(content: bytes) -> dict[str, Any]:
    """The dictionary that a pickle describes: lists, tuples, numbers, text, bytes and `Call` records.

    Raises:
        UnknownPickle: it is no pickle, no dictionary, or has an instruction that a batch of images does not need.
    """
    try:
        result = _interpret(content)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise UnknownPickle(f"it is not a whole pickle ({error})") from None
    if not isinstance(result, dict):
        raise UnknownPickle(f"it holds a {type(result).__name__} in place of a dictionary")
    return {_text(key): value for key, value in result.items()}


def array(value: Any) -> np.ndarray:
    """The uint8 array that a `Call` record describes, in the forms of numpy's pickles.

    Raises:
        UnknownPickle: the record is another call, or the array another dtype.
    """
    if not isinstance(value, Call):
        raise UnknownPickle(f"a {type(value).__name__} stands where the array of pixels should be")
    try:
        function = value.name.path.replace("numpy._core.", "numpy.core.")
        if function == "numpy.core.multiarray._reconstruct":
            _, shape, dtype, fortran, content = value.state
        elif function == "numpy.core.numeric._frombuffer":
            content, dtype, shape, order = value.arguments
            fortran = order == "F"
        else:
            raise UnknownPickle(f"it would call {value.name.path}")
        if dtype.name.path != "numpy.dtype" or _text(dtype.arguments[0]) != "u1":
            raise UnknownPickle("its pixels are not of dtype uint8")
        return np.frombuffer(_bytes(content), np.uint8).reshape(shape, order="F" if fortran else "C")
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise UnknownPickle(f"its array is malformed ({error})") from None


def numbers(value: Any) -> np.ndarray:
    """The int64 array [n], n > 0, that a list of whole numbers from 0 on describes.

    Raises:
        UnknownPickle: it is something else.
    """
    if not isinstance(value, list) or not value or not all(type(one) is int and one >= 0 for one in value):
        raise UnknownPickle("its labels are not a list of whole numbers")
    return np.asarray(value)


def _interpret(content: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    argument: Any
    for opcode, argument, position in pickletools.genops(content):
        name = opcode.name
        if name == "STOP":
            return stack.pop()
        if name in _PUTS:
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in _GETS:
            stack.append(memo[argument])
        elif not _value(stack, name, argument) and not _build(stack, name, argument):
            raise UnknownPickle(f"instruction {name} at byte {position} is not one that a batch of images needs")
    raise UnknownPickle("it breaks off")


def _value(stack: list[Any], name: str, argument: Any) -> bool:
    """Runs an instruction that pushes a value; False where `name` is no such instruction."""
    if name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in _NUMBERS or name in _TEXTS or name in _BYTES:
        stack.append(argument)
    elif name in _STRINGS:
        stack.append(argument.encode("latin-1"))
    elif name == "EMPTY_DICT":
        stack.append({})
    elif name == "EMPTY_LIST":
        stack.append([])
    elif name == "MARK":
        stack.append(_MARK)
    elif name == "GLOBAL":
        stack.append(Name(argument.replace(" ", ".")))
    else:
        return name in ("PROTO", "FRAME")
    return True


def _build(stack: list[Any], name: str, argument: Any) -> bool:
    """Runs an instruction that joins values on the stack; False where `name` is no such instruction."""
    if name in _TUPLES:
        stack.append(tuple(stack.pop() for _ in range(_TUPLES[name]))[::-1])
    elif name == "TUPLE":
        stack.append(tuple(_marked(stack)))
    elif name == "APPEND":
        value = stack.pop()
        stack[-1].append(value)
    elif name == "APPENDS":
        values = _marked(stack)
        stack[-1].extend(values)
    elif name == "SETITEM":
        value, key = stack.pop(), stack.pop()
        stack[-1][key] = value
    elif name == "SETITEMS":
        values = _marked(stack)
        stack[-1].update(zip(values[::2], values[1::2], strict=True))
    elif name == "STACK_GLOBAL":
        attribute, module = stack.pop(), stack.pop()
        stack.append(Name(f"{module}.{attribute}"))
    elif name == "REDUCE":
        arguments, function = stack.pop(), stack.pop()
        stack.append(_called(function, arguments))
    elif name == "BUILD":
        state = stack.pop()
        stack[-1].state = state
    else:
        return False
    return True


def _marked(stack: list[Any]) -> list[Any]:
    """Takes everything above the last mark off the stack, and the mark."""
    at = max(index for index, value in enumerate(stack) if value is _MARK)
    values = stack[at + 1 :]
    del stack[at:]
    return values


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _called(function: Name, arguments: tuple[Any, ...]) -> Any:
    # Protocol 2 written by Python 3 spells bytes as the encoding of a text.
    if function.path == "_codecs.encode" and arguments[1:] == ("latin1",):
        return arguments[0].encode("latin-1")
    return Call(function, arguments)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray):
        raise UnknownPickle("the array's content is not bytes")
    return bytes(value)
