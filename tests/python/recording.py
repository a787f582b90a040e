"""What the tests of recorded functions share."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support import Solo, check_steps
from torch import nn

import hfta

WIDE = hfta.Plan(width=8)


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def mse(model, x, y):
    return F.mse_loss(model(x), y)


def batch():
    return torch.randn(5, 3), torch.randn(5, 2)


def agrees(fn, build=net, data=batch, steps=4, lanes=3, **options):
    """A recorded step of this function does what models alone do."""
    models = [build() for _ in range(lanes)]
    array = hfta.fuse(models)
    sgd = hfta.optim.SGD(array, lr=0.1)
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.SGD(p, lr=0.1)) for lane, model in enumerate(models)]
    step = array.record(sgd, fn, plan=WIDE, **options)
    check_steps(array, solos, step, fn, data, steps)
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
