"""Calls that change arrays: one at a time, and never from inside the function that a step runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from . import _core

if TYPE_CHECKING:
    from .array import Array

A = TypeVar("A", bound="Array[Any]")
P = ParamSpec("P")
R = TypeVar("R")


def alone(array: Array[Any], who: str) -> _core.Alone:
    """Keeps off the calls of other threads; refuses what comes from a step's own function."""
    return _core.Alone([array._core], who)


def between_steps(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[A, P], R]:
    """A method of an array, run `alone`."""

    @functools.wraps(method)
    def call(array: A, *args: P.args, **named: P.kwargs) -> R:
        with alone(array, f"hfta.Array.{method.__name__}"):
            return method(array, *args, **named)

    return call
