"""What an array costs beside its steps: start-up, evaluation, checkpoints, lanes that leave and come; and a step's shares."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

import machine
from driver import Spec, Way
from workloads import Workload


def started(spec: Spec) -> tuple[Way, dict]:
    """The way after its first step, and the milliseconds that this took."""
    begun = time.perf_counter()
    way = Way(spec)
    ready = time.perf_counter()
    way.ask(do="steps", count=1)
    return way, {"ready_ms": (ready - begun) * 1e3, "first_step_ms": (time.perf_counter() - ready) * 1e3, "startup_ms": (time.perf_counter() - begun) * 1e3}


def of_row(row: Workload, options: argparse.Namespace) -> dict:
    common = {"model": row.model, "batch": row.batch, "lanes": row.lanes, "optimizer": options.optimizer, "cores": machine.cores(), "device": options.device}
    result: dict = {"row": row.name, "optimizer": options.optimizer}
    for name, command in (("loop", [sys.executable, "python_ways.py"]), ("hfta", [str(options.binary)])):
        way, costs = started(Spec(name, command, common | {"way": name}))
        note = way.ask(do="settle")["note"]
        if isinstance(note, dict):
            costs["plan_search_ms"] = note["search_seconds"] * 1e3
        way.ask(do="steps", count=2)
        with tempfile.TemporaryDirectory() as folder:
            result[name] = costs | way.ask(do="costs", folder=folder)
        way.close()
    return result


def share(ours: dict, part: str) -> float:
    """Of a step; nodes timed one group after the other may take a little more than a step of all workers does."""
    return ours[f"{part}_ms"] / max(ours["step_ms"], sum(ours[f"{p}_ms"] for p in ("forward", "backward", "update")))


def lines(result: dict) -> str:
    ours, loop = result["hfta"], result["loop"]
    step = ours["step_ms"]
    told = lambda part: f"{share(ours, part):.0%}"  # noqa: E731
    text = [f"{result['row']} {result['optimizer']}: step {step:.3g} ms ({ours['plan']}): forward {told('forward')}, backward {told('backward')}, update {told('update')}; dispatch of {ours['nodes']} nodes {told('dispatch')}"]
    text.append(f"  to the first step {ours['startup_ms']:.0f} ms (loop {loop['startup_ms']:.0f}), plan search {ours['plan_search_ms']:.0f} ms")
    for what in ("evaluation", "checkpoint_write", "checkpoint_read"):
        text.append(f"  {what.replace('_', ' ')} {ours[what + '_ms']:.3g} ms (loop {loop[what + '_ms']:.3g})")
    if "drop_ms" in ours:
        text.append(f"  half of the lanes leave: {ours['drop_ms']:.3g} ms, the next step {ours['step_after_drop_ms']:.3g}; as many come: {ours['refill_ms']:.3g}, the next step {ours['step_after_refill_ms']:.3g}")
    return "\n".join(text)


def table(results: list[dict]) -> str:
    """Two tables as Markdown: the shares of a step, and the costs beside it (loop's in brackets)."""
    out = ["| model, batch, lanes | step, ms | forward | backward | update | nodes of a group | dispatch |", "|---|---|---|---|---|---|---|"]
    for result in results:
        ours = result["hfta"]
        shares = [f"{share(ours, part):.0%}" for part in ("forward", "backward", "update")]
        out.append("| " + " | ".join([result["row"], f"{ours['step_ms']:.3g}", *shares, str(ours["nodes"]), f"{share(ours, 'dispatch'):.0%}"]) + " |")
    out += ["", "| ms | first step | plan search | evaluation | write | read | half leave | next step | refill | next step |", "|---" * 10 + "|"]
    for result in results:
        ours, loop = result["hfta"], result["loop"]
        both = lambda what: f"{ours[what + '_ms']:.3g} ({loop[what + '_ms']:.3g})"  # noqa: B023, E731
        alone = [f"{ours[what + '_ms']:.3g}" if what + "_ms" in ours else "-" for what in ("drop", "step_after_drop", "refill", "step_after_refill")]
        cells = [result["row"], both("startup"), f"{ours['plan_search_ms']:.0f}", both("evaluation"), both("checkpoint_write"), both("checkpoint_read"), *alone]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)
