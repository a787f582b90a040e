"""Where trials come from: the library's samplers, or Optuna's through ask and tell on the same file."""

from __future__ import annotations

import json
import math
from typing import Any

from . import _core
from ._errors import InvalidArgument, Unsupported
from .space import Distribution


class Sampling:
    """The library's own samplers: what they propose follows from the seed, the trial's number and the trials so far."""

    def __init__(self, study: _core.Study, space: _core.Space, sampler: str, seed: int):
        self._study, self._space, self._seed = study, space, seed
        self._sampler = _core.make_sampler(sampler)

    @property
    def points(self) -> int | None:
        """How many different trials there are."""
        return self._sampler.size(self._space)

    def round_of(self, count: int, lanes: int) -> int:
        """How many trials to begin before the results of earlier ones are wanted."""
        return count

    def ask(self, count: int) -> list[_core.Trial]:
        return self._study.ask(self._space, self._sampler, self._seed, count)

    def finish(self, trial: int, state: str, values: list[float], reason: str) -> str:
        return self._study.finish(trial, state, values, reason)

    def prunes(self, trial: int) -> bool:
        return False


class OptunaSampling(Sampling):
    """A sampler or a pruner of Optuna's."""

    def __init__(
        self, study: _core.Study, space: _core.Space, entries: list[tuple[str, Distribution]], sampler: Any, pruner: Any, seed: int
    ):
        optuna = _optuna()
        super().__init__(study, space, sampler if isinstance(sampler, str) else "random", seed)
        self._samples = not isinstance(sampler, str)
        self._entries = entries
        names = [name for name, _ in entries]
        if self._samples and len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise Unsupported(f'hfta.Study: expected each parameter once for a sampler of Optuna, got "{twice}" with several conditions')
        storage = optuna.storages.RDBStorage(f"sqlite:///{study.path}", skip_compatibility_check=False)
        self._optuna = optuna.load_study(
            study_name=study.name, storage=storage, sampler=sampler if self._samples else None, pruner=pruner or optuna.pruners.NopPruner()
        )
        self._states = optuna.trial.TrialState

    @property
    def points(self) -> int | None:
        return None if self._samples else super().points

    def round_of(self, count: int, lanes: int) -> int:
        return min(count, lanes) if self._samples else count

    def ask(self, count: int) -> list[_core.Trial]:
        if not self._samples:
            return super().ask(count)
        owner = json.dumps(_core.this_process())
        trials = []
        for _ in range(count):
            asked = self._optuna.ask()
            # A trial that hfta runs: a killed sweep goes on with it.
            self._study.set_trial_attribute(asked.number, "hfta:owner", owner)
            self._suggest(asked)
            trials.append(self._study.trial(asked.number))
        return trials

    def _suggest(self, asked: Any) -> None:
        chosen: dict[str, Any] = {}
        for name, entry in self._entries:
            if entry._condition is not None and chosen.get(entry._condition[0], ...) not in entry._condition[1]:
                continue
            kind, given = _read(entry)
            if kind == "CategoricalDistribution":
                chosen[name] = asked.suggest_categorical(name, given["choices"])
            elif kind == "IntDistribution":
                chosen[name] = asked.suggest_int(name, given["low"], given["high"], step=given["step"], log=given["log"])
            else:
                chosen[name] = asked.suggest_float(name, given["low"], given["high"], step=given["step"], log=given["log"])

    def finish(self, trial: int, state: str, values: list[float], reason: str) -> str:
        if not self._samples:
            return super().finish(trial, state, values, reason)
        if reason:
            self._study.set_trial_attribute(trial, "hfta:reason", json.dumps(reason))
        if state == "COMPLETE" and any(math.isnan(value) for value in values):
            state, values = "FAIL", []
        told = self._optuna.tell(trial, values if state == "COMPLETE" else None, state=self._states[state])
        return told.state.name

    def prunes(self, trial: int) -> bool:
        return bool(self._optuna.pruner.prune(self._optuna, self._optuna.get_trials(deepcopy=False)[trial]))


def _read(entry: Distribution) -> tuple[str, dict[str, Any]]:
    written = json.loads(entry._core.json)
    return written["name"], written["attributes"]


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InvalidArgument(
            'hfta.Study: expected Optuna for its samplers and pruners, got none; install it with: pip install "hfta[optuna]"'
        ) from None
    return optuna


def sampling(
    study: _core.Study, space: _core.Space, entries: list[tuple[str, Distribution]], sampler: Any, pruner: Any, seed: int
) -> Sampling:
    """The source of trials for a sampler by name, or an object of Optuna's."""
    if isinstance(sampler, str) and pruner is None:
        return Sampling(study, space, sampler, seed)
    for given, method, what in ((sampler, "before_trial", "sampler"), (pruner, "prune", "pruner")):
        if given is not None and not isinstance(given, str) and not hasattr(given, method):
            raise InvalidArgument(f"hfta.Study: expected a {what} of Optuna's, got {given!r}")
    return OptunaSampling(study, space, entries, sampler, pruner, seed)
