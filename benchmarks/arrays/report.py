"""The benchmark's targets, verdicts, roofline and lines."""

from __future__ import annotations

import statistics

from driver import TOGETHER
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
NEVER_SLOWER = 0.95
MOST_OVER_LEAST = 1.25  # time a lane at the most lanes over the least time a lane
WITHIN_REACH = 0.85  # of the roofline: what replaces a target beyond it


def target(row: str, column: str) -> tuple[float, float] | None:
    """What must be and what is aimed at; nothing where no target is set."""
    found = next((t for name, t in TARGETS.items() if row.startswith(name)), None)
    index = COLUMNS.index(column)
    if found is None or column == "libtorch" or index >= len(found[0]):
        return None
    return found[0][index], found[1][index]


def lower_quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


def ratios(result: dict, column: str, ours: str = "hfta") -> list[float]:
    """How many times as fast ours was, repeat by repeat."""
    return [a / b for a, b in zip(result["ways"][column]["ms"], result["ways"][ours]["ms"], strict=True)]


# Instructions that an update takes for each weight, in the vector units that products need too: multiplications, additions, and Adam's
# root and division at the least they can be, one each.
UPDATE_INSTRUCTIONS = {"adam": 9, "sgd": 2}

# Float products by a matrix unit (Intel AMX) over those by vectors: 16 times as many multiply-adds a cycle (Intel's optimization manual),
# of bfloat16, and six of them for one of floats.
MATRIX_UNIT = 16 / 6


def state_bytes(row: Workload, optimizer: str) -> int:
    """Weights and optimizer state of all lanes."""
    return row.parameters() * 4 * (3 if optimizer == "adam" else 2)


def roofline(row: Workload, optimizer: str, facts: dict, stream_gbytes: float, together: int = 1) -> dict:
    """The least time of a step, which no program on this machine can beat: its arithmetic at the rate of large products or of the vector
    units alone, or its stream at the rate measured for a working set of its size, whichever is longer, since they can overlap. Arithmetic
    is that of the products, and of the update, whose every instruction takes the place of a product's multiply-add, or overlaps with
    products where a matrix unit makes those. The stream is weights and optimizer state read and written once in a step (once in `together` steps, where a group's
    state stays in cache for so many). `facts`: the machine's `peak_gflops` and whether it has a `matrix_unit`."""
    peak_gflops, has_unit = facts["peak_gflops"], facts.get("matrix_unit", False)
    update_ms = 2 * UPDATE_INSTRUCTIONS[optimizer] * row.parameters() / peak_gflops / 1e6
    products_ms = row.flops() / (peak_gflops * (MATRIX_UNIT if has_unit else 1)) / 1e6
    arithmetic_ms = max(products_ms, update_ms) if has_unit else products_ms + update_ms
    moved = 2 * state_bytes(row, optimizer) / together
    stream_ms = moved / (stream_gbytes * 1e9) * 1e3
    return {
        "ms": max(arithmetic_ms, stream_ms),
        "limit": "arithmetic" if arithmetic_ms >= stream_ms else "stream",
        "products_ms": products_ms,
        "update_ms": update_ms,
        "stream_ms": stream_ms,
        "moved_bytes": moved,
        "peak_gflops": peak_gflops,
        "stream_gbytes": stream_gbytes,
    }


def rooflines(row: Workload, optimizer: str, facts: dict, stream_gbytes: float) -> dict:
    """Of steps one by one, and of several in a call."""
    one, together = (roofline(row, optimizer, facts, stream_gbytes, steps) for steps in (1, TOGETHER))
    return {"roofline": one, "roofline_together": together}


def aims(result: dict, column: str) -> tuple[float, float] | None:
    """What must be and what is aimed at, neither beyond what the roofline leaves within reach; nothing where no target is set."""
    found = target(result["row"], column)
    if found is None:
        return None
    limit = WITHIN_REACH * statistics.median(result["ways"][column]["ms"]) / result["roofline"]["ms"]
    return min(found[0], limit), min(found[1], limit)


def verdict(result: dict, column: str) -> str:
    ratio, found = lower_quartile(ratios(result, column)), aims(result, column)
    if found is None:
        return f"{ratio:.2f}" + ("" if ratio >= NEVER_SLOWER else " SLOWER")
    must, goal = found
    asked = target(result["row"], column)[0]
    mark = f" (for {asked:g}: beyond the roofline)" if must < asked else ""
    return f"{ratio:.2f} {'goal' if ratio >= goal else 'ok' if ratio >= must else f'MISSED {must:.2f}'}{mark}"


def note_of(way: dict) -> str:
    return way["note"]["plan"] if isinstance(way["note"], dict) else way["note"]


def row_lines(result: dict) -> str:
    ways, roof = result["ways"], result["roofline"]
    ours = statistics.median(ways["hfta"]["ms"])
    text = f"{result['row']} {result['optimizer']}: hfta {ours:.3g} ms ({note_of(ways['hfta'])}; {roof['limit']} takes {roof['ms']:.3g} ms at least: {roof['ms'] / ours:.0%} reached)"
    lines = [text + (f"  DISTURBED: {result['disturbed']}" if result.get("disturbed") else "")]
    for name, way in ways.items():
        if name == "hfta":
            continue
        ratio = verdict(result, name) if name in COLUMNS else f"{lower_quartile(ratios(result, name)):.2f}"
        off = f"; weights off by {way['weights_off']:.2%}" if "bf16" in name else ""
        lines.append(f"  {name:12} {statistics.median(way['ms']):9.3f} ms   hfta is {ratio} times as fast   [{note_of(way)}{off}]")
    lines += [f"  {name:12} left out: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def table(results: list[dict]) -> str:
    """The rows for people, as Markdown: hfta's time, how many times as fast it is (lower quartile), and the share of the roofline; the
    same time and share where eight steps are made in one call."""
    head = ["model, batch, lanes", "hfta, ms", *COLUMNS, "least time, ms", "reached", "hfta x8, ms", "reached"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for result in results:
        ours, roof = statistics.median(result["ways"]["hfta"]["ms"]), result["roofline"]
        cells = [result["row"], f"{ours:.3g}"]
        for column in COLUMNS:
            if column not in result["ways"]:
                cells.append("-")
                continue
            text = f"{lower_quartile(ratios(result, column)):.3g}"
            beyond = "beyond the roofline" in verdict(result, column)
            text += f" of {aims(result, column)[0]:.3g} in reach" if beyond else ""
            cells.append(f"**{text}**" if "MISSED" in verdict(result, column) or "SLOWER" in verdict(result, column) else text)
        cells += [f"{roof['ms']:.3g} ({roof['limit']})", f"{roof['ms'] / ours:.0%}"]
        together = result["ways"].get("hfta x8")
        ms = statistics.median(together["ms"]) if together else 0
        cells += [f"{ms:.3g}", f"{result['roofline_together']['ms'] / ms:.0%}"] if together else ["-", "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def bf16_table(results: list[dict]) -> str:
    """hfta under autocast to bfloat16: against itself and the loop under the same autocast, with how far its weights are off."""
    lines = ["| model, batch, lanes | hfta bf16, ms | over hfta | over loop bf16 | weights off | loop bf16's |", "|---|---|---|---|---|---|"]
    for result in results:
        ways = result["ways"]
        if "hfta bf16" not in ways:
            continue
        ours = lambda column: f"{lower_quartile(ratios(result, column, 'hfta bf16')):.2f}" if column in ways else "-"  # noqa: B023, E731
        off = f"{ways['loop bf16']['weights_off']:.2%}" if "loop bf16" in ways else "-"
        cells = [result["row"], f"{statistics.median(ways['hfta bf16']['ms']):.3g}", ours("hfta"), ours("loop bf16"), f"{ways['hfta bf16']['weights_off']:.2%}", off]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def scaling_points(result: dict) -> list[tuple[int, float, int]]:
    """(lanes, ms a lane, peak bytes) of hfta by lanes."""
    ways = [way for name, way in result["ways"].items() if name.startswith("hfta x")]
    return sorted((way["lanes"], statistics.median(way["ms"]) / way["lanes"], way["peak_bytes"]) for way in ways)


def plain(result: dict) -> str:
    """The faster way to train one model alone."""
    return min((name for name in ("loop", "libtorch") if name in result["ways"]), key=lambda name: statistics.median(result["ways"][name]["ms"]))


def last_over_least(result: dict) -> tuple[float, float]:
    """Time a lane at the most lanes over the least time a lane; and what it may be, no less than what the roofline of the most lanes leaves
    within reach: their state may lie in memory where that of fewer lies in cache."""
    points = scaling_points(result)
    (lanes, last, _), least = points[-1], min(ms for _, ms, _ in points)
    in_reach = result["roofline"]["ms"] / lanes / WITHIN_REACH / least if "roofline" in result else 0
    return last / least, max(MOST_OVER_LEAST, in_reach)


def scaling_lines(result: dict) -> str:
    points, (last, most) = scaling_points(result), last_over_least(result)
    lines = [f"{result['row']} {result['optimizer']}: time a lane at {points[-1][0]} lanes is {last:.2f} of the least" + ("" if last <= most else f" MISSED {most:.2f}")]
    lines[0] += f" (for {MOST_OVER_LEAST}: beyond the roofline)" if most > MOST_OVER_LEAST else ""
    lines[0] += f"  DISTURBED: {result['disturbed']}" if result.get("disturbed") else ""
    for column in ("loop", "libtorch"):
        if column in result["ways"]:
            ratio = lower_quartile(ratios(result, column, "hfta x1"))
            mark = "" if ratio >= NEVER_SLOWER else f" MISSED {NEVER_SLOWER}"
            lines.append(f"  one lane is {ratio:.2f} times as fast as the plain model in {column}{mark}   [{note_of(result['ways'][column])}]")
    for lanes, ms, peak in points:
        lines.append(f"  {lanes:4} lanes {ms * lanes:10.3f} ms, {ms:8.4f} ms a lane, {peak / 2**20:6.0f} MiB   [{note_of(result['ways'][f'hfta x{lanes}'])}]")
    lines += [f"  {name:12} left out: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def scaling_table(results: list[dict]) -> str:
    """Time a lane by lanes with the process's peak memory; one lane over the plain model, and the last over the least (bold: short of the aim)."""
    lanes = sorted({n for result in results for n, _, _ in scaling_points(result)})
    lines = ["| ms a lane (MiB in all) | " + " | ".join(map(str, lanes)) + " | one lane over the plain model | last over least |", "|---" * (len(lanes) + 3) + "|"]
    bold = lambda text, holds: text if holds else f"**{text}**"  # noqa: E731
    for result in results:
        points = {n: (ms, peak) for n, ms, peak in scaling_points(result)}
        cells = [f"{points[n][0]:.3g} ({points[n][1] / 2**20:.0f})" if n in points else "-" for n in lanes]
        last, most = last_over_least(result)
        one = lower_quartile(ratios(result, plain(result), "hfta x1"))
        cells += [bold(f"{one:.2f} ({plain(result)})", one >= NEVER_SLOWER), bold(f"{last:.2f}" + (f" of {most:.2f} in reach" if last > MOST_OVER_LEAST and most > MOST_OVER_LEAST else ""), last <= most)]
        lines.append("| " + " | ".join([result["row"], *cells]) + " |")
    return "\n".join(lines)
