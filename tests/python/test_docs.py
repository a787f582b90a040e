"""The guides' own code, run as it stands there."""

from __future__ import annotations

import pathlib
import re

import pytest

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
