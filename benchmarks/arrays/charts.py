"""The benchmark's charts as PNG, beside the files of results; left out with a note where matplotlib is not installed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import report
from costs import share


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
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.8 * len(results)))
    columns, aims = report.COLUMNS[:5], []
    for c, column in enumerate(columns):
        places = {r + 0.3 - 0.15 * c: result for r, result in enumerate(results) if column in result["ways"]}
        axes.barh(list(places), [report.lower_quartile(report.ratios(result, column)) for result in places.values()], 0.14, label=column)
        aims += [(report.aims(result, column)[0], place) for place, result in places.items() if report.aims(result, column)]
    axes.scatter([aim for aim, _ in aims], [place for _, place in aims], marker="|", s=40, color="black", zorder=3, label="what must be")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(results)), [r["row"] for r in results])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("steps of hfta in the time of one step of the way (lower quartile, logarithmic)")
    axes.grid(True, axis="x", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1 + 0.5 / (1 + 0.8 * len(results))), ncol=6, fontsize=8, frameon=False)
    return figure


@_drawn
def scaling(results: list[dict], pyplot):
    figure, (time, memory) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for result in results:
        points = report.scaling_points(result)
        lanes = [n for n, _, _ in points]
        time.plot(lanes, [ms / points[0][1] for _, ms, _ in points], marker="o", markersize=3, label=result["row"])
        memory.plot(lanes, [peak / 2**20 for _, _, peak in points], marker="o", markersize=3)
    for axes, label in ((time, "time a lane, as a part of that of one lane"), (memory, "peak memory of the process, MiB")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([n for n, _, _ in points])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        axes.set_xlabel("lanes")
        axes.set_ylabel(label)
        axes.grid(True, alpha=0.3)
    time.set_ylim(top=1.5)
    memory.set_ylim(50, max(200.0, 1.2 * memory.get_ylim()[1]))
    for axes in (time, memory):
        low, high = axes.get_ylim()
        axes.set_yticks([t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 50, 100, 200, 500, 1000, 2000, 5000, 10000) if low <= t <= high])
    time.legend(fontsize=8)
    return figure


@_drawn
def costs(results: list[dict], pyplot):
    figure, axes = pyplot.subplots(figsize=(9, 1.4 + 0.45 * len(results)))
    left = [0.0] * len(results)
    for part in ("forward", "backward", "update"):
        shares = [100 * share(result["hfta"], part) for result in results]
        axes.barh(range(len(results)), shares, left=left, label=part)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    dispatch = [100 * min(1.0, share(result["hfta"], "dispatch")) for result in results]
    axes.plot(dispatch, range(len(results)), "k|", markersize=12, label="of these, dispatch")
    axes.set_yticks(range(len(results)), [r["row"] for r in results])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of a step, %")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1 + 0.35 / (0.6 + 0.45 * len(results))), ncol=4, fontsize=8, frameon=False)
    return figure
