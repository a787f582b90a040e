"""The library's errors as Python's."""

from . import _core


class Error(RuntimeError):
    """Any failure that hfta reports; the message is one line."""


class InvalidArgument(Error, ValueError):
    """The caller gave something wrong."""


class Unsupported(Error, NotImplementedError):
    """What was asked is right but cannot be done here: a step that cannot be recorded, with the reason."""


_core.set_errors(Error, InvalidArgument, Unsupported)
