"""Nests of tensors as flat lists and back: what a function takes and returns. Called by the binding."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from ._core import PerLane
from ._errors import InvalidArgument


class Spec:
    """How a nest was made; `None`s stay where they were."""

    __slots__ = ("present", "spec")

    def __init__(self, spec: pytree.TreeSpec, present: tuple[bool, ...]):
        self.spec, self.present = spec, present

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.present == other.present and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(self.present)

    def __str__(self) -> str:
        return f"{self.spec} {self.present}"

    def fill(self, tensors: list[Any]) -> Any:
        values = iter(tensors)
        return pytree.tree_unflatten([next(values) if there else None for there in self.present], self.spec)


def _flatten(nest: Any, allowed: tuple[type, ...], what: str) -> tuple[list[Any], Spec]:
    leaves, spec = pytree.tree_flatten(nest)
    for leaf in leaves:
        if leaf is not None and not isinstance(leaf, allowed):
            raise InvalidArgument(f"hfta: expected tensors as {what}, got {type(leaf).__name__}")
    return [leaf for leaf in leaves if leaf is not None], Spec(spec, tuple(leaf is not None for leaf in leaves))


def flatten_inputs(arguments: list[Any]) -> tuple[list[Any], Spec]:
    """Tensors and `PerLane`s of nested arguments."""
    return _flatten(arguments, (torch.Tensor, PerLane), "inputs (numbers as torch.tensor(...))")


def nest_inputs(tensors: list[Any], spec: Spec) -> list[Any]:
    return spec.fill(tensors)


def flatten_result(result: Any) -> tuple[list[Any], Spec]:
    return _flatten(result, (torch.Tensor,), "what the function returns")


def nest_result(tensors: list[Any], spec: Spec) -> Any:
    return spec.fill(tensors)
