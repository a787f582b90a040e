"""The training step of a trainer: recorded where that is possible, else plain, with the same results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import _batches, padding, steps
from ._core import Plan
from ._errors import Unsupported

if TYPE_CHECKING:
    from .array import Array
    from .optim import Optimizer


class TrainingStep:
    """Gives the losses `[lanes]` of a batch. A refusal to record is told once and kept for the report; plain steps go on from there."""

    def __init__(
        self,
        arrays: list[Array[Any]],
        optimizer: Optimizer,
        fn: Callable[..., Any],
        *,
        max_norm: Any,
        accumulate: int,
        plan: Plan | None,
        recorded: bool,
        tell: Callable[[str], None],
        pad: padding.Pads,
        limit: int,
        shapes: Sequence[str],
    ):
        self._arrays, self._optimizer, self._fn = arrays, optimizer, fn
        self._max_norm, self._accumulate, self._tell = max_norm, accumulate, tell
        self._pads, self._limit = pad, limit
        self.refusal = "" if recorded else "as asked"
        self.shapes = list(shapes)  # those that are recorded, in the order in which they came
        self._left_out: dict[str, int] = {}  # steps of the others
        self._waiting = 0
        self._recorded = (
            steps.record(arrays, optimizer, fn, max_norm=max_norm, accumulate=accumulate, plan=plan, limit=limit)
            if recorded and (plan is None or plan.recorded)
            else None
        )

    @property
    def plan(self) -> Plan:
        """What runs."""
        if self._recorded is not None:
            return self._recorded.plan
        return Plan(width=1, workers=1, intra_op_threads=torch.get_num_threads(), recorded=False)

    @property
    def update_is_due(self) -> bool:
        """Whether the last call ended an update."""
        return (self._recorded.pending if self._recorded is not None else self._waiting) == 0

    def report(self) -> str:
        if self._recorded is not None:
            return self._recorded.report() + self._left_out_report()
        return f"plain steps: {self.refusal}\n"

    def _left_out_report(self) -> str:
        if not self._left_out:
            return ""
        steps_of, shapes = sum(self._left_out.values()), len(self._left_out)
        return f"plain steps: {steps_of} of {shapes} shapes of the inputs beyond the {self._limit} that are recorded (limit=); pad= makes few of many\n"

    def _is_recorded(self, inputs: tuple[Any, ...]) -> bool:
        """Whether this shape has a recording, or gets one. To record many shapes that come once each costs more than it gains."""
        shapes = _batches.shapes_of(inputs)
        if shapes in self.shapes or self._accumulate > 1:  # a sum is of recorded or of plain gradients
            return True
        if len(self.shapes) < self._limit:
            self.shapes.append(shapes)
            return True
        if not self._left_out:
            self._tell(f"trains by plain steps inputs of shapes beyond the first {self._limit}: pad them (pad=), or raise limit=")
        self._left_out[shapes] = self._left_out.get(shapes, 0) + 1
        return False

    def __call__(self, *inputs: Any) -> Tensor:
        inputs = padding.padded(inputs, self._pads)
        if self._recorded is not None and self._is_recorded(inputs):
            try:
                return _losses(self._recorded(*inputs))
            except Unsupported as why:
                if self._recorded.pending:
                    raise  # half of an update was recorded: its gradients are not ours to go on with
                self.refusal = str(why)
                self._recorded = None
                self._tell(f"trains by plain steps: {why}")
        return self._plain(*inputs)

    def _plain(self, *inputs: Any) -> Tensor:
        if self._accumulate == 1:
            return _losses(steps.train_step(self._arrays, self._optimizer, self._fn, *inputs, max_norm=self._max_norm))
        losses = _losses(steps.backward(self._arrays, self._fn, *inputs))
        self._waiting = (self._waiting + 1) % self._accumulate
        if self._waiting == 0:
            if self._max_norm is not None:
                steps.clip_grad_norm_(self._optimizer.array, self._max_norm)
            self._optimizer.step()
            for array in self._arrays:
                array.zero_grad()
        return losses


def _losses(result: Any) -> Tensor:
    return result[0] if isinstance(result, tuple) else result
