"""Misuse is answered at once and clearly."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hfta

WIDE = hfta.Plan(width=8)
X, Y = torch.randn(5, 3), torch.randn(5, 2)


def mse(model, x, y):
    return F.mse_loss(model(x), y)


@pytest.fixture
def array():
    return hfta.fuse([nn.Linear(3, 2) for _ in range(3)])


@pytest.fixture
def sgd(array):
    return hfta.optim.SGD(array, lr=0.1)


def both(array, sgd, fn, *inputs):
    """Plain and recorded."""
    return [lambda: array.train_step(sgd, fn, *inputs), lambda: array.record(sgd, fn, plan=WIDE)(*inputs)]


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda net, x, y: (net(x) - y) ** 2, r"expected a scalar loss from lane 0, got shape \[5, 2\]"),
        (lambda net, x, y: 1.0, r"expected a loss or a pair \(loss, extras\) from lane 0, got float"),
        (lambda net, x, y: (mse(net, x, y), 3.0), "expected tensors as what the function returns, got float"),
        (lambda net, x, y: mse(net, x, y).detach(), "expected a loss that depends on a trainable parameter from lane 0"),
        (lambda net, x, y: None, "from lane 0, got NoneType"),
    ],
)
def test_a_loss_that_is_none_is_refused(fn, message, array, sgd):
    for run in both(array, sgd, fn, X, Y):
        with pytest.raises(ValueError, match=message):
            run()


def test_inputs_that_do_not_fit_are_refused(array, sgd):
    for inputs, message in [
        ((hfta.per_lane(torch.randn(2, 5, 3)), Y), r"expected per-lane input 0 of shape \[3, ...\], got \[2, 5, 3\]"),
        ((X, Y, "text"), "expected tensors as inputs .*, got str"),
        ((X.to("meta"), Y), "expected input 0 on cpu, got it on meta"),
    ]:
        for run in both(array, sgd, mse, *inputs):
            with pytest.raises(ValueError, match=message):
                run()
    with pytest.raises(TypeError, match="positional argument"):
        array.train_step(sgd, mse, X)


def test_another_arrays_optimizer_is_refused(array):
    other = hfta.optim.SGD(hfta.fuse([nn.Linear(3, 2) for _ in range(3)]))
    for run in both(array, other, mse, X, Y):
        with pytest.raises(ValueError, match="expected an optimizer of this array, got another array's"):
            run()
    stock = torch.optim.SGD(array.parameters(), lr=0.1)
    for run in both(array, stock, mse, X, Y):
        with pytest.raises(ValueError, match="expected an optimizer of hfta.optim, got torch.optim.sgd.SGD"):
            run()


def test_arrays_of_other_lanes_are_refused(array, sgd):
    other = hfta.fuse([nn.Linear(3, 2) for _ in range(2)])
    with pytest.raises(ValueError, match="expected arrays of 3 lanes, got one of 2"):
        hfta.train_step((array, other), sgd, lambda a, b, x: a(x).sum(), X)
    with pytest.raises(ValueError, match="expected arrays made by hfta.fuse, got Linear"):
        hfta.train_step(nn.Linear(3, 2), sgd, mse, X, Y)


def test_a_list_of_the_wrong_length_is_refused(array, sgd):
    for run in (lambda: array.train_step(sgd, mse, X, Y, max_norm=[1.0]), lambda: array.record(sgd, mse, max_norm=[1.0, 2.0])):
        with pytest.raises(ValueError, match=r"expected max_norm as one number or 3 \(one per lane\)"):
            run()


def test_plans_and_options_that_do_not_fit_are_refused(array, sgd):
    with pytest.raises(ValueError, match="width"):
        array.plan = hfta.Plan(width=0)
    with pytest.raises(ValueError, match="hfta.record: expected accumulate of at least 1, got 0"):
        array.record(sgd, mse, accumulate=0)
    with pytest.raises(ValueError, match="expected a function of a model, got str"):
        array.record(sgd, "mse")
    with pytest.raises(TypeError, match="cannot be pickled"):
        import pickle

        pickle.dumps(array.record(sgd, mse))


def test_a_lane_that_was_dropped_no_longer_belongs_to_the_array(array, sgd):
    dropped, kept = array.lane(0), array.lane(2)
    array.keep([2])
    assert array.lane(0) is kept
    with pytest.raises(IndexError, match="expected a lane from 0 to 0, got 2"):
        array.lane(2)
    before = dropped.weight.clone()
    array.train_step(sgd, mse, X, Y)
    assert torch.equal(dropped.weight, before)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda a, o: hfta.per_lane([X] * 3), r"hfta.per_lane: expected a tensor \[lanes, ...\], got list"),
        (lambda a, o: hfta.per_lane(X.numpy()), "got ndarray"),
        (lambda a, o: hfta.fuse(5), "hfta.fuse: expected a sequence of models or a factory, got a int"),
        (lambda a, o: hfta.fuse(lambda: nn.Linear(3, 2), lanes="4"), "expected lanes as a whole number, got '4'"),
        (lambda a, o: hfta.fuse(lambda: nn.Linear(3, 2), seeds=[1, -1]), r"expected seeds from 0 to 2\^64 - 1, got -1"),
        (lambda a, o: a.record(o, mse, plan="fast"), "hfta.record: expected plan as an hfta.Plan, got 'fast'"),
        (lambda a, o: setattr(a, "plan", 4), "expected plan as an hfta.Plan, got 4"),
        (lambda a, o: a.keep([True, False]), "hfta.Array.keep: expected a mask of 3 lanes, got 2"),
        (lambda a, o: a.record(o, mse)(X.numpy(), Y), "expected tensors as inputs .*, got ndarray"),
        (lambda a, o: hfta.clip_grad_norm_(list(a.parameters()), 1.0), "expected arrays made by hfta.fuse, got Tensor"),
        (lambda a, o: hfta.optim.Adam(a, lr=float("nan")), "expected lr of lane 0 at least 0, got nan"),
    ],
)
def test_what_a_newcomer_tries_is_answered(use, message, array, sgd):
    with pytest.raises(ValueError, match=message):
        use(array, sgd)


def test_lanes_may_be_kept_by_a_mask(array):
    first, last = array.lane(0), array.lane(2)
    array.keep(torch.tensor([0.1, 9.0, 0.2]) < 1)
    assert list(array) == [first, last]
