"""The way of the Python package: a recorded step at a plan that is given or chosen."""

from __future__ import annotations

import subprocess
import sys
import time

import torch.nn.functional as F
from torch import Tensor, nn

import hfta
from loop_ways import RATE, Batch
from workloads import Workload


def loss_of(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(net(x), y)


class Package:
    def __init__(self, workload: Workload, optimizer: str, plan: dict | None) -> None:
        self.workload = workload
        self.array = hfta.fuse(workload.build, lanes=workload.lanes)
        self.optimizer = hfta.optim.SGD(self.array, RATE, momentum=0.9) if optimizer == "sgd" else hfta.optim.Adam(self.array, RATE)
        given = None if plan is None else hfta.Plan(width=plan["width"], workers=plan["workers"], intra_op_threads=plan["threads"])
        self.step = self.array.record(self.optimizer, loss_of, plan=given)

    def settle(self, batches: list[Batch]) -> dict:
        """What recording costs, on a new array: the first call, the second (which chooses a plan), and a plain step."""
        array = hfta.fuse(self.workload.build, lanes=self.workload.lanes)
        adam = hfta.optim.Adam(array, RATE)
        seconds = [_seconds(lambda: array.train_step(adam, loss_of, *batches[0])) for _ in range(3)]
        step = array.record(adam, loss_of)
        first, second, third = (_seconds(lambda k=k: step(*batches[k])) for k in range(3))
        return {"plain_s": min(seconds), "recording_s": first + second + third - 3 * min(_seconds(lambda: step(*batches[0])) for _ in range(5))}

    def weights(self) -> list[Tensor]:
        return [p.detach() for net in self.array for p in net.parameters()]


def _seconds(body) -> float:
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


def import_seconds() -> float:
    """Of hfta beyond torch, in a process of its own."""
    code = "import time, torch; t = time.perf_counter(); import hfta; print(time.perf_counter() - t)"
    return min(float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout) for _ in range(3))
