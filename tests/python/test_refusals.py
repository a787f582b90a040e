"""What is refused, by its name, and what is noticed."""

from __future__ import annotations

import time

import pytest
import torch
from recording import WIDE, agrees, batch, mse, net, refuses
from support import Solo, check_lane, close
from torch import nn

import hfta


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (lambda t: t.item(), "Tensor.item"),
        (lambda t: float(t), "Tensor.__float__"),
        (lambda t: int(t), "Tensor.__int__"),
        (lambda t: 1.0 if t > 0 else 2.0, "Tensor.__bool__"),
        (lambda t: t.tolist(), "Tensor.tolist"),
        (lambda t: t.detach().numpy().sum().item(), "Tensor.numpy"),
        (lambda t: t.data_ptr() % 2, "Tensor.data_ptr"),
    ],
)
def test_host_reads_are_refused_by_name(read, name, array, sgd):
    refuses(lambda model, x, y: mse(model, x, y) * read(x.sum()), name, array, sgd)


def test_a_refusal_that_the_function_swallows_is_a_refusal_still(array, sgd):
    def careful(model, x, y):
        try:
            x[x > 0].sum()
        except RuntimeError:
            pass
        return mse(model, x, y)

    refuses(careful, "shape depends on data", array, sgd)


def test_a_captured_tensor_is_refused_by_its_name(array, sgd):
    weights = torch.rand(5, 1)
    refuses(lambda model, x, y: (weights * (model(x) - y) ** 2).mean(), "closure's weights", array, sgd)

    class Loss:
        def __init__(self):
            self.weights = torch.rand(5, 1)

        def __call__(self, model, x, y):
            return (self.weights * (model(x) - y) ** 2).mean()

    refuses(Loss(), "Loss.weights", array, sgd)
    global captured
    captured = torch.rand(5, 1)
    refuses(lambda model, x, y: (captured * (model(x) - y) ** 2).mean(), "global captured", array, sgd)


def test_a_captured_tensor_can_be_frozen():
    weights = torch.rand(5, 1)
    agrees(lambda model, x, y: (weights * (model(x) - y) ** 2).mean(), freeze_captured=True)


class Ema(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("ema", torch.zeros(2))

    def forward(self, x):
        out = self.linear(x)
        self.ema = 0.9 * self.ema + 0.1 * out.detach().mean(0)
        return out


def test_a_rebound_buffer_is_refused_by_name_and_works_plainly():
    models = [Ema() for _ in range(3)]
    array = hfta.fuse(models)
    sgd = hfta.optim.SGD(array, lr=0.1)
    with pytest.raises(hfta.Unsupported, match='writes its buffers in place, got "ema" bound to other memory'):
        array.record(sgd, mse, plan=WIDE)(*batch())
    assert (dict(array.named_buffers())["ema"] == 0).all()
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.SGD(p, lr=0.1)) for lane, model in enumerate(models)]
    for _ in range(3):
        inputs = batch()
        losses = array.train_step(sgd, mse, *inputs)
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(mse, inputs))
    for lane, solo in enumerate(solos):
        check_lane(array, lane, solo, 3)
        assert array.lane(lane).ema.untyped_storage().data_ptr() == dict(array.named_buffers())["ema"].untyped_storage().data_ptr()


def test_new_tensors_on_a_model_are_refused(array, sgd):
    def registers(model, x, y):
        model.register_buffer("extra", torch.zeros(1))
        return mse(model, x, y)

    with pytest.raises(ValueError, match='expected lane 0 with the tensors that it had when it was fused, got a new one, "extra"'):
        array.train_step(sgd, registers, *batch())


def test_a_value_that_changes_at_every_step_is_refused_by_name(array, sgd):
    beta = 0.0

    def annealed(model, x, y):
        return beta * mse(model, x, y)

    step = array.record(sgd, annealed, plan=WIDE)
    with pytest.raises(hfta.Unsupported, match=r'last "annealed: closure\'s beta": float 0.79.*, then float 0.89.*: pass it as a tensor'):
        for _ in range(20):
            beta += 0.1
            step(*batch())


FACTOR = 1.0


def test_values_that_changed_are_recorded_anew():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.scale = 1.0
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(self.linear(x)) * self.scale * FACTOR

    options = {"power": 2}
    closure = 1.0

    def fn(model, x, y):
        return closure * ((model(x) - y).abs() ** options["power"]).mean()

    models = [Scaled() for _ in range(2)]
    array = hfta.fuse(models)
    sgd = hfta.optim.SGD(array, lr=0.1)
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.SGD(p, lr=0.1)) for lane, model in enumerate(models)]
    step = array.record(sgd, fn, plan=WIDE)

    def change(k):
        nonlocal closure
        global FACTOR
        everywhere = [*array, *(solo.model for solo in solos)]
        if k == 1:
            closure = 3.0
        if k == 2:
            FACTOR = 2.0
        if k == 3:
            options["power"] = 3
        if k == 4:
            array.lane(1).scale = solos[1].model.scale = 0.5
        if k == 5:
            for one in everywhere:
                one.drop.eval()
        if k == 6:
            closure, FACTOR = 1.0, 1.0

    for k in range(8):
        change(k)
        inputs = batch()
        losses = step(*inputs)
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(fn, inputs), f"call {k} lane {lane}", k + 1)


def test_shapes_and_modes_are_recorded_each_and_the_limit_is_reported(array, sgd):
    step = array.record(sgd, mse, plan=WIDE, limit=2)
    for size in (5, 3, 4, 5):
        step(torch.randn(size, 3), torch.randn(size, 2))
    assert "2 recordings kept (at most 2), 2 dropped" in step.report()


def test_looking_at_values_costs_little():
    from hfta import _core, _watch

    array = hfta.fuse([net() for _ in range(16)])
    watch = _core.Watch(_watch.Values(mse, [array._modules]).collect)
    first = watch.context()
    best = float("inf")
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(100):
            watch.context()
        best = min(best, (time.perf_counter() - start) / 100)
    assert watch.context() == first and best < 20e-6, f"{best * 1e6:.1f} us"


def test_the_second_call_chooses_a_plan_and_leaves_no_trace(array):
    adam = hfta.optim.Adam(array)
    twin = hfta.fuse([array.lane(i, copy=True) for i in range(3)])
    other = hfta.optim.Adam(twin)
    step = array.record(adam, mse)
    for k in range(4):
        inputs = batch()
        close(step(*inputs), twin.train_step(other, mse, *inputs), f"call {k}", k + 1)
    assert "plan: " in step.report() and step.report() in step.report() and adam.steps(0) == 4
    step.plan = hfta.Plan(width=1)
    step(*batch())
    assert step.plan.width == 1
