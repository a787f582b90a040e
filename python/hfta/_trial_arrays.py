"""Trials made trainable: their models as lanes of an array, with an optimizer whose values are the trials' own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from . import _build, optim
from ._core import Trial
from ._errors import InvalidArgument
from .array import Array
from .fusing import fuse

Parameters = dict[str, Any]
_OPTIMIZERS = {"sgd": optim.SGD, "adam": optim.Adam, "adamw": optim.AdamW, "adadelta": optim.Adadelta}


def builder(model: Callable[..., nn.Module]) -> Callable[[Parameters], nn.Module]:
    """Calls a factory with a trial's parameters where it takes an argument."""
    try:
        signature = inspect.signature(model)
    except (TypeError, ValueError):
        return lambda parameters: model()
    wanted = [p for p in signature.parameters.values() if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return (lambda parameters: model(parameters)) if wanted else (lambda parameters: model())


def _structure(module: nn.Module) -> str:
    """Names, kinds and shapes of all parts: equal for lanes that can be stacked."""
    parts = [f"{name}:{type(part).__qualname__}" for name, part in module.named_modules(remove_duplicate=False)]
    parts += [f"{name}{list(tensor.shape)}{tensor.dtype}" for name, tensor in (*module.named_parameters(), *module.named_buffers())]
    return " ".join(parts)


class TrialArrays:
    """How trials become arrays."""

    def __init__(
        self,
        model: Callable[..., nn.Module],
        optimizer: Any,
        optimizer_options: Mapping[str, Any],
        split: Sequence[str],
        seed: int,
    ):
        self._build, self._optimizer, self._options = builder(model), optimizer, dict(optimizer_options)
        self._split, self._seed = split, seed

    def seed(self, trial: Trial) -> int:
        """The trial's own, where one is searched; else the study's plus its number."""
        return int(trial.parameters.get("seed", self._seed + trial.number))

    def kind(self, trial: Trial) -> str:
        """Equal texts: the trials can be lanes of one array."""
        parameters = trial.parameters
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed(trial))
            structure = _structure(_build.plain(self._build(parameters), 0))
        apart = [f"{name}={parameters.get(name)!r}" for name in (*self._split, "optimizer", "nesterov", "amsgrad") if name in parameters]
        return " ".join((*apart, structure))

    def array(self, trials: Sequence[Trial]) -> Array[nn.Module]:
        parameters = [trial.parameters for trial in trials]
        return fuse(lambda lane: self._build(parameters[lane]), seeds=[self.seed(trial) for trial in trials])

    def optimizer(self, array: Array[Any], trials: Sequence[Trial]) -> optim.Optimizer:
        """The trials' values of what the optimizer takes, one per lane, over the options that all share."""
        parameters = [trial.parameters for trial in trials]
        chosen: Any = parameters[0].get("optimizer", self._optimizer)
        if isinstance(chosen, str):
            if chosen not in _OPTIMIZERS:
                raise InvalidArgument(f'hfta.sweep: expected one of {", ".join(_OPTIMIZERS)} as optimizer, got "{chosen}"')
            chosen = _OPTIMIZERS[chosen]
        if not callable(chosen):
            raise InvalidArgument(f"hfta.sweep: expected an optimizer as a name, a class of hfta.optim or a function, got {chosen!r}")
        made: Any = self._by_class(chosen, array, parameters) if isinstance(chosen, type) else chosen(array, parameters)
        return made

    def _by_class(self, chosen: Any, array: Array[Any], parameters: list[Parameters]) -> optim.Optimizer:
        if not issubclass(chosen, optim.Optimizer):
            raise InvalidArgument(f"hfta.sweep: expected an optimizer class of hfta.optim, got {chosen.__module__}.{chosen.__name__}")
        known = set(inspect.signature(chosen).parameters) - {"params", "groups"}
        searched = _OPTIMIZERS.values() if "optimizer" in parameters[0] else ()
        of_any = known.union(*(inspect.signature(other).parameters for other in searched))
        for name in self._options:
            if name not in of_any:
                raise InvalidArgument(f'hfta.sweep: expected optimizer_options of {", ".join(sorted(of_any))}, got "{name}"')
        given: dict[str, Any] = {name: value for name, value in self._options.items() if name in known}
        for name in known:
            if any(name in own for own in parameters):
                values = [own[name] for own in parameters]
                given[name] = values[0] if isinstance(values[0], bool) else [float(value) for value in values]
        betas = [name for name in ("beta1", "beta2") if any(name in own for own in parameters)]
        if betas and "betas" in known:
            shared = given.get("betas", (0.9, 0.999))
            given["betas"] = tuple(
                [float(own[name]) for own in parameters] if name in betas else value for name, value in zip(("beta1", "beta2"), shared)
            )
        return chosen(array, **given)
