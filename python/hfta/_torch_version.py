"""The torch that the binding fits: its C++ interface differs between minor versions."""

WANTED = "2.13"


def check(version: str) -> None:
    """Refuses another torch before the binding is loaded, which would fail with a missing symbol, or worse, work by halves."""
    if version.split("+")[0].split(".")[:2] != WANTED.split("."):
        raise ImportError(
            f"hfta: expected torch {WANTED}, with which this package was built, got torch {version}; "
            f'install that one (pip install "torch=={WANTED}.*"), or build hfta with the torch that is there'
        )
