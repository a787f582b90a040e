"""What stands beside the recorder in Python: modes, and refusals of what no operator shows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import _core
from ._errors import Unsupported


class RecorderMode(TorchDispatchMode):
    """Stands for a recorder on torch's mode stack; the operators go straight to the recorder."""


class _LaneGenerator:
    """Stands for torch's default generator where a lane's own is drawn from: what keeps its state and puts it back (checkpoints) must
    do so with the lane's."""

    def __getattr__(self, name: str) -> Any:
        generator = _core.current_generator()
        return getattr(torch.default_generator if generator is None else generator, name)


class _Random:
    """Puts the stand-in where `torch.get_rng_state` and `torch.set_rng_state` look, while any recorder stands."""

    def __init__(self) -> None:
        self._standing, self._lane = 0, _LaneGenerator()

    def begin(self) -> None:
        if self._standing == 0:
            setattr(torch.random, "default_generator", self._lane)  # noqa: B010
        self._standing += 1

    def end(self) -> None:
        self._standing -= 1
        if self._standing == 0:
            setattr(torch.random, "default_generator", torch.default_generator)  # noqa: B010


def install() -> None:
    """Once, at import."""
    _core.install_modes(RecorderMode, _Random())


# Methods that read values on the host and leave no operator, or only a `detach`, behind.
_HOST_READS = {
    "tolist",
    "numpy",
    "__array__",
    "data_ptr",
    "__dlpack__",
    "untyped_storage",
    "storage",
    "item",
    "__float__",
    "__int__",
    "__bool__",
    "__index__",
    "__complex__",
    "__contains__",
}


class HostReads(TorchFunctionMode):
    """Refuses what reads a tensor's values on the host."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _HOST_READS:
            refuse_host_read(name)
        return func(*args, **(kwargs or {}))


def refuse_host_read(name: str) -> None:
    raise Unsupported(
        f"hfta.record: expected a function that can be replayed, got one that calls Tensor.{name}, which reads values on the host: "
        "train it by plain steps, or keep the value in a tensor"
    )


def guarded(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` as it is recorded: host reads are refused by name."""

    @functools.wraps(fn, assigned=("__name__", "__doc__"), updated=())
    def call(*args: Any) -> Any:
        with HostReads():
            return fn(*args)

    return call
