"""Parameters that are frozen or thawed between steps, by lane, for all lanes, or by the function itself."""

from __future__ import annotations

import copy

import pytest
import torch
from recording import WIDE, batch, mse, net
from support import Solo, check_lane, check_steps, close

import hfta

LANES = 3


def models(frozen=(0,)):
    """Bodies that are equal, heads that are not."""
    torch.manual_seed(4)
    body, made = net(), []
    for _ in range(LANES):
        model = net()
        model[0].load_state_dict(body[0].state_dict())
        for part in frozen:
            model[part].requires_grad_(False)
        made.append(model)
    return made


def steps_of(array, optimizer, recorded, fn=mse):
    return array.record(optimizer, fn, plan=WIDE) if recorded else lambda *inputs: array.train_step(optimizer, fn, *inputs)


def check(array, solos, step):
    check_steps(array, solos, step, mse, batch, 3)


def solos_of(given):
    return [Solo(model, lane, lane, lambda p, lane: torch.optim.Adam(p, lr=0.02)) for lane, model in enumerate(given)]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_frozen_body_is_trained_once_it_is_thawed(recorded):
    given = models()
    array, solos = hfta.fuse(given), solos_of(given)
    adam = hfta.optim.Adam(array, lr=0.02)
    step = steps_of(array, adam, recorded)
    check(array, solos, step)
    assert array._core.shared_bytes > 0
    for model in (*array, *(solo.model for solo in solos)):
        model[0].weight.requires_grad_(True)
    check(array, solos, step)
    assert array._core.shared_bytes == given[0][0].bias.nbytes, "what is trained is each lane's own"
    assert {name: p.requires_grad for name, p in array.named_parameters()} == {n: p.requires_grad for n, p in array.lane(0).named_parameters()}
    for model in (*array, *(solo.model for solo in solos)):
        model[0].weight.requires_grad_(False)
        model[2].bias.requires_grad_(False)
    for solo in solos:
        solo.optimizer.zero_grad(set_to_none=True)
    check(array, solos, step)


@pytest.mark.parametrize("recorded", [False, True])
def test_one_lane_may_be_thawed_alone(recorded):
    given = models()
    array, solos = hfta.fuse(given), solos_of(given)
    step = steps_of(array, hfta.optim.Adam(array, lr=0.02), recorded)
    step(*(inputs := batch()))
    for solo in solos:
        solo.step(mse, inputs)
    for model in (array.lane(1), solos[1].model):
        model[0].requires_grad_(True)
    check(array, solos, step)
    assert not torch.equal(array.lane(1)[0].weight, array.lane(0)[0].weight) and torch.equal(array.lane(2)[0].weight, array.lane(0)[0].weight)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_stacked_leaf_freezes_and_thaws_all_lanes(recorded):
    given = models()
    array, solos = hfta.fuse(given), solos_of(given)
    step = steps_of(array, hfta.optim.Adam(array, lr=0.02), recorded)
    leaves = dict(array.named_parameters())
    leaves["0.weight"].requires_grad_(True)
    leaves["2.weight"].requires_grad_(False)
    for solo in solos:
        solo.model[0].weight.requires_grad_(True)
        solo.model[2].weight.requires_grad_(False)
    check(array, solos, step)
    assert all(model[0].weight.requires_grad and not model[2].weight.requires_grad for model in array)
    array.backward(mse, *batch())
    assert leaves["0.weight"].grad is not None and leaves["2.weight"].grad is None


def test_stock_optimizers_train_what_is_thawed():
    given = models()
    array = hfta.fuse(given)
    for model in array:
        model[0].requires_grad_(True)
    leaves = list(array.parameters())
    assert all(leaf.requires_grad and leaf.stride(0) for leaf in leaves)
    for recorded in (False, True):
        alone = [copy.deepcopy(model) for model in array]
        stock = torch.optim.SGD(leaves, lr=0.1)
        inputs = batch()
        stock.zero_grad()
        array.backward(mse, *inputs, recorded=recorded)
        stock.step()
        for lane, model in enumerate(alone):
            solo = Solo(model, lane, lane, lambda p, lane: torch.optim.SGD(p, lr=0.1))
            solo.step(mse, inputs)
            check_lane(array, lane, solo, 1)


def test_functions_that_freeze_by_themselves_are_recorded_once_each():
    """As the two steps of a GAN do: what one froze, the other thaws."""

    def of_body(model, x, y):
        model[0].requires_grad_(True)
        model[2].requires_grad_(False)
        return mse(model, x, y)

    def of_head(model, x, y):
        model[0].requires_grad_(False)
        model[2].requires_grad_(True)
        return mse(model, x, y)

    given = models(frozen=())
    array, solos = hfta.fuse(given), solos_of(given)
    adam = hfta.optim.Adam(array, lr=0.02)
    steps = [array.record(adam, fn, plan=WIDE) for fn in (of_body, of_head)]
    for k in range(6):
        inputs = batch()
        for step, fn in zip(steps, (of_body, of_head)):
            losses = step(*inputs)
            for lane, solo in enumerate(solos):
                solo.optimizer.zero_grad(set_to_none=True)
                close(losses[lane], solo.step(fn, inputs), f"step {k} lane {lane}", 6)
    for lane, solo in enumerate(solos):
        check_lane(array, lane, solo, 6)
    for step in steps:
        kept = int(step.report().split(" recordings kept")[0].split()[-1])
        assert kept <= 2 and " 0 dropped" in step.report(), step.report()


def test_lanes_of_which_some_are_thawed_are_refused_as_copies():
    array = hfta.fuse(models())
    array.lane(1)[0].requires_grad_(True)
    with pytest.raises(hfta.InvalidArgument, match='"0.weight"'):
        copy.deepcopy(array)
    array.keep([1])
    copied = copy.deepcopy(array)
    assert copied.lane(0)[0].weight.requires_grad


def trained_alone(given, inputs, accumulate):
    """Models of which the second's body is frozen half-way; their gradients are cleared as torch does by default."""
    alone = [Solo(model, lane, lane, lambda p, lane: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1)) for lane, model in enumerate(given)]
    for lane, solo in enumerate(alone):
        for k, batch_of_step in enumerate(inputs):
            if k == len(inputs) // 2 and lane == 1:
                solo.model[0].requires_grad_(False)
            mse(solo.model, *batch_of_step).backward()
            if (k + 1) % accumulate == 0:
                solo.optimizer.step()
                solo.optimizer.zero_grad(set_to_none=True)
    return alone


@pytest.mark.parametrize("way", ["plain", "recorded", "together", "backward", "recorded backward"])
def test_a_lane_that_is_frozen_alone_is_left_alone_where_gradients_are_summed(way):
    given, inputs, accumulate = models(frozen=()), [batch() for _ in range(8)], 2
    array, alone = hfta.fuse(given), trained_alone(given, inputs, accumulate)
    sgd = hfta.optim.SGD(array, lr=0.1, momentum=0.9, weight_decay=0.1)
    step = array.record(sgd, mse, accumulate=accumulate, plan=hfta.Plan(recorded=way != "plain"))
    frozen = None
    for half in (inputs[:4], inputs[4:]):
        if way == "together":
            step.run(half)
        elif "backward" in way:
            for k, one in enumerate(half):
                array.backward(mse, *one, recorded=way != "backward")
                if k % accumulate:
                    sgd.step()
                    sgd.zero_grad()
        else:
            for one in half:
                step(*one)
        now = [tensor.detach().clone() for tensor in array.lane(1)[0].parameters()]
        assert frozen is None or all(torch.equal(a, b) for a, b in zip(frozen, now)), "neither decay nor momentum moves what is frozen"
        frozen = now
        array.lane(1)[0].requires_grad_(False)
    for lane, solo in enumerate(alone):
        check_lane(array, lane, solo, len(inputs))
    assert all(parameter.grad is None for model in array for parameter in model.parameters())


def test_a_copied_lane_has_a_gradient_where_its_source_has_one():
    array = hfta.fuse(models(frozen=()))
    array.lane(1)[0].requires_grad_(False)
    array.backward(mse, *batch(), recorded=True)
    assert array.lane(1)[0].weight.grad is None and array.lane(2)[0].weight.grad is not None
    array.copy_lane(1, 2)
    array.copy_lane(0, 1)
    assert array.lane(2)[0].weight.grad is None and torch.equal(array.lane(1)[0].weight.grad, array.lane(0)[0].weight.grad)
