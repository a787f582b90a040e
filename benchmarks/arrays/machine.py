"""What the machine can do, and whether it is ours alone: measured, for the benchmarks."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

import torch

TICKS = os.sysconf("SC_CLK_TCK")


def cores() -> int:
    return len(os.sched_getaffinity(0))


def describe(device: str = "cpu") -> dict:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    facts = {"processor": model, "cores": cores(), "system": platform.platform(), "python": platform.python_version(), "torch": torch.__version__}
    facts |= {"caches": cache_bytes(), "device": device, "matrix_unit": device == "cpu" and "amx_bf16" in Path("/proc/cpuinfo").read_text()}
    return facts | ({"gpu": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {})


def name_of(facts: dict) -> str:
    """Of what computes: the GPU, or the processor."""
    return facts.get("gpu", facts["processor"])


def cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    """Data caches by level ("L2") of a core, or that it has a part in."""
    sizes = {}
    for index in folder.glob("index*"):
        if (index / "type").read_text().strip() != "Instruction":
            text = (index / "size").read_text().strip()
            sizes["L" + (index / "level").read_text().strip()] = int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]]
    return dict(sorted(sizes.items()))


def wait_for(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def best_seconds(work, device: str = "cpu", repeats: int = 7) -> float:
    work()
    wait_for(device)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        wait_for(device)
        times.append(time.perf_counter() - start)
    return min(times)


def peak_flops(device: str = "cpu", dtype: torch.dtype = torch.float32) -> float:
    """Of LibTorch's large products on all cores."""
    torch.set_num_threads(cores())
    size = 1536 if device == "cpu" else 8192
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / best_seconds(lambda: a @ b, device)


def multiply_adds_per_second(binary: str) -> float:
    """Floating-point operations of all cores' vector units when nothing waits for memory. @param binary arrays_way."""
    return json.loads(subprocess.check_output([binary, json.dumps({"multiply_adds": cores()})]))["flops"]


def stream_bytes_per_second(working_set: int, device: str = "cpu") -> float:
    """Read and written in place by all cores, each its own part of a working set of so many bytes, again and again: what passing once
    over the weights and moments of all lanes costs where they lie (a core's cache, one that cores share, memory)."""
    torch.set_num_threads(cores())
    values = torch.ones(max(1024, working_set // 4), device=device)
    passes = max(1, (64 << 20) // values.nbytes)

    def work() -> None:
        for _ in range(passes):
            values.mul_(1.0)

    return 2 * values.nbytes * passes / best_seconds(work, device)


def spread(values: list[float]) -> float:
    """(Upper - lower quartile) / median."""
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle


class Control:
    """A product timed before each repeat: its spread tells whether the machine's speed held."""

    def __init__(self, device: str = "cpu") -> None:
        size = 512 if device == "cpu" else 4096
        self.a, self.b, self.ms = torch.ones(size, size, device=device), torch.ones(size, size, device=device), []
        self.device = device

    def run(self) -> None:
        torch.set_num_threads(cores())
        for _ in range(5):
            self.a @ self.b  # threads that slept wake up
        wait_for(self.device)
        start = time.perf_counter()
        for _ in range(30):
            self.a @ self.b
        wait_for(self.device)
        self.ms.append((time.perf_counter() - start) * 1e3)

    def spread(self) -> float:
        return spread(self.ms)


def busy_seconds() -> float:
    """Processor time of the whole machine since it started, without idling and waiting for discs."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:])
    return (user + nice + system + irq + softirq) / TICKS


def tree_seconds(root: int) -> float:
    """Processor time of a process and all below it, with those that ended and were waited for."""
    children: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has just ended
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        times[pid] = sum(map(int, fields[11:15])) / TICKS
    total, waiting = 0.0, [root]
    while waiting:
        pid = waiting.pop()
        total += times.get(pid, 0)
        waiting += children.get(pid, [])
    return total


class Others:
    """Cores that other processes took since the start."""

    def __init__(self) -> None:
        self.start, self.busy, self.ours = time.perf_counter(), busy_seconds(), tree_seconds(os.getpid())

    def cores(self) -> float:
        seconds = time.perf_counter() - self.start
        return max(0.0, (busy_seconds() - self.busy) - (tree_seconds(os.getpid()) - self.ours)) / seconds
