"""Optimizers of arrays, with the signatures of `torch.optim`; every hyper-parameter is one number, or one per lane.

adam = hfta.optim.Adam(array, lr=[1e-2, 1e-3, 1e-4], weight_decay=1e-4)
"""

from typing import Any

from . import lr_scheduler
from .optimizer import SGD, Adadelta, Adam, AdamW, Optimizer

__all__ = ["SGD", "Adadelta", "Adam", "AdamW", "Optimizer", "lr_scheduler"]


def __getattr__(name: str) -> Any:
    raise AttributeError(f'hfta.optim: expected one of {", ".join(n for n in __all__ if n[0].isupper())}, got "{name}"')
