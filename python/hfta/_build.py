"""How models become lanes: copied, or built by a factory."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import nn

from . import _checks
from ._errors import InvalidArgument, Unsupported

M = TypeVar("M", bound=nn.Module)


def plain(model: Any, lane: int) -> nn.Module:
    """The module itself, of a compiled one what it was compiled from."""
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"hfta.fuse: expected a torch.nn.Module as lane {lane}, got {type(model).__name__}")
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise InvalidArgument(f"hfta.fuse: expected a plain module as lane {lane}, got {type(model).__name__}: give its .module")
    return model


def models_of(models: Any, who: str, first: int, lanes: int | None) -> list[Any]:
    """A sequence of models as a list of plain ones, the lanes from `first` on, as many as asked for where a number is."""
    if (isinstance(models, nn.Module) and not isinstance(models, nn.ModuleList)) or not hasattr(models, "__iter__"):
        raise InvalidArgument(f"{who}: expected a sequence of models or a factory, got a {type(models).__name__}")
    given = [plain(model, first + k) for k, model in enumerate(models)]
    if lanes not in (None, len(given)):
        raise InvalidArgument(f"{who}: expected {len(given)} lanes as there are models, got lanes={lanes!r}")
    return given


def device_of(target: Any) -> str:
    """A device's name."""
    try:
        return str(torch.device(target))
    except (RuntimeError, TypeError, ValueError):
        raise InvalidArgument(f"hfta.Array.to: expected a device or a floating type, got {target!r}") from None


def seeds_of(seeds: Iterable[int], who: str) -> list[int]:
    """As the library takes them."""
    numbers = _checks.wholes(seeds, who, "seeds")
    for seed in numbers:
        if not 0 <= seed < 2**64:
            raise InvalidArgument(f"{who}: expected seeds from 0 to 2^64 - 1, got {seed}")
    return numbers


def with_leaves(module: M) -> M:
    """The module, whose parameters can be trained: a copy of a scripted one has parameters that were computed from the first one's."""
    for parameter in module.parameters():
        if not parameter.is_leaf:
            parameter.detach_().requires_grad_(True)
    return module


def free_copy(module: M, memo: dict[int, Any]) -> M:
    """The module with tensors of its own and their gradients; those of which the memo has a copy are that one."""
    for tensor in (*module.parameters(), *module.buffers()):
        if id(tensor) in memo:
            continue
        own = tensor.detach().clone()
        memo[id(tensor)] = nn.Parameter(own, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else own
        if tensor.grad is not None:
            memo[id(tensor)].grad = tensor.grad.detach().clone()
    return with_leaves(copy.deepcopy(module, memo))


def from_models(models: Sequence[M]) -> Callable[[int], M]:
    def build(lane: int) -> M:
        try:
            return with_leaves(copy.deepcopy(models[lane]))
        except RuntimeError as error:
            raise Unsupported(f"hfta.fuse: expected models that can be copied, got lane {lane}: {error}; give a factory instead") from error

    return build


def from_factory(factory: Callable[..., M]) -> Callable[[int], M]:
    try:
        wanted = [
            p
            for p in inspect.signature(factory).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except ValueError:
        wanted = []

    def build(lane: int) -> M:
        return cast(M, plain(factory(lane) if wanted else factory(), lane))

    return build


def _kinds(module: nn.Module) -> list[tuple[str, type]]:
    return [(name, type(part)) for name, part in module.named_modules(remove_duplicate=False)]


def _same_kind(a: type, b: type) -> bool:
    """Parametrizations make a class for each module, so classes are told by name."""
    return a is b or (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)


def check_kinds(first: nn.Module, module: nn.Module, lane: int) -> None:
    """Refuses a lane whose submodules are of other classes than lane 0's."""
    start = f"hfta.fuse: expected lane {lane} as lane 0, got"
    expected, got = _kinds(first), _kinds(module)
    for (name, kind), (other_name, other) in zip(expected, got):
        if name != other_name:
            raise InvalidArgument(f'{start} module "{other_name}" where lane 0 has "{name}"')
        if not _same_kind(kind, other):
            where = f' as "{name}"' if name else ""
            raise InvalidArgument(f"{start} {other.__name__}{where} where lane 0 has {kind.__name__}")
    if len(expected) != len(got):
        raise InvalidArgument(f"{start} {len(got)} modules where lane 0 has {len(expected)}")
