"""The ways of Python users to train many models, each a process that `bench.py` drives: a command a line, an answer a line (JSON).

Started as `python python_ways.py '{"way": "loop", "model": ..., "batch": ..., "lanes": ..., "optimizer": ..., "cores": ...}'`.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from workloads import Cnn, LeNet, Mlp, Workload

RATE = 1e-3
BATCHES = 4
Batch = tuple[Tensor, Tensor]


def optimizer_of(name: str, parameters, fused: bool | None = None) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(parameters, RATE, momentum=0.9, fused=fused)
    return torch.optim.Adam(parameters, RATE, fused=fused)


def now_ms() -> float:
    return time.perf_counter() * 1e3


def seconds_of_best(step: Callable[[], None], repeats: int = 3) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = now_ms()
        step()
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
            F.cross_entropy(net(x), y).backward()
            optimizer.step()

    def settle(self, batches: list[Batch]) -> str:
        times = {}
        for fused in (None, True):
            self.use(fused)
            for threads in sorted({1, self.cores}):
                torch.set_num_threads(threads)
                times[fused, threads] = seconds_of_best(lambda: self.step(*batches[0]))
        fused, threads = min(times, key=times.get)
        self.use(fused)
        torch.set_num_threads(threads)
        return f"{threads} thread{'s' * (threads > 1)}{', fused' * bool(fused)}"

    def weights(self) -> list[Tensor]:
        return [p.detach() for net in self.nets for p in net.parameters()]


def process_main(pipe, workload: Workload, optimizer: str, first_lane: int, batches: list[Batch]) -> None:
    torch.set_num_threads(1)
    loop = Loop(workload, optimizer, 1, first_lane)
    while (command := pipe.recv()) is not None:
        if command[0] == "steps":
            for i in range(command[1]):
                loop.step(*batches[i % BATCHES])
            pipe.send(None)
        elif command[0] == "settle":
            pipe.send(loop.settle(batches))
        else:
            pipe.send([w.numpy() for w in loop.weights()])


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
            part = Workload(workload.model, workload.batch, last - first)
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


class Stacked:
    """What ways on stacked weights share: one optimizer over `[lanes, ...]` leaves, the better number of threads."""

    def __init__(self, workload: Workload, optimizer: str, cores: int) -> None:
        self.workload, self.cores = workload, cores
        self.nets = []
        for lane in range(workload.lanes):
            torch.manual_seed(lane)
            self.nets.append(workload.build())
        self.parameters, self.buffers = torch.func.stack_module_state(self.nets)
        self.parameters = {k: v.detach().clone().requires_grad_() for k, v in self.parameters.items()}
        self.optimizer = optimizer_of(optimizer, self.parameters.values(), fused=True)

    def settle(self, batches: list[Batch]) -> str:
        times = {}
        for threads in sorted({1, self.cores}):
            torch.set_num_threads(threads)
            times[threads] = seconds_of_best(lambda: self.step(*batches[0]))
        threads = min(times, key=times.get)
        torch.set_num_threads(threads)
        return f"{threads} thread{'s' * (threads > 1)}, fused"

    def weights(self) -> list[Tensor]:
        return [p.detach()[lane] for lane in range(self.workload.lanes) for p in self.parameters.values()]


class Func(Stacked):
    """`torch.func`: functional_call under vmap, gradients by grad_and_value."""

    def __init__(self, workload: Workload, optimizer: str, cores: int) -> None:
        super().__init__(workload, optimizer, cores)
        base = workload.build()

        def loss_of(parameters, buffers, x, y):
            return F.cross_entropy(torch.func.functional_call(base, (parameters, buffers), (x,)), y)

        self.gradients = torch.func.vmap(torch.func.grad(loss_of), in_dims=(0, 0, None, None))

    def step(self, x: Tensor, y: Tensor) -> None:
        gradients = self.gradients(self.parameters, self.buffers, x, y)
        for key, parameter in self.parameters.items():
            parameter.grad = gradients[key].contiguous()  # the fused optimizer takes memory in order
        self.optimizer.step()


class ByHand(Stacked):
    """Fused as the published work does it: batched products, grouped convolutions with the lanes beside the channels."""

    def linear(self, name: str, x: Tensor) -> Tensor:
        return torch.baddbmm(self.parameters[f"{name}.bias"].unsqueeze(1), x, self.parameters[f"{name}.weight"].transpose(1, 2))

    def convolution(self, name: str, x: Tensor, padding: int) -> Tensor:
        weight, bias = self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]
        return F.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=padding, groups=self.workload.lanes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores `[lanes, batch, classes]`."""
        lanes, net = self.workload.lanes, self.nets[0]
        if isinstance(net, Mlp):
            y = x.expand(lanes, *x.shape)
            return self.linear("three", F.relu(self.linear("two", F.relu(self.linear("one", y)))))
        padding = net.one.padding[0], net.two.padding[0]
        y = F.max_pool2d(F.relu(self.convolution("one", x.repeat(1, lanes, 1, 1), padding[0])), 2)
        y = F.max_pool2d(F.relu(self.convolution("two", y, padding[1])), 2)
        y = y.unflatten(1, (lanes, -1)).transpose(0, 1).flatten(2)
        if isinstance(net, LeNet):
            y = F.relu(self.linear("four", F.relu(self.linear("three", y))))
        return self.linear("head", y)

    def step(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad()
        lanes = self.workload.lanes
        # The mean over a lane's batch, summed over lanes: each lane's gradient is its own.
        loss = F.cross_entropy(self.forward(x).flatten(0, 1), y.repeat(lanes)) * lanes
        loss.backward()
        self.optimizer.step()


class Jax(Stacked):
    """`jit(vmap(step))` with optax; products only."""

    def __init__(self, workload: Workload, optimizer: str, cores: int) -> None:
        import jax
        import jax.numpy as jnp
        import optax

        super().__init__(workload, optimizer, cores)
        rule = optax.sgd(RATE, momentum=0.9) if optimizer == "sgd" else optax.adam(RATE)

        def loss_of(p, x, y):
            z = jax.nn.relu(x @ p["one.weight"].T + p["one.bias"])
            z = jax.nn.relu(z @ p["two.weight"].T + p["two.bias"])
            return optax.softmax_cross_entropy_with_integer_labels(z @ p["three.weight"].T + p["three.bias"], y).mean()

        def update(p, state, x, y):
            changes, state = rule.update(jax.grad(loss_of)(p, x, y), state, p)
            return optax.apply_updates(p, changes), state

        self.jax, self.jnp = jax, jnp
        self.values = {k: jnp.asarray(v.detach().numpy()) for k, v in self.parameters.items()}
        self.state = jax.vmap(rule.init)(self.values)
        self.update = jax.jit(jax.vmap(update, in_axes=(0, 0, None, None)), donate_argnums=(0, 1))

    def step(self, x: Tensor, y: Tensor) -> None:
        self.values, self.state = self.update(self.values, self.state, x.numpy(), y.numpy())
        self.jax.block_until_ready(self.values)

    def settle(self, batches: list[Batch]) -> str:
        return "jit(vmap(step))"

    def weights(self) -> list[Tensor]:
        import numpy

        return [torch.from_numpy(numpy.array(self.values[k][lane])) for lane in range(self.workload.lanes) for k in self.parameters]


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
        return {"ms": now_ms() - start}
    if what == "settle":
        return {"note": way.settle(batches)}
    if what == "weights":
        with open(command["path"], "wb") as file:
            for weight in way.weights():
                file.write(weight.contiguous().numpy().tobytes())
        return {"done": True}
    raise ValueError(f"expected steps, settle or weights, got {what}")


def main() -> None:
    request = json.loads(sys.argv[1])
    workload = Workload(request["model"], request["batch"], request["lanes"])
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
