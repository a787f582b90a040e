"""Starts the ways of a row, checks their weights, and times them in turn."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy
import torch

import machine
from workloads import Workload

HERE = Path(__file__).resolve().parent
REPEAT_MS = 200.0
MAX_SPREAD = 0.15
MAX_OTHERS = 0.1
TOGETHER = 8  # steps in one call of "hfta x8": as many as the trainer makes
PYTHON_WAYS = ("loop", "processes", "func", "by hand", "jax")


class WayFailed(Exception):
    pass


@dataclass
class Spec:
    """A way to start: its name, command and request."""

    name: str
    command: list[str]
    request: dict

    @property
    def lanes(self) -> int:
        return self.request["lanes"]


@dataclass
class Way:
    """A process that trains the row's lanes in one way."""

    spec: Spec
    note: dict | str = ""
    off: float | None = None
    count: int = 1
    ms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = time.perf_counter()
        command = [*self.spec.command, json.dumps(self.spec.request)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=HERE)
        self.read()

    @property
    def name(self) -> str:
        return self.spec.name

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
            return numpy.fromfile(file.name, dtype=self.spec.request.get("dtype", "float32"))

    def calibrate(self) -> None:
        """Steps in a repeat: about a fifth of a second of them, whole calls where a call makes several."""
        together = self.spec.request.get("together", 1)
        self.ask(do="steps", count=2 * together)
        ms = self.ask(do="steps", count=together)["ms"] / together
        self.count = together * max(1, min(2000, round(REPEAT_MS / ms)) // together)

    def repeat(self) -> None:
        self.ms.append(self.ask(do="steps", count=self.count)["ms"] / self.count)

    def peak_bytes(self) -> int:
        """Of resident memory since the process began (without its children)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def result(self) -> dict:
        return {"ms": self.ms, "note": self.note, "steps": self.count, "peak_bytes": self.peak_bytes(), "lanes": self.spec.lanes, "weights_off": self.off}

    def close(self) -> None:
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait()


def requests(row: Workload, options: argparse.Namespace) -> list[Spec]:
    """The ways of the table."""
    common = {"model": row.model, "batch": row.batch, "lanes": row.lanes, "optimizer": options.optimizer, "cores": machine.cores(), "device": options.device}
    python, binary = [sys.executable, "python_ways.py"], [str(options.binary)]
    specs = [Spec(name, python, common | {"way": name}) for name in PYTHON_WAYS]
    if options.jax_python:
        next(s for s in specs if s.name == "jax").command = [options.jax_python, "python_ways.py"]
    specs += [Spec("libtorch", binary, common | {"way": "libtorch"}), Spec("hfta", binary, common | {"way": "hfta"})]
    specs.append(Spec(f"hfta x{TOGETHER}", binary, common | {"way": "hfta", "together": TOGETHER}))
    if options.bf16:
        specs += [Spec("loop bf16", python, common | {"way": "loop", "bf16": True}), Spec("hfta bf16", binary, common | {"way": "hfta", "bf16": True})]
    if options.plans:
        for workers in sorted({1, machine.cores()}):
            width = 1
            while width * workers <= row.lanes:
                plan = {"width": width, "workers": workers, "threads": machine.cores() // workers}
                specs.append(Spec(f"hfta {width} x {workers}", binary, common | {"way": "hfta", "plan": plan}))
                width *= 2
    return [s for s in specs if not options.ways or s.name in options.ways or s.name in ("loop", "hfta")]


def scaling_requests(model: str, batch: int, lanes: tuple[int, ...], options: argparse.Namespace) -> list[Spec]:
    """hfta with more and more lanes, and the plain model beside one lane."""
    common = {"model": model, "batch": batch, "optimizer": options.optimizer, "cores": machine.cores(), "device": options.device}
    binary = [str(options.binary)]
    plain = [Spec("loop", [sys.executable, "python_ways.py"], common | {"way": "loop", "lanes": 1}), Spec("libtorch", binary, common | {"way": "libtorch", "lanes": 1})]
    return plain + [Spec(f"hfta x{n}", binary, common | {"way": "hfta", "lanes": n}) for n in lanes]


def initial_weights(row: Workload, dtype: torch.dtype = torch.float32) -> numpy.ndarray:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    weights = []
    for lane in range(row.lanes):
        torch.manual_seed(lane)
        weights += [p.detach().numpy().ravel() for p in row.build().parameters()]
    torch.set_default_dtype(before)
    return numpy.concatenate(weights)


def off_by(got: numpy.ndarray, expected: numpy.ndarray, initial: numpy.ndarray) -> float:
    """How far weights are from those expected, as a part of what these moved: means over all weights."""
    return float(numpy.abs(got - expected).mean() / numpy.abs(expected - initial).mean())


def check_weights(way: Way, row: Workload, expected: numpy.ndarray, initial: numpy.ndarray) -> None:
    got = way.weights()
    if got.shape != expected.shape:
        raise WayFailed(f"{got.size} weights where the loop has {expected.size}")
    way.off = off_by(got, expected, initial)
    limit = row.limit(way.spec.request.get("bf16", False))
    if not way.off <= limit:
        raise WayFailed(f"weights after {row.checked_steps} steps off by {way.off:.2%} of what they moved; {limit:.2%} at most are rounding")


def choose_plan(spec: Spec) -> tuple[Spec, dict]:
    """The way at the plan that it chooses, and what it says of it. A process of its own searches, so that the weights compared are made by that plan."""
    searching = Way(spec)
    note = searching.ask(do="settle")["note"]
    searching.close()
    return replace(spec, request=spec.request | {"plan": note.pop("request")}), note


def start_ways(row: Workload, specs: list[Spec], failed: dict[str, str]) -> list[Way]:
    """Those that run and agree with the first, the loop; why the others do not. Ways of another number of lanes than the row's are not compared."""
    ways: list[Way] = []
    expected, initial = None, initial_weights(row)
    for spec in specs:
        way = None
        try:
            searched = None
            if spec.request["way"] == "hfta" and "plan" not in spec.request:
                spec, searched = choose_plan(spec)
            way = Way(spec)
            way.ask(do="steps", count=row.checked_steps)
            if spec.lanes == row.lanes:
                if expected is None:
                    expected = way.weights()
                check_weights(way, row, expected, initial)
            way.note = searched or way.ask(do="settle")["note"]
            way.calibrate()
            ways.append(way)
        except WayFailed as error:
            failed[spec.name] = str(error)
            if way:
                way.close()
            if spec.name in ("loop", "hfta"):
                for other in ways:
                    other.close()
                raise SystemExit(f"bench: {row.name}: {spec.name}: {error}") from error
    return ways


def run_row(row: Workload, specs: list[Spec], options: argparse.Namespace) -> dict:
    failed: dict[str, str] = {}
    ways = start_ways(row, specs, failed)
    control, others = machine.Control(options.device), machine.Others()
    for repeat in range(options.repeats):
        control.run()
        for way in ways[repeat % len(ways) :] + ways[: repeat % len(ways)]:  # nobody always comes first
            way.repeat()
    result = {
        "row": row.name,
        "optimizer": options.optimizer,
        "repeats": options.repeats,
        "ways": {way.name: way.result() for way in ways},
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


def run_undisturbed(row: Workload, specs: list[Spec], options: argparse.Namespace) -> dict:
    """Tries a disturbed row again, at most twice."""
    for attempt in range(3):
        result = run_row(row, specs, options)
        reason = disturbed(result)
        if reason is None or options.force:
            break
        print(f"bench: {row.name}: {reason}; {'again' if attempt < 2 else 'given up'}", file=sys.stderr)
        time.sleep(5)
    result["disturbed"] = reason
    return result


def wait_until_quiet(force: bool, tries: int = 30) -> None:
    for _ in range(tries):
        others = machine.Others()
        time.sleep(1)
        taken = others.cores()
        if taken <= MAX_OTHERS:
            return
    if not force:
        raise SystemExit(f"bench: other processes take {taken:.2f} cores (at most {MAX_OTHERS} allowed); --force records all the same and marks the rows")
