"""Arrays: how models become lanes, and how lanes are models again."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hfta


class Net(nn.Module):
    def __init__(self, hidden: int = 5):
        super().__init__()
        self.first = nn.Linear(3, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.last = nn.Linear(hidden, 2)
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)

    def forward(self, x):
        return self.last(F.relu(self.norm(self.first(x)))) * self.scale


def mse(net, x, y):
    return F.mse_loss(net(x), y)


def test_fuse_copies_the_models_and_leaves_them_as_they_are():
    models = [Net() for _ in range(3)]
    before = [copy.deepcopy(model.state_dict()) for model in models]
    array = hfta.fuse(models)
    hfta.optim.SGD(array, lr=0.1)
    array.train_step(hfta.optim.SGD(array, lr=0.1), mse, torch.randn(4, 3), torch.randn(4, 2))
    for lane, model in enumerate(models):
        assert array.lane(lane) is not model
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, before[lane][name])
    assert array.lanes == len(array) == 3 and array.seeds == [0, 1, 2]


def test_a_factory_builds_what_the_seeded_program_builds():
    torch.manual_seed(123)
    expected_next = torch.rand(1)
    torch.manual_seed(123)
    array = hfta.fuse(Net, lanes=3, seeds=[5, 6, 7])
    assert torch.equal(torch.rand(1), expected_next), "torch's generator is as it was"
    for lane, seed in enumerate([5, 6, 7]):
        torch.manual_seed(seed)
        solo = Net()
        for name, tensor in solo.state_dict().items():
            assert torch.equal(array.lane_state_dict(lane)[name], tensor)
    widths = []
    hfta.fuse(lambda lane: widths.append(lane) or Net(), lanes=2)
    assert widths == [0, 1]


def test_a_lane_is_a_view_and_a_copy_is_its_own():
    array = hfta.fuse([Net() for _ in range(3)])
    lane = array.lane(1)
    own = array.lane(1, copy=True)
    with torch.no_grad():
        lane.first.weight.fill_(7)
    stacked = dict(array.named_parameters())["first.weight"]
    assert (stacked[1] == 7).all() and not (stacked[0] == 7).any() and not (own.first.weight == 7).any()
    assert own.first.weight.untyped_storage().nbytes() == own.first.weight.numel() * 4
    assert isinstance(own.first.weight, nn.Parameter) and own.scale.item() == 2
    assert pickle.loads(pickle.dumps(own)).first.weight.shape == (5, 3)
    assert array.lane(-1) is array.lane(2)
    with pytest.raises(IndexError, match=r"hfta.Array: expected a lane from 0 to 2, got 3"):
        array.lane(3)


def test_stacked_parameters_are_leaves_named_as_in_the_single_model():
    array = hfta.fuse([Net() for _ in range(3)])
    assert [name for name, _ in array.named_parameters()] == [name for name, _ in Net().named_parameters()]
    for _, tensor in array.named_parameters():
        assert tensor.is_leaf and tensor.requires_grad and tensor.shape[0] == 3 and tensor.grad is None
    assert [name for name, _ in array.named_buffers()] == [name for name, _ in Net().named_buffers()]
    array.backward(mse, torch.randn(4, 3), torch.randn(4, 2))
    assert all(tensor.grad is not None and tensor.grad.shape == tensor.shape for tensor in array.parameters())


def test_lane_state_goes_both_ways_through_stock_pytorch():
    array = hfta.fuse([Net() for _ in range(3)])
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    adam = hfta.optim.Adam(array, lr=[0.1, 0.01, 0.001])
    for _ in range(3):
        array.train_step(adam, mse, x, y)
    file = io.BytesIO()
    torch.save(array.lane_state_dict(1), file)
    assert file.tell() < 6000, "a lane's tensors are saved alone"
    file.seek(0)
    solo = Net()
    solo.load_state_dict(torch.load(file, weights_only=True), strict=True)
    array.eval(), solo.eval()
    assert torch.equal(array(x)[1], solo(x))
    stock = torch.optim.Adam(solo.parameters())
    stock.load_state_dict(adam.lane_state_dict(1))
    solo.train(), array.train()
    stock.zero_grad()
    mse(solo, x, y).backward()
    stock.step()
    array.load_lane_state_dict(2, array.lane_state_dict(1))
    adam.load_lane_state_dict(2, adam.lane_state_dict(1))
    array.train_step(adam, mse, x, y)
    for name, tensor in solo.state_dict().items():
        for lane in (1, 2):
            torch.testing.assert_close(array.lane_state_dict(lane)[name], tensor, rtol=1e-5, atol=1e-6)
    array.load_lane_state_dict(0, solo.state_dict())
    for name, tensor in solo.state_dict().items():
        assert torch.equal(array.lane_state_dict(0)[name], tensor)


def test_a_state_that_does_not_fit_is_refused_before_anything_is_written():
    array = hfta.fuse([Net() for _ in range(2)])
    before = array.lane_state_dict(1)
    for change, message in [
        (lambda state: state.pop("last.bias"), "Missing key.*last.bias"),
        (lambda state: state.update(extra=torch.zeros(1)), "Unexpected key.*extra"),
        (lambda state: state.update({"last.bias": torch.zeros(3)}), "size mismatch for last.bias"),
        (
            lambda state: state.update({"last.bias": torch.zeros(2, dtype=torch.float64)}),
            'expected "last.bias" as torch.float32, got torch.float64',
        ),
    ]:
        state = {name: torch.ones_like(tensor) for name, tensor in before.items()}
        change(state)
        with pytest.raises(hfta.InvalidArgument, match=message):
            array.load_lane_state_dict(1, state)
        for name, tensor in before.items():
            assert torch.equal(array.lane_state_dict(1)[name], tensor)


def test_array_state_goes_into_another_array_of_the_same_seeds():
    array = hfta.fuse(Net, lanes=3)
    array.train_step(hfta.optim.SGD(array, lr=0.1), mse, torch.randn(4, 3), torch.randn(4, 2))
    other = hfta.fuse(Net, lanes=3)
    other.load_state_dict(copy.deepcopy(array.state_dict()))
    for a, b in zip(array.parameters(), other.parameters()):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="expected 2 lanes, got 3"):
        hfta.fuse(Net, lanes=2).load_state_dict(array.state_dict())


def test_tied_and_shared_tensors_are_stacked_once():
    """Case A21."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4, bias=False)
            self.b = nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight
            self.again = self.a

        def forward(self, x):
            return self.again(self.b(self.a(x)))

    array = hfta.fuse([Tied() for _ in range(3)])
    assert [name for name, _ in array.named_parameters()] == ["a.weight"]
    lane = array.lane(2)
    assert lane.b.weight is lane.a.weight and lane.again is lane.a
    assert list(array.lane_state_dict(0)) == ["a.weight", "b.weight", "again.weight"]
    x = torch.randn(5, 4)
    array.backward(lambda net, x: net(x).square().mean(), x)
    solo = array.lane(1, copy=True)
    solo.zero_grad()
    solo(x).square().mean().backward()
    torch.testing.assert_close(dict(array.named_parameters())["a.weight"].grad[1], solo.a.weight.grad)
    assert solo.b.weight is solo.a.weight, "the tie holds in a copy"


def test_pickle_and_deepcopy_make_an_array_of_its_own():
    array = hfta.fuse(Net, lanes=3, seeds=[3, 4, 5])
    array.eval()
    for other in (pickle.loads(pickle.dumps(array)), copy.deepcopy(array)):
        assert other.seeds == [3, 4, 5] and not other.training
        for a, b in zip(array.parameters(), other.parameters()):
            assert torch.equal(a, b)
        with torch.no_grad():
            next(other.parameters()).zero_()
        assert next(array.parameters()).abs().sum() > 0


def test_keep_append_and_copy_move_lanes():
    array = hfta.fuse(Net, lanes=4)
    adam = hfta.optim.Adam(array, lr=[1.0, 2.0, 3.0, 4.0])
    values = [array.lane_state_dict(lane) for lane in range(4)]
    dropped = array.lane(0)
    array.keep([3, 1])
    assert array.lanes == 2 and array.seeds == [3, 1] and adam.param_groups[0]["lr"] == [4.0, 2.0]
    assert torch.equal(array.lane(0).first.weight, values[3]["first.weight"])
    with torch.no_grad():
        next(array.parameters()).zero_()
    assert torch.equal(dropped.first.weight, values[0]["first.weight"]), "a dropped lane's module has tensors of its own"
    array.append([Net(), Net()], seeds=[8, 9])
    assert array.lanes == 4 and array.seeds == [3, 1, 8, 9]
    array.copy_lane(1, 3)
    assert torch.equal(array.lane(3).last.weight, array.lane(1).last.weight)
    with pytest.raises(ValueError, match="lane 4"):
        array.append([nn.Linear(3, 2)])
    assert array.lanes == 4 and len(list(array)) == 4
    with pytest.raises(ValueError, match="at least one lane"):
        array.keep([])


def test_modes_go_to_the_modules():
    array = hfta.fuse([Net() for _ in range(2)])
    assert array.training
    assert array.eval() is array and not any(part.training for net in array for part in net.modules())
    array.train()
    assert all(part.training for net in array for part in net.modules())
    x = torch.randn(4, 3)
    outputs = array(x)
    assert outputs.shape == (2, 4, 2) and not outputs.requires_grad
    assert array.lane(0).norm.num_batches_tracked == 1


def test_to_converts_and_moves_all_tensors():
    array = hfta.fuse([Net() for _ in range(2)])
    adam = hfta.optim.Adam(array)
    array.to(torch.float64)
    assert next(array.parameters()).dtype == torch.float64 and array.lane(1).first.weight.dtype == torch.float64
    assert array.train_step(adam, mse, torch.randn(4, 3).double(), torch.randn(4, 2).double()).dtype == torch.float64
    with pytest.raises(hfta.Unsupported, match="expected a device that is there, got cuda" if not torch.cuda.is_available() else "cuda:99"):
        array.to("cuda:99" if torch.cuda.is_available() else "cuda")


def test_a_compiled_model_is_unwrapped_and_lazy_ones_are_refused():
    net = Net()
    net.eval()
    array = hfta.fuse([torch.compile(Net()) for _ in range(2)])
    assert type(array.lane(0)) is Net
    with pytest.raises(ValueError, match="run a lazy module once before"):
        hfta.fuse([nn.LazyLinear(3)])


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (lambda: [Net(5), Net(6)], r'expected lane 1 as lane 0, got parameter "first.weight" \[6, 3\] where lane 0 has \[5, 3\]'),
        (
            lambda: [nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Sequential(nn.Linear(2, 2), nn.GELU())],
            'got GELU as "1" where lane 0 has ReLU',
        ),
        (lambda: [nn.Linear(2, 2), nn.Linear(2, 2, bias=False)], 'got nothing where lane 0 has parameter "bias"'),
        (lambda: [nn.Linear(2, 2), nn.Linear(2, 2).double()], 'got parameter "weight" Double where lane 0 has Float'),
        (lambda: [nn.Linear(2, 2), "net"], "expected a torch.nn.Module as lane 1, got str"),
        (list, "expected at least one lane, got none"),
        (lambda: nn.Linear(2, 2), "expected a sequence of models or a factory, got a Linear"),
    ],
)
def test_models_that_do_not_fuse_are_refused_with_the_first_difference(models, message):
    with pytest.raises(ValueError, match=message):
        hfta.fuse(models())


def test_wrong_numbers_of_lanes_and_seeds_are_refused():
    with pytest.raises(ValueError, match="expected the number of lanes for a factory"):
        hfta.fuse(Net)
    with pytest.raises(ValueError, match=r"expected 3 seeds \(one per lane\), got 2"):
        hfta.fuse(Net, lanes=3, seeds=[1, 2])
    with pytest.raises(ValueError, match="expected 2 lanes as there are models, got lanes=3"):
        hfta.fuse([Net(), Net()], lanes=3)


def test_fusing_warns_of_memory_held_elsewhere_only_where_it_is(capfd):
    hfta.fuse([nn.BatchNorm1d(3) for _ in range(2)])
    assert "is also held" not in capfd.readouterr().err

    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale_of_test", torch.ones(3))
            self.view = [self.scale_of_test.view(1, 3)]

    hfta.fuse(Holds, lanes=2)
    assert '"scale_of_test" is also held' in capfd.readouterr().err
