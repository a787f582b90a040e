"""What the machine can do, and whether it is ours alone: measured, for the benchmarks."""

from __future__ import annotations

import os
import platform
import statistics
import time
from pathlib import Path

import torch

TICKS = os.sysconf("SC_CLK_TCK")


def cores() -> int:
    return len(os.sched_getaffinity(0))


def describe() -> dict:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return {"processor": model, "cores": cores(), "system": platform.platform(), "python": platform.python_version(), "torch": torch.__version__}


def cache_bytes() -> int:
    """Of the largest cache."""
    sizes = [p.read_text().strip() for p in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(s[:-1]) * {"K": 1 << 10, "M": 1 << 20}[s[-1]] for s in sizes), default=32 << 20)


def best_seconds(work, repeats: int = 7) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_flops() -> float:
    """Of float32 products on all cores."""
    torch.set_num_threads(cores())
    a, b = torch.randn(1536, 1536), torch.randn(1536, 1536)
    return 2 * 1536**3 / best_seconds(lambda: a @ b)


def copy_bytes_per_second() -> float:
    """Read and written, memory far larger than the caches."""
    torch.set_num_threads(cores())
    a, b = torch.ones(1 << 26), torch.empty(1 << 26)
    return 2 * a.nbytes / best_seconds(lambda: b.copy_(a))


class Control:
    """A product timed before each repeat: its spread tells whether the machine's speed held."""

    def __init__(self) -> None:
        self.a, self.b, self.ms = torch.ones(512, 512), torch.ones(512, 512), []

    def run(self) -> None:
        torch.set_num_threads(cores())
        for _ in range(5):
            self.a @ self.b  # threads that slept wake up
        start = time.perf_counter()
        for _ in range(30):
            self.a @ self.b
        self.ms.append((time.perf_counter() - start) * 1e3)

    def spread(self) -> float:
        """(Upper - lower quartile) / median."""
        low, middle, high = statistics.quantiles(self.ms, n=4)
        return (high - low) / middle


def busy_seconds() -> float:
    """Processor time of the whole machine since it started, without idling and waiting for discs."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:])
    return (user + nice + system + irq + softirq) / TICKS


def tree_seconds(root: int) -> float:
    """Processor time of a process and all below it that still run."""
    children: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has just ended
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        times[pid] = (int(fields[11]) + int(fields[12])) / TICKS
    total, waiting = 0.0, [root]
    while waiting:
        pid = waiting.pop()
        total += times.get(pid, 0)
        waiting += children.get(pid, [])
    return total


class Others:
    """Cores that other processes took since the start (of this process's tree only what still runs counts as ours)."""

    def __init__(self) -> None:
        self.start, self.busy, self.ours = time.perf_counter(), busy_seconds(), tree_seconds(os.getpid())

    def cores(self) -> float:
        seconds = time.perf_counter() - self.start
        return max(0.0, (busy_seconds() - self.busy) - (tree_seconds(os.getpid()) - self.ours)) / seconds
