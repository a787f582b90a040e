"""Inputs of any length as inputs of a few lengths, so that a few recordings serve them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from . import _checks
from ._core import PerLane
from ._errors import InvalidArgument


@dataclass(frozen=True)
class Pad:
    """Lengthens an axis of an input to one of a few sizes; for the option `pad` of `hfta.record` and `hfta.Trainer`.

    The function must not see the difference: padded items are masked, or ignored by the loss.

    Args:
        axis: the axis of the input, counted without the lane axis.
        to: sizes in rising order, of which the first that fits is taken (an input longer than all of them stays as it is); or a number
            whose next multiple is taken.
        value: what is filled in.

    Example:
        >>> pads = [hfta.Pad(1, to=[32, 64, 128]), hfta.Pad(1, to=[32, 64, 128], value=-100)]      # tokens, targets
        >>> step = array.record(adam, lambda net, x, y: F.cross_entropy(net(x).transpose(1, 2), y), pad=pads)   # ignores -100
    """

    axis: int
    to: int | Sequence[int]
    value: float = 0

    def size(self, length: int) -> int:
        """The length that an axis of this length gets."""
        if isinstance(self.to, int):
            return -(-length // self.to) * self.to
        return next((size for size in self.to if size >= length), length)

    def __call__(self, given: Tensor | PerLane) -> Tensor | PerLane:
        """The padded input."""
        if isinstance(given, PerLane):
            return PerLane(self._padded(given.tensor, given.tensor.dim() - 1, 1))
        return self._padded(given, given.dim(), 0)

    def _padded(self, tensor: Tensor, axes: int, lane_axes: int) -> Tensor:
        if not -axes <= self.axis < axes:
            raise InvalidArgument(f"hfta.Pad: expected an input with axis {self.axis}, got one of shape {list(tensor.shape[lane_axes:])}")
        axis = self.axis % axes
        missing = self.size(tensor.shape[axis + lane_axes]) - tensor.shape[axis + lane_axes]
        if missing == 0:
            return tensor
        behind = axes - 1 - axis
        return F.pad(tensor, [0, 0] * behind + [0, missing], value=self.value)


Pads = Sequence[Pad | None]


def check(pads: Any, who: str) -> None:
    """Refuses what is no list of paddings."""
    for entry in _checks.several(pads, who, "pad"):
        if entry is not None and not isinstance(entry, Pad):
            raise InvalidArgument(f"{who}: expected pad as a list of hfta.Pad or None, one per input, got {type(entry).__name__}")
        if entry is not None:
            _checks.whole(entry.axis, "hfta.Pad", "axis")
        sizes = [] if entry is None else [entry.to] if isinstance(entry.to, int) else list(entry.to)
        if entry is not None and (not sizes or sizes != sorted(sizes) or sizes[0] < 1):
            raise InvalidArgument(f"hfta.Pad: expected sizes of at least 1 in rising order, got {entry.to!r}")


def padded(inputs: tuple[Any, ...], pads: Pads) -> tuple[Any, ...]:
    """Each input by the padding in its place; those behind the last padding stay as they are."""
    if len(pads) > len(inputs):
        raise InvalidArgument(f"hfta: expected at most {len(inputs)} paddings as there are inputs, got {len(pads)}")
    filled = [given if pad is None else pad(given) for given, pad in zip(inputs, pads)]
    return (*filled, *inputs[len(pads) :])
