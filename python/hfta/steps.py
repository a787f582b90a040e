"""Steps of arrays: plain and recorded. Each function takes one array, or several as a tuple: `fn` then gets a model of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Union

from torch import Tensor

from . import _checks, _core, _recording, _watch, padding
from ._core import PerLane, Plan
from ._errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from .array import Array
    from .optim import Optimizer

Arrays = Union["Array[Any]", Sequence["Array[Any]"]]


def per_lane(tensor: Tensor) -> PerLane:
    """Marks an input with a leading lane axis: lane `i` gets `tensor[i]`. What is not marked is shared by all lanes.

    Example:
        >>> losses = step(hfta.per_lane(torch.randn(lanes, 32, 784)), targets)

    Raises:
        InvalidArgument (a ValueError): something else than a tensor.
    """
    if not isinstance(tensor, Tensor):
        raise InvalidArgument(f"hfta.per_lane: expected a tensor [lanes, ...], got {type(tensor).__name__} (lists: torch.stack)")
    return PerLane(tensor)


def _list_of(arrays: Arrays, who: str) -> list[Array[Any]]:
    from .array import Array

    several: list[Any] = list(arrays) if isinstance(arrays, (tuple, list)) else [arrays]
    for array in several:
        if not isinstance(array, Array):
            raise InvalidArgument(f"{who}: expected arrays made by hfta.fuse, got {type(array).__name__}")
    if not several:
        raise InvalidArgument(f"{who}: expected at least one array, got none")
    return several


def _cores(arrays: list[Array[Any]]) -> list[_core.Array]:
    return [array._core for array in arrays]


def _check_plan(plan: Any, who: str) -> None:
    if plan is not None and not isinstance(plan, Plan):
        raise InvalidArgument(f"{who}: expected plan as an hfta.Plan, got {plan!r}")


def _check_optimizer(optimizer: Any, who: str) -> None:
    from .optim import Optimizer

    if not isinstance(optimizer, Optimizer):
        raise InvalidArgument(
            f"{who}: expected an optimizer of hfta.optim, got {type(optimizer).__module__}.{type(optimizer).__name__} "
            "(a stock one works on array.parameters() with array.backward)"
        )


def train_step(arrays: Arrays, optimizer: Optimizer, fn: Callable[..., Any], *inputs: Any, max_norm: Any = None) -> Any:
    """One plain training step of every lane; see `Array.train_step`. The optimizer's array is updated, one of `arrays`.

    Example:
        >>> losses = hfta.train_step((generator, discriminator), optimizer, lambda g, d, z: d(g(z)).mean(), z)
    """
    _check_optimizer(optimizer, "hfta.train_step")
    several = _list_of(arrays, "hfta.train_step")
    _checks.function(fn, "hfta.train_step")
    limit = _limits(max_norm, several[0].lanes)
    return _core.train_step(_cores(several), optimizer._core, fn, list(inputs), limit)


def backward(arrays: Arrays, fn: Callable[..., Any], *inputs: Any, recorded: bool = False) -> Any:
    """Forward and backward of every lane; adds to the stacked gradients of all these arrays. See `Array.backward`.

    Example:
        >>> losses = hfta.backward((generator, discriminator), lambda g, d, z: d(g(z)).mean(), z)      # [lanes]
    """
    several = _list_of(arrays, "hfta.backward")
    _checks.function(fn, "hfta.backward")
    if not recorded:
        return _core.backward(_cores(several), fn, list(inputs))
    return _kept(several, fn, "backward", lambda: RecordedBackward(several, fn))(*inputs)


def evaluate(arrays: Arrays, fn: Callable[..., Any], *inputs: Any, recorded: bool = False) -> Any:
    """`fn(*models, *inputs)` for every lane without gradients; see `Array.evaluate`.

    Example:
        >>> scores = hfta.evaluate((generator, discriminator), lambda g, d, z: d(g(z)), z)      # [lanes, ...]
    """
    several = _list_of(arrays, "hfta.evaluate")
    _checks.function(fn, "hfta.evaluate")
    if not recorded:
        return _core.evaluate(_cores(several), fn, list(inputs))
    return _kept(several, fn, "evaluate", lambda: RecordedEvaluation(several, fn))(*inputs)


def outputs(array: Array[Any], inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What the models give for these arguments, stacked; named ones that are no tensors stay as they are."""
    tensors = {name: value for name, value in named.items() if isinstance(value, (Tensor, PerLane))}
    fixed = {name: value for name, value in named.items() if name not in tensors}

    def forward(model: Any, given: tuple[Any, ...], by_name: dict[str, Any]) -> Any:
        return model(*given, **by_name, **fixed)

    if not named:
        return evaluate(array, lambda model, *given: model(*given), *inputs)
    return evaluate(array, forward, inputs, tensors)


def _kept(arrays: list[Array[Any]], fn: Callable[..., Any], kind: str, make: Callable[[], Any]) -> Any:
    """The recorded function of `fn`, kept with the first array."""
    known = arrays[0]._recorded
    key = (kind, fn, *(id(array) for array in arrays))
    if key not in known:
        while len(known) >= _MOST_KEPT:
            del known[next(iter(known))]
        code = getattr(fn, "__code__", None)
        if code and sum(getattr(other[1], "__code__", None) is code for other in known) >= _MOST_ALIKE:
            warnings.warn(f"hfta.{kind}: {fn.__qualname__} is recorded anew at each call: give the same function object each time", stacklevel=4)
        known[key] = make()
    return known[key]


_MOST_KEPT = 16
_MOST_ALIKE = 3  # of one piece of code: a lambda that is made at each call


def record(
    arrays: Arrays,
    optimizer: Optimizer,
    fn: Callable[..., Any],
    *,
    max_norm: Any = None,
    accumulate: int = 1,
    plan: Plan | None = None,
    freeze_captured: bool = False,
    limit: int = 8,
    pad: padding.Pads = (),
) -> RecordedStep:
    """A training step that is recorded once per shape of its inputs, fused over the lanes, and replayed from then on.

    At a new shape `fn` runs once per lane, and what the device did, forward and backward, is taken down: replays run no Python. The
    first replays are checked against plain steps. Recording leaves no trace on the lanes. A plan is chosen by timing, so that the step is
    never slower than the lanes one after the other.

    Args:
        arrays: one array, or a tuple of them; `fn` gets a model of each. The optimizer's array is updated.
        fn: as for `Array.train_step`. Tensors must be arguments, parameters, buffers or made inside; what is captured is refused.
        max_norm: clips each lane's gradient norm before the update; one number, or one per lane.
        accumulate: updates once every so many calls, with the sum of their gradients.
        plan: group width, workers and threads. Where neither it nor `array.plan` was set, the second call times a second's worth of plans
            on copies, one lane after the other by plain steps among them, and takes the fastest: where fusing does not pay, `report()`
            says "do not fuse here" and by how much, and the step runs plainly. Another plan rounds otherwise, so set one where runs must
            agree bit by bit.
        freeze_captured: takes captured tensors as constants instead.
        limit: recordings kept, one per shape of the inputs and per Python values that `fn` reads; the least recently used is dropped.
        pad: an `hfta.Pad` or None per input, so that inputs of many lengths take few shapes.

    Returns:
        A callable that gives what `train_step` gives.

    Raises:
        Unsupported (at a call): the step cannot be recorded; the message says why. Nothing has changed then.

    Example:
        >>> step = hfta.record(array, adam, lambda net, x, y: F.cross_entropy(net(x), y))
        >>> losses = step(x, y)
    """
    several = _list_of(arrays, "hfta.record")
    return RecordedStep(several, optimizer, fn, max_norm, accumulate, plan, pad, freeze_captured=freeze_captured, limit=limit)


class _Recorded:
    """What recorded functions have in common."""

    def __init__(self, arrays: list[Array[Any]], fn: Callable[..., Any], freeze_captured: bool = False, limit: int = 8):
        _checks.function(fn, "hfta.record")
        limit = _checks.whole(limit, "hfta.record", "limit", 1)
        self._arrays, self._fn = arrays, fn
        values = _watch.Values(fn, [array._modules for array in arrays])
        self._base = _core.Recorded(_recording.guarded(fn), _cores(arrays), values.collect, values.name, freeze_captured, limit)

    @property
    def name(self) -> str:
        return getattr(self._fn, "__name__", type(self._fn).__name__)

    def __reduce__(self) -> Any:
        raise TypeError(f"hfta: a {type(self).__name__} cannot be pickled or copied: record anew from the array")


class RecordedStep(_Recorded):
    """A recorded training step, made by `hfta.record`.

    Raises:
        Unsupported (at a call): the step cannot be recorded, see `hfta.record`.
        InvalidArgument (at a call): inputs that do not fit, a loss that is no scalar.

    Example:
        >>> step = array.record(adam, loss_of)
        >>> losses = step(x, y)      # [lanes]
        >>> print(step.report())
    """

    def __init__(
        self,
        arrays: list[Array[Any]],
        optimizer: Optimizer,
        fn: Callable[..., Any],
        max_norm: Any = None,
        accumulate: int = 1,
        plan: Plan | None = None,
        pad: padding.Pads = (),
        **recording: Any,
    ):
        _check_optimizer(optimizer, "hfta.record")
        _check_plan(plan, "hfta.record")
        padding.check(pad, "hfta.record")
        self._pads = tuple(pad)
        super().__init__(arrays, fn, **recording)
        limit = _limits(max_norm, arrays[0].lanes)
        accumulate = _checks.whole(accumulate, "hfta.record", "accumulate", 1)
        self._optimizer = optimizer
        self._core = _core.RecordedStep(self._base, optimizer._core, limit, accumulate, plan or arrays[0]._plan, fn)
        arrays[0]._steps.add(self)

    def __call__(self, *inputs: Any) -> Any:
        """One step of every lane: the losses `[lanes]`, or `(losses, extras)`."""
        return self._core(*padding.padded(inputs, self._pads)) if self._pads else self._core(*inputs)

    def run(self, batches: Iterable[Sequence[Any]]) -> list[Any]:
        """Several steps in one call: a step on each batch in turn, bit for bit as many calls.

        A group of lanes trains on all these batches before its worker takes the next group: its weights and optimizer state come from
        memory once, not once a step, and workers meet once. Small models gain most. Hyper-parameters and Python values are those of the
        moment of the call, so step learning rate schedules between calls.

        Args:
            batches: the inputs of each step, as a tuple or list each. All are held until the call ends.

        Returns:
            What each step gives: its losses `[lanes]`, or `(losses, extras)`.

        Raises:
            Unsupported: a step cannot be recorded; those before it were made.

        Example:
            >>> for batches in itertools.batched(loader, 8):
            ...     losses = torch.stack(step.run(batches))  # [8, lanes]
        """
        batches = _checks.several(batches, "hfta.RecordedStep.run", "batches")
        for batch in batches:
            if not isinstance(batch, (tuple, list)):
                raise InvalidArgument(f"hfta.RecordedStep.run: expected the inputs of each step as a tuple or list, got {type(batch).__name__}")
        return self._core.run([padding.padded(tuple(batch), self._pads) for batch in batches])

    @property
    def plan(self) -> Plan:
        """How it runs; may be set, from the next call on."""
        return self._core.plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        if not isinstance(plan, Plan):
            raise InvalidArgument(f"hfta.RecordedStep: expected plan as an hfta.Plan, got {plan!r}")
        plan.validate(self._arrays[0].lanes)
        self._core.plan = plan

    @property
    def pending(self) -> int:
        """Calls whose gradients wait for the update."""
        return self._core.pending

    def report(self) -> str:
        """What is fused and how, what is not and why, and how the plan was chosen; a few lines."""
        return self._core.report() + (f"plan: {self._core.choice.rstrip()}\n" if self._core.choice else "")

    def program(self, repeats: int = 0) -> str:
        """The programs in use, one node per line; with each node's time over so many replays on copies of the state."""
        return self._core.print(repeats)


class RecordedEvaluation(_Recorded):
    """A recorded function without gradients."""

    def __init__(self, arrays: list[Array[Any]], fn: Callable[..., Any], plan: Plan | None = None, **recording: Any):
        super().__init__(arrays, fn, **recording)
        self._core = _core.RecordedEvaluation(self._base, plan or arrays[0].plan)

    def __call__(self, *inputs: Any) -> Any:
        return self._core(*inputs)

    def report(self) -> str:
        return self._core.report()


class RecordedBackward(_Recorded):
    """A recorded forward and backward pass."""

    def __init__(self, arrays: list[Array[Any]], fn: Callable[..., Any], plan: Plan | None = None, **recording: Any):
        super().__init__(arrays, fn, **recording)
        self._core = _core.RecordedBackward(self._base, plan or arrays[0].plan)

    def __call__(self, *inputs: Any) -> Any:
        return self._core(*inputs)

    def report(self) -> str:
        return self._core.report()


def clip_grad_norm_(
    array: Array[Any], max_norm: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Clips each lane's gradient norm, as `torch.nn.utils.clip_grad_norm_` does for one model.

    Args:
        max_norm: one number, or one per lane.

    Returns:
        The norms before, `[lanes]`.

    Raises:
        Unsupported: another norm than the 2-norm, or an option that is not there.

    Example:
        >>> array.backward(loss_of, x, y)
        >>> norms = hfta.clip_grad_norm_(array, max_norm=1.0)
        >>> adam.step()
    """
    several = _list_of(array, "hfta.clip_grad_norm_")
    if len(several) != 1:
        raise InvalidArgument(f"hfta.clip_grad_norm_: expected one array, got {len(several)}")
    for name, wrong in (("norm_type", float(norm_type) != 2.0), ("error_if_nonfinite", error_if_nonfinite), ("foreach", foreach)):
        if wrong:
            raise Unsupported(f"hfta.clip_grad_norm_: expected the 2-norm without options, got {name}={locals()[name]!r}")
    limits = _limits(max_norm, several[0].lanes)
    assert limits is not None
    return _core.clip_gradients(several[0]._core, limits)


def _limits(max_norm: Any, lanes: int) -> float | list[float] | None:
    """Largest norms, refused before anything runs."""
    if max_norm is None:
        return None
    limits = _numbers(max_norm, lanes, "max_norm")
    for limit in limits if isinstance(limits, list) else [limits]:
        if not limit >= 0:
            raise InvalidArgument(f"hfta: expected max_norm of at least 0, got {limit}")
    return limits


def _numbers(value: Any, lanes: int, what: str) -> float | list[float]:
    """One number, or one per lane."""
    if isinstance(value, Tensor) or hasattr(value, "__array__"):
        value = value.tolist()
    if isinstance(value, (int, float)):
        return float(value)
    try:
        values = [float(entry) for entry in value]
    except (TypeError, ValueError):
        raise InvalidArgument(f"hfta: expected {what} as one number or {lanes} (one per lane), got {value!r}") from None
    if len(values) != lanes:
        raise InvalidArgument(f"hfta: expected {what} as one number or {lanes} (one per lane), got {len(values)}")
    return values
