"""Tries a wheel as a user would: installs it into an environment of its own that sees this Python's torch, and runs all of it.

Usage: check_wheel.py WHEEL
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# What LibTorch brings, and what every Linux with a C++ compiler's run time has.
_ALLOWED = re.compile(
    r"lib(hfta\.so\.0|torch(_cpu|_cuda|_python)?\.so|c10(_cuda)?\.so|stdc\+\+\.so\.6|gcc_s\.so\.1|gomp\S*|[cm]\.so\.6|pthread\.so\.0|dl\.so\.2|rt\.so\.1)|ld-linux\S+"
)
_FOREIGN = re.compile(r"N?K?(3fmt|6spdlog)|sqlite3_|inflate|deflate")

_TRAIN = """
import hfta, torch
array = hfta.fuse(lambda: torch.nn.Linear(3, 2), lanes=4)
step = array.record(hfta.optim.Adam(array, lr=[0.1, 0.2, 0.3, 0.4]), lambda net, x: net(x).pow(2).mean())
x = torch.randn(5, 3)
losses = [step(x) for _ in range(3)]
assert (losses[2] < losses[0]).all(), losses
print("trained with", hfta.__file__)
"""


def run(*command: object, **options: object) -> str:
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    version = re.search(r'HFTA_VERSION "(.+)"', (Path(__file__).parents[2] / "hfta/base/version.h").read_text())
    assert version and f"\nVersion: {version[1]}\n" in metadata, metadata
    assert re.search(r"\nRequires-Dist: torch\s?==2\.13\.\*\n", metadata), metadata


def check_libraries(package: Path) -> None:
    for binary in (*package.glob("_core*.so"), package / "lib/libhfta.so.0", package / "bin/hfta"):
        dynamic = run("readelf", "-d", "-W", binary)
        foreign = [name for name in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic) if not _ALLOWED.fullmatch(name)]
        assert not foreign, f"{binary.name} needs libraries that the wheel does not bring: {foreign}"
        paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.+)\]", dynamic)
        assert all(path.startswith("$ORIGIN") for whole in paths for path in whole.split(":")), f"{binary.name} looks in {paths}"
        exported = [line.split()[-1] for line in run("nm", "-D", "--defined-only", binary).splitlines()]
        shown = [name for name in exported if _FOREIGN.match(name.removeprefix("_Z").removeprefix("TV").removeprefix("TI"))]
        assert not shown, f"{binary.name} shows others' symbols: {shown[:5]}"


def main() -> None:
    (wheel,) = map(Path, sys.argv[1:])
    check_metadata(wheel)
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", folder)
        site = next(Path(folder).glob("lib/python3*/site-packages"))
        # Torch lies elsewhere, as with a --system-site-packages environment.
        (site / "torch.pth").write_text("\n".join(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))))
        python = Path(folder) / "bin/python"
        run(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check", wheel.resolve())
        check_libraries(site / "hfta")
        print(run(python, "-c", _TRAIN, cwd=folder).strip())
        assert "sweep" in run(Path(folder) / "bin/hfta", "--help", cwd=folder)
        wrong = "import torch; torch.__version__ = '2.12.1'\ntry:\n  import hfta\nexcept ImportError as e: print(e)"
        assert "expected torch 2.13" in run(python, "-c", wrong, cwd=folder)
    print(f"{wheel.name}: installs, imports, trains, and has its command")


if __name__ == "__main__":
    main()
