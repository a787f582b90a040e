"""The process stays sound while functions are recorded."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from recording import WIDE, agrees, batch, mse, net
from support import close
from torch import nn

import hfta


def test_an_exception_in_the_function_leaves_everything_as_it_was(array, sgd):
    class Own(Exception):
        pass

    def fails(model, x, y):
        mse(model, x, y)
        raise Own("as it is")

    for run in (lambda: array.record(sgd, fails, plan=WIDE)(*batch()), lambda: array.train_step(sgd, fails, *batch())):
        with pytest.raises(Own, match="as it is"):
            run()
        assert torch._C._len_torch_dispatch_stack() == 0
        torch.randn(2) + 1
    array.record(sgd, mse, plan=WIDE)(*batch())


def test_ctrl_c_while_recording_leaves_the_process_sound(array, sgd):
    def slow(model, x, y):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):
            time.sleep(0.01)
        return mse(model, x, y)

    with pytest.raises(KeyboardInterrupt):
        array.record(sgd, slow, plan=WIDE)(*batch())
    assert torch._C._len_torch_dispatch_stack() == 0
    array.record(sgd, mse, plan=WIDE)(*batch())


def test_printing_a_tensor_while_recording_is_harmless():
    texts = []

    def prints(model, x, y):
        out = model(x)
        texts.append(repr(out))
        return F.mse_loss(out, y)

    agrees(prints)
    assert texts and texts[0].startswith("tensor(")


def test_a_compiled_function_and_fast_attention_are_recorded():
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.attention(x, x, x)[0].mean(1))

    array = hfta.fuse([Attends() for _ in range(3)])
    array.eval()
    x = torch.randn(5, 6, 4)

    def outputs(model, x):
        return model(x)

    close(array.evaluate(outputs, x, recorded=True), array.evaluate(outputs, x))
    sgd = hfta.optim.SGD(array, lr=0.1)
    array.record(sgd, mse, plan=WIDE)(x, torch.randn(5, 2))


def test_another_thread_is_not_taken_down(array, sgd):
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            torch.randn(3, 3) @ torch.randn(3, 3)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        step = array.record(sgd, mse, plan=WIDE)
        for _ in range(3):
            step(*batch())
        assert "randn" not in step.program()
    finally:
        stop.set()
        thread.join()


def test_a_python_mode_on_top_still_works(array, sgd):
    from torch.utils.flop_counter import FlopCounterMode

    def counted(model, x, y):
        with FlopCounterMode(display=False) as counter:
            loss = mse(model, x, y)
        assert counter.get_total_flops() > 0
        return loss

    step = array.record(sgd, counted, plan=WIDE)
    close(step(*batch()).new_zeros(1), torch.zeros(1))


def test_an_operator_written_in_python_is_replayed():
    @torch.library.custom_op("hfta_test::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @cube.register_fake
    def _(x):
        return torch.empty_like(x)

    cube.register_autograd(
        lambda ctx, gradient: 3 * ctx.x**2 * gradient, setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0])
    )
    step = agrees(lambda model, x, y: cube(model(x)).mean() + mse(model, x, y))
    assert "hfta_test::cube" in step.program()


@pytest.mark.parametrize("around", [True, False])
def test_autocast_is_part_of_the_recording(around):
    from contextlib import nullcontext

    def fn(model, x, y):
        with nullcontext() if around else torch.autocast("cpu", dtype=torch.bfloat16):
            return mse(model, x, y)

    torch.manual_seed(5)
    models = [net() for _ in range(2)]
    array, plain = hfta.fuse(models), hfta.fuse(models)
    sgd, plain_sgd = hfta.optim.SGD(array, lr=0.1), hfta.optim.SGD(plain, lr=0.1)
    step = array.record(sgd, fn, plan=hfta.Plan(width=1))
    for _ in range(3):
        inputs = batch()
        with torch.autocast("cpu", dtype=torch.bfloat16) if around else nullcontext():
            losses, expected = step(*inputs), plain.train_step(plain_sgd, fn, *inputs)
        torch.testing.assert_close(losses, expected, rtol=1e-2, atol=1e-3)
    assert "BFloat16" in step.program()


def test_a_step_outlives_moves_of_the_lanes(array, sgd):
    step = array.record(sgd, mse, plan=WIDE)
    step(*batch())
    array.keep([2, 0])
    assert step(*batch()).shape == (2,)
    array.append([net()])
    sgd.param_groups[0]["lr"] = 0.1
    assert step(*batch()).shape == (3,)


def test_ctrl_c_while_a_plan_is_chosen_stops_and_leaves_no_trace(array, sgd):
    pressed = []

    def interrupted(model, x, y):
        if torch._C._len_torch_dispatch_stack() == 0 and len(pressed) == 1:  # by plain steps, as one of the plans
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        return mse(model, x, y)

    step = array.record(sgd, interrupted)
    inputs = batch()
    step(*inputs)
    before = [p.clone() for p in array.parameters()]
    pressed.append(False)
    with pytest.raises(KeyboardInterrupt):
        step(*inputs)
    assert all(torch.equal(a, b) for a, b in zip(before, array.parameters()))
    step(*inputs)
    assert step._core.timings, "the next call chooses"


def test_threads_take_turns_on_one_array(array, sgd):
    step = array.record(sgd, mse, plan=WIDE)
    inputs = batch()
    losses, errors = [], []

    def work(by):
        try:
            for _ in range(50):
                losses.append(float(by()[0]))
        except Exception as error:
            errors.append(error)

    ways = [lambda: step(*inputs), lambda: array.train_step(sgd, mse, *inputs), lambda: step(*inputs)]
    threads = [threading.Thread(target=work, args=(way,)) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(losses) == 150
    assert sgd.steps(0) == 150, "no update was lost"
    assert min(losses) > 0 and losses[-1] < losses[0]


def test_a_forked_process_is_told_to_record_anew(array, sgd):
    step = array.record(sgd, mse, plan=hfta.Plan(width=2, workers=2))
    inputs = batch()
    step(*inputs)
    child = os.fork()
    if child == 0:
        try:
            step(*inputs)
        except hfta.Unsupported as why:
            os._exit(0 if "record anew" in str(why) else 1)
        finally:
            os._exit(2)
    for _ in range(200):
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert code == 0
    step(*inputs)
