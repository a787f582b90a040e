"""Refusals of what is given, in one line."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from ._errors import InvalidArgument


def whole(value: Any, who: str, what: str, least: int | None = None) -> int:
    """A whole number: an int, NumPy's, or a tensor of one."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{who}: expected {what} as a whole number, got {value!r}") from None
    if least is not None and number < least:
        raise InvalidArgument(f"{who}: expected {what} of at least {least}, got {number}")
    return number


def wholes(values: Any, who: str, what: str) -> list[int]:
    """A list of whole numbers."""
    return [whole(value, who, what) for value in several(values, who, what)]


def several(values: Any, who: str, what: str) -> list[Any]:
    """What can be gone through, as a list; a text is not meant."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        raise InvalidArgument(f"{who}: expected {what} as a list, got {values!r}")
    return list(values)


def function(value: Any, who: str, what: str = "a function of a model") -> None:
    """Something to call."""
    if not callable(value):
        raise InvalidArgument(f"{who}: expected {what}, got {type(value).__name__}")


def mapping(value: Any, who: str, what: str) -> None:
    """A dict, or what is like one."""
    if not hasattr(value, "items") or not hasattr(value, "get"):
        raise InvalidArgument(f"{who}: expected {what} as a dict, got {type(value).__name__}")


def instance(value: Any, kind: type, who: str, what: str) -> None:
    """None, or an object of the class."""
    if value is not None and not isinstance(value, kind):
        raise InvalidArgument(f"{who}: expected {what} as an hfta.{kind.__name__}, got {value!r}")
