"""What lanes do not train and have in common is stored once, until a lane's is written."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from recording import WIDE
from support import Solo, bits_equal, check_lane, check_steps, close
from torch import nn

import hfta


class Adapted(nn.Module):
    """A linear layer with a low-rank adapter, padded to a rank that all lanes have: padded rows are masked."""

    def __init__(self, base: nn.Linear, rank: int, most: int):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.zeros(most, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, most))
        self.register_buffer("mask", (torch.arange(most) < rank).float())
        nn.init.normal_(self.down[:rank].data, std=0.3)
        self.down.data[rank:] = 0

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.down) * self.mask, self.up)


def trunk():
    torch.manual_seed(5)
    layers = nn.Sequential(nn.Linear(12, 40), nn.LayerNorm(40), nn.GELU(), nn.Linear(40, 40), nn.GELU(), nn.Linear(40, 3))
    return layers.requires_grad_(False)


RANKS = [4, 4, 8, 8, 16, 2, 1, 3]
RATES = [1e-2, 2e-2, 3e-3, 1e-2, 5e-3, 2e-2, 1e-2, 1e-3]


def adapted(rank, most=16):
    model = trunk()
    for index in (0, 3, 5):
        model[index] = Adapted(model[index], rank, most)
    return model


def loss_of(net, x, y):
    return F.cross_entropy(net(x), y)


def data():
    return torch.randn(9, 12), torch.randint(3, (9,))


def memories(array):
    """Each lane's frozen parameters and buffers, by where they lie. (To ask Python for the address would make a copy.)"""
    return {name: tensor.stride(0) == 0 for name, tensor in (*array.named_parameters(), *array.named_buffers())}


@pytest.mark.parametrize("recorded", [False, True])
def test_adapters_of_several_ranks_on_one_frozen_base(recorded):
    """Case A28: the base is stored once, each adapter is trained as alone, padded rows stay zero."""
    models = [adapted(rank) for rank in RANKS]
    array = hfta.fuse(models)
    assert memories(array) == {name: ".down" not in name and ".up" not in name and "mask" not in name for name in memories(array)}
    base = sum(p.nbytes for p in trunk().parameters())
    assert array._core.shared_bytes == base
    adam = hfta.optim.Adam(array, lr=RATES)
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.Adam(p, lr=RATES[lane])) for lane, model in enumerate(models)]
    step = array.record(adam, loss_of, plan=WIDE) if recorded else lambda *inputs: array.train_step(adam, loss_of, *inputs)
    check_steps(array, solos, step, loss_of, data, 20)
    for lane, (solo, rank) in enumerate(zip(solos, RANKS)):
        for index in (0, 3, 5):
            net = array.lane(lane)[index]
            assert not net.down[rank:].any() and not net.up[:, rank:].any() and net.up[:, :rank].any()
    assert array._core.shared_bytes == base, "training leaves the base stored once"
    assert "stored once" in array.report()


def test_a_frozen_trunk_runs_once_for_all_lanes():
    """What no lane changes is computed once: only the heads are many."""

    def build():
        torch.manual_seed(3)
        body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 20)).requires_grad_(False)
        return nn.Sequential(body.eval(), nn.Linear(20, 3))

    class Probe(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.head = build()
            nn.init.normal_(self.head.weight, std=torch.rand(()).item())

        def train(self, mode=True):
            super().train(mode)
            self.trunk.eval()
            return self

        def forward(self, x):
            return self.head(self.trunk(x))

    models = [Probe() for _ in range(4)]
    for lane, model in enumerate(models):
        model.head.weight.data += lane * 0.1
    array = hfta.fuse(models)
    sgd = hfta.optim.SGD(array, lr=0.1)
    step = array.record(sgd, loss_of, plan=WIDE)
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.SGD([q for q in p if q.requires_grad], lr=0.1)) for lane, model in enumerate(models)]
    for _ in range(5):
        inputs = torch.randn(6, 1, 8, 8), torch.randint(3, (6,))
        losses = step(*inputs)
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(loss_of, inputs), f"lane {lane}", 5)
    assert memories(array)["trunk.0.weight"] and memories(array)["trunk.1.running_mean"]
    convolutions = [line for line in step.program().splitlines() if "convolution" in line]
    assert len(convolutions) == 1 and "[6, 4, 6, 6]" in convolutions[0], "no lane axis in the trunk"


def test_what_a_step_writes_is_each_lanes_own():
    """A frozen part's batch statistics begin equal, and are rows as soon as they are written, by plain and by recorded steps."""

    def build():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(12, 5), nn.BatchNorm1d(5).requires_grad_(False), nn.Linear(5, 3))

    models = [build() for _ in range(3)]
    for lane, model in enumerate(models):
        model[0].weight.data *= lane + 1
    plain, recorded = hfta.fuse(models), hfta.fuse(models)
    before = dict(plain.named_buffers())
    assert memories(plain)["1.running_mean"]
    inputs = data()
    plain.train_step(hfta.optim.SGD(plain, lr=0.1), loss_of, *inputs)
    recorded.record(hfta.optim.SGD(recorded, lr=0.1), loss_of, plan=WIDE)(*inputs)
    for (name, a), b in zip(plain.named_buffers(), recorded.buffers()):
        close(a, b, name)
        assert a is before[name], "who holds the stacked tensor sees the new rows"
        assert a.stride(0) != 0
    assert not torch.equal(plain.lane(0)[1].running_mean, plain.lane(1)[1].running_mean)


def test_buffers_of_parts_that_are_trained_are_rows():
    array = hfta.fuse([nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for _ in range(2)])
    assert not any(memories(array).values())
    array._core.buffers()[0][1].copy_(torch.arange(8.0).view(2, 4))
    assert array.lane(1)[1].running_mean.tolist() == [4, 5, 6, 7]


def test_a_step_that_binds_shared_buffers_to_other_memory_is_refused():
    class Rebinds(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = nn.BatchNorm1d(12, affine=True).requires_grad_(False)
            self.out = nn.Linear(12, 3)

        def forward(self, x):
            self.frozen.running_mean.data = self.frozen.running_mean * 0.9 + x.mean(0)
            return self.out(x - self.frozen.running_mean)

    array = hfta.fuse([Rebinds() for _ in range(2)])
    assert memories(array)["frozen.running_mean"]
    with pytest.raises(hfta.Unsupported, match='got "frozen.running_mean" bound to other memory'):
        array.record(hfta.optim.SGD(array, lr=0.1), loss_of, plan=WIDE)(*data())
    models = [copy.deepcopy(array.lane(lane)) for lane in range(2)]
    inputs = data()
    array.train_step(hfta.optim.SGD(array, lr=0.1), loss_of, *inputs)
    for lane, model in enumerate(models):
        model(inputs[0])
        close(array.lane(lane).frozen.running_mean, model.frozen.running_mean, f"lane {lane}")


@pytest.mark.parametrize("recorded", [False, True])
def test_a_lane_that_is_written_leaves_the_others_as_they_are(recorded):
    array = hfta.fuse([adapted(2) for _ in range(3)])
    sgd = hfta.optim.SGD(array, lr=0.1)
    step = array.record(sgd, loss_of, plan=WIDE) if recorded else lambda *inputs: array.train_step(sgd, loss_of, *inputs)
    step(*data())
    alone = [copy.deepcopy(array.lane(lane)) for lane in range(3)]
    for model in (array.lane(1), alone[1]):
        model[0].base.weight.data.mul_(2)  # no version tells of it
    with torch.no_grad():
        for model in (array.lane(2), alone[2]):
            model[1].weight.add_(1)
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.SGD(p, lr=0.1)) for lane, model in enumerate(alone)]
    inputs = data()
    losses = step(*inputs)
    for lane, solo in enumerate(solos):
        close(losses[lane], solo.step(loss_of, inputs), f"lane {lane}")
        check_lane(array, lane, solo, 1)
    kept = memories(array)
    assert not kept["0.base.weight"] and not kept["1.weight"] and kept["3.base.weight"]


def test_a_write_into_a_stacked_tensor_that_repeats_one_value_is_refused():
    array = hfta.fuse([adapted(2) for _ in range(3)])
    weight = dict(array.named_parameters())["1.weight"]
    with pytest.raises(RuntimeError, match="memory location"):
        weight.data.add_(1)
    before = weight.clone()
    weight.data[1].zero_()
    with pytest.raises(hfta.InvalidArgument, match='expected "1.weight", which is equal in all lanes and stored once, to be written through the lanes'):
        array.evaluate(lambda net, x: net(x), torch.randn(2, 12))
    assert torch.equal(dict(array.named_parameters())["1.weight"], before)
    array.evaluate(lambda net, x: net(x), torch.randn(2, 12))


def test_lanes_move_and_copies_are_made_with_one_base():
    models = [adapted(2) for _ in range(4)]
    array = hfta.fuse(models)
    shared = array._core.shared_bytes
    gone = array.lane(1)
    array.keep([3, 0, 2])
    array.append([adapted(2)])
    array.copy_lane(0, 1)
    assert array.lanes == 4 and array._core.shared_bytes == shared
    gone[1].weight.data.add_(1)
    assert bits_equal(array.lane(0)[1].weight, models[0][1].weight), "a dropped lane is on its own"
    other = adapted(2)
    other[1].weight.data.add_(1)
    array.append([other])
    assert bits_equal(array.lane(4)[1].weight, other[1].weight) and bits_equal(array.lane(3)[1].weight, models[0][1].weight)
    assert not memories(array)["1.weight"] and memories(array)["0.base.weight"]
    array.to(torch.float64)
    assert array.lane(2)[0].base.weight.dtype == torch.float64 and memories(array)["0.base.weight"]


def test_state_goes_both_ways_with_one_base():
    models = [adapted(2) for _ in range(3)]
    array, other = hfta.fuse(models), hfta.fuse([adapted(2) for _ in range(3)])
    for model in (array.lane(0), array.lane(2)):
        model[0].down.data.normal_()
    file = io.BytesIO()
    torch.save(array.state_dict(), file)
    stacked = sum(t.nbytes if t.stride(0) else t[0].nbytes for t in (*array.parameters(), *array.buffers()))
    assert file.tell() < 1.5 * stacked + 60_000, "the file holds the base once"
    other.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    for lane in range(3):
        for name, tensor in array.lane_state_dict(lane).items():
            assert bits_equal(other.lane_state_dict(lane)[name], tensor), name
    assert other._core.shared_bytes == array._core.shared_bytes
    state = array.lane_state_dict(1)
    array.load_lane_state_dict(1, state)
    assert array._core.shared_bytes == other._core.shared_bytes
    state["1.weight"] = state["1.weight"] + 1
    array.load_lane_state_dict(1, state)
    assert not memories(array)["1.weight"]
    assert bits_equal(array.lane(0)[1].weight, models[0][1].weight) and bits_equal(array.lane(1)[1].weight, state["1.weight"])
    other.load_state_dict(array.state_dict())
    assert bits_equal(other.lane(1)[1].weight, state["1.weight"]) and bits_equal(other.lane(2)[1].weight, models[0][1].weight)


def test_pickles_and_deep_copies_hold_the_base_once():
    models = [nn.Sequential(nn.Linear(300, 300).requires_grad_(False), nn.Linear(300, 1)) for _ in range(6)]
    for model in models[1:]:
        model[0].load_state_dict(models[0][0].state_dict())
    array = hfta.fuse(models)
    text = pickle.dumps(array)
    assert len(text) < 2 * models[0][0].weight.nbytes
    for made in (pickle.loads(text), copy.deepcopy(array)):
        assert made._core.shared_bytes == array._core.shared_bytes
        made.lane(2)[0].weight.data.add_(1)
        assert bits_equal(made.lane(1)[0].weight, array.lane(1)[0].weight) and bits_equal(array.lane(2)[0].weight, array.lane(1)[0].weight)


def test_one_base_given_to_all_lanes_by_a_factory_is_refused_with_what_to_do():
    base = nn.Linear(3, 3).requires_grad_(False)
    with pytest.raises(hfta.InvalidArgument, match="give each lane a copy: what is frozen and equal is stored once"):
        hfta.fuse(lambda: nn.Sequential(base, nn.Linear(3, 1)), lanes=2)
    array = hfta.fuse([nn.Sequential(base, nn.Linear(3, 1)) for _ in range(2)])
    assert array._core.shared_bytes == sum(p.nbytes for p in base.parameters())


@pytest.mark.parametrize(
    "frozen, shape",
    [
        (lambda: nn.Conv2d(3, 4, 3, padding=1, groups=1), (2, 3, 6, 6)),
        (lambda: nn.ConvTranspose1d(3, 4, 3), (2, 3, 7)),
        (lambda: nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.BatchNorm2d(3).eval()), (2, 3, 6, 6)),
        (lambda: nn.LSTM(3, 4, num_layers=2), (5, 2, 3)),
        (lambda: nn.GRU(3, 4, bidirectional=True), (5, 2, 3)),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), (5, 2, 4)),
        (lambda: nn.Sequential(nn.LayerNorm(4), nn.PReLU(2), nn.RMSNorm(4)), (5, 2, 4)),
        (lambda: nn.Sequential(nn.Conv1d(4, 4, 1), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True)), (3, 4, 6)),
    ],
    ids=["conv", "transposed", "depthwise", "lstm", "gru", "transformer", "norms", "group norm"],
)
def test_frozen_layers_behind_trained_ones(frozen, shape):
    """Shared weights meet values that differ between lanes, and gradients pass through them."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.layer = nn.Parameter(torch.randn(shape[1:])), body

        def forward(self, x):
            out = self.layer(x * self.scale)
            return out[0] if isinstance(out, tuple) else out

    body = frozen().requires_grad_(False)
    models = [Net() for _ in range(3)]
    array = hfta.fuse(models)
    assert array._core.shared_bytes > 0
    step = array.record(hfta.optim.SGD(array, lr=0.1), lambda net, x: net(x).tanh().pow(2).mean(), plan=WIDE)
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.SGD([q for q in p if q.requires_grad], lr=0.1)) for lane, model in enumerate(models)]
    check_steps(array, solos, step, lambda net, x: net(x).tanh().pow(2).mean(), lambda: (torch.randn(shape),), 4)


_MEMORY = """
import torch, hfta
from torch import nn

torch.set_num_threads(1)

class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(4)]).requires_grad_(False)
        for layer in self.base:
            nn.init.eye_(layer.weight)
        self.down, self.up = nn.Parameter(torch.randn(4, 1024) * 0.01), nn.Parameter(torch.zeros(1024, 4))

    def forward(self, x):
        return self.base(x + x @ self.down.T @ self.up.T)

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

nn.Linear(64, 64)(torch.randn(4, 64)).sum().backward()
before = resident()
array = hfta.fuse(Adapted, lanes=16)
fused = resident() - before
step = array.record(hfta.optim.Adam(array, lr=1e-3), lambda net, x: net(x).pow(2).mean(), plan=hfta.Plan(width=16))
for _ in range(4):
    step(torch.randn(4, 1024))
print(fused, resident() - before)
"""


def test_the_process_holds_one_base_not_one_per_lane():
    """Case A28: 16 lanes on a base of 16 MiB; rows would take 256 MiB."""
    fused, trained = map(float, subprocess.run([sys.executable, "-c", _MEMORY], check=True, capture_output=True, text=True).stdout.split())
    assert fused < 48, fused
    assert trained < 128, "recording and its checks take a few copies, not one per lane"
