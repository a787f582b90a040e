"""The optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from torch import Tensor

from .. import _checks, _core
from .._errors import InvalidArgument, Unsupported
from .._turns import alone
from ..steps import _numbers

if TYPE_CHECKING:
    from ..array import Array

Number = Union[float, Sequence[float], Tensor]
#: An array; its stacked parameters; or parameter groups as dicts, whose "params" are stacked parameters.
Params = Union["Array[Any]", Iterable[Tensor], Iterable[Mapping[str, Any]]]

#: Further groups of an array's parameters with values of their own: dicts whose "params" are stacked parameters, names, or a function of a
#: name. An earlier group takes first; what none takes has the optimizer's own values.
Groups = Sequence[Mapping[str, Any]]

_PAIRS = {"betas": ("beta1", "beta2")}  # what torch gives as one value and the library as two


def _without_params(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def _array_of(params: Any) -> Array[Any] | None:
    """The array that a stacked parameter belongs to, alone or with its name."""
    from ..array import Array

    if isinstance(params, Array):
        return params
    if isinstance(params, tuple) and len(params) == 2:
        params = params[1]
    owner = getattr(params, "_hfta_array", None) if isinstance(params, Tensor) else None
    return owner() if owner is not None else None


class ParameterGroup(MutableMapping[str, Any]):
    """One of an optimizer's `param_groups`: a hyper-parameter is a number where all lanes have the same, else a list with one per lane.

    Example:
        >>> adam.param_groups[0]["lr"] = 1e-4
        >>> adam.param_groups[0]["lr"] = [1e-3, 1e-4]
    """

    def __init__(self, optimizer: Optimizer, index: int):
        self._optimizer, self._index = optimizer, index

    def __getitem__(self, name: str) -> Any:
        core = self._optimizer._core
        if name == "params":
            return self._optimizer._members(self._index)
        if name in self._optimizer._flags:
            return self._optimizer._flags[name]
        if name in _PAIRS and name in self._optimizer._names:
            return tuple(_shown(core.get(part, self._index)) for part in _PAIRS[name])
        if name not in self._optimizer._names:
            raise KeyError(name)
        return _shown(core.get(name, self._index))

    def __setitem__(self, name: str, value: Any) -> None:
        optimizer = self._optimizer
        _core.check_between_steps(f"hfta.optim.{type(optimizer).__name__}: {name}")
        if name not in optimizer._names:
            known = ", ".join(optimizer._names)
            raise InvalidArgument(f'hfta.optim.{type(optimizer).__name__}: expected one of {known} to be set, got "{name}"')
        for part, numbers in _hypers({name: value}, optimizer.array.lanes).items():
            optimizer._core.set(part, numbers, self._index)

    def __delitem__(self, name: str) -> None:
        raise InvalidArgument(f'hfta.optim: expected parameter groups to keep their entries, got a removal of "{name}"')

    def __iter__(self) -> Iterator[str]:
        return iter(("params", *self._optimizer._names, *self._optimizer._flags))

    def __len__(self) -> int:
        return 1 + len(self._optimizer._names) + len(self._optimizer._flags)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.items() if name != "params")
        return f"ParameterGroup({len(self['params'])} parameters, {inner})"


def _shown(values: list[float]) -> float | list[float]:
    return values[0] if all(value == values[0] for value in values) else values


def _hypers(values: Mapping[str, Any], lanes: int) -> dict[str, Any]:
    """Torch's names and values as the library's."""
    result = {}
    for name, value in values.items():
        if name in _PAIRS:
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise InvalidArgument(f"hfta.optim: expected {name} as a pair, each one number or one per lane, got {value!r}")
            for part, entry in zip(_PAIRS[name], value):
                result[part] = _numbers(entry, lanes, part)
        else:
            result[name] = _numbers(value, lanes, name)
    return result


class Optimizer:
    """An optimizer of an array: each lane is updated with its own hyper-parameters, state and step count.

    Parameter groups: as in torch, or beside the array as `groups=[{"params": lambda name: "bias" in name, "weight_decay": 0}]`.

    Attributes:
        array: what it updates.
        param_groups: readable and writable, see `ParameterGroup`; what is set counts from the next step on, without recording anew.

    Example:
        >>> adam = hfta.optim.Adam(array, lr=1e-3, groups=[{"params": lambda name: "bias" in name, "weight_decay": 0}])
        >>> adam.param_groups[0]["lr"] = [1e-3, 1e-4, 1e-5]
    """

    _kind = ""

    def __init__(
        self, params: Params, hypers: dict[str, Any], flags: dict[str, bool], groups: Sequence[Mapping[str, Any]] = (), **refused: Any
    ):
        who = f"hfta.optim.{self._kind}"
        for name, value in refused.items():
            if value:
                raise Unsupported(f"{who}: expected none of {', '.join(refused)}, got {name}={value!r}")
        self._names, self._flags = tuple(hypers), flags
        self.array, chosen = self._groups(params, groups, who)
        lanes = self.array.lanes
        defaults = _hypers(hypers, lanes)
        overrides = []
        for names, values in chosen:
            unknown = [name for name in values if name not in hypers]
            if unknown:
                raise InvalidArgument(f'{who}: expected parameter groups with params, {", ".join(hypers)}, got "{unknown[0]}"')
            overrides.append((names, {**defaults, **_hypers(values, lanes)}))
        self._core = _core.Optimizer(self.array._core, self._kind, overrides[0][1], flags, overrides[1:])
        self.defaults = {**hypers, **flags}
        self.param_groups = [ParameterGroup(self, index) for index in range(len(overrides))]

    def _groups(
        self, params: Params, further: Sequence[Mapping[str, Any]], who: str
    ) -> tuple[Array[Any], list[tuple[set[str], dict[str, Any]]]]:
        """The array, and names and values of each group; the first one has what no further one takes."""
        array = _array_of(params)
        if array is not None:
            taken: set[str] = set()
            groups: list[tuple[set[str], dict[str, Any]]] = [(set(), {})]
            for group in further:
                names = _names_in(array, self._listed(group, who), who) - taken
                taken |= names
                groups.append((names, _without_params(group)))
            return array, groups
        given = list(params)  # type: ignore[arg-type]
        if not given:
            raise InvalidArgument(f"{who}: expected an array, its parameters or parameter groups, got an empty list")
        if not isinstance(given[0], Mapping):
            given = [{"params": given}]
        members = [self._listed(group, who) for group in given]
        array = next((found for group in members for found in map(_array_of, group) if found), None)
        if array is None:
            raise InvalidArgument(f"{who}: expected an array made by hfta.fuse or its stacked parameters, got other tensors")
        groups = [(_names_in(array, group, who), _without_params(whole)) for group, whole in zip(members, given)]
        taken = set()
        for names, _ in groups:
            if taken & names:
                raise InvalidArgument(f'{who}: expected each parameter in one group, got "{min(taken & names)}" in two')
            taken |= names
        left = [name for name, tensor in array.named_parameters() if name not in taken and tensor.requires_grad]
        if left:
            raise InvalidArgument(
                f'{who}: expected every trainable parameter in a group, got none with "{left[0]}": freeze what is not to be trained'
            )
        return array, groups

    @staticmethod
    def _listed(group: Any, who: str) -> list[Any]:
        if not isinstance(group, Mapping) or "params" not in group:
            raise InvalidArgument(f'{who}: expected parameter groups as dicts with "params", got {group!r}')
        params = group["params"]
        return [params] if isinstance(params, (Tensor, str)) or callable(params) else list(params)

    def _members(self, group: int) -> list[Tensor]:
        of = self._core.group_of_parameters()
        return [tensor for tensor, index in zip(self.array.parameters(), of) if index == group]

    def step(self, closure: None = None) -> None:
        """Updates all lanes from the gradients on the array (`array.backward`); parameters without one are skipped."""
        if closure is not None:
            raise Unsupported(f"hfta.optim.{self._kind}: expected step() without a closure, got one: use train_step or record")
        with alone(self.array, f"hfta.optim.{self._kind}.step"):
            self._core.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the stacked gradients and the lanes' own."""
        with alone(self.array, f"hfta.optim.{self._kind}.zero_grad"):
            if set_to_none:
                return self.array._core.zero_grad()
            self.array._core.stack_gradients()
            for gradient in [leaf.grad for leaf in self.array.parameters() if leaf.grad is not None]:
                gradient.zero_()

    def steps(self, lane: int) -> int:
        """Updates of the lane so far."""
        return self._core.steps(self.array._index(lane))

    def lane_state_dict(self, lane: int) -> dict[str, Any]:
        """The lane's state as `torch.optim`'s `state_dict()`: the stock optimizer of the single model loads it."""
        return self._core.lane_state_dict(self.array._index(lane))

    def load_lane_state_dict(self, lane: int, state: dict[str, Any]) -> None:
        """The way back.

        Raises:
            InvalidArgument (a ValueError): a shape or key does not fit; nothing is written then.
        """
        with alone(self.array, f"hfta.optim.{self._kind}.load_lane_state_dict"):
            self._core.load_lane_state_dict(self.array._index(lane), state)

    def state_dict(self) -> dict[str, Any]:
        """All lanes' state."""
        return {"name": self._kind, "lanes": [self.lane_state_dict(lane) for lane in range(self.array.lanes)]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The way back, into an optimizer of the same kind over as many lanes.

        Raises:
            InvalidArgument (a ValueError): another kind, other lanes, or shapes that do not fit.
        """
        _checks.mapping(state, f"hfta.optim.{self._kind}", "a state")
        if state.get("name") != self._kind or len(state.get("lanes", ())) != self.array.lanes:
            raise InvalidArgument(
                f"hfta.optim.{self._kind}: expected the state of a {self._kind} of {self.array.lanes} lanes, "
                f"got {state.get('name')} of {len(state.get('lanes', ()))}"
            )
        for lane, own in enumerate(state["lanes"]):
            self.load_lane_state_dict(lane, own)

    def __repr__(self) -> str:
        return f"hfta.optim.{self._kind}({self.array.lanes} lanes, {self.param_groups})"

    def __reduce__(self) -> Any:
        raise TypeError(f"hfta.optim.{self._kind}: cannot be pickled or copied: save its state_dict() beside the array")


def _names_in(array: Array[Any], group: list[Any], who: str) -> set[str]:
    by_id = {id(tensor): name for name, tensor in array.named_parameters()}
    known = set(by_id.values())
    names: set[str] = set()
    for entry in group:
        if isinstance(entry, Tensor):
            if id(entry) not in by_id:
                raise InvalidArgument(f"{who}: expected stacked parameters of one array, got another tensor of shape {list(entry.shape)}")
            names.add(by_id[id(entry)])
        elif callable(entry):
            names |= {name for name in known if entry(name)}
        elif isinstance(entry, tuple) and len(entry) == 2:  # (name, tensor), as from named_parameters()
            names.add(entry[0])
        elif entry in known:
            names.add(entry)
        else:
            raise InvalidArgument(f'{who}: expected one of the parameters {", ".join(sorted(known))}, got "{entry}"')
    return names


class SGD(Optimizer):
    """`torch.optim.SGD`: momentum, dampening, Nesterov; every number is one, or one per lane.

    Raises:
        InvalidArgument (a ValueError): a list of another length than there are lanes, a value out of range.
        Unsupported: `foreach`, `fused`, `differentiable`.

    Example:
        >>> sgd = hfta.optim.SGD(array, lr=[0.1, 0.03, 0.01], momentum=0.9, nesterov=True)
    """

    _kind = "SGD"

    def __init__(
        self,
        params: Params,
        lr: Number = 1e-3,
        momentum: Number = 0,
        dampening: Number = 0,
        weight_decay: Number = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        groups: Groups = (),
    ):
        hypers = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        flags = {"nesterov": nesterov, "maximize": maximize}
        super().__init__(params, hypers, flags, groups, foreach=foreach, differentiable=differentiable, fused=fused)


class Adam(Optimizer):
    """`torch.optim.Adam`; every number is one, or one per lane (also within `betas`).

    Raises:
        InvalidArgument (a ValueError): a list of another length than there are lanes, a value out of range.
        Unsupported: `foreach`, `fused`, `capturable`, `differentiable`.

    Example:
        >>> hfta.optim.Adam(array, lr=torch.logspace(-4, -2, array.lanes), betas=(0.9, [0.99, 0.999]))
    """

    _kind = "Adam"

    def __init__(
        self,
        params: Params,
        lr: Number = 1e-3,
        betas: tuple[Number, Number] = (0.9, 0.999),
        eps: Number = 1e-8,
        weight_decay: Number = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
        groups: Groups = (),
    ):
        if decoupled_weight_decay:
            raise Unsupported(f"hfta.optim.{self._kind}: expected AdamW for a decoupled weight decay, got decoupled_weight_decay=True")
        hypers = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        flags = {"amsgrad": amsgrad, "maximize": maximize}
        super().__init__(params, hypers, flags, groups, foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused)


class AdamW(Adam):
    """`torch.optim.AdamW`: the weight decay is decoupled from the gradient; otherwise as `Adam`.

    Example:
        >>> adamw = hfta.optim.AdamW(array, lr=1e-3, weight_decay=[0.0, 0.01, 0.1])
    """

    _kind = "AdamW"

    def __init__(
        self,
        params: Params,
        lr: Number = 1e-3,
        betas: tuple[Number, Number] = (0.9, 0.999),
        eps: Number = 1e-8,
        weight_decay: Number = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        groups: Groups = (),
    ):
        refused = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable, "fused": fused}
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, groups=groups, **refused)  # type: ignore[arg-type]


class Adadelta(Optimizer):
    """`torch.optim.Adadelta`; every number is one, or one per lane.

    Raises:
        InvalidArgument (a ValueError): a list of another length than there are lanes, a value out of range.
        Unsupported: `foreach`, `capturable`, `differentiable`.

    Example:
        >>> adadelta = hfta.optim.Adadelta(array, rho=[0.9, 0.95, 0.99])
    """

    _kind = "Adadelta"

    def __init__(
        self,
        params: Params,
        lr: Number = 1.0,
        rho: Number = 0.9,
        eps: Number = 1e-6,
        weight_decay: Number = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
        groups: Groups = (),
    ):
        hypers = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay}
        super().__init__(
            params, hypers, {"maximize": maximize}, groups, foreach=foreach, capturable=capturable, differentiable=differentiable
        )
