"""The course of a sweep: trials become arrays, arrays are trained, and the study is kept in step with them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from torch import Tensor, nn

from . import _checkpoint, _checks, _core, _sampling
from ._core import Plan, Trial
from ._errors import InvalidArgument
from ._trial_arrays import TrialArrays
from .records import Callback, EarlyStop, EpochReport, LaneRecord
from .space import Space, core_of, entries_of
from .training import Trainer

if TYPE_CHECKING:
    from .study import Study

_log = logging.getLogger("hfta")


class SweepOptions(TypedDict, total=False):
    """Options of `hfta.sweep` and `Study.sweep`, by keyword.

    Attributes:
        trials: how many the study is to have in all (16).
        epochs: of each trial (1).
        lanes: most of an array (64).
        metrics: as for `Trainer` (none).
        metric: the tuned one, its last value counts: "loss" (of the training), or a name of `metrics` ("loss").
        optimizer: "sgd", "adam", "adamw", "adadelta", a class of `hfta.optim`, or a function of the array and the list of its lanes'
            parameters ("adam"). Parameters of the space that the class takes (lr, weight_decay, beta1, ...) are its values, one per lane;
            a parameter "optimizer" of the space names it.
        optimizer_options: what all lanes share ({}).
        schedules: `schedules(optimizer, epochs)` gives the learning rate schedules of an array (none).
        max_norm: clips each lane's gradient norm (none).
        split: parameters that cannot differ within an array (("batch_size",)); what changes the model's structure need not be named.
        sampler: "random", "grid", or a sampler of Optuna's, which is asked for as many trials as there are lanes at a time ("random").
        pruner: a pruner of Optuna's; trials that it ends are PRUNED (none).
        early_stop: which trials end early, and count with their last value (none).
        plan: how the steps run (the fastest of those timed).
        recorded: whether to record the steps (True).
        keep_weights: whether each complete trial's state dict is written (True).
        checkpoint_every: epochs between checkpoints (1).
        callbacks: as for `Trainer` (()).
        seed: of everything: trial n has seed + n, unless a parameter "seed" says otherwise (0).
        new_space: goes on with another space than the study's (False).

    Example:
        >>> options: hfta.SweepOptions = {"trials": 32, "epochs": 10, "optimizer": "adamw"}
        >>> hfta.sweep(Net, space, loss_of, loader, storage="runs/net/study.db", **options)
    """

    trials: int
    epochs: int
    lanes: int
    metrics: Callable[..., dict[str, Tensor]] | None
    metric: str
    optimizer: Any
    optimizer_options: Mapping[str, Any]
    schedules: Callable[..., Sequence[Any]] | None
    max_norm: float | None
    split: Sequence[str]
    sampler: Any
    pruner: Any
    early_stop: EarlyStop | None
    plan: Plan | None
    recorded: bool
    keep_weights: bool
    checkpoint_every: int
    callbacks: Sequence[Callback | Callable[[EpochReport], Any]]
    seed: int
    new_space: bool


_DEFAULTS: SweepOptions = {
    "trials": 16, "epochs": 1, "lanes": 64, "metrics": None, "metric": "loss", "optimizer": "adam", "optimizer_options": {},
    "schedules": None, "max_norm": None, "split": ("batch_size",), "sampler": "random", "pruner": None, "early_stop": None, "plan": None,
    "recorded": True, "keep_weights": True, "checkpoint_every": 1, "callbacks": (), "seed": 0, "new_space": False,
}  # fmt: skip
_WHO = "hfta.Study.sweep"
_OF_TRAINER = ("metrics", "max_norm", "early_stop", "recorded", "checkpoint_every", "seed")


def _complete(given: SweepOptions) -> dict[str, Any]:
    """The options with what was not given; refuses those that do not fit together."""
    for name in given:
        if name not in _DEFAULTS:
            raise InvalidArgument(f'{_WHO}: expected options of {", ".join(_DEFAULTS)}, got "{name}"')
    options: dict[str, Any] = {**_DEFAULTS, **given}
    for name, least in (("epochs", 1), ("lanes", 1), ("checkpoint_every", 1), ("trials", 0), ("seed", 0)):
        options[name] = _checks.whole(options[name], _WHO, name, least)
    _checks.instance(options["plan"], Plan, _WHO, "plan")
    _checks.instance(options["early_stop"], EarlyStop, _WHO, "early_stop")
    _checks.mapping(options["optimizer_options"], _WHO, "optimizer_options")
    for name in ("split", "callbacks"):
        options[name] = _checks.several(options[name], _WHO, name)
    return options


class Sweep:
    """Array after array, until the study has its trials."""

    def __init__(
        self, study: Study, model: Callable[..., nn.Module], loss: Callable[..., Any], batches: Any, validation: Any, given: SweepOptions
    ):
        self._options = options = _complete(given)
        _checks.function(loss, _WHO, "the loss as a function of a model")
        if isinstance(model, nn.Module) or not callable(model):
            raise InvalidArgument(f"{_WHO}: expected a model class or a function of a trial's parameters, got {type(model).__name__}")
        self.study, self.metric, self.keep_weights = study, options["metric"], options["keep_weights"]
        if self.metric != "loss" and (options["metrics"] is None or validation is None):
            raise InvalidArgument(f'{_WHO}: expected metrics and validation batches for the metric "{self.metric}", got none')
        self._arrays = TrialArrays(model, options["optimizer"], options["optimizer_options"], options["split"], options["seed"])
        self._loss, self._batches, self._validation = loss, batches, validation
        self._plans: dict[tuple[str, int], Plan] = {}
        self.running: set[int] = set()

    def run(self, space: Space, lock: _core.StudyLock) -> None:
        """With the study's lock held."""
        options, core = self._options, self.study._core
        entries = entries_of(space)
        known = core_of(entries)
        core.adopt(known, options["new_space"])
        self.source = _sampling.sampling(core, known, entries, options["sampler"], options["pruner"], options["seed"])
        for folder in ("checkpoints", "lanes"):
            (self.study.path.parent / folder).mkdir(exist_ok=True)
        self.ledger = _core.Ledger(core)
        left = core.reclaim(lock, known)
        create, summary = _core.plan_trials(len(core.trials()), options["trials"], self.source.points)
        _log.info("%s: %s", self.study.name, summary)
        while left or create:
            asked = self.source.ask(self.source.round_of(create, options["lanes"])) if create else []
            create -= len(asked) or create
            self._begin([*left, *asked])
            left = []
        self._drop_checkpoints()

    def _begin(self, trials: list[Trial]) -> None:
        self.running = {trial.number for trial in trials}
        fresh = [trial for trial in trials if not self.ledger.has(trial.number)]
        self.ledger.add(_core.arrays_of(fresh, [self._arrays.kind(trial) for trial in fresh], self._options["lanes"]))
        for index, numbers in enumerate(self.ledger.arrays):
            if self.running & set(numbers):
                self._run_array(index, numbers)
                self._drop_checkpoints()

    def _checkpoint_of(self, index: int) -> Path:
        return self.study.path.parent / "checkpoints" / f"array-{index}.pt"

    def _drop_checkpoints(self) -> None:
        """Those of arrays whose trials have ended, also right before a kill."""
        for index, numbers in enumerate(self.ledger.arrays):
            if not self.running & set(numbers):
                path = self._checkpoint_of(index)
                for left in (path, path.with_name(path.name + ".part")):
                    left.unlink(missing_ok=True)

    def _run_array(self, index: int, numbers: list[int]) -> None:
        trials = [self.study._core.trial(number) for number in numbers]
        array = self._arrays.array(trials)
        optimizer = self._arrays.optimizer(array, trials)
        options = self._options
        schedules = list(options["schedules"](optimizer, options["epochs"])) if options["schedules"] is not None else []
        kind = (self._arrays.kind(trials[0]), len(trials))
        checkpoint = self._checkpoint_of(index)
        course = _ArrayCourse(self, index, numbers)
        plan = self.ledger.plan(index) or options["plan"] or self._plans.get(kind)
        trainer = Trainer(
            array, optimizer, self._loss, schedules=schedules, plan=plan, checkpoint=checkpoint, callbacks=[course, *options["callbacks"]],
            **{name: options[name] for name in _OF_TRAINER},
        )  # fmt: skip
        if checkpoint.exists():
            trainer.resume(checkpoint)
        # A kill between an end and its entry in the study left trials running that have ended.
        for lane in trainer.lanes:
            if not lane.is_running:
                course.end(lane)
        parameters = trials[0].parameters
        trainer.run(_of(self._batches, parameters), _of(self._validation, parameters), epochs=options["epochs"])
        self._plans.setdefault(kind, trainer.plan)


def _of(batches: Any, parameters: dict[str, Any]) -> Any:
    return batches(parameters) if callable(batches) and not hasattr(batches, "__iter__") else batches


class _ArrayCourse(Callback):
    """Keeps the study in step with an array's training."""

    def __init__(self, sweep: Sweep, index: int, numbers: list[int]):
        self._sweep, self._index, self._numbers = sweep, index, numbers
        self._pruned: set[int] = set()

    def on_epoch(self, trainer: Trainer, report: EpochReport) -> None:
        sweep = self._sweep
        if report.epoch == 0 or sweep.ledger.plan(self._index) is None:
            sweep.ledger.set_plan(self._index, trainer.plan, "", trainer.report())
        reports = []
        known = list(report.lanes[0].epochs[-1])
        if sweep.metric not in known and any(lane.is_running for lane in report.lanes):
            raise InvalidArgument(f'{_WHO}: expected one of {", ".join(known)} as the metric, got "{sweep.metric}"')
        for lane in report.lanes:
            number = self._numbers[lane.id]
            if number in sweep.running and len(lane.epochs) == report.epoch + 1 and sweep.metric in lane.epochs[-1]:
                reports.append((number, report.epoch + 1, lane.epochs[-1][sweep.metric]))
        sweep.study._core.report(reports)
        for number, _, _ in reports:
            lane = report.lanes[self._numbers.index(number)]
            if lane.is_running and sweep.source.prunes(number):
                self._pruned.add(lane.id)
                trainer.stop_lane(lane.id, "pruned")
        _log.info("%s: trials %s, epoch %d: %.3g s", sweep.study.name, self._numbers, report.epoch, report.seconds)

    def on_lane_end(self, trainer: Trainer, lane: LaneRecord, index: int) -> None:
        # Weights first: a trial that the study calls complete has them.
        if self._sweep.keep_weights and lane.state != "failed":
            array = trainer._arrays[0]
            _checkpoint.write(array.lane_state_dict(index), self._sweep.study.weights(self._numbers[lane.id]))
        self.end(lane)

    def end(self, lane: LaneRecord) -> None:
        """Ends the lane's trial."""
        number, sweep = self._numbers[lane.id], self._sweep
        if number not in sweep.running:
            return
        values = [epoch[sweep.metric] for epoch in lane.epochs if sweep.metric in epoch]
        if lane.state == "failed" or not values:
            sweep.source.finish(number, "FAIL", [], lane.reason or f"it ended without a value of {json.dumps(sweep.metric)}")
        elif lane.id in self._pruned:
            sweep.source.finish(number, "PRUNED", [], lane.reason)
        else:
            sweep.source.finish(number, "COMPLETE", [values[-1]], lane.reason)
        sweep.running.discard(number)
