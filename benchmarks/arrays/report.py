"""The benchmark's table, verdicts, roofline and chart."""

from __future__ import annotations

import statistics
from pathlib import Path

import machine
from workloads import Workload

COLUMNS = ("loop", "processes", "func", "by hand", "jax", "libtorch")

# By row: least ratios over the columns, and those aimed at.
TARGETS = {
    "mlp-2-16": ((40, 20, 4, 2, 1.5), (80, 40, 8, 4, 3)),
    "mlp-784-32": ((7, 3.5, 3, 3, 1.4), (11, 5, 5, 5, 2.2)),
    "mlp-784-128 b32": ((2.2, 1.5, 2.3, 3, 1.4), (3, 2, 3.5, 5, 2)),
    "mlp-784-128 b128": ((1.5, 1.15, 1.7, 2.2, 1.05), (2, 1.5, 2.4, 3, 1.5)),
    "mlp-784-512": ((1.2, 1.05, 1.3, 1.5, 1.0), (1.35, 1.2, 1.6, 2, 1.3)),
    "cnn-16-32 b32": ((2.6, 2, 4, 3), (5, 4, 8, 6)),
    "lenet5 b32": ((2.6, 2, 4, 3), (5, 4, 8, 6)),
    "cnn-16-32 b128": ((2.4, 1.3, 3.5, 2.7), (4, 2.2, 6, 5)),
    "lenet5 b128": ((2.4, 1.3, 3.5, 2.7), (4, 2.2, 6, 5)),
    "gru": ((2.5, 1.5, 2.5), (6, 3.5, 6)),
    "transformer": ((2.5, 1.5, 2.5), (6, 3.5, 6)),
    "resnet18": ((1.15, 1.05, 2), (1.3, 1.2, 3)),
}


def target(row: str, column: str) -> tuple[float, float] | None:
    if column == "libtorch":
        return None
    must, goal = next(t for name, t in TARGETS.items() if row.startswith(name))
    index = COLUMNS.index(column)
    return (must[index], goal[index]) if index < len(must) else None


def lower_quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


def ratios(result: dict, column: str) -> list[float]:
    ours = result["ways"]["hfta"]["ms"]
    return [a / b for a, b in zip(result["ways"][column]["ms"], ours, strict=True)]


def roofline_ms(row: Workload, optimizer: str, facts: dict) -> float:
    """The least time of a step: the products at the measured rate, or each weight and its optimizer state read and written once where
    they are too many for the caches, whichever is longer."""
    products = row.flops() / (facts["peak_gflops"] * 1e9)
    tensors = 3 if optimizer == "adam" else 2  # the weight, and its state
    state = row.parameters() * 4 * tensors
    traffic = 2 * state / (facts["copy_gbytes"] * 1e9) if state > machine.cache_bytes() else 0.0
    return max(products, traffic) * 1e3


def verdict(result: dict, column: str) -> str:
    aims = target(result["row"], column)
    ratio = lower_quartile(ratios(result, column))
    if aims is None:
        return f"{ratio:.2f}" + ("" if ratio >= 0.95 else " SLOWER")
    limit = 0.85 * statistics.median(result["ways"][column]["ms"]) / result["roofline_ms"]
    must, goal = (min(aim, limit) for aim in aims)
    mark = " (roofline)" if limit < aims[0] else ""
    return f"{ratio:.2f} {'goal' if ratio >= goal else 'ok' if ratio >= must else f'MISSED {must:.2f}'}{mark}"


def row_lines(result: dict) -> str:
    ways = result["ways"]
    ours = statistics.median(ways["hfta"]["ms"])
    share = result["roofline_ms"] / ours
    plan = ways["hfta"]["note"]["plan"]
    lines = [f"{result['row']} {result['optimizer']}: hfta {ours:.3g} ms ({plan}; roofline {result['roofline_ms']:.3g} ms, {share:.0%} of it reached)"]
    if result.get("disturbed"):
        lines[0] += f"  DISTURBED: {result['disturbed']}"
    for name, way in ways.items():
        if name == "hfta":
            continue
        ratio = verdict(result, name) if name in COLUMNS else f"{lower_quartile(ratios(result, name)):.2f}"
        note = way["note"]["plan"] if isinstance(way["note"], dict) else way["note"]
        lines.append(f"  {name:12} {statistics.median(way['ms']):9.3f} ms   hfta is {ratio} times as fast   [{note}]")
    lines += [f"  {name:12} left out: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def scaling_line(result: dict, lanes: int) -> str:
    ours = result["ways"]["hfta"]
    ms = statistics.median(ours["ms"])
    text = f"{result['row']:24} {ms:9.3f} ms, {ms / lanes:8.4f} ms a lane, {ours['peak_bytes'] / 2**20:7.0f} MiB, {ours['note']['plan']}"
    if lanes == 1:
        text += f"; {lower_quartile(ratios(result, 'libtorch')):.2f} times as fast as the plain model"
    return text


def chart(results: list[dict], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no chart: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.8 + 0.75 * len(results)))
    shown = COLUMNS[:5]
    for c, column in enumerate(shown):
        points = [(r, lower_quartile(ratios(result, column))) for r, result in enumerate(results) if column in result["ways"]]
        axes.barh([r + 0.32 - 0.16 * c for r, _ in points], [ratio for _, ratio in points], 0.15, label=column)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(results)), [r["row"] for r in results])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("training steps of hfta in the time of one (lower quartile, logarithmic)")
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"written: {path}")
