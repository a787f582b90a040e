"""What the tests of the Python package share."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

import hfta

os.environ["HFTA_PLAN_CACHE"] = "off"  # tests neither read nor write the plans that the user's runs have kept

torch.set_num_threads(1)  # other tests run beside these


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    yield
    assert torch._C._len_torch_dispatch_stack() == 0, "a mode was left on torch's stack"


@pytest.fixture
def array():
    return hfta.fuse([nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(3)])


@pytest.fixture
def sgd(array):
    return hfta.optim.SGD(array, lr=[0.1, 0.2, 0.3])
