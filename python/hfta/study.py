"""Sweeps of Python models: a study file as the command line's, whose trials train together as arrays."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from . import _checkpoint, _core, _sampling
from ._core import Plan, Trial
from ._errors import InvalidArgument
from ._trial_arrays import TrialArrays
from .records import Callback, EarlyStop, EpochReport, LaneRecord
from .space import Space, core_of, entries_of
from .training import Trainer

_log = logging.getLogger("hfta")


class Study:
    """A study: one SQLite file that `optuna.load_study` and optuna-dashboard open as their own, with the run's files beside it.

    Beside the file lie `lanes/trial-N.pt`, the plain state dict of each trial that completed, and `checkpoints/` while it runs.

    Args:
        storage: the file; made where it is not there.
        name: of the study in the file.
        direction: "minimize" or "maximize".

    Raises:
        InvalidArgument: the study is there with another direction.
    """

    def __init__(self, storage: str | os.PathLike[str], *, name: str = "hfta", direction: Literal["minimize", "maximize"] = "minimize"):
        if direction not in ("minimize", "maximize"):
            raise InvalidArgument(f'hfta.Study: expected direction "minimize" or "maximize", got {direction!r}')
        self._path = Path(storage)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._name, self._maximize = name, direction == "maximize"
        self._core = _core.Study.create(str(self._path), name, self._maximize)

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return self._path

    @property
    def name(self) -> str:
        """Its name in the file."""
        return self._name

    @property
    def trials(self) -> list[Trial]:
        """All trials by number."""
        return self._core.trials()

    @property
    def best_trial(self) -> Trial | None:
        """The complete trial with the best value, the earliest of equals; none where none is complete."""
        return self._core.best()

    def weights(self, trial: int) -> Path:
        """Where the trial's state dict lies, once it is complete."""
        return self._path.parent / "lanes" / f"trial-{trial}.pt"

    def state_dict(self, trial: int | None = None) -> dict[str, Tensor]:
        """The state dict of a trial, of the best one where none is named: loads strictly in the plain model.

        Raises:
            InvalidArgument: there is none.
        """
        best = self.best_trial
        number = trial if trial is not None else best.number if best is not None else None
        if number is None or not self.weights(number).exists():
            raise InvalidArgument(
                f"hfta.Study: expected the weights of {'a best trial' if number is None else f'trial {number}'}, got none"
            )
        return torch.load(self.weights(number), weights_only=True)

    def to_json(self) -> str:
        """The whole study as one JSON document, as `hfta export`."""
        return self._core.export_json()

    def __repr__(self) -> str:
        return f'hfta.Study("{self._path}", {len(self.trials)} trials)'

    def sweep(
        self,
        model: Callable[..., nn.Module],
        space: Space,
        loss: Callable[..., Any],
        batches: Any,
        validation: Any = None,
        *,
        metrics: Callable[..., dict[str, Tensor]] | None = None,
        metric: str = "loss",
        trials: int = 16,
        epochs: int = 1,
        lanes: int = 64,
        optimizer: Any = "adam",
        optimizer_options: Mapping[str, Any] | None = None,
        schedules: Callable[..., Sequence[Any]] | None = None,
        max_norm: float | None = None,
        split: Sequence[str] = ("batch_size",),
        sampler: Any = "random",
        pruner: Any = None,
        early_stop: EarlyStop | None = None,
        plan: Plan | None = None,
        recorded: bool = True,
        keep_weights: bool = True,
        checkpoint_every: int = 1,
        callbacks: Sequence[Callback | Callable[[EpochReport], Any]] = (),
        seed: int = 0,
        new_space: bool = False,
    ) -> Study:
        """Trains trials until the study has so many; trials that agree in structure train together, as lanes of one array.

        Goes on where an earlier call was killed or interrupted: call it again with the same arguments.

        Args:
            model: builds the module of a trial from the dict of its parameters; a factory without arguments is called so.
            space: parameters by name: `hfta.loguniform(1e-4, 1e-1)`, ...; a list of values is a choice.
            loss: `loss(model, *inputs)` of one model, as for `Array.train_step`.
            batches: as for `Trainer.run`, any iterable of batches; or a function of a trial's parameters that gives it.
            validation: the same, for the metrics.
            metrics: as for `Trainer`.
            metric: the tuned one, its last value counts: "loss" (of the training), or a name of `metrics`.
            trials: how many the study is to have in all.
            lanes: most of an array.
            optimizer: "sgd", "adam", "adamw", "adadelta", a class of `hfta.optim`, or a function of the array and the list of its lanes'
                parameters. Parameters of the space that the class takes (lr, weight_decay, beta1, ...) are its values, one per lane; a
                parameter "optimizer" of the space names it.
            optimizer_options: what all lanes share.
            schedules: `schedules(optimizer, epochs)` gives the learning rate schedules of an array.
            split: parameters that cannot differ within an array; what changes the model's structure need not be named.
            sampler: "random", "grid", or a sampler of Optuna's, which is asked for as many trials as there are lanes at a time.
            pruner: a pruner of Optuna's; trials that it ends are PRUNED.
            early_stop: which trials end early, and count with their last value.
            seed: of everything: trial n has seed + n, unless a parameter "seed" says otherwise.
            new_space: goes on with another space than the study's.

        Raises:
            InvalidArgument: the space differs from the study's, or something does not fit.
            Error: another process runs this study.

        Example:
            >>> study = hfta.Study("runs/net/study.db", direction="maximize")
            >>> study.sweep(lambda p: Net(p["dropout"]), {"lr": hfta.loguniform(1e-4, 1e-1), "dropout": [0.0, 0.5]}, loss_of,
            ...             train_loader, validation_loader, metrics=metrics_of, metric="accuracy", trials=32, epochs=10)
            >>> study.best_trial.parameters
        """
        arrays = TrialArrays(model, optimizer, optimizer_options or {}, split, seed)
        trainer_options = {
            "metrics": metrics, "max_norm": max_norm, "early_stop": early_stop, "recorded": recorded, "checkpoint_every": checkpoint_every,
            "seed": seed,
        }  # fmt: skip
        sweep = _Sweep(
            self, arrays, loss, batches, validation, metric, epochs, lanes, schedules, plan, keep_weights, callbacks, trainer_options
        )
        lock = _core.StudyLock(str(self._path))
        try:
            # As another object: what this process left behind when it was interrupted is gone on with too.
            self._core = _core.Study.create(str(self._path), self._name, self._maximize)
            entries = entries_of(space)
            core = core_of(entries)
            self._core.adopt(core, new_space)
            sweep.run(_sampling.sampling(self._core, core, entries, sampler, pruner, seed), lock, core, trials)
        finally:
            lock.close()
        return self


class _Sweep:
    """The course of a sweep: array after array."""

    def __init__(
        self, study: Study, arrays: TrialArrays, loss: Any, batches: Any, validation: Any, metric: str, epochs: int, lanes: int,
        schedules: Any, plan: Plan | None, keep_weights: bool, callbacks: Sequence[Any], trainer_options: dict[str, Any],
    ):  # fmt: skip
        for name, value in (("epochs", epochs), ("lanes", lanes)):
            if value < 1:
                raise InvalidArgument(f"hfta.Study.sweep: expected {name} of at least 1, got {value}")
        if metric != "loss" and (trainer_options["metrics"] is None or validation is None):
            raise InvalidArgument(f'hfta.Study.sweep: expected metrics and validation batches for the metric "{metric}", got none')
        self.study, self.arrays, self.metric, self.keep_weights = study, arrays, metric, keep_weights
        self._loss, self._batches, self._validation = loss, batches, validation
        self._epochs, self._lanes, self._schedules, self._plan = epochs, lanes, schedules, plan
        self._callbacks, self._trainer_options = list(callbacks), trainer_options
        self._plans: dict[tuple[str, int], Plan] = {}
        self.running: set[int] = set()

    def run(self, source: _sampling.Sampling, lock: _core.StudyLock, space: _core.Space, total: int) -> None:
        self.source, core = source, self.study._core
        for folder in ("checkpoints", "lanes"):
            (self.study.path.parent / folder).mkdir(exist_ok=True)
        self.ledger = _core.Ledger(core)
        left = core.reclaim(lock, space)
        create, summary = _core.plan_trials(len(core.trials()), total, source.points)
        _log.info("%s: %s", self.study.name, summary)
        while left or create:
            asked = source.ask(source.round_of(create, self._lanes)) if create else []
            create -= len(asked) or create
            self._begin([*left, *asked])
            left = []

    def _begin(self, trials: list[Trial]) -> None:
        self.running = {trial.number for trial in trials}
        fresh = [trial for trial in trials if not self.ledger.has(trial.number)]
        self.ledger.add(_core.arrays_of(fresh, [self.arrays.kind(trial) for trial in fresh], self._lanes))
        for index, numbers in enumerate(self.ledger.arrays):
            if self.running & set(numbers):
                self._run_array(index, numbers)

    def _run_array(self, index: int, numbers: list[int]) -> None:
        trials = [self.study._core.trial(number) for number in numbers]
        array = self.arrays.array(trials)
        optimizer = self.arrays.optimizer(array, trials)
        schedules = list(self._schedules(optimizer, self._epochs)) if self._schedules is not None else []
        kind = (self.arrays.kind(trials[0]), len(trials))
        checkpoint = self.study.path.parent / "checkpoints" / f"array-{index}.pt"
        course = _ArrayCourse(self, index, numbers)
        plan = self.ledger.plan(index) or self._plan or self._plans.get(kind)
        trainer = Trainer(
            array, optimizer, self._loss, schedules=schedules, plan=plan, checkpoint=checkpoint, callbacks=[course, *self._callbacks],
            **self._trainer_options,
        )  # fmt: skip
        if checkpoint.exists():
            trainer.resume(checkpoint)
        # A kill between an end and its entry in the study left trials running that have ended.
        for lane in trainer.lanes:
            if not lane.is_running:
                course.end(lane)
        parameters = trials[0].parameters
        trainer.run(_of(self._batches, parameters), _of(self._validation, parameters), epochs=self._epochs)
        self._plans.setdefault(kind, trainer.plan)
        checkpoint.unlink(missing_ok=True)


def _of(batches: Any, parameters: dict[str, Any]) -> Any:
    return batches(parameters) if callable(batches) and not hasattr(batches, "__iter__") else batches


class _ArrayCourse(Callback):
    """Keeps the study in step with an array's training."""

    def __init__(self, sweep: _Sweep, index: int, numbers: list[int]):
        self._sweep, self._index, self._numbers = sweep, index, numbers
        self._pruned: set[int] = set()

    def on_epoch(self, trainer: Trainer, report: EpochReport) -> None:
        sweep = self._sweep
        if report.epoch == 0 or sweep.ledger.plan(self._index) is None:
            sweep.ledger.set_plan(self._index, trainer.plan, "", trainer.report())
        reports = []
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


def sweep(
    model: Callable[..., nn.Module],
    space: Space,
    loss: Callable[..., Any],
    batches: Any,
    validation: Any = None,
    *,
    storage: str | os.PathLike[str],
    name: str = "hfta",
    direction: Literal["minimize", "maximize"] = "minimize",
    **options: Any,
) -> Study:
    """Searches hyper-parameters of a Python model; `Study(storage, name=..., direction=...).sweep(...)` in one call.

    Example:
        >>> study = hfta.sweep(Net, {"lr": hfta.loguniform(1e-4, 1e-1)}, loss_of, loader, storage="runs/net/study.db", trials=32, epochs=5)
        >>> net.load_state_dict(study.state_dict())     # the best trial's weights
    """
    return Study(storage, name=name, direction=direction).sweep(model, space, loss, batches, validation, **options)
