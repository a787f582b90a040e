"""What training tells: records of lanes, reports, callbacks; and when a lane ends early."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from . import _checks

if TYPE_CHECKING:
    from .training import Trainer

LaneState = Literal["running", "finished", "stopped", "failed"]


@dataclass
class LaneRecord:
    """What is kept of a lane, by the index it began with, also when its weights are gone."""

    id: int
    state: LaneState = "running"
    reason: str = ""  #: Why it stopped or failed.
    epochs: list[dict[str, float]] = field(default_factory=list)  #: "loss" (mean over the epoch's items) and the metrics, per epoch.

    @property
    def is_running(self) -> bool:
        """Whether its state is not final."""
        return self.state == "running"


@dataclass
class EarlyStop:
    """Stops a lane whose metric has not got better for `patience` epochs. NaN is never better.

    Example:
        >>> trainer = hfta.Trainer(array, adam, loss_of, metrics=metrics_of, early_stop=hfta.EarlyStop("accuracy", patience=3, maximize=True))
    """

    metric: str = "loss"
    patience: int = 5
    min_delta: float = 0.0  #: Less than this is no improvement.
    maximize: bool = False

    def __post_init__(self) -> None:
        _checks.whole(self.patience, "hfta.EarlyStop", "patience", 1)

    def stops(self, lane: LaneRecord) -> bool:
        """Whether the lane is to end now; depends on its epochs alone. Epochs without the metric do not count."""
        values = [epoch[self.metric] for epoch in lane.epochs if self.metric in epoch]
        best, since = math.nan, 0
        for value in values:
            gain = (value - best) * (1 if self.maximize else -1)
            if math.isnan(best) and not math.isnan(value) or gain > self.min_delta:
                best, since = value, 0
            else:
                since += 1
        return since >= self.patience


@dataclass
class StepReport:
    """One step of an epoch (both from 0 on); `losses` are `[lanes]` in the array's order, `ids` the lanes' ids."""

    epoch: int
    step: int
    losses: Tensor
    ids: list[int]


@dataclass
class EpochReport:
    """One epoch (from 0 on), its number of steps and wall time; a running lane's last entry is this epoch's."""

    epoch: int
    steps: int
    seconds: float
    lanes: list[LaneRecord]


class Callback:
    """What happens meanwhile: make a subclass with some of these. `trainer.stop()` and `trainer.stop_lane(id)` may be called.

    Example:
        >>> class StopSlowLanes(hfta.Callback):
        ...     def on_epoch(self, trainer, report):
        ...         for lane in report.lanes:
        ...             if lane.is_running and lane.epochs[-1]["loss"] > 2:
        ...                 trainer.stop_lane(lane.id, "loss above 2")
    """

    def on_step(self, trainer: Trainer, report: StepReport) -> None:
        """After each step."""

    def on_epoch(self, trainer: Trainer, report: EpochReport) -> None:
        """After each epoch and its evaluation."""

    def on_lane_end(self, trainer: Trainer, lane: LaneRecord, index: int) -> None:
        """A lane's state is final; its weights still are lane `index` of the array."""
