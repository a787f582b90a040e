"""What the tests of the Python package share."""

from __future__ import annotations

import pytest
import torch

import hfta  # noqa: F401

torch.set_num_threads(1)  # other tests run beside these


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    yield
    assert torch._C._len_torch_dispatch_stack() == 0, "a mode was left on torch's stack"
