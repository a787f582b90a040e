"""Checkpoints of trainers: the whole state in one file that `torch.load(path, weights_only=True)` reads."""

from __future__ import annotations

import os
import pickle
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from ._core import Plan
from ._errors import Error, InvalidArgument
from .records import LaneRecord

if TYPE_CHECKING:
    from .training import Trainer

_FORMAT, _KIND = 1, "hfta training of Python models"


def check_writable(path: str | os.PathLike[str]) -> None:
    """A folder that cannot be written is told before hours of training, not after."""
    probe = os.fspath(path) + ".probe"
    try:
        os.makedirs(os.path.dirname(probe) or ".", exist_ok=True)
        with open(probe, "wb"):
            pass
        os.unlink(probe)
    except OSError as error:
        raise Error(f'hfta.Trainer: expected to write checkpoints to "{os.fspath(path)}", got {error.strerror}') from None


def write(state: Any, path: str | os.PathLike[str]) -> None:
    """Complete, or not there: under another name first."""
    part = f"{os.fspath(path)}.part"
    try:
        torch.save(state, part)
        os.replace(part, path)
    except (OSError, RuntimeError) as error:
        raise Error(f'hfta: expected to write "{os.fspath(path)}", got {error}') from None


def save(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    state = {
        "format": _FORMAT,
        "kind": _KIND,
        "epoch": trainer._epoch,
        "lanes": [asdict(lane) for lane in trainer._lanes],
        "ids": list(trainer._ids),
        "seeds": trainer._first_seeds,
        "plan": trainer.plan.to_json() if trainer._epoch else None,
        "shapes": list(trainer._shapes),
        "arrays": [array.state_dict() for array in trainer._arrays],
        "optimizer": trainer._optimizer.state_dict(),
        "schedules": [schedule.state_dict() for schedule in (*trainer._schedules, *trainer._step_schedules)],
    }
    write(state, path)


def _read(path: str) -> dict[str, Any]:
    try:
        state = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise InvalidArgument(f"hfta.Trainer: {path}: expected a checkpoint, got {str(error).splitlines()[0]}") from None
    if not isinstance(state, dict) or state.get("kind") != _KIND:
        raise InvalidArgument(f"hfta.Trainer: {path}: expected a checkpoint of a training run, got another kind of file")
    if state.get("format") != _FORMAT:
        raise InvalidArgument(f"hfta.Trainer: {path}: expected format {_FORMAT}, got {state.get('format')}")
    return state


def _check(trainer: Trainer, state: dict[str, Any], path: str) -> None:
    def same(what: str, expected: Any, got: Any) -> None:
        if expected != got:
            raise InvalidArgument(f"hfta.Trainer: {path}: expected {what} {expected}, got {got}")

    same("lanes with the seeds", trainer._first_seeds, state["seeds"])
    same("the optimizer", trainer._optimizer._kind, state["optimizer"]["name"])
    schedules = len(trainer._schedules) + len(trainer._step_schedules)
    same("a number of schedules of", schedules, len(state["schedules"]))
    same("a number of arrays of", len(trainer._arrays), len(state["arrays"]))
    gone = [id for id in state["ids"] if id not in trainer._ids]
    if gone:
        raise InvalidArgument(f"hfta.Trainer: {path}: expected arrays that still have lane {gone[0]}, got one that dropped it")
    for array, saved in zip(trainer._arrays, state["arrays"]):
        here = array.state_dict()
        for kind in ("parameters", "buffers"):
            shapes = {name: tuple(tensor.shape[1:]) for name, tensor in here[kind].items()}
            same(f"{kind} of the shapes", shapes, {name: tuple(tensor.shape[1:]) for name, tensor in saved[kind].items()})


def resume(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    path = os.fspath(path)
    state = _read(path)
    try:
        _check(trainer, state, path)
    except (KeyError, TypeError, AttributeError):
        raise InvalidArgument(f"hfta.Trainer: {path}: expected a checkpoint of this format, got one with damaged entries") from None
    trainer._keep([trainer._ids.index(id) for id in state["ids"]])
    for array, saved in zip(trainer._arrays, state["arrays"]):
        array.load_state_dict(saved)
        array.zero_grad()
    trainer._optimizer.load_state_dict(state["optimizer"])
    for schedule, saved in zip((*trainer._schedules, *trainer._step_schedules), state["schedules"]):
        schedule.load_state_dict(saved)
    trainer._epoch = state["epoch"]
    trainer._lanes = [LaneRecord(**lane) for lane in state["lanes"]]
    trainer._shapes = list(state.get("shapes", ()))
    trainer._stop_requests.clear()
    # What the file was trained by is part of going on bit for bit; the caller's own choice stays.
    if trainer._given_plan is None and state["plan"] is not None:
        trainer._plan = Plan.from_json(state["plan"])
        trainer._records_steps = trainer._records_steps and trainer._plan.recorded
    trainer._make_step()
