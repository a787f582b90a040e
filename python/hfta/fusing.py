"""Makes arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

from torch import nn

from . import _build, _checks
from ._errors import InvalidArgument
from .array import Array

M = TypeVar("M", bound=nn.Module)


def fuse(
    models: Sequence[M] | Callable[..., M],
    *,
    lanes: int | None = None,
    seeds: Iterable[int] | None = None,
) -> Array[M]:
    """Makes an array of models that are trained as one.

    Args:
        models: a sequence of modules of one structure, which are copied and stay as they are; or a factory, called for each lane (with
            the lane's index where it takes an argument), right after what `torch.manual_seed(seed)` does. Torch's own generator is
            afterwards as it was.
        lanes: how many lanes a factory is called for; needed unless `seeds` tells.
        seeds: one per lane, `0, 1, 2, ...` where none are given. A lane's random operators (dropout) go on from its seed: for a factory
            from where building the model left it, so that the lane draws what the single program draws.

    Raises:
        InvalidArgument (a ValueError): models of different structure, naming the first difference; no model; a wrong number of seeds.
        Unsupported: tensors that cannot be stacked (sparse, quantized, views of each other).

    Example:
        >>> array = hfta.fuse([nn.Linear(3, 2) for _ in range(4)])
        >>> array = hfta.fuse(lambda: nn.Linear(3, 2), lanes=4)
        >>> array.lanes
        4
    """
    seeds = None if seeds is None else _build.seeds_of(seeds, "hfta.fuse")
    lanes = None if lanes is None else _checks.whole(lanes, "hfta.fuse", "lanes")
    if callable(models) and not isinstance(models, nn.Module):
        if lanes is None and seeds is None:
            raise InvalidArgument("hfta.fuse: expected the number of lanes for a factory, as lanes= or seeds=, got neither")
        count = len(seeds) if lanes is None else lanes  # type: ignore[arg-type]
        build = _build.from_factory(cast(Callable[..., M], models))
    else:
        given = _build.models_of(models, "hfta.fuse", 0, lanes)
        count = len(given)
        build = _build.from_models(given)
    if seeds is not None and len(seeds) != count:
        raise InvalidArgument(f"hfta.fuse: expected {count} seeds (one per lane), got {len(seeds)}")
    if count < 1:
        raise InvalidArgument("hfta.fuse: expected at least one lane, got none")
    return Array(build, list(range(count)) if seeds is None else seeds)
