"""The ways of Python users to train many models, each a process that `bench.py` drives: a command a line, an answer a line (JSON).

Started as `python python_ways.py '{"way": "loop", "model": ..., "batch": ..., "lanes": ..., "optimizer": ..., "cores": ...}'`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from loop_ways import BATCHES, Batch, Loop, Processes, now_ms
from stacked_ways import ByHand, Func, Jax
from workloads import Cnn, LeNet, Mlp, Workload


def make(request: dict, workload: Workload, batches: list[Batch]):
    way, optimizer, cores = request["way"], request["optimizer"], request["cores"]
    if way == "loop":
        return Loop(workload, optimizer, cores)
    if way == "processes":
        return Processes(workload, optimizer, cores, batches)
    if way == "func":
        return Func(workload, optimizer, cores)
    if way == "by hand" and isinstance(workload.build(), Mlp | Cnn | LeNet):
        return ByHand(workload, optimizer, cores)
    if way == "jax" and isinstance(workload.build(), Mlp):
        return Jax(workload, optimizer, cores)
    if way == "package":
        from package_way import Package  # needs the package, the other ways do not

        return Package(workload, optimizer, request.get("plan"))
    raise NotImplementedError(f"{way} is not written for {workload.model}")


def answer(way, batches: list[Batch], command: dict) -> dict:
    what = command["do"]
    if what == "steps":
        start = now_ms()
        if isinstance(way, Processes):
            way.steps(command["count"])
        else:
            for i in range(command["count"]):
                way.step(*batches[i % BATCHES])
            way.workload.wait()
        return {"ms": now_ms() - start}
    if what == "settle":
        return {"note": way.settle(batches)}
    if what == "weights":
        with open(command["path"], "wb") as file:
            for weight in way.weights():
                file.write(weight.cpu().contiguous().numpy().tobytes())
        return {"done": True}
    if what == "costs":
        return way.costs(batches, Path(command["folder"]))
    raise ValueError(f"expected steps, settle, weights or costs, got {what}")


def main() -> None:
    request = json.loads(sys.argv[1])
    named = {key: request[key] for key in ("device", "dtype", "bf16") if key in request}
    workload = Workload(request["model"], request["batch"], request["lanes"], **named)
    torch.set_default_dtype(getattr(torch, workload.dtype))
    torch.set_num_threads(request["cores"])
    torch.manual_seed(12345)
    batches = [workload.draw() for _ in range(BATCHES)]
    try:
        way = make(request, workload, batches)
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(way, batches, json.loads(line))), flush=True)
    except Exception as error:  # told to the driver, which leaves the way out with its reason
        print(json.dumps({"error": f"{type(error).__name__}: {error}".splitlines()[0]}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
