"""Trains arrays of models in every way that users have, interleaved in one run, and sets hfta beside them.

    ./dev bench arrays                              every row, Adam; about 20 minutes
    ./dev bench arrays --rows mlp-2-16,gru          rows whose name begins so; they take their places in the file of results
    ./dev bench arrays --optimizer sgd --repeats 15
    ./dev bench arrays --bf16                       hfta and the loop under autocast to bfloat16 too, with how far their weights are off
    ./dev bench arrays --plans                      hfta at every width and number of workers too
    ./dev bench arrays --scaling                    time a lane and memory, from 1 to 256 lanes
    ./dev bench arrays --costs                      a step's shares, start-up, evaluation, checkpoints, lanes that leave and come
    ./dev bench arrays --check                      no times: how far each way's weights are from the loop's, in float32 and float64
    ./dev bench arrays --searches                   times of every plan into tests/plan/timings.json, for the cost model
    ./dev bench arrays --tables                     what was recorded, as Markdown

Each way is a process of its own that stays ready; every repeat runs all ways in turn, after a control product. A way's weights after
its first steps are compared with the plain loop's before its time counts. Ratios are judged by their lower quartile over the repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import charts
import checks
import costs
import driver
import machine
import report
import results
from workloads import LANES, ROWS, SCALED, Workload

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / "results"


def is_chosen(name: str, options: argparse.Namespace) -> bool:
    return not options.rows or any(name.startswith(r) for r in options.rows)


def machine_facts(options: argparse.Namespace) -> dict:
    products, peak = arithmetic_gflops(options)
    facts = machine.describe(options.device) | {"products_gflops": products, "peak_gflops": peak}
    print(f"{facts['processor']}, {facts['cores']} cores, {options.device}; products {products:.0f} GFLOP/s, at most {peak:.0f}", flush=True)
    return facts


def run_table(options: argparse.Namespace, facts: dict) -> Iterator[dict]:
    for row in ROWS:
        if not is_chosen(row.name, options):
            continue
        result, stream = with_rates(row, options, facts, lambda: driver.run_undisturbed(row, driver.requests(row, options), options))  # noqa: B023
        result |= report.rooflines(row, options.optimizer, facts, stream)
        print(report.row_lines(result), flush=True)
        yield result


def with_rates(row: Workload, options: argparse.Namespace, facts: dict, run: Callable[[], dict]) -> tuple[dict, float]:
    """The result, and the rate of the row's stream: rates are measured before and after, the better counts. `facts` learns a better arithmetic one."""
    before = rates(row, options)
    result = run()
    peak, stream = (max(pair) for pair in zip(before, rates(row, options), strict=True))
    facts["peak_gflops"] = max(facts["peak_gflops"], peak)
    return result, stream


def arithmetic_gflops(options: argparse.Namespace) -> tuple[float, float]:
    """Of LibTorch's products; and the most: theirs, or of the vector units alone where those do not reach what they can."""
    products = machine.peak_flops(options.device) / 1e9
    return products, max(products, machine.multiply_adds_per_second(options.binary) / 1e9) if options.device == "cpu" else products


def rates(row: Workload, options: argparse.Namespace) -> tuple[float, float]:
    """Of arithmetic, and of a stream over the row's weights and state, in thousands of millions a second."""
    stream = machine.stream_bytes_per_second(report.state_bytes(row, options.optimizer), options.device)
    return arithmetic_gflops(options)[1], stream / 1e9


def run_scaling(options: argparse.Namespace, facts: dict) -> Iterator[dict]:
    for model, batch in SCALED:
        if not is_chosen(model, options):
            continue
        lanes = tuple(n for n in LANES if n <= options.most_lanes)
        one, most = Workload(model, batch, 1), Workload(model, batch, lanes[-1])
        specs = driver.scaling_requests(model, batch, lanes, options)
        result, stream = with_rates(most, options, facts, lambda: driver.run_undisturbed(one, specs, options))  # noqa: B023
        result |= {"row": f"{model} b{batch}", "roofline": report.roofline(most, options.optimizer, facts, stream)}
        print(report.scaling_lines(result), flush=True)
        yield result


def run_costs(options: argparse.Namespace, facts: dict) -> Iterator[dict]:
    for row in ROWS:
        if not is_chosen(row.name, options):
            continue
        control, others = machine.Control(options.device), machine.Others()
        for _ in range(3):
            control.run()
        result = costs.of_row(row, options)
        for _ in range(3):
            control.run()
        result |= {"control_ms": control.ms, "control_spread": control.spread(), "others_cores": others.cores()}
        result["disturbed"] = driver.disturbed(result)
        print(costs.lines(result) + (f"\n  DISTURBED: {result['disturbed']}" if result["disturbed"] else ""), flush=True)
        yield result


def run_searches(options: argparse.Namespace) -> None:
    """Times of every plan of every row, with the profile that the cost model predicts them from: a fixture of its test."""
    path = options.out or HERE.parents[1] / "tests" / "plan" / "timings.json"
    rows = {row["row"]: row for row in json.loads(path.read_text())} if path.exists() else {}
    os.environ["HFTA_PLAN_CACHE"] = "off"
    for row in ROWS:
        if not is_chosen(row.name, options):
            continue
        spec = next(spec for spec in driver.requests(row, options) if spec.name == "hfta")
        way = driver.Way(driver.Spec(spec.name, spec.command, spec.request | {"whole_search": True}))
        note = way.ask(do="settle")["note"]
        way.close()
        rows[row.name] = {"row": row.name, "cores": machine.cores(), **note["search"]}
        print(f"{row.name}: {note['explanation']}", flush=True)
        path.write_text("[\n" + ",\n".join(json.dumps(rows[r.name]) for r in ROWS if r.name in rows) + "\n]\n")


ROW_NAMES, SCALED_NAMES = [row.name for row in ROWS], [f"{model} b{batch}" for model, batch in SCALED]
KINDS = {
    "table": (run_table, "arrays", report.table, charts.ratios, ROW_NAMES),
    "scaling": (run_scaling, "scaling", report.scaling_table, charts.scaling, SCALED_NAMES),
    "costs": (run_costs, "costs", costs.table, charts.costs, ROW_NAMES),
}


def file_of(kind: str, options: argparse.Namespace, processor: str) -> Path:
    """Times of different processors tell different things: each has a folder."""
    device = "" if options.device == "cpu" else "_" + options.device.replace(":", "")
    return options.out or FOLDER / results.folder_of(processor) / f"{KINDS[kind][1]}_{options.optimizer}{device}.json"


def with_rooflines(rows: list[dict]) -> list[dict]:
    """Rows of a table with the roofline as it is computed now, from the rates that were measured with them."""
    workloads = {row.name: row for row in ROWS}
    return [r | report.rooflines(workloads[r["row"]], r["optimizer"], r["machine"], r["roofline"]["stream_gbytes"]) if r["row"] in workloads and "roofline" in r else r for r in rows]


def print_tables(options: argparse.Namespace) -> None:
    for folder in [options.out] if options.out else sorted(FOLDER.iterdir()):
        for kind, (_, _, table, _, _) in KINDS.items():
            rows = with_rooflines(results.read(file_of(kind, options, folder.name)))
            if rows:
                print(f"## {machine.name_of(rows[0]['machine'])}: {kind}, {options.optimizer}\n\n{table(rows)}\n")
                if kind == "table" and any("hfta bf16" in row["ways"] for row in rows):
                    print(f"{report.bf16_table(rows)}\n")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    comma = lambda text: tuple(t.strip() for t in text.split(","))  # noqa: E731
    parser.add_argument("--binary", type=lambda text: Path(text).resolve(), required=True, help="the C++ side, arrays_way (./dev bench gives it)")
    parser.add_argument("--rows", type=comma, default=(), help="beginnings of the rows' names, with commas")
    parser.add_argument("--ways", type=comma, default=(), help="ways beside the loop and hfta, with commas; all by default")
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:1")
    parser.add_argument("--repeats", type=int, default=11, help="interleaved repeats, at least 9 (default 11)")
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16 too, with its own columns")
    parser.add_argument("--plans", action="store_true", help="hfta at every width and number of workers too")
    for kind, text in (("scaling", "time a lane and memory as the number of lanes grows"), ("costs", "what an array costs beside its steps"),
                       ("searches", "time every plan, for the cost model's test"), ("check", "compare weights only"), ("tables", "print what was recorded")):
        parser.add_argument(f"--{kind}", action="store_true", help=text)
    parser.add_argument("--most-lanes", type=int, default=256, help="of --scaling (default 256)")
    parser.add_argument("--jax-python", default=os.environ.get("HFTA_JAX_PYTHON"), help="a Python that has jax, optax and torch (default: HFTA_JAX_PYTHON, or this one)")
    parser.add_argument("--force", action="store_true", help="record on a disturbed machine all the same, and mark the rows")
    parser.add_argument("--out", type=Path, help="the file of results (default benchmarks/results/PROCESSOR/KIND_OPTIMIZER.json)")
    options = parser.parse_args(arguments)
    if options.repeats < 9:
        parser.error(f"--repeats: expected at least 9, got {options.repeats}")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(f"--device: expected a device that this torch has, got {options.device}")
    unknown = [r for r in options.rows if not any(row.name.startswith(r) for row in ROWS)]
    if unknown:
        parser.error(f"--rows: no row begins with {unknown[0]!r}; there are {', '.join(row.name for row in ROWS)}")
    return options


def main() -> None:
    options = parse()
    if options.tables:
        return print_tables(options)
    if options.check:
        return checks.run([row for row in ROWS if is_chosen(row.name, options)], options)
    if options.searches:
        return run_searches(options)
    kind = "scaling" if options.scaling else "costs" if options.costs else "table"
    run, _, table, chart, order = KINDS[kind]
    driver.wait_until_quiet(options.force)
    facts = machine_facts(options)
    out, rows, refused = file_of(kind, options, machine.name_of(facts)), [], []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["HFTA_PLAN_CACHE"] = cache  # plans are searched as on a first run, and the user's are left alone
        for result in run(options, facts):  # a row is kept as soon as it is there: a later one may take long or fail
            if result["disturbed"] and not options.force:
                refused.append(result["row"])
            else:
                rows = results.record(out, results.stamped(result, facts, HERE), order)
    if rows:
        rows = with_rooflines(rows)
        chart(rows, out.with_suffix(".png"))
        print(f"written: {out}\n{table(rows)}")
    if refused:
        raise SystemExit(f"bench: not recorded: disturbed while running {', '.join(refused)}; --force records all the same and marks the rows")


if __name__ == "__main__":
    main()
