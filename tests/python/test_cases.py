"""Situations that people have met, through Python: plain and recorded give the right values."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from recording import WIDE, agrees, mse
from support import Solo, close
from torch import nn

import hfta


def run(array, fn, *inputs, recorded):
    """One step without an update that matters."""
    sgd = hfta.optim.SGD(array, lr=0.0)
    return array.record(sgd, fn, plan=WIDE)(*inputs) if recorded else array.train_step(sgd, fn, *inputs)


@pytest.mark.parametrize("recorded", [False, True])
def test_batch_norm_keeps_each_lanes_statistics(recorded):
    """Case A1; in evaluation (A3) the buffers stay bit for bit."""
    array = hfta.fuse([nn.BatchNorm1d(1) for _ in range(2)])
    x = torch.tensor([[[0.0], [2.0]], [[4.0], [8.0]]])

    def outputs(net, x):
        out = net(x)
        return out.sum(), out

    _, out = run(array, outputs, hfta.per_lane(x), recorded=recorded)
    buffers = dict(array.named_buffers())
    torch.testing.assert_close(buffers["running_mean"].squeeze(), torch.tensor([0.1, 0.6]))
    torch.testing.assert_close(buffers["running_var"].squeeze(), torch.tensor([1.1, 1.7]))
    assert buffers["num_batches_tracked"].tolist() == [1, 1]
    torch.testing.assert_close(out.squeeze(), torch.tensor([[-0.999995, 0.999995], [-0.99999875, 0.99999875]]), rtol=0, atol=1e-6)
    array.eval()
    before = {name: tensor.clone() for name, tensor in array.named_buffers()}
    evaluated = array.evaluate(lambda net, x: net(x), hfta.per_lane(x), recorded=recorded)
    torch.testing.assert_close(evaluated[1], (x[1] - 0.6) / (1.7 + 1e-5) ** 0.5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in array.named_buffers())


@pytest.mark.parametrize("recorded", [False, True])
def test_masks_belong_to_the_seed_not_to_the_place(recorded):
    """Cases A5 and A6."""

    def dropped(net, x):
        out = net[0](x)
        return net[1](out).sum(), out

    def build():
        return nn.Sequential(nn.Dropout(0.3), nn.Linear(40, 1))

    x = torch.ones(50, 40)
    _, eight = run(hfta.fuse([build() for _ in range(8)], seeds=range(10, 18)), dropped, x, recorded=recorded)
    assert eight.shape == (8, 50, 40)
    kept = eight[eight != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.7))
    assert abs((eight != 0).float().mean().item() - 0.7) < 3 * (0.21 / eight.numel()) ** 0.5
    assert not torch.equal(eight[0], eight[1])
    _, alone = run(hfta.fuse([build()], seeds=[13]), dropped, x, recorded=recorded)
    assert torch.equal(alone[0], eight[3])
    torch.manual_seed(13)
    assert torch.equal(F.dropout(x, 0.3), eight[3])


def test_packed_sequences_train_plainly_and_are_refused_by_name():
    """Case A9."""

    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(4, 5, num_layers=2, bidirectional=True, batch_first=True)
            self.head = nn.Linear(10, 2)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return self.head(self.gru(packed)[1][-2:].transpose(0, 1).flatten(1))

    models = [Packed() for _ in range(3)]
    array = hfta.fuse(models)
    sgd = hfta.optim.SGD(array, lr=0.1)

    def fn(net, x, lengths, y):
        return F.mse_loss(net(x, lengths), y)

    inputs = torch.randn(2, 6, 4), torch.tensor([6, 3]), torch.randn(2, 2)
    with pytest.raises(hfta.Unsupported, match="host"):
        array.record(sgd, fn, plan=WIDE)(*inputs)
    losses = array.train_step(sgd, fn, *inputs)
    for lane, model in enumerate(models):
        close(losses[lane], Solo(model, lane, lane, lambda p, _: torch.optim.SGD(p, lr=0.1)).step(fn, inputs))


def test_an_embedding_bag_with_offsets_and_padding():
    """Case A12."""

    def build():
        return nn.EmbeddingBag(10, 5, mode="mean", padding_idx=0)

    def fn(net, words, offsets, y):
        return F.mse_loss(net(words, offsets), y)

    words, offsets = torch.tensor([1, 2, 0, 3, 4, 4]), torch.tensor([0, 3])
    agrees(fn, build=build, data=lambda: (words, offsets, torch.randn(2, 5)))
    array = hfta.fuse([build() for _ in range(2)])
    array.backward(fn, words, offsets, torch.randn(2, 5), recorded=True)
    assert (next(array.parameters()).grad[:, 0] == 0).all()


def test_writes_into_fresh_memory():
    """Case A14."""

    class Fills(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3))

        def forward(self, x):
            m = torch.zeros(x.shape)
            m += x * self.w
            m[:, 0] = 1
            return m

    agrees(mse, build=Fills, data=lambda: (torch.randn(5, 3), torch.randn(5, 3)))


def test_a_branch_by_a_lanes_own_integer_is_data_of_the_model():
    """Case A15: Python numbers may differ between lanes; a value read from a tensor is refused."""

    class Picks(nn.Module):
        def __init__(self, letter):
            super().__init__()
            self.letter, self.linear = letter, nn.Linear(3, 2)

        def forward(self, x):
            return torch.tanh(self.linear(x)) if self.letter == "a" else self.linear(x) * 2

    models = [Picks(letter) for letter in "aba"]
    array = hfta.fuse(models)
    sgd = hfta.optim.SGD(array, lr=0.1)
    solos = [Solo(model, lane, lane, lambda p, _: torch.optim.SGD(p, lr=0.1)) for lane, model in enumerate(models)]
    step = array.record(sgd, mse, plan=WIDE)
    for k in range(3):
        inputs = torch.randn(5, 3), torch.randn(5, 2)
        losses = step(*inputs)
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(mse, inputs), f"lane {lane}", k + 1)
    assert "lanes of another structure do not fuse" in step.report()


def test_numbers_that_differ_between_lanes_fuse():
    models = [nn.Sequential(nn.Linear(3, 6), nn.LeakyReLU(slope), nn.Dropout(p), nn.Linear(6, 2)) for slope, p in ((0.1, 0.2), (0.2, 0.3), (0.3, 0.4))]
    array = hfta.fuse(models)
    sgd = hfta.optim.SGD(array, lr=0.1)
    solos = [Solo(model, lane, lane, lambda p, _: torch.optim.SGD(p, lr=0.1)) for lane, model in enumerate(models)]
    step = array.record(sgd, mse, plan=WIDE)
    for k in range(3):
        inputs = torch.randn(5, 3), torch.randn(5, 2)
        losses = step(*inputs)
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(mse, inputs), f"lane {lane}", k + 1)
    assert "1 groups of up to 8 lanes" in step.report() and "structure" not in step.report()


@pytest.mark.parametrize("shared", [True, False])
def test_attention_masks_shared_and_per_lane(shared):
    """Case A17."""

    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 2)

        def forward(self, x, mask):
            return self.head(self.attention(x, x, x, attn_mask=mask)[0].mean(1))

    def data():
        mask = torch.zeros(3, 6, 6, dtype=torch.bool)
        mask[:, :, 4:] = True
        mask[1, :, 1:] = True
        return torch.randn(5, 6, 4), mask[0] if shared else hfta.per_lane(mask), torch.randn(5, 2)

    agrees(lambda net, x, mask, y: F.mse_loss(net(x, mask), y), build=Attends, data=data)


def test_one_lane_and_many_train_alike():
    """Case A26: the loss is summed over lanes and a mean inside one."""
    models = [nn.Linear(3, 2) for _ in range(16)]
    many, one = hfta.fuse(models), hfta.fuse(models[5:6])
    a, b = hfta.optim.SGD(many, lr=0.1), hfta.optim.SGD(one, lr=0.1)
    for k in range(5):
        inputs = torch.randn(5, 3), torch.randn(5, 2)
        close(many.train_step(a, mse, *inputs)[5], one.train_step(b, mse, *inputs)[0], "loss", k + 1)
    assert torch.equal(many.lane(5).weight, one.lane(0).weight)


def test_a_nan_in_one_lane_changes_no_bit_of_another():
    models = [nn.Linear(3, 2) for _ in range(3)]
    x, y = torch.randn(5, 3), torch.randn(5, 2)
    results = []
    for broken in (False, True):
        array = hfta.fuse(models)
        if broken:
            with torch.no_grad():
                array.lane(1).weight.fill_(float("nan"))
        adam = hfta.optim.Adam(array)
        step = array.record(adam, mse, plan=hfta.Plan(width=3, workers=1, measures_lowerings=False))  # whose bits are compared
        for _ in range(3):
            step(x, y)
        results.append([array.lane_state_dict(lane) for lane in (0, 2)])
    for healthy, beside in zip(*results):
        assert all(torch.equal(healthy[name], beside[name]) for name in healthy)


def test_a_closure_that_is_evaluated_twice_gives_the_same_losses():
    """Case A8, with a stock LBFGS of each lane over its rows."""
    array = hfta.fuse([nn.Linear(3, 2).double() for _ in range(3)])
    inputs = torch.randn(5, 3).double(), torch.randn(5, 2).double()
    first, again = array.backward(mse, *inputs), array.backward(mse, *inputs)
    assert torch.equal(first, again)
    array.zero_grad()
    for lane in array:
        stock = torch.optim.LBFGS(lane.parameters(), lr=0.5, max_iter=3)

        def closure(lane=lane, stock=stock):
            stock.zero_grad()
            loss = mse(lane, *inputs)
            loss.backward()
            return loss

        stock.step(closure)
    assert (array.evaluate(mse, *inputs) < first).all()


@pytest.mark.parametrize("recorded", [False, True])
def test_a_loop_over_a_cell(recorded):
    """Case A11: no loop over lanes that the report does not tell."""

    class Unrolls(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(3, 6), nn.Linear(6, 2)

        def forward(self, x):
            state = None
            for step in x.split(1, dim=1):
                state = self.cell(step.squeeze(1), state)
            return self.head(state)

    data = lambda: (torch.randn(5, 4, 3), torch.randn(5, 2))
    if recorded:
        step = agrees(mse, build=Unrolls, data=data)
        assert "looped" not in step.report() and "structure" not in step.report(), step.report()
        return
    models = [Unrolls() for _ in range(3)]
    array, inputs = hfta.fuse(models), data()
    losses = array.train_step(hfta.optim.SGD(array, lr=0.1), mse, *inputs)
    for lane, model in enumerate(models):
        close(losses[lane], mse(model, *inputs).detach())


@pytest.mark.parametrize("recorded", [False, True])
def test_every_stacked_parameter_is_a_leaf_with_a_gradient(recorded):
    """Case A20."""

    def build():
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(18, 2))

    array = hfta.fuse([build() for _ in range(3)])
    array.backward(lambda net, x: net(x).square().mean(), torch.randn(2, 1, 5, 5), recorded=recorded)
    assert len(list(array.parameters())) == len(list(build().parameters()))
    for name, tensor in array.named_parameters():
        assert tensor.is_leaf and tensor.grad is not None and tensor.grad.shape == tensor.shape, name


def test_an_exported_lane_loads_in_stock_pytorch_and_comes_back(tmp_path):
    """Case C13: in a process that knows nothing of this package."""

    def build():
        return nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))

    array = hfta.fuse([build() for _ in range(3)])
    step = array.record(hfta.optim.Adam(array, lr=0.01), mse, plan=WIDE)
    x, y = torch.randn(5, 3), torch.randn(5, 2)
    for _ in range(3):
        step(x, y)
    array.eval()
    torch.save(array.lane_state_dict(1), tmp_path / "lane.pt")
    torch.save((x, array(x)[1]), tmp_path / "expected.pt")
    code = (
        "import sys, torch; from torch import nn; torch.set_num_threads(1)\n"
        "net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).eval()\n"
        "state = torch.load('lane.pt', weights_only=True); net.load_state_dict(state, strict=True)\n"
        "x, expected = torch.load('expected.pt', weights_only=True)\n"
        "assert torch.equal(net(x), expected) and 'hfta' not in sys.modules\n"
        "torch.save({name: tensor * 2 for name, tensor in net.state_dict().items()}, 'back.pt')\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    array.load_lane_state_dict(2, back)
    assert all(torch.equal(tensor, back[name]) for name, tensor in array.lane_state_dict(2).items())
