"""Finds the Python values that a function reads, so that a recorded one notices when they are others."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

_PLAIN = (int, float, bool, str, bytes, complex, type(None))
_MOST_ENTRIES = 64  # of a list or dict whose contents are compared
_MOST_DEPTH = 4
_FOREIGN = ("torch", "numpy", "builtins", "functools", "math", "hfta")


@functools.cache
def _names_of_globals(code: types.CodeType) -> tuple[str, ...]:
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_names_of_globals(constant))
    return tuple(sorted(names))


def _is_foreign(module: str | None) -> bool:
    return module is not None and module.split(".")[0] in _FOREIGN


def _is_plain_nest(value: Any, room: int = _MOST_ENTRIES) -> bool:
    if isinstance(value, _PLAIN):
        return True
    if isinstance(value, dict):
        return len(value) <= room and all(isinstance(k, _PLAIN) and _is_plain_nest(v, room // 4) for k, v in value.items())
    return isinstance(value, (list, tuple)) and len(value) <= room and all(_is_plain_nest(v, room // 4) for v in value)


class Found:
    """Where values are, and all plain ones as one key."""

    def __init__(self) -> None:
        self.cells: list[types.CellType] = []
        self.entries: list[tuple[dict[str, Any], str]] = []
        self.attributes: list[dict[str, Any]] = []
        self.mutables: list[tuple[Any, Any]] = []
        self.key: list[tuple[str, str]] = []
        self.tensors: list[tuple[str, torch.Tensor]] = []
        self._seen: set[int] = set()
        self._alive: list[Any] = []

    def value(self, path: str, value: Any, depth: int) -> None:
        """Notes what is reached by `path`."""
        if isinstance(value, _PLAIN):
            self.key.append((path, f"{type(value).__name__} {value!r}"))
        elif isinstance(value, torch.Tensor):
            self.key.append((path, f"tensor {id(value)}"))
            self.tensors.append((path, value))
        elif isinstance(value, (list, dict, tuple)):
            if _is_plain_nest(value):
                self.key.append((path, repr(value)))
                if not isinstance(value, tuple):
                    self.mutables.append((value, value.copy()))
            elif depth < _MOST_DEPTH and len(value) <= _MOST_ENTRIES:
                for name, entry in value.items() if isinstance(value, dict) else enumerate(value):
                    self.value(f"{path}[{name!r}]", entry, depth + 1)
        else:
            self.object(path, value, depth)

    def object(self, path: str, value: Any, depth: int) -> None:
        self.key.append((path, f"{type(value).__name__} {id(value)}"))
        self._alive.append(value)
        if id(value) in self._seen or depth > _MOST_DEPTH:
            return
        self._seen.add(id(value))
        if isinstance(value, functools.partial):
            for k, entry in enumerate((value.func, *value.args, *value.keywords.values())):
                self.value(f"{path}.{k}", entry, depth + 1)
        elif isinstance(value, types.MethodType):
            self.value(path, value.__func__, depth)
            self.value(f"{path}.__self__", value.__self__, depth)
        elif isinstance(value, types.FunctionType):
            if not _is_foreign(value.__module__):
                self.function(path, value, depth + 1)
        elif isinstance(value, nn.Module):
            self.module(path, value, depth)
        elif not isinstance(value, (types.ModuleType, type, types.BuiltinFunctionType)) and not _is_foreign(type(value).__module__):
            self.attributes_of(path, value, depth)
            if callable(value):
                self.methods(path, type(value), depth)

    def attributes_of(self, path: str, value: Any, depth: int) -> None:
        held = getattr(value, "__dict__", None)
        if type(held) is not dict:
            return
        self.attributes.append(held)
        for name, entry in list(held.items()):
            if isinstance(entry, (*_PLAIN, torch.Tensor, list, tuple, dict)):
                self.value(f"{path}.{name}", entry, depth + 1)

    def function(self, path: str, fn: types.FunctionType, depth: int) -> None:
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
            try:
                entry = cell.cell_contents
            except ValueError:
                continue
            self.cells.append(cell)
            self.value(f"{path}: closure's {name}", entry, depth)
        for k, entry in enumerate((*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())):
            self.value(f"{path}: default {k}", entry, depth)
        for name in _names_of_globals(fn.__code__):
            if name in fn.__globals__:
                self.entries.append((fn.__globals__, name))
                self.value(f"{path}: global {name}", fn.__globals__[name], depth)

    def methods(self, path: str, kind: type, depth: int) -> None:
        """The functions of a user's class: what `forward` and its helpers read."""
        for base in kind.__mro__:
            if _is_foreign(base.__module__) or base is object or id(base) in self._seen:
                continue
            self._seen.add(id(base))
            for name, entry in list(vars(base).items()):
                if isinstance(entry, types.FunctionType):
                    self.function(f"{kind.__name__}.{name}", entry, depth + 1)
                elif isinstance(entry, _PLAIN) and not name.startswith("__"):
                    self.key.append((f"{kind.__name__}.{name}", repr(entry)))

    def module(self, path: str, module: nn.Module, depth: int) -> None:
        for name, part in module.named_modules():
            self._seen.add(id(part))
            where = f"{path}.{name}" if name else path
            held = vars(part)
            self.attributes.append(held)
            for attribute, entry in list(held.items()):
                if isinstance(entry, _PLAIN) or (isinstance(entry, (list, tuple, torch.Tensor)) and not attribute.startswith("_")):
                    self.value(f"{where}.{attribute}", entry, depth + 1)
            self.methods(where, type(part), depth)


def find(fn: Callable[..., Any], arrays: Iterable[list[nn.Module]]) -> Found:
    found = Found()
    for k, modules in enumerate(arrays):
        for lane, module in enumerate(modules):
            found.module(f"lane {lane}" if k == 0 else f"array {k} lane {lane}", module, 0)
    name = getattr(fn, "__name__", type(fn).__name__)
    found.object(name, fn, 0)
    return found


class Values:
    """The values that a function depends on, for the binding: where they are, and how a captured tensor or a changing value is called."""

    def __init__(self, fn: Callable[..., Any], arrays: list[list[nn.Module]]):
        self._fn, self._arrays = fn, arrays
        self._keys: list[list[tuple[str, str]]] = []

    def collect(self) -> tuple[Any, ...]:
        found = find(self._fn, self._arrays)
        self._keys = [*self._keys[-1:], found.key]
        return found.cells, found.entries, found.attributes, found.mutables, repr(found.key)

    def name(self, tensor: torch.Tensor | None) -> str:
        """Appended to a refusal: what a captured tensor is called, or (without one) which value changed last."""
        if tensor is None:
            return self._last_change()
        for path, known in find(self._fn, self._arrays).tensors:
            if known.layout == torch.strided and known.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
                return f' ("{path}")'
        return ""

    def _last_change(self) -> str:
        before, now = dict(self._keys[0]), dict(self._keys[-1])
        for path, value in now.items():
            if before.get(path, value) != value:
                return f', last "{path}": {before[path]}, then {value}: pass it as a tensor'
        return ""
