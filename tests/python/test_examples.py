"""The examples run as a user runs them."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import hfta

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


def run(name, folder, *arguments):
    beside = os.pathsep.join([str(pathlib.Path(hfta.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": beside, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "building the font cache" not in line]  # matplotlib's first run
    assert not told, told
    return done.stdout


def test_sweep_finds_a_rate_and_plain_torch_loads_the_best_lane(tmp_path):
    output = run("sweep_learning_rates.py", tmp_path)
    accuracies = [float(value) for value in re.findall(r"^lane .*accuracy ([\d.]+)", output, re.M)]
    assert len(accuracies) == 16
    assert max(accuracies) > 0.8 > 0.5 > min(accuracies)
    alone = re.search(r"^best.pt: lane (\d+), accuracy ([\d.]+) in plain PyTorch$", output, re.M)
    assert abs(float(alone[2]) - accuracies[int(alone[1])]) < 0.002
    assert "hidden.1.running_mean" in torch.load(tmp_path / "best.pt", weights_only=True)


def test_ensemble_is_less_sure_where_there_are_no_data(tmp_path):
    output = run("ensemble_uncertainty.py", tmp_path)
    measured, gap, beyond = map(float, re.search(r"deviation: ([\d.]+) .*, ([\d.]+) in the gap, ([\d.]+) beyond", output).groups())
    assert gap > 3 * measured
    assert beyond > 3 * measured
    if importlib.util.find_spec("matplotlib") is None:
        assert output.endswith("no plot: matplotlib is not installed\n")
    else:
        assert (tmp_path / "ensemble.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(not pathlib.Path("/usr/share/datasets/fashion-mnist").exists(), reason="needs dataset-fashion-mnist")
def test_study_of_fashion_mnist_is_kept_in_optunas_file(tmp_path):
    output = run("fashion_mnist_study.py", tmp_path, "--trials", "4", "--epochs", "1", "--items", "500")
    assert re.search(r"^best: trial \d, accuracy 0\.\d+, \{", output, re.M)
    study = hfta.Study(tmp_path / "runs" / "fashion_mnist" / "study.db", direction="maximize")
    assert [trial.state for trial in study.trials] == ["COMPLETE"] * 4
