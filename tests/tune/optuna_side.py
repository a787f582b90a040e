"""Optuna's side of the study tests: every command prints what the C++ test compares."""

import json
import math
import sys

try:
    import optuna
except ImportError:
    sys.exit(f"optuna is missing; install it with: {sys.executable} -m pip install optuna")

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.distributions import distribution_to_json, json_to_distribution

optuna.logging.set_verbosity(optuna.logging.ERROR)


def plain(value):
    """The value with NaN and infinities as texts: what follows is then JSON for any reader."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def storage(path):
    return f"sqlite:///{path}"


def distributions():
    """Each line of standard input is read by Optuna and written back."""
    for line in sys.stdin:
        print(distribution_to_json(json_to_distribution(line)))


def values():
    """The texts that Python writes for some values, one a line."""
    for value in [0.1, 1.0, -10.0, 1e-05, 1e-4, 123456.789, 1e15, 1e16, 1.5e300, 5e-324, 3, True, None, "adam", 'ö"\\\n\x7f😀',
                  float("nan"), float("inf"), -float("inf")]:
        print(json.dumps(value))


def show(path, name):
    """All that Optuna reads from a study."""
    study = optuna.load_study(study_name=name, storage=storage(path))
    trials = []
    for t in study.get_trials():
        trials.append({
            "number": t.number, "state": t.state.name,
            "values": t.values,
            "params": t.params,
            "distributions": {k: distribution_to_json(d) for k, d in t.distributions.items()},
            "intermediate": {str(k): v for k, v in t.intermediate_values.items()},
            "user_attrs": t.user_attrs, "system_attrs": t.system_attrs,
            "seconds": None if t.duration is None else t.duration.total_seconds(),
            "started": None if t.datetime_start is None else t.datetime_start.timestamp(),
        })
    try:
        best = study.best_trial.number
    except ValueError:
        best = None
    print(json.dumps(plain({"directions": [d.name for d in study.directions], "user_attrs": study.user_attrs, "best": best, "trials": trials})))


def make(path):
    """A study with a trial of each kind."""
    study = optuna.create_study(study_name="theirs", storage=storage(path), direction="maximize")
    study.set_user_attr("note", {"a": [1, float("nan")], "ö": None})

    def objective(trial):
        trial.suggest_float("lr", 1e-5, 0.1, log=True)
        trial.suggest_float("x", -10, 10)
        trial.suggest_float("drop", 0, 1, step=0.25)
        trial.suggest_int("layers", 1, 8, log=True)
        trial.suggest_int("width", 16, 128, step=16)
        trial.suggest_categorical("act", ["relu", 1, 2.5, True, None][:3])
        for step, value in enumerate([0.5, float("nan"), float("inf"), -float("inf")]):
            trial.report(value, step)
        trial.set_user_attr("who", "ö")
        if trial.number == 4:
            raise optuna.TrialPruned
        return [1.0, float("nan"), float("inf"), -float("inf")][trial.number % 4]

    study.optimize(objective, n_trials=5)
    study.enqueue_trial({"lr": 0.01, "act": 2.5})
    study.ask()
    study.enqueue_trial({"lr": 0.02})
    study.enqueue_trial({"lr": 5.0})


def schema(path):
    optuna.create_study(study_name="empty", storage=storage(path))


def work(path, name, count):
    """Adds complete trials while others write."""
    study = optuna.load_study(study_name=name, storage=optuna.storages.RDBStorage(storage(path), engine_kwargs={"connect_args": {"timeout": 60}}))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=int(count))


def fill(path, name):
    """Runs what waits in a study with Optuna."""
    study = optuna.load_study(study_name=name, storage=storage(path))
    trial = study.ask()
    print(trial.number, trial.suggest_float("lr", 1e-5, 0.1, log=True))
    study.tell(trial, 1.0)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
