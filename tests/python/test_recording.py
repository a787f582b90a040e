"""Recorded functions: what they refuse, what they notice, and that the process stays sound."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from support import Solo, check_lane, close
from torch import nn

import hfta

WIDE = hfta.Plan(width=8)


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def mse(model, x, y):
    return F.mse_loss(model(x), y)


def batch():
    return torch.randn(5, 3), torch.randn(5, 2)


@pytest.fixture
def array():
    return hfta.fuse([net() for _ in range(3)])


@pytest.fixture
def sgd(array):
    return hfta.optim.SGD(array, lr=[0.1, 0.2, 0.3])


def agrees(fn, build=net, data=batch, steps=4, lanes=3, **options):
    """A recorded step of this function does what models alone do."""
    models = [build() for _ in range(lanes)]
    array = hfta.fuse(models)
    sgd = hfta.optim.SGD(array, lr=0.1)
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.SGD(p, lr=0.1)) for lane, model in enumerate(models)]
    step = array.record(sgd, fn, plan=WIDE, **options)
    for k in range(steps):
        inputs = data()
        losses = step(*inputs)
        losses = losses[0] if isinstance(losses, tuple) else losses
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(fn, inputs), f"step {k} lane {lane}", steps)
    for lane, solo in enumerate(solos):
        check_lane(array, lane, solo, steps)
    return step


def refuses(fn, message, array, sgd):
    """The function is refused with this reason, nothing has changed, and the process goes on."""
    before = [tensor.clone() for tensor in array.parameters()]
    states = [array._core.generator_state(lane) for lane in range(array.lanes)]
    with pytest.raises(hfta.Unsupported, match=message):
        array.record(sgd, fn, plan=WIDE)(*batch())
    assert all(torch.equal(a, b) for a, b in zip(before, array.parameters()))
    assert all(torch.equal(a, array._core.generator_state(lane)) for lane, a in enumerate(states))
    assert torch._C._len_torch_dispatch_stack() == 0
    array.record(sgd, mse, plan=WIDE)(*batch())


# ---- what is refused


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


# ---- what is noticed

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


# ---- what is recorded right


def test_python_numbers_hooks_and_functions_are_recorded():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 2 * x * gradient

    agrees(lambda model, x, y: (Square.apply(model(x) - y) * 2.5 / y.numel() + torch.tensor([1.0, 2.0])).sum())

    def with_hooks(model, x, y):
        out = model(x)
        out.register_hook(lambda gradient: gradient * 0.5)
        return F.mse_loss(out, y)

    agrees(with_hooks)

    def penalty(model, x, y):
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return mse(model, x, y) + gradient.square().sum()

    agrees(penalty)


def test_a_module_hook_is_recorded():
    def build():
        model = net()
        model[0].register_forward_hook(lambda module, inputs, output: output * 2)
        return model

    agrees(mse, build=build)


def test_extras_of_any_nest_come_back_stacked(array, sgd):
    def fn(model, x, y):
        out = model(x)
        return F.mse_loss(out, y), {"out": out, "pair": (out.sum(), None), "none": None}

    step = array.record(sgd, fn, plan=hfta.Plan(width=2))
    for _ in range(2):
        losses, extras = step(*batch())
        assert losses.shape == (3,) and extras["out"].shape == (3, 5, 2) and extras["pair"][0].shape == (3,) and extras["pair"][1] is None
    plain_losses, plain = array.train_step(sgd, fn, *batch())
    assert plain_losses.shape == (3,) and plain["out"].shape == (3, 5, 2) and plain["none"] is None


def test_nested_inputs_reach_the_function_as_they_were(array, sgd):
    def fn(model, inputs):
        return mse(model, inputs["x"], inputs["y"][0])

    inputs = {"x": torch.randn(5, 3), "y": (torch.randn(5, 2),)}
    step = array.record(sgd, fn, plan=WIDE)
    before = array.evaluate(fn, inputs)
    torch.testing.assert_close(step(inputs), before)
    per_lane = {"x": hfta.per_lane(torch.randn(3, 5, 3)), "y": (torch.randn(5, 2),)}
    torch.testing.assert_close(step(per_lane), array.evaluate(fn, per_lane), check_dtype=True, rtol=1, atol=1)


def test_accumulation_updates_once_every_so_many_calls():
    torch.manual_seed(3)
    models = [net() for _ in range(2)]
    array = hfta.fuse(models)
    sgd = hfta.optim.SGD(array, lr=0.1)
    step = array.record(sgd, mse, accumulate=2, plan=WIDE)
    solo = models[1]
    stock = torch.optim.SGD(solo.parameters(), lr=0.1)
    for k in range(4):
        inputs = batch()
        step(*inputs)
        mse(solo, *inputs).backward()
        if k % 2:
            stock.step()
            stock.zero_grad()
        assert step.pending == (k + 1) % 2
    for name, tensor in solo.state_dict().items():
        close(array.lane_state_dict(1)[name], tensor, name, 4)


def test_several_arrays_are_given_to_one_function():
    generators, critics = [nn.Linear(2, 3) for _ in range(3)], [net() for _ in range(3)]
    g, d = hfta.fuse(generators), hfta.fuse(critics)
    opt_g = hfta.optim.SGD(g, lr=0.1)
    step = hfta.record((g, d), opt_g, lambda g, d, z: d(g(z)).mean(), plan=WIDE)
    before = [tensor.clone() for tensor in d.parameters()]
    for _ in range(3):
        z = torch.randn(4, 2)
        losses = step(z)
        for lane in range(3):
            stock = torch.optim.SGD(generators[lane].parameters(), lr=0.1)
            loss = critics[lane](generators[lane](z)).mean()
            stock.zero_grad()
            loss.backward()
            stock.step()
            close(losses[lane], loss.detach())
    for lane in range(3):
        for name, tensor in generators[lane].state_dict().items():
            close(g.lane_state_dict(lane)[name], tensor, name, 3)
    assert all(torch.equal(a, b) for a, b in zip(before, d.parameters()))
    assert all(tensor.grad is None for tensor in d.parameters())


def test_evaluate_is_recorded_and_follows_the_mode():
    array = hfta.fuse([nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)) for _ in range(3)])

    def outputs(model, x):
        return {"out": model(x)}

    for mode in (False, True, False):
        array.train(mode)
        x = torch.randn(5, 3)
        if not mode:
            close(array.evaluate(outputs, x, recorded=True)["out"], array.evaluate(outputs, x)["out"])
        else:
            assert (array.evaluate(outputs, x, recorded=True)["out"]).shape == (3, 5, 4)


# ---- the process stays sound


def test_an_exception_in_the_function_leaves_everything_as_it_was(array, sgd):
    class Own(Exception):
        pass

    def fails(model, x, y):
        mse(model, x, y)
        raise Own("as it is")

    for run in (lambda: array.record(sgd, fails, plan=WIDE)(*batch()), lambda: array.train_step(sgd, fails, *batch())):
        with pytest.raises(Own, match="as it is"):
            run()
        assert torch._C._len_torch_dispatch_stack() == 0
        torch.randn(2) + 1
    array.record(sgd, mse, plan=WIDE)(*batch())


def test_ctrl_c_while_recording_leaves_the_process_sound(array, sgd):
    def slow(model, x, y):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):
            time.sleep(0.01)
        return mse(model, x, y)

    with pytest.raises(KeyboardInterrupt):
        array.record(sgd, slow, plan=WIDE)(*batch())
    assert torch._C._len_torch_dispatch_stack() == 0
    array.record(sgd, mse, plan=WIDE)(*batch())


def test_printing_a_tensor_while_recording_is_harmless():
    texts = []

    def prints(model, x, y):
        out = model(x)
        texts.append(repr(out))
        return F.mse_loss(out, y)

    agrees(prints)
    assert texts and texts[0].startswith("tensor(")


def test_a_compiled_function_and_fast_attention_are_recorded():
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.attention(x, x, x)[0].mean(1))

    array = hfta.fuse([Attends() for _ in range(3)])
    array.eval()
    x = torch.randn(5, 6, 4)

    def outputs(model, x):
        return model(x)

    close(array.evaluate(outputs, x, recorded=True), array.evaluate(outputs, x))
    sgd = hfta.optim.SGD(array, lr=0.1)
    array.record(sgd, mse, plan=WIDE)(x, torch.randn(5, 2))


def test_another_thread_is_not_taken_down(array, sgd):
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            torch.randn(3, 3) @ torch.randn(3, 3)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        step = array.record(sgd, mse, plan=WIDE)
        for _ in range(3):
            step(*batch())
        assert "randn" not in step.program()
    finally:
        stop.set()
        thread.join()


def test_a_python_mode_on_top_still_works(array, sgd):
    from torch.utils.flop_counter import FlopCounterMode

    def counted(model, x, y):
        with FlopCounterMode(display=False) as counter:
            loss = mse(model, x, y)
        assert counter.get_total_flops() > 0
        return loss

    step = array.record(sgd, counted, plan=WIDE)
    close(step(*batch()).new_zeros(1), torch.zeros(1))


def test_an_operator_written_in_python_is_replayed():
    @torch.library.custom_op("hfta_test::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @cube.register_fake
    def _(x):
        return torch.empty_like(x)

    cube.register_autograd(lambda ctx, gradient: 3 * ctx.x**2 * gradient, setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0]))
    step = agrees(lambda model, x, y: cube(model(x)).mean() + mse(model, x, y))
    assert "hfta_test::cube" in step.program()


@pytest.mark.parametrize("around", [True, False])
def test_autocast_is_part_of_the_recording(around):
    from contextlib import nullcontext

    def fn(model, x, y):
        with nullcontext() if around else torch.autocast("cpu", dtype=torch.bfloat16):
            return mse(model, x, y)

    torch.manual_seed(5)
    models = [net() for _ in range(2)]
    array, plain = hfta.fuse(models), hfta.fuse(models)
    sgd, plain_sgd = hfta.optim.SGD(array, lr=0.1), hfta.optim.SGD(plain, lr=0.1)
    step = array.record(sgd, fn, plan=hfta.Plan(width=1))
    for _ in range(3):
        inputs = batch()
        with torch.autocast("cpu", dtype=torch.bfloat16) if around else nullcontext():
            losses, expected = step(*inputs), plain.train_step(plain_sgd, fn, *inputs)
        torch.testing.assert_close(losses, expected, rtol=1e-2, atol=1e-3)
    assert "BFloat16" in step.program()


def test_a_step_outlives_moves_of_the_lanes(array, sgd):
    step = array.record(sgd, mse, plan=WIDE)
    step(*batch())
    array.keep([2, 0])
    assert step(*batch()).shape == (2,)
    array.append([net()])
    sgd.param_groups[0]["lr"] = 0.1
    assert step(*batch()).shape == (3,)
