"""Stacked parameters that an array no longer has."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ._errors import InvalidArgument


class Retired(Tensor):
    """What a stacked parameter becomes when the array's lanes have moved: a stock optimizer that still holds it must not go on silently."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise InvalidArgument(
            "hfta.Array: expected the array's present parameters, got one from before its lanes were kept or added, or its tensors converted: "
            "take array.parameters() anew (a stock optimizer over them: make it anew)"
        )
