"""What was made before lanes moved: it follows, or answers at once."""

from __future__ import annotations

import pytest
import torch
from recording import WIDE, batch, mse, net
from torch import nn

import hfta

STALE = "expected the array's present parameters, got one from before its lanes were kept or added"


@pytest.fixture
def four():
    return hfta.fuse([nn.Linear(3, 2) for _ in range(4)])


def test_steps_optimizers_and_schedules_follow_lanes_that_are_kept(four):
    adam = hfta.optim.Adam(four, lr=[0.1, 0.2, 0.3, 0.4])
    schedule = hfta.optim.lr_scheduler.StepLR(adam, 2)
    twin = hfta.fuse([four.lane(3, copy=True), four.lane(1, copy=True)])
    other = hfta.optim.Adam(twin, lr=[0.4, 0.2])
    step, again = four.record(adam, mse, plan=WIDE), twin.record(other, mse, plan=WIDE)
    kept, group = four.lane(3), adam.param_groups[0]
    inputs = batch()
    step(*inputs), again(*inputs)
    four.keep([3, 1])
    assert four.lane(0) is kept and group["lr"] == [0.4, 0.2] and step.plan.width == WIDE.width
    torch.testing.assert_close(step(*inputs), again(*inputs))
    schedule.step()
    assert schedule.get_last_lr() == [[0.4, 0.2]]
    assert four.evaluate(lambda model, x: model(x), inputs[0], recorded=True).shape == (2, 5, 2)
    for run in (lambda x: step(x, inputs[1]), lambda x: four.train_step(adam, mse, x, inputs[1])):
        with pytest.raises(ValueError, match=r"expected per-lane input 0 of shape \[2, ...\], got \[4, 5, 3\]"):
            run(hfta.per_lane(torch.randn(4, 5, 3)))
    with pytest.raises(ValueError, match=r"expected lr as one number or 2 \(one per lane\), got 4"):
        group["lr"] = [1, 2, 3, 4]


@pytest.mark.parametrize("moves", [lambda a: a.keep([3, 1]), lambda a: a.append([nn.Linear(3, 2)]), lambda a: a.to(torch.float64)])
def test_a_stock_optimizer_over_parameters_that_are_gone_is_told(four, moves):
    stock, old = torch.optim.Adam(four.parameters(), lr=0.1), list(four.parameters())
    four.backward(mse, *batch())
    stock.step()
    moves(four)
    for use in (stock.step, stock.zero_grad, lambda: old[0].sum(), lambda: hfta.optim.SGD(old)):
        with pytest.raises(ValueError, match=STALE):
            use()
    fresh = torch.optim.Adam(four.parameters(), lr=0.1)
    dtype = next(four.parameters()).dtype
    four.backward(mse, *(tensor.to(dtype) for tensor in batch()))
    before = next(four.parameters()).detach().clone()
    fresh.step()
    assert not torch.equal(before, next(four.parameters()))


def test_a_limit_per_lane_that_no_longer_fits_is_told(four):
    sgd = hfta.optim.SGD(four, lr=0.1)
    step = four.record(sgd, mse, max_norm=[1.0, 2.0, 3.0, 4.0], plan=WIDE)
    step(*batch())
    four.keep([1, 2])
    with pytest.raises(ValueError, match=r"max_norm: expected one value or 2 \(one per lane\), got 4"):
        step(*batch())


def test_arrays_of_one_step_must_keep_the_same_lanes(four):
    other = hfta.fuse([nn.Linear(3, 2) for _ in range(4)])
    sgd = hfta.optim.SGD(four, lr=0.1)

    def both(model, critic, x):
        return critic(x).sum() + model(x).sum()

    step = hfta.record((four, other), sgd, both, plan=WIDE)
    step(torch.randn(5, 3))
    four.keep([3, 1])
    for run in (lambda x: step(x), lambda x: hfta.train_step((four, other), sgd, both, x), lambda x: hfta.evaluate((four, other), both, x, recorded=True)):
        with pytest.raises(ValueError, match="expected arrays of 2 lanes, got one of 4"):
            run(torch.randn(5, 3))
    other.keep([3, 1])
    assert step(torch.randn(5, 3)).shape == (2,)


def test_lanes_that_were_added_have_no_rates_until_they_are_given(four):
    adam = hfta.optim.Adam(four, lr=[0.1, 0.2, 0.3, 0.4])
    step = four.record(adam, mse, plan=WIDE)
    step(*batch())
    four.append([nn.Linear(3, 2)])
    before = [tensor.clone() for tensor in four.parameters()]
    with pytest.raises(ValueError, match="expected lr to be set for added lane 4, got none"):
        step(*batch())
    assert all(torch.equal(a, b) for a, b in zip(before, four.parameters()))
    adam.param_groups[0]["lr"] = [0.1, 0.2, 0.3, 0.4, 0.5]
    assert step(*batch()).shape == (5,)


def test_a_step_keeps_its_array_alive():
    array = hfta.fuse([net() for _ in range(2)])
    step = array.record(hfta.optim.SGD(array, lr=0.1), mse, plan=WIDE)
    lane = array.lane(0)
    del array
    before = lane[0].weight.detach().clone()
    step(*batch())
    assert not torch.equal(before, lane[0].weight)
