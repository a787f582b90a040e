"""What the package says of itself. `./dev wheel` builds the whole wheel and tries it; here it is made without what is compiled, in a second."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

import hfta

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("needs: pip install scikit-build-core")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-input", "--disable-pip-version-check", "--no-index", "--no-build-isolation", "--no-deps"]
    settings = ["--config-settings", "wheel.cmake=false", "--config-settings", f"build-dir={folder}/build"]  # "-C" is of pip 23.1
    done = subprocess.run([*command, *settings, "-w", folder, ROOT], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("hfta-*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_wheel_asks_for_the_torch_that_it_is_built_with(wheel):
    (name,) = [entry for entry in wheel.namelist() if entry.endswith(".dist-info/METADATA")]
    metadata = wheel.read(name).decode()
    assert f"\nVersion: {hfta.__version__}\n" in metadata
    assert re.search(r"\nRequires-Dist: torch\s?==2\.13\.\*\n", metadata), metadata
    others = [line for line in re.findall(r"\nRequires-Dist: (.+)", metadata) if "extra ==" not in line]
    assert len(others) == 1, "torch is all that it needs"
    assert re.search(r"\nRequires-Dist: optuna\S*; extra == ['\"]optuna['\"]\n", metadata), metadata


def test_the_wheel_holds_all_modules_the_stubs_and_their_marker(wheel):
    source = ROOT / "python" / "hfta"
    expected = {f"hfta/{path.relative_to(source)}" for path in source.rglob("*") if path.suffix in (".py", ".pyi") or path.name == "py.typed"}
    held = {name for name in wheel.namelist() if name.startswith("hfta/")}
    assert expected == held
    assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())


def test_another_torch_is_refused_at_import():
    code = "import torch; torch.__version__ = '2.12.1'\ntry:\n  import hfta\nexcept ImportError as error: print(error)"
    path = str(pathlib.Path(hfta.__file__).parents[1])
    told = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r})\n{code}"], check=True, capture_output=True, text=True).stdout
    assert "expected torch 2.13" in told and "2.12.1" in told
