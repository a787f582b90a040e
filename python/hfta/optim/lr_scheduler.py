"""Learning rate schedules of arrays, with the signatures of `torch.optim.lr_scheduler`; every number is one, or one per lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _checks, _core
from .._errors import InvalidArgument, Unsupported
from ..steps import _numbers
from .optimizer import Number, Optimizer

__all__ = ["CosineAnnealingLR", "LRScheduler", "LinearLR", "SequentialLR", "StepLR"]


def __getattr__(name: str) -> Any:
    raise AttributeError(f'hfta.optim.lr_scheduler: expected one of {", ".join(__all__)}, got "{name}"')


class LRScheduler:
    """Sets each lane's learning rates step by step, as torch's scheduler of that name sets a single optimizer's.

    It follows the array's lanes as they are kept, added and copied.

    Example:
        >>> schedule = hfta.optim.lr_scheduler.StepLR(adam, step_size=10, gamma=[0.1, 0.5])
        >>> for epoch in range(30):
        ...     train(epoch)
        ...     schedule.step()
    """

    def __init__(self, optimizer: Optimizer, parts: list[tuple[str, dict[str, Any]]], milestones: list[Any], last_epoch: int):
        who = f"hfta.optim.lr_scheduler.{type(self).__name__}"
        if not isinstance(optimizer, Optimizer):
            raise InvalidArgument(f"{who}: expected an optimizer of hfta.optim, got {type(optimizer).__name__}")
        if last_epoch != -1:
            raise Unsupported(f"{who}: expected last_epoch=-1 (load a state dict to go on), got {last_epoch}")
        self.optimizer = optimizer
        self._parts, self._milestones = parts, milestones
        self._before = [group["lr"] for group in optimizer.param_groups]
        self._core: _core.Schedule | None = _core.Schedule(optimizer._core, parts, milestones)

    def _running(self) -> _core.Schedule:
        if self._core is None:
            raise InvalidArgument("hfta.optim.lr_scheduler: expected a schedule of its own, got one that is part of a SequentialLR now")
        return self._core

    def step(self, lane: int | None = None) -> None:
        """Goes on one step, all lanes or one."""
        _core.check_between_steps("hfta.optim.lr_scheduler: step")
        core = self._running()
        core.step() if lane is None else core.step_lane(self.optimizer.array._index(lane))

    def get_last_lr(self) -> list[Any]:
        """The present rates, one entry per parameter group: a number, or a list with one per lane."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def restart(self, lane: int) -> None:
        """Starts the lane anew from its present learning rates."""
        self._running().restart(self.optimizer.array._index(lane))

    def lane_state_dict(self, lane: int) -> dict[str, Any]:
        """The lane's state as the stock scheduler's `state_dict()`."""
        return self._running().lane_state_dict(self.optimizer.array._index(lane))

    def load_lane_state_dict(self, lane: int, state: dict[str, Any]) -> None:
        """The way back.

        Raises:
            InvalidArgument (a ValueError): the state of another kind of schedule.
        """
        self._running().load_lane_state_dict(self.optimizer.array._index(lane), state)

    def state_dict(self) -> dict[str, Any]:
        """All lanes' state."""
        return {"lanes": [self.lane_state_dict(lane) for lane in range(self.optimizer.array.lanes)]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The way back."""
        _checks.mapping(state, "hfta.optim.lr_scheduler", "a state")
        lanes = self.optimizer.array.lanes
        if len(state.get("lanes", ())) != lanes:
            raise InvalidArgument(f"hfta.optim.lr_scheduler: expected the state of {lanes} lanes, got {len(state.get('lanes', ()))}")
        for lane, own in enumerate(state["lanes"]):
            self.load_lane_state_dict(lane, own)


def _part(optimizer: Any, name: str, **values: Number) -> list[tuple[str, dict[str, Any]]]:
    lanes = optimizer.array.lanes if isinstance(optimizer, Optimizer) else 1
    return [(name, {key: _numbers(value, lanes, key) for key, value in values.items()})]


class StepLR(LRScheduler):
    """Multiplies the rate by `gamma` every `step_size` steps: after `t` steps `lr * gamma ** (t // step_size)`.

    Example:
        >>> schedule = StepLR(adam, step_size=10, gamma=[0.1, 0.5])
    """

    def __init__(self, optimizer: Optimizer, step_size: Number, gamma: Number = 0.1, last_epoch: int = -1):
        super().__init__(optimizer, _part(optimizer, "StepLR", step_size=step_size, gamma=gamma), [], last_epoch)


class CosineAnnealingLR(LRScheduler):
    """From the base rate down to `eta_min` along half a cosine of `T_max` steps: after `t` steps
    `eta_min + (lr - eta_min) * (1 + cos(pi * t / T_max)) / 2`.

    Example:
        >>> schedule = CosineAnnealingLR(adam, T_max=100, eta_min=1e-5)
    """

    def __init__(self, optimizer: Optimizer, T_max: Number, eta_min: Number = 0.0, last_epoch: int = -1):
        super().__init__(optimizer, _part(optimizer, "CosineAnnealingLR", T_max=T_max, eta_min=eta_min), [], last_epoch)


class LinearLR(LRScheduler):
    """The base rate times a factor that goes evenly from `start_factor` to `end_factor` in `total_iters` steps: a warm-up.

    Example:
        >>> schedule = LinearLR(adam, start_factor=0.1, total_iters=[5, 10])
    """

    def __init__(
        self, optimizer: Optimizer, start_factor: Number = 1.0 / 3, end_factor: Number = 1.0, total_iters: Number = 5, last_epoch: int = -1
    ):
        values = {"start_factor": start_factor, "end_factor": end_factor, "total_iters": total_iters}
        super().__init__(optimizer, _part(optimizer, "LinearLR", **values), [], last_epoch)


class SequentialLR(LRScheduler):
    """Schedules one after the other: part `k + 1` begins at step `milestones[k]`.

    Example:
        >>> warm_up, decay = LinearLR(adam, total_iters=5), CosineAnnealingLR(adam, T_max=95)
        >>> schedule = SequentialLR(adam, [warm_up, decay], milestones=[5])
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[Number], last_epoch: int = -1):
        who = "hfta.optim.lr_scheduler.SequentialLR"
        if not schedulers or any(s.optimizer is not optimizer for s in schedulers):
            raise InvalidArgument(f"{who}: expected schedulers of this optimizer, got {'none' if not schedulers else 'another one'}")
        if len(milestones) != len(schedulers) - 1:
            raise InvalidArgument(
                f"{who}: expected {len(schedulers) - 1} milestones for {len(schedulers)} schedulers, got {len(milestones)}"
            )
        # Each part has set rates when it was made; the whole begins from those before the first.
        for part in reversed(schedulers):
            part._running()
            part._core = None
            for group, rate in zip(optimizer.param_groups, part._before):
                group["lr"] = rate
        starts = [_numbers(value, optimizer.array.lanes, "milestones") for value in milestones]
        super().__init__(optimizer, [entry for part in schedulers for entry in part._parts], starts, last_epoch)
