"""Arrays: models of one architecture, trained as one."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from . import _build, _checks, _core, steps
from ._core import PerLane, Plan
from ._errors import InvalidArgument
from ._retired import Retired
from ._turns import between_steps

if TYPE_CHECKING:
    from .optim import Optimizer

M = TypeVar("M", bound=nn.Module)


class Array(Generic[M]):
    """Lanes of one architecture, stored stacked; made by `hfta.fuse`.

    Each lane is an ordinary module whose tensors are rows of the stacked ones: to run, read or write the module is to run, read or write
    the array. `fn` is everywhere written for one model: shapes without a lane axis, a scalar loss. Inputs are tensors that all lanes
    share, or `hfta.per_lane(x)` with a leading lane axis, or nests of them (dicts, tuples).

    Frozen parameters, and buffers of frozen parts, that are equal in all lanes are stored and computed with once, so that many adapters
    or heads stand on one trunk. Where a lane's is written (loaded, changed in place, updated by the model itself) or thawed, each lane
    has its own from then on.

    Example:
        >>> array = hfta.fuse(Net, lanes=32)
        >>> adam = hfta.optim.Adam(array, lr=torch.logspace(-4, -1, 32))
        >>> step = array.record(adam, lambda net, x, y: F.cross_entropy(net(x), y))
        >>> losses = step(x, y)      # [32]
        >>> best = array.lane(int(losses.argmin()))
    """

    def __init__(self, build: Callable[[int], M], seeds: list[int]):
        _core.check_between_steps("hfta.fuse")
        self._modules: list[M] = []
        self._plan: Plan | None = None
        self._recorded: dict[Any, Any] = {}
        self._steps: weakref.WeakSet[steps.RecordedStep] = weakref.WeakSet()
        self._core = _core.Array(self._modules, self._checked(build), seeds)
        self._take_stacks()

    def _checked(self, build: Callable[[int], M]) -> Callable[[int], M]:
        def checked(lane: int) -> M:
            module = build(lane)
            if self._modules:
                _build.check_kinds(self._modules[0], module, lane)
            return module

        return checked

    def _take_stacks(self) -> None:
        before = getattr(self, "_parameters", {})
        self._parameters = {name: tensor for name, tensor, _ in self._core.parameters()}
        for name, tensor in before.items():
            if tensor is not self._parameters.get(name):
                tensor.__class__ = Retired
        for tensor in self._parameters.values():
            setattr(tensor, "_hfta_array", weakref.ref(self))  # noqa: B010  (how an optimizer knows whose it is)

    # ---- what it is

    @property
    def lanes(self) -> int:
        """Number of lanes."""
        return self._core.lanes

    @property
    def seeds(self) -> list[int]:
        """Each lane's seed."""
        return self._core.seeds

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return torch.device(self._core.device)

    @property
    def training(self) -> bool:
        """Whether lane 0 is in training mode."""
        return self._modules[0].training

    @property
    def plan(self) -> Plan:
        """How recorded functions of this array run: what was set, else an even share of the lanes per core."""
        if self._plan is not None:
            return self._plan
        cores = min(torch.get_num_threads(), self.lanes)
        return Plan(width=-(-self.lanes // cores), workers=cores, intra_op_threads=1)

    @plan.setter
    def plan(self, plan: Plan | None) -> None:
        steps._check_plan(plan, "hfta.Array")
        if plan is not None:
            plan.validate(self.lanes)
        self._plan = plan

    def __len__(self) -> int:
        return self.lanes

    def __iter__(self) -> Iterator[M]:
        return iter(list(self._modules))

    def __repr__(self) -> str:
        name = type(self._modules[0]).__name__
        return f"hfta.Array({self.lanes} lanes of {name}, {len(self._parameters)} parameters, on {self.device})"

    def report(self) -> str:
        """What is recorded and how it is fused, a few lines."""
        lines = [repr(self), f"plan: {self.plan!r}"]
        if shared := self._core.lane_shared(0):
            lines.append(f"stored once for all lanes: {len(shared)} tensors that no lane trains, {self._core.shared_bytes:,} bytes")
        for recorded in (*self._steps, *self._recorded.values()):
            lines += [f"{recorded.name}:", *("  " + line for line in recorded.report().splitlines())]
        return "\n".join(lines)

    # ---- tensors

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Names as in the single module and stacked leaves `[lanes, ...]`, whose `.grad` is the stacked gradient; tied ones once.

        What is stored once for all lanes repeats by a stride of 0, and is to be written through the lanes.
        """
        self._core.settle()
        yield from self._parameters.items()

    def parameters(self) -> Iterator[Tensor]:
        """The stacked leaves: a stock optimizer over them trains all lanes, after `backward`."""
        self._core.settle()
        yield from self._parameters.values()

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Names and stacked buffers `[lanes, ...]`."""
        for name, tensor, _ in self._core.buffers():
            yield name, tensor

    def buffers(self) -> Iterator[Tensor]:
        """The stacked buffers."""
        for _, tensor in self.named_buffers():
            yield tensor

    @between_steps
    def zero_grad(self) -> None:
        """Clears the stacked gradients and the lanes' own."""
        self._core.zero_grad()

    # ---- running

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The models' outputs for these inputs, stacked `[lanes, ...]`, without gradients, in the present mode (`train` or `eval`).

        To train, give the function with the loss to `train_step`, `record` or `backward`.
        """
        return steps.outputs(self, inputs, named)

    def evaluate(self, fn: Callable[..., Any], *inputs: Any, recorded: bool = False) -> Any:
        """`fn(model, *inputs)` for every lane without gradients, in the present mode.

        Args:
            fn: returns any nest of tensors (dict, tuple, dataclass of `torch.utils._pytree`).
            recorded: replays `fn` fused, recorded at its first call; give the same function object each time.

        Returns:
            What `fn` returns, each tensor stacked `[lanes, ...]`.

        Example:
            >>> accuracy = array.evaluate(lambda net, x, y: (net(x).argmax(1) == y).float().mean(), x, y)   # [lanes]
        """
        return steps.evaluate(self, fn, *inputs, recorded=recorded)

    def backward(self, fn: Callable[..., Any], *inputs: Any, recorded: bool = False) -> Any:
        """Forward and backward of every lane: adds to the stacked gradients, updates nothing.

        Args:
            fn: as for `train_step`.
            recorded: replays `fn` fused, recorded at its first call; give the same function object each time.

        Returns:
            The losses `[lanes]`, or `(losses, extras)` where `fn` returns extras.

        Raises:
            Unsupported: `recorded`, and the function cannot be recorded.

        Example:
            >>> losses = array.backward(loss_of, x, y)
            >>> next(array.parameters()).grad      # [lanes, ...]
        """
        return steps.backward(self, fn, *inputs, recorded=recorded)

    def train_step(self, optimizer: Optimizer, fn: Callable[..., Any], *inputs: Any, max_norm: Any = None) -> Any:
        """One plain training step of every lane: its own module runs `fn`, backward, and the optimizer's update of that lane.

        Args:
            optimizer: one of `hfta.optim`, made for this array.
            fn: `fn(model, *inputs)` returns the scalar loss, or `(loss, extras)` with any nest of tensors.
            max_norm: clips each lane's gradient norm before the update; one number, or one per lane.

        Returns:
            The losses `[lanes]`, or `(losses, extras)` with each extra stacked.

        Raises:
            InvalidArgument (a ValueError): a loss that is no scalar, an input on another device, another array's optimizer.

        Example:
            >>> losses = array.train_step(adam, lambda net, x, y: F.cross_entropy(net(x), y), x, y)
        """
        return steps.train_step(self, optimizer, fn, *inputs, max_norm=max_norm)

    def record(self, optimizer: Optimizer, fn: Callable[..., Any], **options: Any) -> steps.RecordedStep:
        """A training step that is recorded once per shape of its inputs, fused and replayed from then on; see `hfta.record`."""
        return steps.record(self, optimizer, fn, **options)

    @between_steps
    def train(self, mode: bool = True) -> Array[M]:
        """Sets the training mode of all lanes."""
        self._core.train(mode)
        return self

    def eval(self) -> Array[M]:
        """Sets the evaluation mode of all lanes."""
        return self.train(False)

    @between_steps
    def to(self, target: torch.device | torch.dtype | str | int) -> Array[M]:
        """Moves all tensors to a device, or converts the floating ones to a type; the lanes' modules follow.

        Raises:
            Unsupported: the device is not there.
        """
        if isinstance(target, torch.dtype):
            self._core.to_type(target)
        else:
            self._core.to_device(_build.device_of(target))
        self._take_stacks()
        return self

    # ---- lanes

    def lane(self, index: int, copy: bool = False) -> M:
        """The lane's own plain module.

        Its tensors are rows of the array, so both change together; with `copy=True` they are a module's own, which saves and pickles
        alone. A module that `keep` dropped has tensors of its own from then on.

        Raises:
            IndexError: there is no such lane.
        """
        index = self._index(index)
        return self._free_copy(index) if copy else self._modules[index]

    def _index(self, index: int) -> int:
        lane = _checks.whole(index, "hfta.Array", "a lane")
        if not -self.lanes <= lane < self.lanes:
            raise IndexError(f"hfta.Array: expected a lane from 0 to {self.lanes - 1}, got {lane}")
        return lane % self.lanes

    def _free_copy(self, lane: int, shared: list[Tensor] | None = None) -> M:
        """The lane's module with tensors of its own; those that all lanes share are these, where they are given."""
        memo = {} if shared is None else {id(tensor): own for tensor, own in zip(self._core.lane_shared(lane), shared)}
        return _build.free_copy(self._modules[lane], memo)

    def lane_state_dict(self, index: int) -> dict[str, Any]:
        """The lane's plain state dict, with copies of its tensors: saves alone and loads strictly in stock PyTorch."""
        state = self._modules[self._index(index)].state_dict()
        for name, value in state.items():
            if isinstance(value, Tensor):
                state[name] = value.detach().clone()
        return state

    @between_steps
    def load_lane_state_dict(self, index: int, state: dict[str, Any]) -> None:
        """Writes a single model's state dict into a lane.

        Raises:
            InvalidArgument (a ValueError): a key, shape or type does not fit; nothing is written then.
        """
        index = self._index(index)
        _checks.mapping(state, "hfta.load_lane_state_dict", "a state dict")
        module = self._modules[index]
        known = module.state_dict()
        for name, value in state.items():
            here = known.get(name)
            if isinstance(value, Tensor) and isinstance(here, Tensor) and value.dtype != here.dtype:
                raise InvalidArgument(f'hfta.load_lane_state_dict: expected "{name}" as {here.dtype}, got {value.dtype}')
        try:
            self._free_copy(index).load_state_dict(state)
        except RuntimeError as error:
            lines = " ".join(line.strip() for line in str(error).splitlines())
            raise InvalidArgument(f"hfta.load_lane_state_dict: lane {index}: {lines}") from None
        module.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """All lanes' state: seeds, stacked tensors (the array's own, as torch's `state_dict` gives), generators."""
        return self._core.state_dict()

    @between_steps
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The way back, into an array with the same seeds.

        Raises:
            InvalidArgument (a ValueError): something does not fit; nothing is written then.
        """
        self._core.load_state_dict(state)

    @between_steps
    def keep(self, indices: Iterable[int]) -> None:
        """Keeps these lanes, in this order, or those of a mask of booleans; optimizers and recorded steps follow.

        Modules of dropped lanes keep a copy of their tensors of their own.

        Raises:
            IndexError: there is no such lane.
            InvalidArgument (a ValueError): no lane, a lane twice, a mask of another length.

        Example:
            >>> array.keep(losses.topk(4, largest=False).indices)
            >>> array.keep(losses < 2)
        """
        given = _checks.several(getattr(indices, "tolist", lambda: indices)(), "hfta.Array.keep", "lanes")
        if given and all(isinstance(entry, bool) for entry in given):
            if len(given) != self.lanes:
                raise InvalidArgument(f"hfta.Array.keep: expected a mask of {self.lanes} lanes, got {len(given)}")
            given = [lane for lane, stays in enumerate(given) if stays]
        kept = [self._index(i) for i in given]
        self._core.keep(kept)
        self._modules[:] = [self._modules[i] for i in kept]
        self._take_stacks()
        self._fit_plan()

    @between_steps
    def append(self, models: Sequence[M] | Callable[..., M], *, lanes: int | None = None, seeds: Iterable[int] | None = None) -> None:
        """Adds lanes behind the last one: copies of models, or built by a factory, as in `hfta.fuse`; where that fails the array is as before.

        Hyper-parameters that were given as lists must be set for the new lanes before their first update.

        Raises:
            InvalidArgument (a ValueError): a model of another structure, a wrong number of seeds.

        Example:
            >>> array.append([Net(), Net()])
            >>> array.append(Net, seeds=[7, 8])
        """
        before = self.lanes
        seeds = None if seeds is None else _build.seeds_of(seeds, "hfta.Array.append")
        if callable(models) and not isinstance(models, nn.Module):
            count = _checks.whole(lanes, "hfta.Array.append", "lanes", 1) if lanes is not None else len(seeds) if seeds is not None else 1
            build: Callable[[int], M] = _build.from_factory(models)
        else:
            given = _build.models_of(models, "hfta.Array.append", before, lanes)
            copies, count = _build.from_models(given), len(given)
            build = lambda lane: cast(M, copies(lane - before))
        new = list(range(before, before + count)) if seeds is None else seeds
        if len(new) != count:
            raise InvalidArgument(f"hfta.Array.append: expected {count} seeds (one per new lane), got {len(new)}")
        try:
            self._core.append(self._checked(build), new)
        except BaseException:
            del self._modules[before:]
            raise
        self._take_stacks()

    @between_steps
    def copy_lane(self, source: int, target: int) -> None:
        """Overwrites lane `target` with lane `source`: tensors, gradients, generator; optimizers follow (IndexError: no such lane)."""
        self._core.copy_lane(self._index(source), self._index(target))

    def _fit_plan(self) -> None:
        if self._plan is not None and self._plan.width > self.lanes:
            self._plan = self._plan.fitted(self.lanes)

    def __getstate__(self) -> dict[str, Any]:
        generators = [self._core.generator_state(lane) for lane in range(self.lanes)]
        shared: list[Tensor] = [copy.deepcopy(tensor) for tensor in self._core.lane_shared(0)]
        modules = [self._free_copy(lane, shared) for lane in range(self.lanes)]
        return {"modules": modules, "seeds": self.seeds, "generators": generators, "plan": self._plan}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(_build.from_models(state["modules"]), state["seeds"])  # type: ignore[misc]
        for lane, generator in enumerate(state["generators"]):
            self._core.set_generator_state(lane, generator)
        self._plan = state["plan"]

    def __deepcopy__(self, memo: dict[int, Any]) -> Array[M]:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(self.__getstate__())
        return copied
