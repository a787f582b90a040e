"""Trains arrays for some epochs: metrics, early stops, failed lanes, callbacks, checkpoints and resume."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import _batches, _checkpoint, _checks, padding, steps
from ._batches import Batches
from ._core import Plan
from ._errors import InvalidArgument, Unsupported
from ._training_step import TrainingStep
from .optim.lr_scheduler import LRScheduler
from .records import Callback, EarlyStop, EpochReport, LaneRecord, StepReport

if TYPE_CHECKING:
    from .optim import Optimizer

_WORTHWHILE = 0.9  # dropping lanes costs a copy and new recordings: the work must shrink by a tenth


class _Epochs(Callback):
    def __init__(self, function: Callable[[EpochReport], Any]):
        self._function = function

    def on_epoch(self, trainer: Trainer, report: EpochReport) -> None:
        self._function(report)


class Trainer:
    """Trains an array, or several, for some epochs.

    Steps are recorded where that is possible and plain where it is not, which `report()` tells. A lane whose loss becomes NaN is marked
    failed; the others go on as if it were healthy. Lanes are known by their id, the index they began with; lanes that have ended leave
    the array where there is less to do without them, and keep their record.

    Args:
        arrays: one array, or a tuple of them; `fn` and `metrics` get a model of each.
        optimizer: of one of these arrays.
        fn: as for `Array.train_step`.
        metrics: `metrics(model, *inputs)` gives a dict of scalar tensors, means over the batch's items; measured on the validation
            batches with the lanes in evaluation mode. The training loss is always there as "loss".
        schedules: learning rate schedules of `hfta.optim.lr_scheduler`, stepped after each epoch.
        step_schedules: the same, stepped after each update.
        max_norm: clips each lane's gradient norm; one number, or one per lane.
        accumulate: updates once every so many batches, with the sum of their gradients; an epoch's last batches that are too few for an
            update are left out.
        early_stop: which lanes end early.
        evaluate_every: epochs between evaluations; the last epoch always has one.
        recorded: whether to record.
        plan: group width, workers and threads; chosen by timing where none is given.
        limit: shapes of the inputs that are recorded; further ones run by plain steps, which `report()` tells.
        pad: an `hfta.Pad` or None per input, so that inputs of many lengths take few shapes; for training and evaluation.
        compact: whether lanes that have ended leave the array.
        checkpoint: a file, written after each `checkpoint_every` epochs and at the end; `resume` reads it.
        callbacks: `Callback`s, or functions that get the `EpochReport`.
        seed: of the batches' order: torch's and Python's random numbers follow from it and the epoch's number while an epoch runs.

    Example:
        >>> trainer = hfta.Trainer(array, adam, loss_of, metrics=lambda net, x, y: {"accuracy": (net(x).argmax(1) == y).float().mean()})
        >>> trainer.run(train_loader, validation_loader, epochs=10)
        >>> trainer.lanes[0].epochs[-1]["accuracy"]
    """

    def __init__(
        self,
        arrays: steps.Arrays,
        optimizer: Optimizer,
        fn: Callable[..., Any],
        *,
        metrics: Callable[..., dict[str, Tensor]] | None = None,
        schedules: Sequence[LRScheduler] = (),
        step_schedules: Sequence[LRScheduler] = (),
        max_norm: Any = None,
        accumulate: int = 1,
        early_stop: EarlyStop | None = None,
        evaluate_every: int = 1,
        recorded: bool = True,
        plan: Plan | None = None,
        limit: int = 8,
        pad: padding.Pads = (),
        compact: bool = True,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1,
        callbacks: Sequence[Callback | Callable[[EpochReport], Any]] = (),
        seed: int = 0,
    ):
        steps._check_optimizer(optimizer, "hfta.Trainer")
        self._arrays = steps._list_of(arrays, "hfta.Trainer")
        for name, value in (("accumulate", accumulate), ("evaluate_every", evaluate_every), ("checkpoint_every", checkpoint_every), ("limit", limit)):
            _checks.whole(value, "hfta.Trainer", name, 1)
        _checks.function(fn, "hfta.Trainer")
        _checks.instance(early_stop, EarlyStop, "hfta.Trainer", "early_stop")
        if early_stop is not None and early_stop.metric != "loss" and metrics is None:
            raise InvalidArgument(f'hfta.Trainer: expected metrics for the early stop by "{early_stop.metric}", got none')
        for schedule in (*schedules, *step_schedules):
            if not isinstance(schedule, LRScheduler):
                raise InvalidArgument(f"hfta.Trainer: expected schedules of hfta.optim.lr_scheduler, got {type(schedule).__name__}")
        for callback in _checks.several(callbacks, "hfta.Trainer", "callbacks"):
            if not isinstance(callback, Callback):
                _checks.function(callback, "hfta.Trainer", "callbacks as hfta.Callback or functions of the report")
        if not any(optimizer.array is array for array in self._arrays):
            raise InvalidArgument("hfta.Trainer: expected an optimizer of one of the arrays, got one of another array")
        self._first = self._arrays[0].lanes
        self._optimizer, self._fn, self._metrics = optimizer, fn, metrics
        self._schedules, self._step_schedules = list(schedules), list(step_schedules)
        self._max_norm = max_norm if max_norm is None else steps._numbers(max_norm, self._first, "max_norm")
        self._accumulate, self._early_stop, self._evaluate_every = accumulate, early_stop, evaluate_every
        self._records_steps, self._plan, self._given_plan, self._compacts, self._seed = recorded, plan, plan, compact, seed
        self._checkpoint, self._checkpoint_every = checkpoint, checkpoint_every
        padding.check(pad, "hfta.Trainer")
        self._pads, self._limit, self._shapes, self._evaluated_shapes = tuple(pad), limit, list[str](), set[str]()
        self._callbacks = [entry if isinstance(entry, Callback) else _Epochs(entry) for entry in callbacks]
        self._lanes = [LaneRecord(index) for index in range(self._first)]
        self._ids = list(range(self._first))
        self._first_seeds = self._arrays[0].seeds
        self._epoch, self._stopping = 0, False
        self._stop_requests: dict[int, str] = {}
        self._notes: list[str] = []
        self._evaluates_recorded = recorded
        self._evaluation: steps.RecordedEvaluation | None = None
        self._make_step()

    # ---- what there is

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self._epoch

    @property
    def lanes(self) -> list[LaneRecord]:
        """What is kept of each lane, by id."""
        return self._lanes

    @property
    def ids(self) -> list[int]:
        """Ids of the array's present lanes, in order."""
        return self._ids

    @property
    def plan(self) -> Plan:
        """How it runs."""
        return self._step.plan

    def report(self) -> str:
        """What is recorded and how, and what is not and why; a few lines."""
        return self._step.report() + "".join(note + "\n" for note in self._notes)

    # ---- training

    def run(self, batches: Batches, validation: Batches | None = None, *, epochs: int) -> list[LaneRecord]:
        """Trains until `epochs` epochs are done in all; goes on where `resume` or an earlier call ended.

        Args:
            batches: gone through once per epoch: a DataLoader, a list, or a function of the epoch's number. A batch is a tuple of inputs
                of `fn` after the model; a dict or a tensor is one input.
            validation: the same, for the metrics.

        Returns:
            The record of each lane, by id.

        Raises:
            KeyboardInterrupt: passes; the last checkpoint stands.
        """
        _checks.whole(epochs, "hfta.Trainer.run", "epochs", 0)
        if self._checkpoint is not None:
            _checkpoint.check_writable(self._checkpoint)
        for lane in self._lanes:
            if lane.state == "finished" and self._epoch < epochs:
                lane.state = "running"
        self._stopping = False
        while self._epoch < epochs and self._anyone_runs() and not self._stopping:
            begun = time.perf_counter()
            self._train(True)
            losses, failed, count = self._run_epoch(batches)
            running = self._end_epoch(losses, failed, validation, last=self._epoch + 1 == epochs)
            self._epoch += 1
            self._tell("on_epoch", EpochReport(self._epoch - 1, count, time.perf_counter() - begun, self._lanes))
            self._end_lanes(running, epochs)
            more = self._epoch < epochs and self._anyone_runs()
            if more and self._compacts:
                self._drop_ended()
            due = not more or self._stopping or self._epoch % self._checkpoint_every == 0
            if due and self._checkpoint is not None:
                self.save(self._checkpoint)
        return self._lanes

    def evaluate(self, batches: Batches) -> list[dict[str, float]]:
        """The metrics of the array's lanes over one pass, in the array's order; lanes are in evaluation mode."""
        if self._metrics is None:
            raise InvalidArgument("hfta.Trainer.evaluate: expected a trainer with metrics, got none")
        sums: dict[str, Tensor] = {}
        items = 0
        self._train(False)
        try:
            with _batches.epoch_of(batches, self._epoch, self._seed, "hfta.Trainer.evaluate") as epoch:
                for inputs in epoch:
                    count = _batches.items_of(inputs)
                    for name, values in self._measure(inputs).items():
                        total = values.detach().double().cpu() * count
                        sums[name] = sums[name] + total if name in sums else total
                    items += count
        finally:
            self._train(True)
        if not items:
            raise InvalidArgument("hfta.Trainer.evaluate: expected at least 1 batch, got none")
        return [{name: float(total[lane]) / items for name, total in sums.items()} for lane in range(len(self._ids))]

    def stop(self) -> None:
        """Ends the run after this epoch; the lanes may go on with another `run`."""
        self._stopping = True

    def stop_lane(self, id: int, reason: str = "as asked") -> None:
        """Ends a running lane after this epoch."""
        if not 0 <= id < self._first:
            raise InvalidArgument(f"hfta.Trainer.stop_lane: expected a lane id from 0 to {self._first - 1}, got {id}")
        if self._lanes[id].is_running:
            self._stop_requests[id] = reason

    # ---- checkpoints

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the whole state of the training, to a temporary name first: `torch.load(path, weights_only=True)` reads it."""
        _checkpoint.save(self, path)

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Goes on from a checkpoint as if training had never stopped, into a trainer made as the one that wrote it.

        Raises:
            InvalidArgument (a ValueError): another kind of file, other lanes, another optimizer; nothing is changed then.
        """
        _checkpoint.resume(self, path)

    # ---- the course of an epoch

    def _make_step(self) -> None:
        limits = self._max_norm
        self._step = TrainingStep(
            self._arrays,
            self._optimizer,
            self._fn,
            max_norm=[limits[id] for id in self._ids] if isinstance(limits, list) else limits,
            accumulate=self._accumulate,
            plan=self._plan,
            recorded=self._records_steps,
            tell=self._note,
            pad=self._pads,
            limit=self._limit,
            shapes=self._shapes,
        )
        self._shapes = self._step.shapes

    def _run_epoch(self, batches: Batches) -> tuple[list[float], list[int | None], int]:
        """Mean losses, the step at which each lane's loss became NaN, and how many steps there were."""
        sums = torch.zeros(len(self._ids), dtype=torch.float64)
        failed: list[int | None] = [None] * len(self._ids)
        step = items = 0
        with _batches.epoch_of(batches, self._epoch, self._seed, "hfta.Trainer.run") as epoch:
            for inputs in _batches.whole_updates(epoch, self._accumulate):
                losses = self._run_step(inputs)
                count = _batches.items_of(inputs)
                values = losses.detach().double().cpu()
                sums += values * count
                items += count
                if bool(values.isnan().any()):
                    failed = [step if was is None and math.isnan(value) else was for was, value in zip(failed, values.tolist())]
                self._tell("on_step", StepReport(self._epoch, step, losses, self._ids))
                step += 1
                if all(at is not None or not self._lanes[id].is_running for at, id in zip(failed, self._ids)):
                    break
        if not items:
            raise InvalidArgument(f"hfta.Trainer.run: expected at least {self._accumulate} batches in epoch {self._epoch}, got fewer")
        return (sums / items).tolist(), failed, step

    def _run_step(self, inputs: tuple[Any, ...]) -> Tensor:
        losses = self._step(*_batches.of_lanes(inputs, self._ids, self._first))
        if self._step.update_is_due:
            for schedule in self._step_schedules:
                schedule.step()
        return losses

    def _measure(self, inputs: tuple[Any, ...]) -> dict[str, Tensor]:
        inputs = _batches.of_lanes(inputs, self._ids, self._first)
        assert self._metrics is not None
        inputs = padding.padded(inputs, self._pads)
        if len(self._evaluated_shapes) < self._limit:
            self._evaluated_shapes.add(_batches.shapes_of(inputs))
        if self._evaluates_recorded and _batches.shapes_of(inputs) in self._evaluated_shapes:
            try:
                self._evaluation = self._evaluation or steps.RecordedEvaluation(self._arrays, self._metrics, _repeatable(self._arrays[0].plan))
                return self._checked(self._evaluation(*inputs))
            except Unsupported as why:
                self._evaluates_recorded = False
                self._note(f"evaluates by plain runs: {why}")
        return self._checked(steps.evaluate(self._arrays, self._metrics, *inputs))

    def _checked(self, values: Any) -> dict[str, Tensor]:
        if not isinstance(values, dict) or "loss" in values:
            raise InvalidArgument(
                f'hfta.Trainer: expected metrics as a dict of names other than "loss", got {values if isinstance(values, dict) else type(values).__name__}'
            )
        for name, value in values.items():
            if value.numel() != len(self._ids):
                raise InvalidArgument(f'hfta.Trainer: expected a scalar as metric "{name}", got shape {list(value.shape[1:])}')
        return {name: value.reshape(-1) for name, value in values.items()}

    def _end_epoch(self, losses: list[float], failed: list[int | None], validation: Batches | None, last: bool) -> list[int]:
        """Enters the epoch into the records. Returns the lanes that ran."""
        metrics: list[dict[str, float]] = [{} for _ in self._ids]
        if validation is not None and self._metrics is not None and (last or (self._epoch + 1) % self._evaluate_every == 0):
            metrics = self.evaluate(validation)
            if self._early_stop is not None and self._early_stop.metric not in ("loss", *metrics[0]):
                raise InvalidArgument(f'hfta.Trainer: expected the early stop by one of loss, {", ".join(metrics[0])}, got "{self._early_stop.metric}"')
        running = [lane for lane, id in enumerate(self._ids) if self._lanes[id].is_running]
        for lane in running:
            record = self._lanes[self._ids[lane]]
            record.epochs.append({"loss": losses[lane], **metrics[lane]})
            at = failed[lane]
            if at is not None:
                record.state, record.reason = "failed", f"the loss became NaN in epoch {self._epoch + 1}, step {at + 1}"  # counted as people do
        for schedule in self._schedules:
            schedule.step()
        return running

    def _end_lanes(self, ran: list[int], epochs: int) -> None:
        for index in ran:
            lane = self._lanes[self._ids[index]]
            if lane.is_running and lane.id in self._stop_requests:
                lane.state, lane.reason = "stopped", self._stop_requests[lane.id]
            if lane.is_running and self._early_stop is not None and self._early_stop.stops(lane):
                lane.state, lane.reason = "stopped", f"{self._early_stop.metric} was no better for {self._early_stop.patience} epochs"
            if lane.is_running and self._epoch >= epochs:
                lane.state = "finished"
            if not lane.is_running:
                self._tell("on_lane_end", lane, index)
        self._stop_requests.clear()

    def _drop_ended(self) -> None:
        """Depends on the plan and on who runs, never on the clock: the same run drops lanes at the same epochs."""
        running = [lane for lane, id in enumerate(self._ids) if self._lanes[id].is_running]
        if len(running) == len(self._ids) or _work(self.plan, len(running)) > _WORTHWHILE * _work(self.plan, len(self._ids)):
            return
        self._note(f"the array goes on with {len(running)} of {len(self._ids)} lanes after epoch {self._epoch - 1}")
        self._keep(running)

    def _keep(self, lanes: list[int]) -> None:
        if lanes == list(range(len(self._ids))):
            return
        plan = self._step.plan if self._epoch else self._plan
        for array in self._arrays:
            array.keep(lanes)
        self._ids = [self._ids[lane] for lane in lanes]
        if isinstance(self._max_norm, list):  # what a step was made with stays with its lanes
            self._plan = None if plan is None else plan.fitted(len(lanes))
            self._make_step()

    # ---- helpers

    def _anyone_runs(self) -> bool:
        return any(self._lanes[id].is_running for id in self._ids)

    def _train(self, on: bool) -> None:
        for array in self._arrays:
            array.train(on)

    def _note(self, line: str) -> None:
        self._notes.append(line)

    def _tell(self, event: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, event)(self, *arguments)


def _repeatable(plan: Plan) -> Plan:
    """The same, nothing left to the clock: metrics decide which lanes go on."""
    same = copy.copy(plan)
    same.measures_lowerings = False
    return same


def _work(plan: Plan, lanes: int) -> int:
    """Lanes that run one after the other on the busiest worker."""
    fit = plan.fitted(lanes)
    groups = -(-lanes // fit.width)
    return -(-groups // fit.workers) * fit.width
