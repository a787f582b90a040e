"""Trains an array of models for about the cost of one.

import hfta, torch.nn.functional as F

array = hfta.fuse([Net() for _ in range(32)])
adam = hfta.optim.Adam(array, lr=learning_rates)          # one number, or one per lane
step = array.record(adam, lambda net, x, y: F.cross_entropy(net(x), y))
for x, y in loader:
    losses = step(x, y)                                   # [32]
best = array.lane(int(losses.argmin()))                   # a plain torch.nn.Module
"""

import torch  # noqa: F401  (first: the binding needs its libraries)

from . import _core, _recording, _tree, optim
from ._core import PerLane, Plan
from ._errors import Error, InvalidArgument, Unsupported
from .array import Array
from .fusing import fuse
from .steps import backward, clip_grad_norm_, evaluate, per_lane, record, train_step

_recording.install()
_core.use_trees(_tree)
__version__ = _core.version

__all__ = [
    "Array",
    "Error",
    "InvalidArgument",
    "PerLane",
    "Plan",
    "Unsupported",
    "backward",
    "clip_grad_norm_",
    "evaluate",
    "fuse",
    "optim",
    "per_lane",
    "record",
    "train_step",
]
