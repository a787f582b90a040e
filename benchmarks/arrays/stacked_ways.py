"""Ways on stacked weights: `torch.func`, fused by hand, and JAX."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from loop_ways import RATE, Batch, best_ms, optimizer_of
from workloads import Cnn, LeNet, Mlp, Workload


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
        for threads in self.workload.thread_counts(self.cores):
            torch.set_num_threads(threads)
            times[threads] = best_ms(lambda: self.step(*batches[0]), self.workload)
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
        self.values = {k: jnp.asarray(v.detach().cpu().numpy()) for k, v in self.parameters.items()}
        self.state = jax.vmap(rule.init)(self.values)
        self.update = jax.jit(jax.vmap(update, in_axes=(0, 0, None, None)), donate_argnums=(0, 1))

    def step(self, x: Tensor, y: Tensor) -> None:
        self.values, self.state = self.update(self.values, self.state, x.cpu().numpy(), y.cpu().numpy())
        self.jax.block_until_ready(self.values)

    def settle(self, batches: list[Batch]) -> str:
        return "jit(vmap(step))"

    def weights(self) -> list[Tensor]:
        import numpy

        return [torch.from_numpy(numpy.array(self.values[k][lane])) for lane in range(self.workload.lanes) for k in self.parameters]
