"""Sweeps that are killed at their weakest moments go on as if nothing had happened."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import torch
from test_study import swept

import hfta

#: What a killed process was about to do, and the call of it that it never makes.
MOMENTS = [
    ("torch.save", 1),  # the first checkpoint, or weights
    ("os.replace", 1),
    ("os.replace", 2),
    ("os.replace", 5),
    ("hfta._core.Study.report", 1),
    ("hfta._core.Study.report", 3),
    ("hfta._core.Ledger.add", 1),
    ("hfta._core.Ledger.set_plan", 2),
    ("hfta._sampling.Sampling.finish", 1),
    ("hfta._sampling.Sampling.finish", 4),
    ("pathlib.Path.unlink", 1),
]


def die_at(place: str, call: int) -> None:
    """Makes this process end, as by a kill, right before a call."""
    *path, name = place.split(".")
    owner = __import__(path[0])
    for part in path[1:]:
        owner = getattr(owner, part)
    real, calls = getattr(owner, name), [0]

    def counted(*arguments, **named):
        calls[0] += 1
        if calls[0] == call:
            os._exit(9)
        return real(*arguments, **named)

    setattr(owner, name, counted)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return swept(tmp_path_factory.mktemp("whole"), epochs=3, lanes=2)


@pytest.mark.parametrize(("place", "call"), MOMENTS)
def test_a_sweep_killed_at_any_moment_ends_as_one_that_never_stopped(tmp_path, whole, place, call):
    code = f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r}); import pathlib, test_killed as t\n"
    code += f"t.torch.set_num_threads(1); t.die_at({place!r}, {call}); t.swept(pathlib.Path({str(tmp_path)!r}), epochs=3, lanes=2)"
    path = os.pathsep.join([str(pathlib.Path(hfta.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert killed.returncode == 9, killed.stderr
    study = swept(tmp_path, epochs=3, lanes=2)
    assert [(t.state, t.parameters, t.intermediate, t.value) for t in study.trials] == [(t.state, t.parameters, t.intermediate, t.value) for t in whole.trials]
    for trial in whole.trials:
        again, once = study.state_dict(trial.number), whole.state_dict(trial.number)
        assert all(torch.equal(again[name], tensor) for name, tensor in once.items()), trial.number
    assert not list((tmp_path / "checkpoints").iterdir()) and not list((tmp_path / "lanes").glob("*.part"))
