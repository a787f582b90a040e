#!python
"""The command `hfta`: becomes the program inside the package, whose signals, streams and exit status are its own."""

import importlib.util
import os
import sys
from pathlib import Path


def folder_of(package: str) -> Path:
    """Where a package lies, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(
            f"hfta: expected the package {package} with {sys.executable}, got none; install it with: {sys.executable} -m pip install {package}"
        )
    return Path(spec.origin).resolve().parent


def main() -> None:
    package, torch = folder_of("hfta"), folder_of("torch")
    environment = dict(os.environ)
    if package.parent != torch.parent:  # the program finds LibTorch beside the package by itself; elsewhere it is told
        before = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = str(torch / "lib") + (os.pathsep + before if before else "")
    program = package / "bin" / "hfta"
    try:
        os.execve(program, ["hfta", *sys.argv[1:]], environment)
    except OSError as error:
        sys.exit(f"hfta: expected to run {program}, got {error.strerror}")


if __name__ == "__main__":
    main()
