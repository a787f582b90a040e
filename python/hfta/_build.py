"""How models become lanes: copied, or built by a factory."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from torch import nn

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


def from_models(models: Sequence[M]) -> Callable[[int], M]:
    def build(lane: int) -> M:
        try:
            return copy.deepcopy(models[lane])
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


def check_kinds(first: nn.Module, module: nn.Module, lane: int) -> None:
    for (name, kind), (other_name, other) in zip(_kinds(first), _kinds(module)):
        if name != other_name:
            raise InvalidArgument(f'hfta.fuse: expected lane {lane} as lane 0, got module "{other_name}" where lane 0 has "{name}"')
        if kind is not other:
            where = f' as "{name}"' if name else ""
            raise InvalidArgument(f"hfta.fuse: expected lane {lane} as lane 0, got {other.__name__}{where} where lane 0 has {kind.__name__}")
    if len(_kinds(first)) != len(_kinds(module)):
        raise InvalidArgument(f"hfta.fuse: expected lane {lane} with {len(_kinds(first))} modules as lane 0, got {len(_kinds(module))}")
