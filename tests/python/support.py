"""The oracle: plain PyTorch, one model at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import hfta

Inputs = list[tuple[Any, ...]]


def close(got: Tensor, expected: Tensor, what: str = "", steps: int = 1) -> None:
    """Equal but for rounding, at the expected tensor's scale; after several steps at ten times that."""
    assert got.shape == expected.shape and got.dtype == expected.dtype, (
        f"{what}: {got.dtype} {list(got.shape)}, not {expected.dtype} {list(expected.shape)}"
    )
    if not expected.dtype.is_floating_point:
        assert torch.equal(got, expected), what
        return
    relative = (1e-10 if expected.dtype == torch.float64 else 1e-4) * (10 if steps > 1 else 1)
    absolute = (1e-12 if expected.dtype == torch.float64 else 1e-6) * (10 if steps > 1 else 1)
    off = (got - expected).abs().max().item() if expected.numel() else 0.0
    assert torch.allclose(
        got, expected, rtol=relative, atol=absolute * max(1.0, expected.abs().max().item() if expected.numel() else 0.0)
    ), f"{what}: off by {off}"


def of_lane(value: Any, lane: int) -> Any:
    if isinstance(value, hfta.PerLane):
        return value.tensor[lane]
    if isinstance(value, dict):
        return {name: of_lane(entry, lane) for name, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(of_lane(entry, lane) for entry in value)
    return value


class Solo:
    """One model trained by plain PyTorch; its random numbers are those of a lane with this seed."""

    def __init__(
        self,
        model: nn.Module,
        seed: int,
        lane: int,
        optimizer: Callable[..., torch.optim.Optimizer] | None = None,
        state: Tensor | None = None,
    ):
        self.model, self.lane = copy.deepcopy(model), lane
        for parameter in self.model.parameters():
            if not parameter.is_leaf:  # of a scripted module
                parameter.detach_().requires_grad_()
        self.optimizer = optimizer(self.model.parameters(), lane) if optimizer else None
        generator = torch.Generator().manual_seed(seed)
        self.random = generator.get_state() if state is None else state

    def run(self, body: Callable[[], Any]) -> Any:
        """Runs it with the lane's random numbers."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random)
            result = body()
            self.random = torch.get_rng_state()
        return result

    def step(self, fn: Callable[..., Any], inputs: tuple[Any, ...], max_norm: float | None = None) -> Tensor:
        def body() -> Tensor:
            self.optimizer.zero_grad()
            loss = fn(self.model, *(of_lane(value, self.lane) for value in inputs))
            loss = loss[0] if isinstance(loss, tuple) else loss
            loss.backward()
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)
            self.optimizer.step()
            return loss.detach()

        return self.run(body)


def check_lane(array: hfta.Array, lane: int, solo: Solo, steps: int, skip: tuple[str, ...] = ()) -> None:
    """All tensors of a lane against its solo run."""
    expected = solo.model.state_dict()
    got = array.lane_state_dict(lane)
    assert list(got) == list(expected)
    for name, tensor in expected.items():
        if not any(name.endswith(end) for end in skip):
            close(got[name], tensor, f"lane {lane} {name}", steps)


def check_steps(
    array: hfta.Array, solos: list[Solo], step: Callable[..., Any], fn: Callable[..., Any], data: Callable[[], Any], steps: int, skip: tuple[str, ...] = ()
) -> None:
    """An array and its models alone take the same steps: losses at each of them, and all tensors at the end."""
    for k in range(steps):
        inputs = data()
        losses = step(*inputs)
        losses = losses[0] if isinstance(losses, tuple) else losses
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(fn, inputs), f"step {k} lane {lane}", steps)
    for lane, solo in enumerate(solos):
        check_lane(array, lane, solo, steps, skip)


def bits_equal(a: Tensor, b: Tensor) -> bool:
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and bool((a.detach().contiguous().view(torch.uint8) == b.detach().contiguous().view(torch.uint8)).all())
        if a.dim()
        else torch.equal(a, b)
    )
