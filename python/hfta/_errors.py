"""The library's errors as Python's."""

from . import _core


class Error(RuntimeError):
    """Any failure that hfta reports (a RuntimeError); the message is one line: what was expected, and what came instead."""


class InvalidArgument(Error, ValueError):
    """The caller gave something wrong (a ValueError too)."""


class Unsupported(Error, NotImplementedError):
    """What was asked is right but cannot be done here (a NotImplementedError too): a step that cannot be recorded, with the reason.

    Example:
        >>> try:
        ...     losses = step(x, y)
        ... except hfta.Unsupported as why:
        ...     losses = array.train_step(adam, loss_of, x, y)
    """


_core.set_errors(Error, InvalidArgument, Unsupported)
