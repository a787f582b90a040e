"""Optimizers and schedules: their arguments, groups and state."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from support import close
from torch import nn

import hfta
from hfta.optim import lr_scheduler


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def mse(model, x, y):
    return F.mse_loss(model(x), y)


def batch():
    return torch.randn(5, 3).double(), torch.randn(5, 2).double()


@pytest.fixture
def array():
    return hfta.fuse([net().double() for _ in range(3)])


def test_adam_gives_the_numbers_worked_out_by_hand():
    """Case A18: loss w^2 / 2 from w = 1."""

    class Scalar(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones((), dtype=torch.float64))

    def half_square(model):
        return 0.5 * model.w**2

    for optimizer, options, expected in [
        ("Adam", {"lr": [0.1, 0.01, 0.001]}, [0.701586274504, 0.970010099529, 0.997000096080]),
        ("AdamW", {"lr": [0.1, 0.01], "weight_decay": [0.1, 0.5]}, [0.675101223199, 0.955240143580]),
    ]:
        for recorded in (False, True):
            array = hfta.fuse(Scalar, lanes=len(expected))
            adam = getattr(hfta.optim, optimizer)(array, **options)
            step = (
                array.record(adam, half_square, plan=hfta.Plan(width=4))
                if recorded
                else lambda a=array, o=adam: a.train_step(o, half_square)
            )
            for _ in range(3):
                step()
            torch.testing.assert_close(next(array.parameters()).detach(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-11)


def test_hyper_parameters_are_one_number_or_one_per_lane(array):
    for lr in (
        [1e-2, 1e-3, 1e-4],
        torch.tensor([1e-2, 1e-3, 1e-4], dtype=torch.float64),
        torch.tensor([1e-2, 1e-3, 1e-4], dtype=torch.float64).numpy(),
    ):
        adam = hfta.optim.Adam(array, lr=lr, betas=(0.9, [0.99, 0.999, 0.9]))
        assert adam.param_groups[0]["lr"] == [1e-2, 1e-3, 1e-4]
        assert adam.param_groups[0]["betas"] == (0.9, [0.99, 0.999, 0.9])
    assert hfta.optim.Adam(array, lr=torch.tensor(0.5)).param_groups[0]["lr"] == 0.5
    with pytest.raises(ValueError, match=r"expected lr as one number or 3 \(one per lane\), got 2"):
        hfta.optim.Adam(array, lr=[0.1, 0.2])
    with pytest.raises(ValueError, match="expected lr of lane 1 at least 0, got -1"):
        hfta.optim.SGD(array, lr=[0.1, -1, 0.1])
    with pytest.raises(ValueError, match="expected lr as one number or 3"):
        hfta.optim.SGD(array, lr="fast")


def test_groups_are_written_and_count_without_recording_anew(array):
    other = copy.deepcopy(array)
    adam, plain = hfta.optim.Adam(array, lr=0.1), hfta.optim.Adam(other, lr=0.1)
    step = array.record(adam, mse, plan=hfta.Plan(width=4))
    for k in range(4):
        for one in (adam, plain):
            one.param_groups[0]["lr"] = [0.1 / (k + 1), 0.2, 0.0]
            one.param_groups[0]["betas"] = (0.5, 0.9)
        inputs = batch()
        close(step(*inputs), other.train_step(plain, mse, *inputs), "losses", k + 1)
    assert "1 recordings kept" in step.report()
    assert set(adam.param_groups[0]) == {"params", "lr", "betas", "eps", "weight_decay", "amsgrad", "maximize"}
    assert len(adam.param_groups[0]["params"]) == 6
    with pytest.raises(ValueError, match='expected one of lr, betas, eps, weight_decay to be set, got "momentum"'):
        adam.param_groups[0]["momentum"] = 1


def groups_of(array, stock):
    """The same two groups of an array and of a plain model."""
    named = list(array.named_parameters())
    decayed = [p for name, p in named if p.dim() > 2]
    rest = [p for name, p in named if p.dim() <= 2]
    ours = [{"params": decayed, "weight_decay": 0.5}, {"params": rest, "lr": [0.1, 0.2, 0.3]}]
    theirs = [
        [
            {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.5},
            {"params": [p for p in model.parameters() if p.dim() <= 1], "lr": lr},
        ]
        for model, lr in zip(stock, [0.1, 0.2, 0.3])
    ]
    return ours, theirs


def test_parameter_groups_have_values_of_their_own(array):
    solos = [array.lane(lane, copy=True) for lane in range(3)]
    ours, theirs = groups_of(array, solos)
    adam = hfta.optim.AdamW(ours, lr=0.01)
    stock = [torch.optim.AdamW(groups, lr=0.01) for groups in theirs]
    assert adam.array is array and len(adam.param_groups) == 2
    for _ in range(3):
        inputs = batch()
        losses = array.train_step(adam, mse, *inputs)
        for lane, (solo, one) in enumerate(zip(solos, stock)):
            one.zero_grad()
            loss = mse(solo, *inputs)
            loss.backward()
            one.step()
            close(losses[lane], loss.detach())
    for lane, (solo, one) in enumerate(zip(solos, stock)):
        again = torch.optim.AdamW(groups_of(array, solos)[1][lane], lr=0.01)
        again.load_state_dict(adam.lane_state_dict(lane))
        for mine, expected in zip(again.state_dict()["param_groups"], one.state_dict()["param_groups"]):
            assert mine == expected
        adam.load_lane_state_dict(lane, one.state_dict())


def test_groups_may_be_named_or_chosen_by_name(array):
    names = [name for name, _ in array.named_parameters()]
    sgd = hfta.optim.SGD(
        array, lr=0.1, groups=[{"params": ["0.weight"], "lr": 0.3}, {"params": lambda name: name.endswith("bias"), "lr": [0.5, 0.6, 0.7]}]
    )
    members = [[names[i] for i, g in enumerate(sgd._core.group_of_parameters()) if g == group] for group in range(3)]
    assert members == [["1.weight", "2.weight"], ["0.weight"], ["0.bias", "1.bias", "2.bias"]]
    assert [group["lr"] for group in sgd.param_groups] == [0.1, 0.3, [0.5, 0.6, 0.7]]
    with pytest.raises(ValueError, match='expected one of the parameters .*, got "0.wieght"'):
        hfta.optim.SGD(array, groups=[{"params": "0.wieght"}])
    assert len(hfta.optim.SGD(array.named_parameters()).param_groups[0]["params"]) == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda a: hfta.optim.Adam([]), "got an empty list"),
        (lambda a: hfta.optim.Adam([torch.zeros(3)]), "expected an array made by hfta.fuse or its stacked parameters, got other tensors"),
        (
            lambda a: hfta.optim.Adam(a.lane(0).parameters()),
            "expected an array made by hfta.fuse or its stacked parameters, got other tensors",
        ),
        (lambda a: hfta.optim.Adam(list(a.parameters())[:2]), 'expected every trainable parameter in a group, got none with "1.weight"'),
        (
            lambda a: hfta.optim.Adam([{"params": list(a.parameters())}, {"params": list(a.parameters())[:1]}]),
            'expected each parameter in one group, got "0.weight" in two',
        ),
        (
            lambda a: hfta.optim.Adam([{"params": list(a.parameters()), "momentum": 1}]),
            'expected parameter groups with params, lr, betas, eps, weight_decay, got "momentum"',
        ),
    ],
)
def test_groups_that_do_not_fit_are_refused(make, message, array):
    with pytest.raises(ValueError, match=message):
        make(array)


@pytest.mark.parametrize("name", ["foreach", "fused", "capturable", "differentiable"])
def test_options_of_torch_that_mean_nothing_here_are_refused(name, array):
    with pytest.raises(hfta.Unsupported, match=f"expected none of .*{name}.*, got {name}=True"):
        hfta.optim.Adam(array, **{name: True})
    hfta.optim.Adam(array, **{name: False})


def test_names_that_are_not_there_list_those_that_are():
    with pytest.raises(AttributeError, match='expected one of SGD, Adadelta, Adam, AdamW, Optimizer, got "RMSprop"'):
        hfta.optim.RMSprop  # noqa: B018
    with pytest.raises(
        AttributeError, match='expected one of CosineAnnealingLR, LRScheduler, LinearLR, SequentialLR, StepLR, got "OneCycleLR"'
    ):
        lr_scheduler.OneCycleLR  # noqa: B018


def test_state_dicts_go_back_and_forth(array):
    adam = hfta.optim.Adam(array, lr=[0.1, 0.2, 0.3], amsgrad=True)
    for _ in range(2):
        array.train_step(adam, mse, *batch())
    other = copy.deepcopy(array)
    fresh = hfta.optim.Adam(other, lr=9.0, amsgrad=True)
    fresh.load_state_dict(copy.deepcopy(adam.state_dict()))
    assert fresh.param_groups[0]["lr"] == [0.1, 0.2, 0.3] and fresh.steps(2) == 2
    inputs = batch()
    assert torch.equal(array.train_step(adam, mse, *inputs), other.train_step(fresh, mse, *inputs))
    for a, b in zip(array.parameters(), other.parameters()):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="expected the state of a SGD of 3 lanes, got Adam of 3"):
        hfta.optim.SGD(array).load_state_dict(adam.state_dict())


def test_schedules_take_values_per_lane_and_keep_their_state(array):
    sgd = hfta.optim.SGD(array, lr=[1.0, 1.0, 2.0])
    schedule = lr_scheduler.StepLR(sgd, step_size=[1, 2, 3], gamma=[0.5, 0.1, 0.1])
    stock = []
    for size, gamma, lr in zip([1, 2, 3], [0.5, 0.1, 0.1], [1.0, 1.0, 2.0]):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
        stock.append(torch.optim.lr_scheduler.StepLR(optimizer, size, gamma))
    for _ in range(7):
        schedule.step()
        for one in stock:
            one.optimizer.step()
            one.step()
        assert schedule.get_last_lr()[0] == pytest.approx([one.get_last_lr()[0] for one in stock], rel=1e-12)
    for lane, one in enumerate(stock):
        one.load_state_dict(schedule.lane_state_dict(lane))
        assert one.last_epoch == 7
    state = copy.deepcopy(schedule.state_dict())
    again = lr_scheduler.StepLR(hfta.optim.SGD(array, lr=[1.0, 1.0, 2.0]), step_size=[1, 2, 3], gamma=[0.5, 0.1, 0.1])
    again.load_state_dict(state)
    with pytest.raises(hfta.Unsupported, match="expected last_epoch=-1"):
        lr_scheduler.StepLR(sgd, 1, last_epoch=3)
    with pytest.raises(ValueError, match="expected an optimizer of hfta.optim, got SGD"):
        lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)]), 1)
    with pytest.raises(ValueError, match="expected 1 milestones for 2 schedulers, got 2"):
        parts = [lr_scheduler.LinearLR(sgd), lr_scheduler.StepLR(sgd, 1)]
        lr_scheduler.SequentialLR(sgd, parts, milestones=[1, 2])


def test_clip_grad_norm_clips_each_lane(array):
    array.backward(mse, *batch())
    before = [p.grad.clone() for p in array.parameters()]
    norms = hfta.clip_grad_norm_(array, [0.1, 1e9, 0.01])
    for lane, limit in enumerate([0.1, 1e9, 0.01]):
        own = [torch.zeros_like(g[lane], requires_grad=True) for g in before]
        for p, g in zip(own, before):
            p.grad = g[lane].clone()
        close(norms[lane], torch.nn.utils.clip_grad_norm_(own, limit))
        for p, stacked in zip(own, array.parameters()):
            close(stacked.grad[lane], p.grad)
    with pytest.raises(hfta.Unsupported, match="got norm_type=1"):
        hfta.clip_grad_norm_(array, 1.0, norm_type=1)


def test_frozen_parameters_are_left_alone():
    """Case C14."""
    models = [net() for _ in range(2)]
    for model in models:
        model[0].weight.requires_grad_(False)
    array = hfta.fuse(models)
    adam = hfta.optim.Adam([p for p in array.parameters() if p.requires_grad])
    before = array.lane(0)[0].weight.clone()
    x, y = torch.randn(5, 3), torch.randn(5, 2)
    for step in (array.record(adam, mse, plan=hfta.Plan(width=2)), lambda *inputs: array.train_step(adam, mse, *inputs)):
        step(x, y)
        assert torch.equal(array.lane(0)[0].weight, before)
    assert 0 not in adam.lane_state_dict(0)["state"]
