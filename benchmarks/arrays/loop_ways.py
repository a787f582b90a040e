"""Models one after the other in Python: in one process, and in as many as there are cores."""

from __future__ import annotations

import dataclasses
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from workloads import Workload

RATE = 1e-3
BATCHES = 4
Batch = tuple[Tensor, Tensor]


def optimizer_of(name: str, parameters, fused: bool | None = None) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(parameters, RATE, momentum=0.9, fused=fused)
    return torch.optim.Adam(parameters, RATE, fused=fused)


def now_ms() -> float:
    return time.perf_counter() * 1e3


def best_ms(step: Callable[[], object], workload: Workload, repeats: int = 3) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = now_ms()
        step()
        workload.wait()
        best = min(best, now_ms() - start)
    return best


class Loop:
    """One model after the other: the fastest of one thread and all cores, with `fused=True` and without."""

    def __init__(self, workload: Workload, optimizer: str, cores: int, first_lane: int = 0, fused: bool | None = None) -> None:
        self.workload, self.optimizer, self.cores, self.nets = workload, optimizer, cores, []
        for lane in range(first_lane, first_lane + workload.lanes):
            torch.manual_seed(lane)
            self.nets.append(workload.build())
        self.use(fused)

    def use(self, fused: bool | None) -> None:
        """Optimizers of this kind, which go on from the state of those before."""
        before = getattr(self, "optimizers", None)
        self.optimizers = [optimizer_of(self.optimizer, net.parameters(), fused) for net in self.nets]
        for old, new in zip(before or [], self.optimizers, strict=False):
            state = old.state_dict()
            for group in state["param_groups"]:
                group["fused"], group["foreach"] = fused, None
            new.load_state_dict(state)

    def step(self, x: Tensor, y: Tensor) -> None:
        for net, optimizer in zip(self.nets, self.optimizers, strict=True):
            optimizer.zero_grad()
            self.workload.loss(net, x, y).backward()
            optimizer.step()

    def settle(self, batches: list[Batch]) -> str:
        times = {}
        for fused in (None, True):
            self.use(fused)
            for threads in self.workload.thread_counts(self.cores):
                torch.set_num_threads(threads)
                times[fused, threads] = best_ms(lambda: self.step(*batches[0]), self.workload)
        fused, threads = min(times, key=times.get)
        self.use(fused)
        torch.set_num_threads(threads)
        return f"{threads} thread{'s' * (threads > 1)}{', fused' * bool(fused)}"

    def costs(self, batches: list[Batch], folder: Path) -> dict:
        """Evaluation and checkpoints of all lanes."""
        file = folder / "loop.pt"

        def evaluate() -> None:
            with torch.no_grad():
                for net in self.nets:
                    net(batches[0][0])

        def write() -> None:
            torch.save([(net.state_dict(), optimizer.state_dict()) for net, optimizer in zip(self.nets, self.optimizers, strict=True)], file)

        def read() -> None:
            for net, optimizer, (weights, state) in zip(self.nets, self.optimizers, torch.load(file, weights_only=True), strict=True):
                net.load_state_dict(weights)
                optimizer.load_state_dict(state)

        for net in self.nets:
            net.eval()
        evaluation = best_ms(evaluate, self.workload, 20)
        return {
            "evaluation_ms": evaluation,
            "checkpoint_write_ms": best_ms(write, self.workload),
            "checkpoint_read_ms": best_ms(read, self.workload),
            "checkpoint_bytes": file.stat().st_size,
        }

    def weights(self) -> list[Tensor]:
        return [p.detach() for net in self.nets for p in net.parameters()]


def process_main(pipe, workload: Workload, optimizer: str, first_lane: int, batches: list[Batch]) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, workload.dtype))
    loop = Loop(workload, optimizer, 1, first_lane)
    while (command := pipe.recv()) is not None:
        if command[0] == "steps":
            for i in range(command[1]):
                loop.step(*batches[i % BATCHES])
            workload.wait()
            pipe.send(None)
        elif command[0] == "settle":
            pipe.send(loop.settle(batches))
        else:
            pipe.send([w.cpu().numpy() for w in loop.weights()])


class Processes:
    """As many processes as cores, one thread each, the lanes shared out; a repeat ends when the last has ended."""

    def __init__(self, workload: Workload, optimizer: str, cores: int, batches: list[Batch]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes = []
        for core in range(cores):
            first, last = (workload.lanes * c // cores for c in (core, core + 1))
            if first == last:
                continue
            ours, theirs = context.Pipe()
            part = dataclasses.replace(workload, lanes=last - first)
            context.Process(target=process_main, args=(theirs, part, optimizer, first, batches), daemon=True).start()
            self.pipes.append(ours)

    def ask(self, *command) -> list:
        for pipe in self.pipes:
            pipe.send(command)
        return [pipe.recv() for pipe in self.pipes]

    def steps(self, count: int) -> None:
        self.ask("steps", count)

    def settle(self, batches: list[Batch]) -> str:
        return f"{len(self.pipes)} x {self.ask('settle')[0]}"

    def weights(self) -> list[Tensor]:
        return [torch.from_numpy(w) for part in self.ask("weights") for w in part]
