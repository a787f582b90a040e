"""Batches from any iterable: how an epoch begins, what a batch's inputs are and how many items it holds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ._core import PerLane
from ._errors import InvalidArgument

#: Something to iterate over once per epoch (a DataLoader, a list of batches), or a function of the epoch's number that gives it.
Batches = Iterable[Any] | Callable[[int], Iterable[Any]]


@contextmanager
def _seeded(seed: int, epoch: int, loader: Any) -> Iterator[None]:
    """Random numbers of an epoch depend on the seed and its number alone; torch's and Python's are afterwards as they were."""
    before, python = torch.get_rng_state(), random.getstate()
    own = (seed * 1_000_003 + epoch) % 2**63
    generators = {
        id(g): g
        for part in (loader, getattr(loader, "sampler", None))
        if isinstance(g := getattr(part, "generator", None), torch.Generator)
    }
    torch.manual_seed(own)
    random.seed(own)
    for generator in generators.values():
        generator.manual_seed(own)
    set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
    if callable(set_epoch):
        set_epoch(epoch)
    try:
        yield
    finally:
        torch.set_rng_state(before)
        random.setstate(python)


@contextmanager
def epoch_of(batches: Batches, epoch: int, seed: int, who: str) -> Iterator[Iterator[tuple[Any, ...]]]:
    """Gives the inputs of an epoch's batches, one tuple each; a dict or a single tensor is one input."""
    loader: Any = batches(epoch) if callable(batches) and not hasattr(batches, "__iter__") else batches
    if not hasattr(loader, "__iter__"):
        raise InvalidArgument(f"{who}: expected batches to iterate over, got {type(loader).__name__}")
    if isinstance(loader, Iterator) and loader is batches:
        raise InvalidArgument(
            f"{who}: expected batches that can be gone through once per epoch (a list, a DataLoader, a function of the epoch), got an iterator"
        )
    with _seeded(seed, epoch, loader):
        yield (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,) for batch in loader)


def whole_updates(batches: Iterator[tuple[Any, ...]], accumulate: int) -> Iterator[tuple[Any, ...]]:
    """All batches but a last few that make no whole update."""
    waiting: list[tuple[Any, ...]] = []
    for batch in batches:
        waiting.append(batch)
        if len(waiting) == accumulate:
            yield from waiting
            waiting.clear()


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (Tensor, PerLane)):
        yield value
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _leaves(entry)
    elif isinstance(value, (tuple, list)):
        for entry in value:
            yield from _leaves(entry)


def items_of(inputs: tuple[Any, ...]) -> int:
    """How many items a batch holds: the size of its last input (the target), which weighs its loss in an epoch's mean."""
    for leaf in reversed(list(_leaves(inputs))):
        tensor, axis = (leaf.tensor, 1) if isinstance(leaf, PerLane) else (leaf, 0)
        if tensor.dim() > axis:
            return int(tensor.shape[axis])
    return 1


def shapes_of(inputs: tuple[Any, ...]) -> str:
    """Equal texts: one recording serves both."""
    return " ".join(f"{list(tensor.shape)}{tensor.dtype}" for tensor in (getattr(leaf, "tensor", leaf) for leaf in _leaves(inputs)))


def of_lanes(value: Any, ids: Sequence[int], first: int) -> Any:
    """The inputs for the lanes that are left of `first` ones: per-lane inputs have a row for each lane that there was."""
    if isinstance(value, PerLane):
        if value.tensor.shape[:1] != (first,):
            raise InvalidArgument(
                f"hfta.Trainer: expected per-lane inputs with a row for each of the {first} lanes that the array began with, got {list(value.tensor.shape)}"
            )
        return value if len(ids) == first else PerLane(value.tensor[list(ids)])
    if isinstance(value, dict):
        return {name: of_lanes(entry, ids, first) for name, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(of_lanes(entry, ids, first) for entry in value)
    return value
