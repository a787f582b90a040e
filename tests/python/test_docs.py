"""The guides' own code, run as it stands there."""

from __future__ import annotations

import doctest
import inspect
import pathlib
import re

import pytest

import hfta

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "guide"


@pytest.mark.parametrize("page", ["python.md", "coming_from.md"])
def test_guide_runs_as_written(page, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    text = (GUIDE / page).read_text()
    # Blocks marked `py` are other tools' code. Empty lines keep the line numbers of the page.
    lines = ["" for _ in text.splitlines()]
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.S | re.M))
    assert blocks
    for block in blocks:
        first = text.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[first : first + len(code)] = code
    exec(compile("\n".join(lines), str(GUIDE / page), "exec"), {"__name__": "guide"})


NAMES = [
    (module, name)
    for module, names in ((hfta, hfta.__all__), (hfta.optim, hfta.optim.__all__), (hfta.optim.lr_scheduler, hfta.optim.lr_scheduler.__all__))
    for name in names
    if not inspect.ismodule(getattr(module, name))
]
PLAIN_DATA = {"Error", "InvalidArgument", "EpochReport", "LaneRecord", "StepReport", "PerLane", "Trial"}  # made for the user, or by per_lane


@pytest.mark.parametrize("module, name", NAMES, ids=[f"{module.__name__}.{name}" for module, name in NAMES])
def test_each_public_name_is_told_with_an_example(module, name):
    value = getattr(module, name)
    text = vars(value).get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)
    assert text, "what it is"
    assert ">>> " in text or name in PLAIN_DATA, "an example"
    for member, entry in vars(value).items() if inspect.isclass(value) else ():
        function = getattr(entry, "fget", None) or getattr(entry, "__func__", entry)
        if not member.startswith("_") and (callable(function) or isinstance(entry, property)):
            assert getattr(entry, "__doc__", None) or function.__doc__, f"what {member} is"


def test_examples_of_docstrings_are_python():
    for module, name in NAMES:
        value = getattr(module, name)
        members = vars(value).values() if inspect.isclass(value) and value.__module__.startswith("hfta.") else ()
        for entry in (value, *members):
            for example in doctest.DocTestParser().get_examples(getattr(entry, "__doc__", None) or ""):
                compile(example.source, f"{module.__name__}.{name}", "single")
