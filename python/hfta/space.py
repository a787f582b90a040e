"""What a sweep searches: parameters by name, each with its distribution, as in the study file of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _checks, _core
from ._errors import InvalidArgument

Value = bool | int | float | str | None


class Distribution:
    """What a parameter is drawn from; made by `choice`, `uniform`, `loguniform`, `quniform`, `integer` and `logint`.

    Raises:
        InvalidArgument (a ValueError), where one is made: bounds out of order, a log scale that begins at zero, no values.

    Example:
        >>> hfta.uniform(0, 0.99).when(optimizer="sgd")
    """

    def __init__(self, core: _core.Distribution, condition: tuple[str, list[Value]] | None = None):
        self._core, self._condition = core, condition

    def when(self, **parameter: Value | Sequence[Value]) -> Distribution:
        """The same for trials in which an earlier parameter took this value, or one of these.

        Example:
            >>> space = {"optimizer": hfta.choice("adam", "sgd"), "momentum": hfta.uniform(0, 0.99).when(optimizer="sgd")}
        """
        if len(parameter) != 1:
            raise InvalidArgument(f"hfta.Distribution.when: expected one parameter, got {len(parameter)}")
        ((name, values),) = parameter.items()
        chosen = list(values) if isinstance(values, (tuple, list)) else [values]
        return Distribution(self._core, (name, chosen))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        if self._condition is None:
            return repr(self._core)
        name, values = self._condition
        return f"{self._core!r}.when({name}={values!r})"


#: A space: a distribution per name, or a list of them whose conditions exclude each other. A plain list or tuple of values is a choice.
Space = Mapping[str, Distribution | Sequence[Any]]


def _made(kind: str, *arguments: Any, name: str | None = None) -> Distribution:
    """Tried at once, so that a refusal stands where the distribution was written."""
    try:
        core = getattr(_core, kind)(*arguments)
    except TypeError:
        kinds = "numbers, text, booleans or None" if kind == "choice" else "whole numbers" if "int" in kind else "numbers"
        raise InvalidArgument(f"hfta.{kind}: expected {kinds}, got {', '.join(map(repr, arguments))}") from None
    _core.Space([(name or kind, core, None)])
    return Distribution(core)


def choice(*values: Value) -> Distribution:
    """One of these values: numbers, text, booleans, None.

    Example:
        >>> space = {"activation": hfta.choice("relu", "gelu"), "hidden": [64, 128]}      # a list is a choice too
    """
    return _made("choice", list(values))


def uniform(low: float, high: float) -> Distribution:
    """A number between two bounds, both included.

    Example:
        >>> space = {"dropout": hfta.uniform(0, 0.5)}
    """
    return _made("uniform", low, high)


def loguniform(low: float, high: float) -> Distribution:
    """A number between two bounds, even on a log scale; the bounds are the values, not exponents, and above zero.

    Example:
        >>> space = {"lr": hfta.loguniform(1e-4, 1e-1)}
    """
    return _made("loguniform", low, high)


def quniform(low: float, high: float, step: float) -> Distribution:
    """A number `low + k * step` up to `high`.

    Example:
        >>> space = {"label_smoothing": hfta.quniform(0, 0.2, 0.05)}
    """
    return _made("quniform", low, high, step)


def integer(low: int, high: int, step: int = 1) -> Distribution:
    """A whole number between two bounds, both included, in steps. Also `hfta.int`.

    Example:
        >>> space = {"layers": hfta.integer(1, 4)}
    """
    return _made("integer", low, high, step)


def logint(low: int, high: int) -> Distribution:
    """A whole number between two bounds, both included, even on a log scale.

    Example:
        >>> space = {"hidden": hfta.logint(16, 1024)}
    """
    return _made("logint", low, high)


def entries_of(space: Space) -> list[tuple[str, Distribution]]:
    """Name and distribution of each dimension, in order.

    Raises:
        InvalidArgument: an entry that is neither a distribution nor a list of values.
    """
    _checks.mapping(space, "hfta.Study", "the space")
    entries: list[tuple[str, Distribution]] = []
    for name, given in space.items():
        if isinstance(given, Distribution):
            entries.append((name, given))
        elif not isinstance(given, (list, tuple)):
            raise InvalidArgument(f'hfta.Study: expected a distribution or a list of values as "{name}", got {type(given).__name__}')
        elif given and all(isinstance(entry, Distribution) for entry in given):
            entries += [(name, entry) for entry in given]
        else:
            entries.append((name, _made("choice", list(given), name=name)))
    return entries


def core_of(entries: list[tuple[str, Distribution]]) -> _core.Space:
    return _core.Space([(name, entry._core, entry._condition) for name, entry in entries])
