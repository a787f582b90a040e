"""Sweeps of Python models: a study file as the command line's, whose trials train together as arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from . import _core
from ._core import Trial
from ._errors import InvalidArgument
from ._sweeping import Sweep, SweepOptions
from .space import Space

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Study:
    """A study: one SQLite file that `optuna.load_study` and optuna-dashboard open as their own, with the run's files beside it.

    Beside the file lie `lanes/trial-N.pt`, the plain state dict of each trial that completed, and `checkpoints/` while it runs.

    Args:
        storage: the file; made where it is not there.
        name: of the study in the file.
        direction: "minimize" or "maximize".

    Raises:
        InvalidArgument: the study is there with another direction.

    Example:
        >>> study = hfta.Study("runs/net/study.db", direction="maximize")
        >>> study.best_trial.parameters
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
        **options: Unpack[SweepOptions],
    ) -> Study:
        """Trains trials until the study has so many; trials that agree in structure train together, as lanes of one array.

        Goes on where an earlier call was killed or interrupted: call it again with the same arguments.

        Args:
            model: builds the module of a trial from the dict of its parameters; a factory without arguments is called so.
            space: parameters by name: `hfta.loguniform(1e-4, 1e-1)`, ...; a list of values is a choice.
            loss: `loss(model, *inputs)` of one model, as for `Array.train_step`.
            batches: as for `Trainer.run`, any iterable of batches; or a function of a trial's parameters that gives it.
            validation: the same, for the metrics.
            options: see `SweepOptions`: `trials`, `epochs`, `metric`, `optimizer`, `sampler`, ...

        Raises:
            InvalidArgument: the space differs from the study's, or something does not fit.
            Error: another process runs this study.

        Example:
            >>> study = hfta.Study("runs/net/study.db", direction="maximize")
            >>> study.sweep(lambda p: Net(p["dropout"]), {"lr": hfta.loguniform(1e-4, 1e-1), "dropout": [0.0, 0.5]}, loss_of,
            ...             train_loader, validation_loader, metrics=metrics_of, metric="accuracy", trials=32, epochs=10)
            >>> study.best_trial.parameters
        """
        course = Sweep(self, model, loss, batches, validation, options)
        lock = _core.StudyLock(str(self._path))
        try:
            # As another object: what this process left behind when it was interrupted is gone on with too.
            self._core = _core.Study.create(str(self._path), self._name, self._maximize)
            course.run(space, lock)
        finally:
            lock.close()
        return self


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
    **options: Unpack[SweepOptions],
) -> Study:
    """Searches hyper-parameters of a Python model; `Study(storage, name=..., direction=...).sweep(...)` in one call.

    Example:
        >>> study = hfta.sweep(Net, {"lr": hfta.loguniform(1e-4, 1e-1)}, loss_of, loader, storage="runs/net/study.db", trials=32, epochs=5)
        >>> net.load_state_dict(study.state_dict())     # the best trial's weights
    """
    return Study(storage, name=name, direction=direction).sweep(model, space, loss, batches, validation, **options)
