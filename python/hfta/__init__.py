"""Trains an array of models for about the cost of one.

import hfta, torch.nn.functional as F

array = hfta.fuse([Net() for _ in range(32)])
adam = hfta.optim.Adam(array, lr=learning_rates)          # one number, or one per lane
step = array.record(adam, lambda net, x, y: F.cross_entropy(net(x), y))
for x, y in loader:
    losses = step(x, y)                                   # [32]
best = array.lane(int(losses.argmin()))                   # a plain torch.nn.Module
"""

import torch  # first: the binding needs its libraries

from . import _torch_version

_torch_version.check(torch.__version__)

from . import _core, _recording, _tree, optim
from ._core import PerLane, Plan, Trial
from ._errors import Error, InvalidArgument, Unsupported
from ._sweeping import SweepOptions
from .array import Array
from .fusing import fuse
from .padding import Pad
from .records import Callback, EarlyStop, EpochReport, LaneRecord, StepReport
from .space import Distribution, choice, integer, logint, loguniform, quniform, uniform
from .steps import backward, clip_grad_norm_, evaluate, per_lane, record, train_step
from .study import Study, sweep
from .training import Trainer

_recording.install()
_core.use_trees(_tree)
__version__ = _core.version
int = integer  # as in the study file

__all__ = [
    "Array",
    "Callback",
    "Distribution",
    "EarlyStop",
    "EpochReport",
    "Error",
    "InvalidArgument",
    "LaneRecord",
    "Pad",
    "PerLane",
    "Plan",
    "StepReport",
    "Study",
    "SweepOptions",
    "Trainer",
    "Trial",
    "Unsupported",
    "backward",
    "choice",
    "clip_grad_norm_",
    "evaluate",
    "fuse",
    "integer",
    "logint",
    "loguniform",
    "optim",
    "per_lane",
    "quniform",
    "record",
    "sweep",
    "train_step",
    "uniform",
]
