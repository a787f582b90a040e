"""Sweeps of Python models, their files read by Optuna and by the command line."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from support import close
from torch import nn

import hfta

SPACE = {"lr": hfta.loguniform(1e-3, 1e-1), "weight_decay": hfta.uniform(0, 1e-2), "hidden": [4, 6]}
PLAN = hfta.Plan(width=1, workers=1, measures_lowerings=False)  # runs whose bits are compared compute the same way


class Net(nn.Module):
    def __init__(self, parameters):
        super().__init__()
        self.a, self.b = nn.Linear(3, parameters.get("hidden", 4)), nn.Linear(parameters.get("hidden", 4), 2)

    def forward(self, x):
        return self.b(self.a(x).relu())


def loss_of(net, x, y):
    return F.cross_entropy(net(x), y)


def metrics_of(net, x, y):
    return {"accuracy": (net(x).argmax(1) == y).float().mean()}


def data():
    x = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))
    return list(zip(x.split(8), (x[:, 0] > 0).long().split(8)))


def swept(folder, **options):
    options = {"trials": 6, "epochs": 2, "metrics": metrics_of, "metric": "accuracy", "plan": PLAN, **options}
    return hfta.sweep(
        Net, options.pop("space", SPACE), loss_of, data(), data(), storage=folder / "study.db", direction="maximize", **options
    )


def test_sweep_trains_each_trial_as_it_would_alone(tmp_path):
    study = swept(tmp_path)
    assert [trial.state for trial in study.trials] == ["COMPLETE"] * 6
    assert {trial.parameters["hidden"] for trial in study.trials} == {4, 6}  # two arrays
    for trial in study.trials:
        torch.manual_seed(trial.number)
        net = Net(trial.parameters)
        adam = torch.optim.Adam(net.parameters(), lr=trial.parameters["lr"], weight_decay=trial.parameters["weight_decay"])
        for _ in range(2):
            for x, y in data():
                adam.zero_grad()
                loss_of(net, x, y).backward()
                adam.step()
        state = study.state_dict(trial.number)
        for name, tensor in net.state_dict().items():
            torch.testing.assert_close(state[name], tensor, rtol=1e-3, atol=1e-5)
        assert sorted(trial.intermediate) == [1, 2] and trial.intermediate[2] == trial.value
        with torch.no_grad():
            assert trial.value == pytest.approx(torch.stack([metrics_of(net, x, y)["accuracy"] for x, y in data()]).mean().item())
    best = study.best_trial
    assert best.value == max(trial.value for trial in study.trials)
    Net(best.parameters).load_state_dict(study.state_dict(), strict=True)


def test_study_file_is_optunas(tmp_path):
    optuna = pytest.importorskip("optuna")
    study = swept(tmp_path)
    loaded = optuna.load_study(study_name="hfta", storage=f"sqlite:///{study.path}")
    assert loaded.direction == optuna.study.StudyDirection.MAXIMIZE
    assert [t.value for t in loaded.trials] == [t.value for t in study.trials]
    assert [t.params for t in loaded.trials] == [t.parameters for t in study.trials]
    assert json.loads(study.to_json())["best"] == study.best_trial.number == loaded.best_trial.number


def test_sweep_goes_on_where_it_was_interrupted(tmp_path):
    whole = swept(tmp_path / "whole", epochs=3)

    class Interrupts(hfta.Callback):
        def on_step(self, trainer, report):
            if report.epoch == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        swept(tmp_path / "cut", epochs=3, callbacks=[Interrupts()])
    assert any(trial.state == "RUNNING" for trial in hfta.Study(tmp_path / "cut" / "study.db", direction="maximize").trials)
    study = swept(tmp_path / "cut", epochs=3)
    assert [t.parameters for t in study.trials] == [t.parameters for t in whole.trials]
    assert [t.intermediate for t in study.trials] == [t.intermediate for t in whole.trials]
    for trial in study.trials:
        assert trial.state == "COMPLETE"
        for name, tensor in whole.state_dict(trial.number).items():
            close(study.state_dict(trial.number)[name], tensor, name, 9)  # lowerings are chosen by timing: others round otherwise
    assert not list((tmp_path / "cut" / "checkpoints").iterdir())


def test_sweep_goes_on_where_it_was_killed(tmp_path):
    kill = "class K(hfta.Callback):\n  def on_step(self, trainer, report):\n    if report.epoch == 1: os._exit(9)\n"
    code = f"import os, sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r}); import hfta, pathlib, test_study as t\n{kill}"
    code += f"t.torch.set_num_threads(1); t.swept(pathlib.Path({str(tmp_path / 'cut')!r}), epochs=3, trials=4, callbacks=[K()])"
    path = os.pathsep.join([str(pathlib.Path(hfta.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=False).returncode == 9
    study, whole = swept(tmp_path / "cut", epochs=3, trials=4), swept(tmp_path / "whole", epochs=3, trials=4)
    assert [t.intermediate for t in study.trials] == [t.intermediate for t in whole.trials]
    assert all(t.state == "COMPLETE" and t.user_attributes["hfta:reclaimed"] == 1 for t in study.trials)
    for trial in study.trials:
        for name, tensor in whole.state_dict(trial.number).items():
            close(study.state_dict(trial.number)[name], tensor, name, 9)  # lowerings are chosen by timing: others round otherwise


def test_sweep_adds_trials_to_a_study_and_draws_what_one_run_draws(tmp_path):
    swept(tmp_path / "a", trials=2)
    more = swept(tmp_path / "a", trials=5)
    once = swept(tmp_path / "b", trials=5)
    assert [t.parameters for t in more.trials] == [t.parameters for t in once.trials]


def test_grid_tries_every_point_once(tmp_path):
    space = {"optimizer": ["sgd", "adam"], "momentum": hfta.quniform(0, 0.8, 0.4).when(optimizer="sgd"), "lr": [0.1, 0.01]}
    study = swept(tmp_path, space=space, sampler="grid", trials=100, epochs=1)
    points = [tuple(trial.parameters.items()) for trial in study.trials]
    assert len(points) == len(set(points)) == 8  # sgd: 3 momenta x 2 rates; adam: 2 rates
    assert all(trial.state == "COMPLETE" for trial in study.trials)


def test_batches_may_depend_on_a_parameter_that_splits(tmp_path):
    asked = []

    def batches(parameters):
        asked.append(parameters["batch_size"])
        return list(
            zip(torch.zeros(8, 3).split(parameters["batch_size"]), torch.zeros(8, dtype=torch.long).split(parameters["batch_size"]))
        )

    space = {"lr": [0.1, 0.01, 0.001], "batch_size": [2, 4]}
    hfta.sweep(Net, space, loss_of, batches, storage=tmp_path / "study.db", sampler="grid", trials=6, epochs=1, plan=PLAN)
    assert sorted(asked) == [2, 4]


def test_a_trial_of_nan_fails_and_the_others_complete(tmp_path):
    def build(parameters):
        net = Net(parameters)
        net.register_buffer("scale", torch.tensor(parameters["scale"]))
        return net

    def loss(net, x, y):
        return loss_of(net, x, y) * net.scale / net.scale  # 0 / 0

    space = {"scale": [1.0, 2.0, 0.0], "lr": [0.1]}
    study = hfta.sweep(build, space, loss, data(), storage=tmp_path / "study.db", sampler="grid", trials=9, plan=PLAN)
    states = {trial.parameters["scale"]: trial.state for trial in study.trials}
    assert states == {1.0: "COMPLETE", 2.0: "COMPLETE", 0.0: "FAIL"}
    failed = next(trial for trial in study.trials if trial.state == "FAIL")
    assert failed.user_attributes["hfta:reason"] == "the loss became NaN in epoch 1, step 1"
    assert not study.weights(failed.number).exists()


def test_optunas_samplers_and_pruners_serve(tmp_path):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = swept(tmp_path, sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=4), lanes=4, trials=8)
    assert len(study.trials) == 8 and all(trial.state == "COMPLETE" for trial in study.trials)

    class Odd(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.number % 2 == 1

    pruned = swept(tmp_path / "pruned", pruner=Odd(), trials=4, epochs=3)
    assert [trial.state for trial in pruned.trials] == ["COMPLETE", "PRUNED"] * 2
    assert sorted(pruned.trials[1].intermediate) == [1]


def test_early_stop_completes_with_the_last_value(tmp_path):
    study = swept(tmp_path, epochs=5, early_stop=hfta.EarlyStop(metric="accuracy", patience=1, maximize=True, min_delta=2.0))
    assert all(trial.state == "COMPLETE" and len(trial.intermediate) == 2 for trial in study.trials)


def test_optimizer_may_be_a_class_or_a_function(tmp_path):
    made = []

    def optimizer(array, parameters):
        made.append([own["lr"] for own in parameters])
        return hfta.optim.SGD(array, lr=made[-1], momentum=0.5)

    space = {"lr": hfta.loguniform(1e-3, 1e-1), "beta2": [0.9, 0.99]}
    swept(tmp_path / "function", space=space, optimizer=optimizer, trials=3, epochs=1)
    assert len(made) == 1 and len(made[0]) == 3
    swept(tmp_path / "class", space=space, optimizer=hfta.optim.AdamW, optimizer_options={"weight_decay": 0.1}, trials=3, epochs=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "f1", "metrics": None}, 'hfta.Study.sweep: expected metrics and validation batches for the metric "f1", got none'),
        ({"lanes": 0}, "hfta.Study.sweep: expected lanes of at least 1, got 0"),
        ({"space": {"lr": 0.1}}, 'hfta.Study: expected a distribution or a list of values as "lr", got float'),
        ({"epoch": 3}, 'hfta.Study.sweep: expected options of trials, epochs, lanes, metrics, metric, optimizer, optimizer_options, schedules, max_norm, split, sampler, pruner, early_stop, plan, recorded, keep_weights, checkpoint_every, callbacks, seed, new_space, got "epoch"'),
        ({"optimizer": "adamax"}, 'hfta.sweep: expected one of sgd, adam, adamw, adadelta as optimizer, got "adamax"'),
        ({"sampler": "tpe"}, None),
    ],
)
def test_sweep_refuses_wrong_options(tmp_path, options, message):
    with pytest.raises(hfta.InvalidArgument) as error:
        swept(tmp_path, **options)
    assert message is None or str(error.value) == message


def test_another_space_is_refused_with_both_definitions(tmp_path):
    swept(tmp_path, trials=1)
    with pytest.raises(hfta.InvalidArgument, match=r'expected "lr" to be loguniform\(0.001, 0.1\)'):
        swept(tmp_path, space={**SPACE, "lr": hfta.uniform(0, 1)})
    swept(tmp_path, space={**SPACE, "lr": hfta.uniform(0, 1)}, trials=2, new_space=True)


def test_a_study_that_another_sweep_holds_is_refused(tmp_path):
    lock = hfta._core.StudyLock(str(tmp_path / "study.db"))
    with pytest.raises(hfta.Error, match="process"):
        swept(tmp_path)
    lock.close()
    swept(tmp_path, trials=1)
