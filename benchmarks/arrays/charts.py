"""The benchmark's charts as PNG, beside the files of results; left out with a note where matplotlib is not installed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import report


def _drawn(draw: Callable[..., tuple]) -> Callable[[list[dict], Path], None]:
    """A chart's function: gets the rows and pyplot, gives the figure."""

    @functools.wraps(draw)
    def write(results: list[dict], path: Path) -> None:
        try:
            import matplotlib
        except ImportError:
            print("no chart: matplotlib is not installed")
            return
        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure = draw(results, pyplot)
        figure.tight_layout()
        figure.savefig(path, dpi=120)
        print(f"written: {path}")

    return write


@_drawn
def ratios(results: list[dict], pyplot):
    figure, axes = pyplot.subplots(figsize=(9, 0.8 + 0.75 * len(results)))
    for c, column in enumerate(report.COLUMNS[:5]):
        points = [(r, report.lower_quartile(report.ratios(result, column))) for r, result in enumerate(results) if column in result["ways"]]
        axes.barh([r + 0.32 - 0.16 * c for r, _ in points], [ratio for _, ratio in points], 0.15, label=column)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(results)), [r["row"] for r in results])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("training steps of hfta in the time of one (lower quartile, logarithmic)")
    axes.legend(loc="lower right")
    return figure


@_drawn
def scaling(results: list[dict], pyplot):
    figure, (time, memory) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for result in results:
        points = report.scaling_points(result)
        lanes = [n for n, _, _ in points]
        time.plot(lanes, [ms / points[0][1] for _, ms, _ in points], marker="o", markersize=3, label=result["row"])
        memory.plot(lanes, [peak / 2**20 for _, _, peak in points], marker="o", markersize=3)
    for axes, label in ((time, "time a lane, of that of one lane"), (memory, "peak memory of the process, MiB")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("lanes")
        axes.set_ylabel(label)
        axes.grid(True, alpha=0.3)
    time.legend(fontsize=8)
    return figure


@_drawn
def costs(results: list[dict], pyplot):
    figure, axes = pyplot.subplots(figsize=(9, 0.8 + 0.45 * len(results)))
    left = [0.0] * len(results)
    for part in ("forward", "backward", "update"):
        shares = [100 * result["hfta"][f"{part}_ms"] / result["hfta"]["step_ms"] for result in results]
        axes.barh(range(len(results)), shares, left=left, label=part)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    dispatch = [100 * min(1.0, result["hfta"]["dispatch_ms"] / result["hfta"]["step_ms"]) for result in results]
    axes.plot(dispatch, range(len(results)), "k|", markersize=12, label="of these, dispatch")
    axes.set_yticks(range(len(results)), [r["row"] for r in results])
    axes.invert_yaxis()
    axes.set_xlabel("share of a step, %")
    axes.legend(loc="lower right")
    return figure
