"""What changes arrays, or trains them, is called between steps: inside the function that a step runs it is refused, other threads wait for their turn."""

from __future__ import annotations

import threading

import pytest
import torch
from recording import WIDE, batch, mse, net
from support import Solo, check_steps

import hfta


BETWEEN_STEPS = {
    "hfta.Array.keep": lambda array, sgd: array.keep([0]),
    "hfta.Array.append": lambda array, sgd: array.append([net()]),
    "hfta.Array.copy_lane": lambda array, sgd: array.copy_lane(0, 1),
    "hfta.Array.load_lane_state_dict": lambda array, sgd: array.load_lane_state_dict(1, net().state_dict()),
    "hfta.Array.load_state_dict": lambda array, sgd: array.load_state_dict({}),
    "hfta.Array.to": lambda array, sgd: array.to(torch.float64),
    "hfta.Array.train": lambda array, sgd: array.eval(),
    "hfta.Array.zero_grad": lambda array, sgd: array.zero_grad(),
    "hfta.fuse": lambda array, sgd: hfta.fuse([net()]),
    "hfta.train_step": lambda array, sgd: array.train_step(sgd, mse, *batch()),
    "hfta.backward": lambda array, sgd: array.backward(mse, *batch()),
    "hfta.record: a recorded step": lambda array, sgd: array.record(sgd, mse)(*batch()),
    "hfta.evaluate: recorded": lambda array, sgd: array.evaluate(mse, *batch(), recorded=True),
    "hfta.optim.SGD.step": lambda array, sgd: sgd.step(),
    "hfta.optim.SGD.zero_grad": lambda array, sgd: sgd.zero_grad(set_to_none=False),
    "hfta.optim.SGD.load_lane_state_dict": lambda array, sgd: sgd.load_state_dict(sgd.state_dict()),
    "hfta.optim.SGD: lr": lambda array, sgd: sgd.param_groups[0].update(lr=0.5),
    "hfta.optim.lr_scheduler: step": lambda array, sgd: hfta.optim.lr_scheduler.StepLR(sgd, step_size=1).step(),
}


@pytest.mark.parametrize("who", BETWEEN_STEPS)
@pytest.mark.parametrize("recorded", [False, True])
def test_what_changes_arrays_is_refused_inside_the_function_of_a_step(array, sgd, who, recorded):
    inside = [True]

    def fn(model, x, y):
        loss = mse(model, x, y)
        if inside[0]:
            BETWEEN_STEPS[who](array, sgd)
        return loss

    step = array.record(sgd, fn, plan=WIDE) if recorded else lambda *inputs: array.train_step(sgd, fn, *inputs)
    before = [tensor.clone() for tensor in array.parameters()]
    lanes = array.lanes
    with pytest.raises(hfta.InvalidArgument, match="expected a call between steps, got one inside the function that a step runs") as refusal:
        step(*batch())
    assert str(refusal.value).startswith(who) and "\n" not in str(refusal.value)
    assert array.lanes == lanes and array.training and all(torch.equal(a, b) for a, b in zip(before, array.parameters()))
    inside[0] = False
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.SGD(p, lr=sgd.param_groups[0]["lr"][lane])) for lane, model in enumerate(array)]
    check_steps(array, solos, step, mse, batch, 3)
    array.keep([1])


def test_a_lane_leaves_while_another_thread_trains(array):
    sgd = hfta.optim.SGD(array, lr=0.1)  # one value for all: a step may come between the lane's coming and its leaving
    step, failures = array.record(sgd, mse, plan=WIDE), []

    def train():
        try:
            for _ in range(200):
                step(*batch())
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    while array.lanes > 1:
        array.append([net()])
        array.keep(range(array.lanes - 2))
    thread.join()
    assert not failures and array.lanes == 1
    assert step(*batch()).shape == (1,)
