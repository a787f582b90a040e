"""Inputs whose shape varies: a last batch that is short, texts of any length."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from recording import WIDE, mse, net
from support import Solo, check_lane, close
from torch import nn

import hfta


class Tagger(nn.Module):
    """Gives each word of a text one of three tags; word 0 is padding."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(11, 5, padding_idx=0), nn.LayerNorm(5), nn.Linear(5, 3)

    def forward(self, tokens):
        return self.head(self.norm(self.embed(tokens)).tanh())


def tags_loss(model, tokens, tags):
    return F.cross_entropy(model(tokens).transpose(1, 2), tags, ignore_index=-100)


def texts(lengths, batch=3):
    return [(torch.randint(1, 11, (batch, length)), torch.randint(3, (batch, length))) for length in lengths]


PADS = [hfta.Pad(1, to=4), hfta.Pad(-1, to=4, value=-100)]


def stock(parameters, _):
    return torch.optim.SGD(parameters, lr=0.1)


def solos_of(models):
    return [Solo(model, lane, lane, stock) for lane, model in enumerate(models)]


def test_a_short_last_batch_is_recorded_as_well():
    models = [net() for _ in range(3)]
    array, solos = hfta.fuse(models), solos_of(models)
    step = array.record(hfta.optim.SGD(array, lr=0.1), mse, plan=WIDE)
    for size in (5, 5, 2) * 3:
        inputs = torch.randn(size, 3), torch.randn(size, 2)
        losses = step(*inputs)
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(mse, inputs), f"lane {lane}", 9)
    assert "2 recordings kept (at most 8), 0 dropped" in step.report()


def test_padded_texts_train_as_texts_and_take_few_recordings():
    models = [Tagger() for _ in range(3)]
    array, solos = hfta.fuse(models), solos_of(models)
    step = array.record(hfta.optim.SGD(array, lr=0.1), tags_loss, plan=WIDE, pad=PADS)
    for inputs in texts([3, 7, 1, 4, 6, 8, 2, 5]):
        losses = step(*inputs)
        for lane, solo in enumerate(solos):
            close(losses[lane], solo.step(tags_loss, inputs), f"lane {lane}", 8)
    for lane, solo in enumerate(solos):
        check_lane(array, lane, solo, 8)
    assert "2 recordings kept" in step.report()


def test_padding_lengthens_the_axis_that_was_named():
    assert hfta.Pad(0, to=4)(torch.ones(5, 2)).shape == (8, 2)
    assert torch.equal(hfta.Pad(-1, to=[2, 6], value=7)(torch.ones(1, 4)), torch.tensor([[1.0, 1, 1, 1, 7, 7]]))
    assert hfta.Pad(1, to=[2, 6])(torch.ones(1, 9)).shape == (1, 9), "longer than all sizes: as it is"
    given = torch.ones(1, 6)
    assert hfta.Pad(1, to=[2, 6])(given) is given
    assert hfta.Pad(0, to=4)(hfta.per_lane(torch.ones(3, 5, 2))).tensor.shape == (3, 8, 2)
    mask = hfta.Pad(1, to=4, value=True)(torch.zeros(1, 3, dtype=torch.bool))
    assert mask.tolist() == [[False, False, False, True]]


@pytest.mark.parametrize(
    ("pad", "message"),
    [
        ([hfta.Pad(0, to=[4, 2])], r"hfta.Pad: expected sizes of at least 1 in rising order, got \[4, 2\]"),
        ([hfta.Pad(0, to=0)], "expected sizes of at least 1 in rising order, got 0"),
        ([4], "hfta.record: expected pad as a list of hfta.Pad or None, one per input, got int"),
        ([hfta.Pad(2, to=4)], r"hfta.Pad: expected an input with axis 2, got one of shape \[5, 3\]"),
        ([None, None, None], "hfta: expected at most 2 paddings as there are inputs, got 3"),
    ],
)
def test_paddings_that_do_not_fit_are_refused(pad, message, array, sgd):
    with pytest.raises(ValueError, match=message):
        array.record(sgd, mse, plan=WIDE, pad=pad)(torch.randn(5, 3), torch.randn(5, 2))


def trained(lengths, recorded=True, **options):
    array = hfta.fuse(Tagger, lanes=2)
    trainer = hfta.Trainer(array, hfta.optim.SGD(array, lr=0.1), tags_loss, plan=WIDE if recorded else None, recorded=recorded, **options)
    torch.manual_seed(4)
    return array, trainer, texts(lengths)


def test_the_trainer_runs_rare_shapes_by_plain_steps_and_tells_so():
    array, trainer, batches = trained([3, 7, 1, 4, 6, 3], limit=2)
    trainer.run(batches, epochs=2)
    assert "plain steps: 6 of 3 shapes of the inputs beyond the 2 that are recorded" in trainer.report()
    assert "2 recordings kept (at most 2), 0 dropped" in trainer.report()
    plain, other, batches = trained([3, 7, 1, 4, 6, 3], recorded=False)
    other.run(batches, epochs=2)
    for a, b in zip(array.parameters(), plain.parameters()):
        close(a, b, "weights", 12)
    padded, third, batches = trained([3, 7, 1, 4, 6, 3], limit=2, pad=PADS)
    third.run(batches, epochs=2)
    assert "plain steps" not in third.report()
    for a, b in zip(padded.parameters(), plain.parameters()):
        close(a, b, "weights", 12)


def test_a_resumed_trainer_records_the_shapes_that_were_recorded(tmp_path):
    _, trainer, batches = trained([3, 7, 1, 4], limit=2)
    trainer.run(batches, epochs=3)
    _, first, _ = trained([], limit=2)
    first.run(batches, epochs=1)
    assert "plain steps: 2 of 2 shapes" in first.report()
    first.save(tmp_path / "run.pt")
    _, second, _ = trained([], limit=2)
    second.resume(tmp_path / "run.pt")
    second.run(list(reversed(batches)), epochs=2)
    second.run(batches, epochs=3)
    assert "plain steps: 4 of 2 shapes" in second.report()
    assert second._step.shapes == trainer._step.shapes, "not those that came first this time"
