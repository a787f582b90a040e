"""The trainer against loops of plain PyTorch and against itself after an interruption."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from support import close
from torch import nn

import hfta

PLAN = hfta.Plan(width=1, workers=1, measures_lowerings=False)  # runs whose bits are compared compute the same way


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(4, 7, bias=False), nn.BatchNorm1d(7), nn.Dropout(0.2), nn.Linear(7, 3)

    def forward(self, x):
        return self.b(self.drop(self.norm(self.a(x)).relu()))


def loss_of(net, x, y):
    return F.cross_entropy(net(x), y)


def metrics_of(net, x, y):
    out = net(x)
    return {"accuracy": (out.argmax(1) == y).to(out.dtype).mean(), "validation_loss": F.cross_entropy(out, y)}


def data(items=30, batch=6):
    x = torch.randn(items, 4, generator=torch.Generator().manual_seed(5))
    y = (x @ torch.randn(4, 3, generator=torch.Generator().manual_seed(6))).argmax(1)
    return list(zip(x.split(batch), y.split(batch)))


def made(lanes=3, **options):
    array = hfta.fuse(Net, lanes=lanes)
    adam = hfta.optim.Adam(array, lr=[0.01 * (lane + 1) for lane in range(lanes)])
    schedule = hfta.optim.lr_scheduler.StepLR(adam, 2, gamma=0.5)
    options.setdefault("plan", PLAN)
    return array, hfta.Trainer(array, adam, loss_of, metrics=metrics_of, schedules=[schedule], **options)


@pytest.mark.parametrize("recorded", [True, False])
def test_trainer_equals_loops_over_single_models(recorded):
    array, trainer = made(recorded=recorded, max_norm=[1.0, 0.5, 2.0])
    records = trainer.run(data(), data(12, 5), epochs=3)
    assert [lane.state for lane in records] == ["finished"] * 3 and trainer.epoch == 3
    for lane in range(3):
        with torch.random.fork_rng():
            torch.manual_seed(lane)
            net = Net()
            adam = torch.optim.Adam(net.parameters(), lr=0.01 * (lane + 1))
            schedule = torch.optim.lr_scheduler.StepLR(adam, 2, gamma=0.5)
            for epoch in range(3):
                losses = []
                for x, y in data():
                    adam.zero_grad()
                    losses.append(loss_of(net, x, y))
                    losses[-1].backward()
                    nn.utils.clip_grad_norm_(net.parameters(), [1.0, 0.5, 2.0][lane])
                    adam.step()
                schedule.step()
                net.eval()
                with torch.no_grad():
                    seen = [metrics_of(net, x, y) for x, y in data(12, 5)]
                net.train()
                entry = records[lane].epochs[epoch]
                close(torch.tensor(entry["loss"]), torch.stack(losses).mean().detach(), "loss", 20)
                weights = torch.tensor([5.0, 5.0, 2.0])
                for name in ("accuracy", "validation_loss"):
                    values = torch.stack([metrics[name] for metrics in seen])
                    close(torch.tensor(entry[name]), (values * weights).sum() / 12, name, 20)
            for name, tensor in net.state_dict().items():
                close(array.lane_state_dict(lane)[name], tensor, name, 20)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("recorded", [True, False])
def test_trainer_resumes_as_if_it_had_never_stopped(tmp_path, recorded, accumulate):
    whole, trainer = made(recorded=recorded, accumulate=accumulate)
    loader = torch.utils.data.DataLoader(list(zip(*(torch.cat(part) for part in zip(*data())))), batch_size=6, shuffle=True)
    trainer.run(loader, data(12), epochs=4)

    plan = trainer.plan if recorded else PLAN  # with the lowerings that were chosen by timing: others round otherwise
    _, first = made(recorded=recorded, accumulate=accumulate, plan=plan, checkpoint=tmp_path / "run" / "training.pt")
    torch.manual_seed(99)  # the batches' order does not depend on it
    first.run(loader, data(12), epochs=2)
    array, second = made(recorded=recorded, accumulate=accumulate, plan=plan)
    second.resume(tmp_path / "run" / "training.pt")
    assert second.epoch == 2
    second.run(loader, data(12), epochs=4)
    for one, other in zip(second.lanes, trainer.lanes):
        assert (one.state, [epoch["loss"] for epoch in one.epochs]) == (other.state, [epoch["loss"] for epoch in other.epochs])
        assert all(a == pytest.approx(b, rel=1e-5) for a, b in zip(one.epochs, other.epochs))  # evaluation has lowerings of its own
    for name, tensor in whole.named_parameters():
        assert torch.equal(tensor, dict(array.named_parameters())[name]), name


def test_trainer_leaves_torchs_random_numbers_alone():
    _, trainer = made()
    before = torch.get_rng_state()
    trainer.run(data(), epochs=1)
    assert torch.equal(before, torch.get_rng_state())

    class Fails(hfta.Callback):
        def on_step(self, trainer, report):
            raise ValueError("mine")

    _, fails = made(callbacks=[Fails()])
    with pytest.raises(ValueError, match="mine") as error:
        fails.run(data(), epochs=1)
    assert torch.equal(before, torch.get_rng_state()), error


def test_trainer_stops_lanes_early_and_drops_them():
    array, trainer = made(lanes=4, early_stop=hfta.EarlyStop(metric="accuracy", patience=1, maximize=True, min_delta=2.0))
    ended = []

    class Watch(hfta.Callback):
        def on_lane_end(self, trainer, lane, index):
            ended.append((lane.id, trainer.ids[index]))

        def on_epoch(self, trainer, report):
            if report.epoch == 0:
                trainer.stop_lane(2, "enough")

    trainer._callbacks.append(Watch())
    records = trainer.run(data(), data(12), epochs=5)
    assert [lane.state for lane in records] == ["stopped"] * 4
    assert records[2].reason == "enough" and records[0].reason == "accuracy was no better for 1 epochs"
    assert [len(lane.epochs) for lane in records] == [2, 2, 1, 2]
    assert sorted(ended) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert array.lanes == 3 and trainer.ids == [0, 1, 3]


def test_trainer_marks_a_lane_of_nan_failed_and_others_do_not_notice():
    array, trainer = made()
    healthy = copy.deepcopy(array)
    adam = hfta.optim.Adam(healthy, lr=[0.01, 0.02, 0.03])
    schedule = hfta.optim.lr_scheduler.StepLR(adam, 2, gamma=0.5)
    hfta.Trainer(healthy, adam, loss_of, schedules=[schedule], plan=PLAN).run(data(), epochs=2)
    with torch.no_grad():
        array.lane(1).b.weight[0, 0] = float("nan")
    records = trainer.run(data(), epochs=2)
    assert [lane.state for lane in records] == ["finished", "failed", "finished"]
    assert records[1].reason == "the loss became NaN in epoch 1, step 1"
    for id in (0, 2):
        for name, tensor in healthy.lane(id).state_dict().items():
            assert torch.equal(tensor, array.lane(trainer.ids.index(id)).state_dict()[name]), name


def test_trainer_goes_on_by_plain_steps_where_recording_is_refused():
    array = hfta.fuse(Net, lanes=2)

    def reads(net, x, y):
        loss = loss_of(net, x, y)
        return loss * 2 if loss.item() > 100 else loss

    trainer = hfta.Trainer(array, hfta.optim.SGD(array, lr=0.1), reads)
    trainer.run(data(), epochs=1)
    assert "plain steps" in trainer.report() and "item" in trainer.report()
    assert not trainer.plan.recorded


def test_trainer_takes_per_lane_inputs_dicts_and_functions_of_the_epoch():
    array = hfta.fuse(Net, lanes=3)
    epochs = []

    def batches(epoch):
        epochs.append(epoch)
        return ({"x": hfta.per_lane(x.expand(3, *x.shape)), "y": y} for x, y in data())

    trainer = hfta.Trainer(array, hfta.optim.SGD(array, lr=[0.1, 0.2, 0.3]), lambda net, b: loss_of(net, b["x"], b["y"]), plan=PLAN)
    trainer.run(batches, epochs=2)
    assert epochs == [0, 1] and all(len(lane.epochs) == 2 for lane in trainer.lanes)


def test_trainer_ends_after_the_epoch_when_asked_and_goes_on():
    _, trainer = made(callbacks=[lambda report: trainer.stop()])
    trainer.run(data(), epochs=3)
    assert trainer.epoch == 1 and trainer.lanes[0].is_running
    trainer.run(data(), epochs=3)
    assert trainer.epoch == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accumulate": 0}, "hfta.Trainer: expected accumulate of at least 1, got 0"),
        ({"max_norm": [1.0, 2.0]}, "hfta: expected max_norm as one number or 3 (one per lane), got 2"),
    ],
)
def test_trainer_refuses_wrong_options(change, message):
    with pytest.raises(hfta.InvalidArgument) as error:
        made(**change)
    assert str(error.value) == message


def test_trainer_refuses_what_it_cannot_go_through_twice_and_foreign_checkpoints(tmp_path):
    _, trainer = made()
    with pytest.raises(hfta.InvalidArgument, match="got an iterator"):
        trainer.run(iter(data()), epochs=1)
    with pytest.raises(hfta.InvalidArgument, match="at least 1 batches in epoch 0, got fewer"):
        trainer.run([], epochs=1)
    torch.save({"a": 1}, tmp_path / "other.pt")
    with pytest.raises(hfta.InvalidArgument, match="expected a checkpoint of a training run, got another kind of file"):
        trainer.resume(tmp_path / "other.pt")
    (tmp_path / "noise.pt").write_bytes(b"noise")
    with pytest.raises(hfta.InvalidArgument, match="expected a checkpoint"):
        trainer.resume(tmp_path / "noise.pt")
    _, four = made(lanes=4)
    four.run(data(), epochs=1)
    four.save(tmp_path / "four.pt")
    with pytest.raises(hfta.InvalidArgument, match=r"expected lanes with the seeds \[0, 1, 2\], got \[0, 1, 2, 3\]"):
        trainer.resume(tmp_path / "four.pt")
