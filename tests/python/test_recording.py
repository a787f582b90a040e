"""What recorded functions compute."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from recording import WIDE, agrees, batch, mse, net
from support import close
from torch import nn

import hfta


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


# The `out` overloads of these losses resize a scalar result on the way.
@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses_reduced_to_a_scalar_give_the_plain_result_at_width_one(loss, reduction):
    models = [nn.Sequential(nn.Linear(3, 2), nn.Sigmoid()) for _ in range(2)]
    plain, recorded = hfta.fuse(models), hfta.fuse(models)
    adams = [hfta.optim.Adam(array, lr=0.01) for array in (plain, recorded)]

    def fn(model, x, y):
        return loss(model(x), y, reduction=reduction)

    step = recorded.record(adams[1], fn, plan=hfta.Plan(width=1, workers=1))
    for _ in range(3):
        x, y = torch.randn(50, 3), torch.rand(50, 2)
        close(step(x, y), plain.train_step(adams[0], fn, x, y))


def test_several_steps_in_one_call_give_what_as_many_calls_give():
    def loss_and_output(model, batch):
        out = model(batch["x"])
        return F.mse_loss(out, batch["y"]), out

    def batches(sizes):
        return [({"x": torch.randn(size, 3), "y": torch.randn(size, 2)},) for size in sizes]

    models = [net() for _ in range(4)]
    plan = hfta.Plan(width=2, workers=2, lowerings={})
    together, apart = hfta.fuse(models), hfta.fuse(models)
    one, other = (array.record(hfta.optim.Adam(array, lr=[0.1, 0.01, 0.03, 0.02]), loss_and_output, plan=plan) for array in (together, apart))
    for sizes in ([5], [5, 5, 5], [5, 7, 7, 5], []):
        given = batches(sizes)
        results = one.run(given)
        assert len(results) == len(sizes)
        for (losses, outputs), inputs in zip(results, given):
            expected, expected_outputs = other(*inputs)
            close(losses, expected, f"{sizes}", 1)
            close(outputs, expected_outputs, f"{sizes}", 1)
    for a, b in zip(together.parameters(), apart.parameters()):
        close(a, b, "parameters", 10)


def test_several_steps_in_the_first_call_choose_a_plan_too():
    models = [net() for _ in range(6)]
    array, alone = hfta.fuse(models), hfta.fuse(models)
    step = array.record(hfta.optim.SGD(array, lr=0.1), mse)
    sgd = hfta.optim.SGD(alone, lr=0.1)
    given = [batch() for _ in range(5)]
    for losses, inputs in zip(step.run(given), given):
        close(losses, alone.train_step(sgd, mse, *inputs), "losses", 5)
    assert "plan: " in step.report()


def test_several_steps_are_refused_with_the_batch_that_cannot_be_recorded():
    array = hfta.fuse([net() for _ in range(2)])
    step = array.record(hfta.optim.SGD(array, lr=0.1), lambda model, x, y: mse(model, x, y) * (2 if y.sum().item() > 1e9 else 1), plan=WIDE)
    with pytest.raises(hfta.Unsupported, match="reads values on the host"):
        step.run([batch(), batch()])
    with pytest.raises(hfta.InvalidArgument, match="expected the inputs of each step as a tuple or list, got int"):
        step.run([3])


def test_chosen_plans_are_kept_on_disk_and_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("HFTA_PLAN_CACHE", str(tmp_path))
    models, given = [net() for _ in range(6)], batch()

    def report_of_a_new_array():
        array = hfta.fuse(models)
        step = array.record(hfta.optim.SGD(array, lr=0.1), mse)
        for _ in range(3):
            step(*given)
        return array.report(), step.plan

    first, plan = report_of_a_new_array()
    assert "as measured on" not in first and "ms (timed" in first and "predicted" in first
    second, same = report_of_a_new_array()
    assert "as measured on" in second and str(tmp_path) in second
    assert (same.width, same.workers, same.lowerings) == (plan.width, plan.workers, plan.lowerings)
    given = tuple(torch.cat([value, value]) for value in given)
    assert "as measured on" not in report_of_a_new_array()[0], "other shapes are measured anew"
