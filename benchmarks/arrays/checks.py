"""How far each way's weights are from the loop's after the checked steps, in float32 and in float64: tells rounding from a fault."""

from __future__ import annotations

import argparse
import dataclasses

import torch

import driver
from workloads import Workload

EXACT_LIMIT = 1e-10  # in float64 nothing but a fault makes more


def of_row(row: Workload, options: argparse.Namespace, dtype: str) -> dict[str, float | str]:
    """By way: how far it is off, or why it did not run."""
    initial = driver.initial_weights(row, getattr(torch, dtype))
    off: dict[str, float | str] = {}
    expected = None
    for spec in driver.requests(row, options):
        if dtype == "float64" and (spec.name == "jax" or spec.request.get("bf16")):
            continue
        try:
            spec = dataclasses.replace(spec, request=spec.request | {"dtype": dtype})
            if spec.request["way"] == "hfta" and "plan" not in spec.request:
                spec, _ = driver.choose_plan(spec)
            way = driver.Way(spec)
            way.ask(do="steps", count=row.checked_steps)
            got = way.weights()
            way.close()
        except driver.WayFailed as error:
            off[spec.name] = str(error)
            continue
        expected = got if expected is None else expected
        off[spec.name] = driver.off_by(got, expected, initial)
    return off


def faults(row: Workload, single: dict, double: dict) -> list[str]:
    """Ways that are off by more than rounding."""
    found = [f"{row.name}: {way} is off by {off:.2e} in float64" for way, off in double.items() if isinstance(off, float) and not off <= EXACT_LIMIT]
    return found + [f"{row.name}: {way} is off by {off:.2%} in float32" for way, off in single.items() if isinstance(off, float) and not off <= row.limit("bf16" in way)]


def run(rows: list[Workload], options: argparse.Namespace) -> None:
    print("| model, batch, lanes | way | float32 | float64 |\n|---|---|---|---|")
    found = []
    for row in rows:
        single, double = (of_row(row, options, dtype) for dtype in ("float32", "float64"))
        for way, off in single.items():
            if isinstance(off, str):
                continue
            exact = double.get(way)
            print(f"| {row.name} | {way} | {off:.2%} | {f'{exact:.1e}' if isinstance(exact, float) else '-'} |", flush=True)
        found += faults(row, single, double)
    if found:
        raise SystemExit("\n".join(f"bench: {fault}" for fault in found))
