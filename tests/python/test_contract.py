"""Lanes against plain PyTorch: one model at a time, same seed, data and hyper-parameters."""

from __future__ import annotations

import pytest
import torch
from models import CASES, per_lane_data
from support import Solo, check_lane, close

import hfta

STEPS = 20
LR = [0.03, 0.01, 0.003]
OPTIMIZERS = {
    "sgd": (lambda p, lr: torch.optim.SGD(p, lr=lr), lambda a, lr: hfta.optim.SGD(a, lr=lr)),
    "momentum": (
        lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, dampening=0.1, weight_decay=0.01),
        lambda a, lr: hfta.optim.SGD(a, lr=lr, momentum=0.9, dampening=0.1, weight_decay=0.01),
    ),
    "nesterov": (
        lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.8, nesterov=True),
        lambda a, lr: hfta.optim.SGD(a, lr=lr, momentum=0.8, nesterov=True),
    ),
    "adam": (lambda p, lr: torch.optim.Adam(p, lr=lr, weight_decay=0.01), lambda a, lr: hfta.optim.Adam(a, lr=lr, weight_decay=0.01)),
    "amsgrad": (
        lambda p, lr: torch.optim.Adam(p, lr=lr, betas=(0.8, 0.99), amsgrad=True),
        lambda a, lr: hfta.optim.Adam(a, lr=lr, betas=(0.8, 0.99), amsgrad=True),
    ),
    "adamw": (lambda p, lr: torch.optim.AdamW(p, lr=lr), lambda a, lr: hfta.optim.AdamW(a, lr=lr)),
    "adadelta": (lambda p, lr: torch.optim.Adadelta(p, lr=30 * lr), lambda a, lr: hfta.optim.Adadelta(a, lr=[30 * one for one in lr])),
}
MODES = {"plain": None, "width 1": hfta.Plan(width=1), "wide": hfta.Plan(width=8), "2 workers": hfta.Plan(width=2, workers=2)}


def train_both(case, dtype, optimizer, mode, per_lane, lanes=3, steps=STEPS, schedule=None):
    """Trains an array and as many models alone; compares losses at each step and all tensors at the end."""
    torch.manual_seed(1)
    models = [case.build().to(dtype) for _ in range(lanes)]
    array = hfta.fuse(models)
    stock, ours = OPTIMIZERS[optimizer]
    rates = LR[:lanes]
    ours = ours(array, rates)
    solos = [Solo(model, lane, lane, lambda p, lane: stock(p, rates[lane])) for lane, model in enumerate(models)]
    schedules = [schedule(torch.optim.lr_scheduler, solo.optimizer) for solo in solos] if schedule else []
    whole = schedule(hfta.optim.lr_scheduler, ours) if schedule else None
    step = (lambda *x: array.train_step(ours, case.fn, *x)) if MODES[mode] is None else array.record(ours, case.fn, plan=MODES[mode])
    for k in range(steps):
        inputs = per_lane_data(case, dtype, lanes) if per_lane else case.data(dtype)
        losses = step(*inputs)
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(case.fn, inputs), f"step {k} lane {lane} loss", k + 1)
        if whole:
            whole.step()
            for lane, own in enumerate(schedules):
                own.step()
                assert array.lanes == 1 or ours._core.get("lr", 0)[lane] == pytest.approx(own.get_last_lr()[0], rel=1e-12)
    for lane, solo in enumerate(solos):
        check_lane(array, lane, solo, steps, skip=case.tolerant)
        for index, state in solo.optimizer.state_dict()["state"].items():
            for name, value in state.items():
                mine = ours.lane_state_dict(lane)["state"][index][name]
                if isinstance(value, torch.Tensor) and name == "step":
                    assert mine == value
    array.eval()
    last = case.data(dtype)
    outputs = array.evaluate(lambda net, *x: net(*x), *last[:-1])
    for lane, solo in enumerate(solos):
        solo.model.eval()
        with torch.no_grad():
            close(outputs[lane], solo.model(*last[:-1]), f"lane {lane} outputs", steps)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_lanes_train_as_models_alone(name, mode):
    train_both(CASES[name], torch.float64, "adam", mode, per_lane=False)


@pytest.mark.parametrize("mode", ["plain", "wide"])
@pytest.mark.parametrize("name", CASES)
def test_lanes_train_as_models_alone_in_single_precision_on_their_own_data(name, mode):
    train_both(CASES[name], torch.float32, "sgd", mode, per_lane=True)


@pytest.mark.parametrize("mode", ["plain", "wide"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_updates_as_torch_does(optimizer, mode):
    train_both(CASES["mlp"], torch.float64, optimizer, mode, per_lane=True)


def test_an_array_of_one_lane_is_the_model():
    for mode in ("plain", "width 1"):
        train_both(CASES["cnn"], torch.float64, "adam", mode, per_lane=False, lanes=1)


SCHEDULES = {
    "step": lambda of, opt: of.StepLR(opt, step_size=3, gamma=0.5),
    "cosine": lambda of, opt: of.CosineAnnealingLR(opt, T_max=STEPS, eta_min=1e-4),
    "linear": lambda of, opt: of.LinearLR(opt, start_factor=0.2, total_iters=6),
    "warm-up": lambda of, opt: of.SequentialLR(opt, [of.LinearLR(opt, total_iters=4), of.CosineAnnealingLR(opt, T_max=16)], milestones=[4]),
}


@pytest.mark.parametrize("mode", ["plain", "wide"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_sets_the_rates_that_torch_sets(schedule, mode):
    train_both(CASES["mlp"], torch.float64, "momentum", mode, per_lane=False, schedule=SCHEDULES[schedule])


@pytest.mark.parametrize("max_norm", [0.05, [0.02, 0.1, 1e9]])
@pytest.mark.parametrize("mode", ["plain", "wide"])
def test_norms_are_clipped_per_lane(mode, max_norm):
    case = CASES["mlp"]
    models = [case.build().double() for _ in range(3)]
    array = hfta.fuse(models)
    sgd = hfta.optim.SGD(array, lr=0.5)
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.SGD(p, lr=0.5)) for lane, model in enumerate(models)]
    step = array.record(sgd, case.fn, max_norm=max_norm, plan=hfta.Plan(width=4)) if mode == "wide" else None
    for k in range(5):
        inputs = case.data(torch.float64)
        losses = step(*inputs) if step else array.train_step(sgd, case.fn, *inputs, max_norm=max_norm)
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(case.fn, inputs, max_norm if isinstance(max_norm, float) else max_norm[lane]), "loss", k + 1)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_stock_optimizer_over_the_stacked_parameters_trains_all_lanes(set_to_none, recorded):
    case = CASES["cnn"]
    models = [case.build().double() for _ in range(3)]
    array = hfta.fuse(models)
    stock = torch.optim.Adam(array.parameters(), lr=0.01)
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.Adam(p, lr=0.01)) for lane, model in enumerate(models)]
    for k in range(5):
        inputs = case.data(torch.float64)
        stock.zero_grad(set_to_none=set_to_none)
        losses = array.backward(case.fn, *inputs, recorded=recorded)
        stock.step()
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(case.fn, inputs), "loss", k + 1)
    for lane, solo in enumerate(solos):
        check_lane(array, lane, solo, 5)
