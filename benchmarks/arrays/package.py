"""What the Python package costs: a recorded step beside the C++ one at the same plan, a Python loop and torch.func; recording; import.

    ./dev bench python                      an MLP 2-16-16-10 of 64 lanes, batch 32
    ./dev bench python --row mlp-784-128    another row of `./dev bench arrays`
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import driver
import machine
import package_way
from driver import Spec
from workloads import ROWS

# At most so many times the C++ step; at least so many times as fast as these; recording within so many plain steps, or seconds.
MOST_OVER_CPP, LEAST_OVER_LOOP, LEAST_OVER_FUNC, MOST_PLAIN_STEPS, MOST_SECONDS, MOST_IMPORT_SECONDS = 1.15, 25, 2, 50, 2, 0.3


def specs_of(row, options: argparse.Namespace) -> list[Spec]:
    cores = machine.cores()
    common = {"model": row.model, "batch": row.batch, "lanes": row.lanes, "optimizer": "adam", "cores": cores, "device": "cpu"}
    plan = {"width": options.width or -(-row.lanes // cores), "workers": cores, "threads": 1}
    python = [sys.executable, "python_ways.py"]
    return [
        Spec("loop", python, common | {"way": "loop"}),
        Spec("func", python, common | {"way": "func"}),
        Spec("hfta", [str(options.binary)], common | {"way": "hfta", "plan": plan}),
        Spec("package", python, common | {"way": "package", "plan": plan}),
    ]


def ratios(result: dict, over: str, under: str) -> list[float]:
    return [a / b for a, b in zip(result["ways"][over]["ms"], result["ways"][under]["ms"], strict=True)]


def lines(result: dict, seconds: float) -> list[tuple[str, bool]]:
    """What is told, and whether it is as it should be. Ratios of repeats in turn: their medians."""
    ways, note = result["ways"], result["ways"]["package"]["note"]
    over = statistics.median(ratios(result, "package", "hfta"))
    loop, func = (statistics.median(ratios(result, way, "package")) for way in ("loop", "func"))
    limit = max(MOST_PLAIN_STEPS * note["plain_s"], MOST_SECONDS)
    return [
        (f"{result['row']}: a step takes {min(ways['package']['ms']):.3f} ms, in C++ {min(ways['hfta']['ms']):.3f}: {over:.2f} times (at most {MOST_OVER_CPP})", over <= MOST_OVER_CPP),
        (f"a Python loop takes {loop:.0f} times as long (at least {LEAST_OVER_LOOP})", loop >= LEAST_OVER_LOOP),
        (f"torch.func takes {func:.1f} times as long (at least {LEAST_OVER_FUNC})", func >= LEAST_OVER_FUNC),
        (f"recording, checks and choices take {note['recording_s']:.2f} s, or {note['recording_s'] / note['plain_s']:.0f} plain steps (at most {limit:.2f} s)", note["recording_s"] <= limit),
        (f"import takes {seconds:.3f} s beyond torch (at most {MOST_IMPORT_SECONDS})", seconds <= MOST_IMPORT_SECONDS),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=lambda text: Path(text).resolve(), required=True, help="the C++ side, arrays_way (./dev bench gives it)")
    parser.add_argument("--row", default="mlp-2-16", help="the beginning of a row's name (default mlp-2-16)")
    parser.add_argument("--width", type=int, help="lanes of a group (default: an even share per core)")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--force", action="store_true", help="also on a machine that others use")
    options = parser.parse_args()
    options.device, options.optimizer = "cpu", "adam"
    row = next((row for row in ROWS if row.name.startswith(options.row)), None)
    if row is None:
        parser.error(f"--row: expected the beginning of one of {', '.join(row.name for row in ROWS)}, got {options.row!r}")
    driver.wait_until_quiet(options.force)
    result = driver.run_undisturbed(row, specs_of(row, options), options)
    for name, reason in result["failed"].items():
        raise SystemExit(f"bench: {name}: {reason}")
    told = lines(result, package_way.import_seconds())
    for line, holds in told:
        print(line + ("" if holds else "  MISSED"))
    if result["disturbed"]:
        print(f"disturbed: {result['disturbed']}")
    sys.exit(not all(holds for _, holds in told))


if __name__ == "__main__":
    main()
