"""Trains arrays of models in every way that users have, interleaved in one run, and sets hfta beside them.

    ./dev bench arrays                              every row, Adam; about 20 minutes
    ./dev bench arrays --rows mlp-2-16,gru          rows whose name begins so
    ./dev bench arrays --optimizer sgd --repeats 15
    ./dev bench arrays --plans                      hfta at every width and number of workers too
    ./dev bench arrays --scaling                    time per lane and memory as the number of lanes grows

Each way is a process of its own that stays ready; every repeat runs all ways in turn, after a control product. A way's weights after
four steps are compared with the plain loop's before its time counts. Ratios are judged by their lower quartile over the repeats.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import torch

import machine
import report
from workloads import ROWS, Workload

HERE = Path(__file__).resolve().parent
RATE = 1e-3
CHECKED_STEPS = 4
REPEAT_MS = 200.0
MAX_SPREAD = 0.15
MAX_OTHERS = 0.1
MAX_WEIGHTS_OFF = 0.05  # rounding alone, which Adam's first steps amplify, makes up to 0.03 of it (ResNet-18)
PYTHON_WAYS = ("loop", "processes", "func", "by hand", "jax")


class WayFailed(Exception):
    pass


class Way:
    """A process that trains the row's lanes in one way."""

    def __init__(self, name: str, command: list[str], request: dict) -> None:
        self.name, self.note, self.ms, self.count = name, "", [], 1
        self.process = subprocess.Popen(
            [*command, json.dumps(request)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=HERE
        )
        self.read()

    def read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise WayFailed(f"ended with code {self.process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise WayFailed(reply["error"])
        return reply

    def ask(self, **command) -> dict:
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self.read()

    def weights(self) -> numpy.ndarray:
        with tempfile.NamedTemporaryFile() as file:
            self.ask(do="weights", path=file.name)
            return numpy.fromfile(file.name, dtype=numpy.float32)

    def calibrate(self) -> None:
        """Steps in a repeat: about a fifth of a second of them."""
        self.ask(do="steps", count=2)
        ms = self.ask(do="steps", count=1)["ms"]
        self.count = max(1, min(2000, round(REPEAT_MS / ms)))

    def repeat(self) -> None:
        self.ms.append(self.ask(do="steps", count=self.count)["ms"] / self.count)

    def peak_bytes(self) -> int:
        """Of resident memory since the process began (without its children)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def close(self) -> None:
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait()


def initial_weights(row: Workload) -> numpy.ndarray:
    weights = []
    for lane in range(row.lanes):
        torch.manual_seed(lane)
        weights += [p.detach().numpy().ravel() for p in row.build().parameters()]
    return numpy.concatenate(weights)


def check_weights(way: Way, expected: numpy.ndarray, initial: numpy.ndarray) -> None:
    got = way.weights()
    if got.shape != expected.shape:
        raise WayFailed(f"{got.size} weights where the loop has {expected.size}")
    off = float(numpy.abs(got - expected).mean() / numpy.abs(expected - initial).mean())
    if not off < MAX_WEIGHTS_OFF:
        raise WayFailed(f"weights after {CHECKED_STEPS} steps off by {off:.2%} of what they moved")


def requests(row: Workload, options: argparse.Namespace) -> list[tuple[str, list[str], dict]]:
    """Name, command and request of each way."""
    common = {"model": row.model, "batch": row.batch, "lanes": row.lanes, "optimizer": options.optimizer, "cores": machine.cores()}
    ways = [(name, [sys.executable, "python_ways.py"], common | {"way": name}) for name in PYTHON_WAYS]
    if options.jax_python:
        ways = [(name, [options.jax_python if name == "jax" else command[0], *command[1:]], request) for name, command, request in ways]
    binary = [str(options.binary)]
    ways.append(("libtorch", binary, common | {"way": "libtorch"}))
    ways.append(("hfta", binary, common | {"way": "hfta"}))
    if options.plans:
        for workers in sorted({1, machine.cores()}):
            width = 1
            while width * workers <= row.lanes:
                plan = {"width": width, "workers": workers, "threads": machine.cores() // workers}
                ways.append((f"hfta {width} x {workers}", binary, common | {"way": "hfta", "plan": plan}))
                width *= 2
    return [w for w in ways if not options.ways or w[0] in options.ways or w[0] in ("loop", "hfta")]


def start_ways(row: Workload, options: argparse.Namespace, failed: dict[str, str]) -> list[Way]:
    ways: list[Way] = []
    expected, initial = None, initial_weights(row)
    for name, command, request in requests(row, options):
        try:
            way = Way(name, command, request)
        except WayFailed as error:
            failed[name] = str(error)
            continue
        try:
            way.ask(do="steps", count=CHECKED_STEPS)
            if expected is None:
                expected = way.weights()
            check_weights(way, expected, initial)
            way.note = way.ask(do="settle")["note"]
            way.calibrate()
            ways.append(way)
        except WayFailed as error:
            failed[name] = str(error)
            way.close()
            if name in ("loop", "hfta"):
                raise SystemExit(f"bench: {row.name}: {name}: {error}") from error
    return ways


def run_row(row: Workload, options: argparse.Namespace) -> dict:
    failed: dict[str, str] = {}
    ways = start_ways(row, options, failed)
    control, others = machine.Control(), machine.Others()
    for repeat in range(options.repeats):
        control.run()
        for way in ways[repeat % len(ways) :] + ways[: repeat % len(ways)]:  # nobody always comes first
            way.repeat()
    result = {
        "row": row.name,
        "optimizer": options.optimizer,
        "ways": {w.name: {"ms": w.ms, "note": w.note, "steps": w.count, "peak_bytes": w.peak_bytes()} for w in ways},
        "failed": failed,
        "control_ms": control.ms,
        "control_spread": control.spread(),
        "others_cores": others.cores(),
    }
    for way in ways:
        way.close()
    return result


def disturbed(result: dict) -> str | None:
    if result["others_cores"] > MAX_OTHERS:
        return f"other processes took {result['others_cores']:.2f} cores"
    if result["control_spread"] > MAX_SPREAD:
        return f"the control product spread by {result['control_spread']:.0%}"
    return None


def run_undisturbed(row: Workload, options: argparse.Namespace) -> dict:
    """Tries a disturbed row again, at most twice."""
    for attempt in range(3):
        result = run_row(row, options)
        reason = disturbed(result)
        if reason is None or options.force:
            break
        print(f"bench: {row.name}: {reason}; {'again' if attempt < 2 else 'given up'}", file=sys.stderr)
        time.sleep(5)
    result["disturbed"] = reason
    return result


def wait_until_quiet(force: bool) -> None:
    for _ in range(30):
        others = machine.Others()
        time.sleep(1)
        if others.cores() <= MAX_OTHERS:
            return
    if not force:
        raise SystemExit(
            f"bench: other processes take {others.cores():.2f} cores (at most {MAX_OTHERS} allowed); --force records all the same and marks the file"
        )


def scaling(options: argparse.Namespace) -> list[dict]:
    results = []
    for model, batch in (("mlp-2-16", 32), ("mlp-784-32", 32), ("mlp-784-128", 32), ("cnn-16-32", 32), ("gru", 32)):
        if options.rows and not any(model.startswith(r) for r in options.rows):
            continue
        for lanes in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            options.ways = ("libtorch",) if lanes == 1 else ("none",)
            results.append(run_undisturbed(Workload(model, batch, lanes), options))
            print(report.scaling_line(results[-1], lanes), flush=True)
    return results


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    comma = lambda text: tuple(t.strip() for t in text.split(","))  # noqa: E731
    parser.add_argument("--binary", type=Path, required=True, help="the C++ side, arrays_way (./dev bench gives it)")
    parser.add_argument("--rows", type=comma, default=(), help="beginnings of the rows' names, with commas")
    parser.add_argument("--ways", type=comma, default=(), help="ways beside the loop and hfta, with commas; all by default")
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--repeats", type=int, default=11, help="interleaved repeats, at least 9 (default 11)")
    parser.add_argument("--plans", action="store_true", help="hfta at every width and number of workers too")
    parser.add_argument("--scaling", action="store_true", help="time per lane and memory as the number of lanes grows")
    parser.add_argument("--jax-python", help="a Python that has jax, optax and torch (default: this one)")
    parser.add_argument("--force", action="store_true", help="record on a disturbed machine all the same, and mark the file")
    parser.add_argument("--out", type=Path, help="the file of results (default benchmarks/results/arrays.json)")
    options = parser.parse_args()
    if options.repeats < 9:
        parser.error(f"--repeats: expected at least 9, got {options.repeats}")
    unknown = [r for r in options.rows if not any(row.name.startswith(r) for row in ROWS)]
    if unknown:
        parser.error(f"--rows: no row begins with {unknown[0]!r}; there are {', '.join(row.name for row in ROWS)}")
    return options


def main() -> None:
    options = parse()
    wait_until_quiet(options.force)
    facts = machine.describe() | {"peak_gflops": machine.peak_flops() / 1e9, "copy_gbytes": machine.copy_bytes_per_second() / 1e9}
    print(f"{facts['processor']}, {facts['cores']} cores; products {facts['peak_gflops']:.0f} GFLOP/s, copies {facts['copy_gbytes']:.1f} GB/s", flush=True)
    if options.scaling:
        results = scaling(options)
    else:
        results = []
        for row in ROWS:
            if options.rows and not any(row.name.startswith(r) for r in options.rows):
                continue
            result = run_undisturbed(row, options)
            result["roofline_ms"] = report.roofline_ms(row, options.optimizer, facts)
            results.append(result)
            print(report.row_lines(result), flush=True)
    out = options.out or HERE.parent / "results" / ("scaling.json" if options.scaling else f"arrays_{options.optimizer}.json")
    bad = [r["row"] for r in results if r["disturbed"]]
    if bad and not options.force:
        raise SystemExit(f"bench: not recorded: disturbed while running {', '.join(bad)}; --force records all the same and marks the file")
    if options.rows and options.out is None:
        return  # some rows only: the whole table stays as it is
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"format": 1, "optimizer": options.optimizer, "repeats": options.repeats, "machine": facts, "forced": bool(bad), "rows": results}, indent=1) + "\n")
    print(f"written: {out}")
    if not options.scaling:
        report.chart(results, out.with_suffix(".png"))


if __name__ == "__main__":
    main()
