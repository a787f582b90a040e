"""What a newcomer may give by mistake is refused at once, in one line that says what was expected."""

from __future__ import annotations

import pytest
import torch
from recording import WIDE, batch, mse, net
from torch import nn

import hfta

MISTAKES = [
    (lambda a, o: hfta.fuse(net, seeds="ab"), "hfta.fuse: expected seeds as a list, got 'ab'"),
    (lambda a, o: hfta.fuse(net, seeds=3), "hfta.fuse: expected seeds as a list, got 3"),
    (lambda a, o: hfta.fuse(net, seeds=[1.5]), "hfta.fuse: expected seeds as a whole number, got 1.5"),
    (lambda a, o: hfta.fuse(net, lanes=2.5), "hfta.fuse: expected lanes as a whole number, got 2.5"),
    (lambda a, o: a.lane("0"), "hfta.Array: expected a lane as a whole number, got '0'"),
    (lambda a, o: a.lane(1.5), "hfta.Array: expected a lane as a whole number, got 1.5"),
    (lambda a, o: a.copy_lane(None, 1), "hfta.Array: expected a lane as a whole number, got None"),
    (lambda a, o: a.keep(1), "hfta.Array.keep: expected lanes as a list, got 1"),
    (lambda a, o: a.keep(torch.tensor(1)), "hfta.Array.keep: expected lanes as a list, got 1"),
    (lambda a, o: a.keep("01"), "hfta.Array.keep: expected lanes as a list, got '01'"),
    (lambda a, o: a.keep([0.5]), "hfta.Array: expected a lane as a whole number, got 0.5"),
    (lambda a, o: a.keep(torch.tensor([[0, 1]])), "hfta.Array: expected a lane as a whole number, got [0, 1]"),
    (lambda a, o: a.append(net()), "hfta.Array.append: expected a sequence of models or a factory, got a Sequential"),
    (lambda a, o: a.append([net()], lanes=2), "hfta.Array.append: expected 1 lanes as there are models, got lanes=2"),
    (lambda a, o: a.append(net, lanes=0), "hfta.Array.append: expected lanes of at least 1, got 0"),
    (lambda a, o: a.load_lane_state_dict(0, None), "hfta.load_lane_state_dict: expected a state dict as a dict, got NoneType"),
    (lambda a, o: a.to("abc"), "hfta.Array.to: expected a device or a floating type, got 'abc'"),
    (lambda a, o: a.to(None), "hfta.Array.to: expected a device or a floating type, got None"),
    (lambda a, o: a.train_step(o, None, *batch()), "hfta.train_step: expected a function of a model, got NoneType"),
    (lambda a, o: a.backward(3, *batch()), "hfta.backward: expected a function of a model, got int"),
    (lambda a, o: a.evaluate(None, *batch()), "hfta.evaluate: expected a function of a model, got NoneType"),
    (lambda a, o: a.train_step(o, mse, *batch(), max_norm=[1, 1, -1]), "hfta: expected max_norm of at least 0, got -1.0"),
    (lambda a, o: a.record(o, mse, max_norm=float("nan")), "hfta: expected max_norm of at least 0, got nan"),
    (lambda a, o: a.record(o, mse, accumulate=1.5), "hfta.record: expected accumulate as a whole number, got 1.5"),
    (lambda a, o: a.record(o, mse, limit=0), "hfta.record: expected limit of at least 1, got 0"),
    (lambda a, o: a.record(o, mse, pad=3), "hfta.record: expected pad as a list, got 3"),
    (lambda a, o: setattr(a.record(o, mse), "plan", None), "hfta.RecordedStep: expected plan as an hfta.Plan, got None"),
    (lambda a, o: a.record(o, mse).run(None), "hfta.RecordedStep.run: expected batches as a list, got None"),
    (lambda a, o: a.record(o, mse).run([torch.ones(2)]), "hfta.RecordedStep.run: expected the inputs of each step as a tuple or list, got Tensor"),
    (lambda a, o: o.load_state_dict(None), "hfta.optim.SGD: expected a state as a dict, got NoneType"),
    (lambda a, o: hfta.EarlyStop(patience=0), "hfta.EarlyStop: expected patience of at least 1, got 0"),
    (lambda a, o: hfta.Trainer(a, o, None), "hfta.Trainer: expected a function of a model, got NoneType"),
    (lambda a, o: hfta.Trainer(a, o, mse, accumulate="a"), "hfta.Trainer: expected accumulate as a whole number, got 'a'"),
    (lambda a, o: hfta.Trainer(a, o, mse, early_stop=3), "hfta.Trainer: expected early_stop as an hfta.EarlyStop, got 3"),
    (lambda a, o: hfta.Trainer(a, o, mse, early_stop=hfta.EarlyStop("nope")), 'hfta.Trainer: expected metrics for the early stop by "nope", got none'),
    (lambda a, o: hfta.Trainer(a, o, mse, callbacks=[3]), "hfta.Trainer: expected callbacks as hfta.Callback or functions of the report, got int"),
    (lambda a, o: hfta.Trainer(a, o, mse, schedules=[3]), "hfta.Trainer: expected schedules of hfta.optim.lr_scheduler, got int"),
    (lambda a, o: hfta.Trainer(a, o, mse).run([batch()], epochs=1.5), "hfta.Trainer.run: expected epochs as a whole number, got 1.5"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_is_refused_in_one_line(array, sgd, mistake, message):
    before = [tensor.clone() for tensor in array.parameters()]
    with pytest.raises(hfta.InvalidArgument) as refusal:
        mistake(array, sgd)
    assert str(refusal.value) == message
    assert array.lanes == 3 and all(torch.equal(a, b) for a, b in zip(before, array.parameters()))
    array.record(sgd, mse, plan=WIDE)(*batch())


def metrics_of(model, x, y):
    return {"error": mse(model, x, y)}


OPTIONS = [
    ({"space": None}, "hfta.Study: expected the space as a dict, got NoneType"),
    ({"model": net()}, "hfta.Study.sweep: expected a model class or a function of a trial's parameters, got Sequential"),
    ({"model": lambda parameters: None}, "hfta.fuse: expected a torch.nn.Module as lane 0, got NoneType"),
    ({"loss": None}, "hfta.Study.sweep: expected the loss as a function of a model, got NoneType"),
    ({"trials": 1.5}, "hfta.Study.sweep: expected trials as a whole number, got 1.5"),
    ({"epochs": "a"}, "hfta.Study.sweep: expected epochs as a whole number, got 'a'"),
    ({"seed": "a"}, "hfta.Study.sweep: expected seed as a whole number, got 'a'"),
    ({"plan": 3}, "hfta.Study.sweep: expected plan as an hfta.Plan, got 3"),
    ({"split": "batch_size"}, "hfta.Study.sweep: expected split as a list, got 'batch_size'"),
    ({"early_stop": 3}, "hfta.Study.sweep: expected early_stop as an hfta.EarlyStop, got 3"),
    ({"sampler": 3}, "hfta.Study: expected a sampler of Optuna's, got 3"),
    ({"optimizer": torch.optim.SGD}, "hfta.sweep: expected an optimizer class of hfta.optim, got torch.optim.sgd.SGD"),
    ({"optimizer": "sgd", "optimizer_options": {"momentun": 0.9}}, 'got "momentun"'),
    ({"metric": "accuracy", "metrics": metrics_of}, 'hfta.Study.sweep: expected one of loss, error as the metric, got "accuracy"'),
    (
        {"metrics": metrics_of, "early_stop": hfta.EarlyStop("accuracy")},
        'hfta.Trainer: expected the early stop by one of loss, error, got "accuracy"',
    ),
]


@pytest.mark.parametrize(("given", "message"), OPTIONS, ids=[message for _, message in OPTIONS])
def test_a_mistake_in_a_sweep_is_refused_in_one_line(tmp_path, given, message):
    known = {"model": lambda parameters: net(), "space": {"lr": hfta.loguniform(1e-3, 1e-1)}, "loss": mse, "trials": 2, "epochs": 2}
    options = {**known, **given}
    first = [options.pop(name) for name in ("model", "space", "loss")]
    with pytest.raises(hfta.InvalidArgument) as refusal:
        hfta.sweep(*first, [batch()], [batch()], storage=tmp_path / "study.db", **options)
    assert str(refusal.value).endswith(message) and "\n" not in str(refusal.value)


def test_a_lane_that_was_converted_by_itself_is_told(array, sgd):
    array.lane(0).half()

    def fn(model, x, y):
        return mse(model, x.to(model[0].weight.dtype), y)

    for run in (lambda: array.record(sgd, fn, plan=WIDE)(*batch()), lambda: array.train_step(sgd, fn, *batch())):
        with pytest.raises(hfta.InvalidArgument, match=r'"0.weight".* Float.*, got Half'):
            run()
    array.lane(0).float()


def test_sparse_inputs_train_by_plain_steps(array, sgd):
    def fn(model, x, y):
        return mse(model, x.to_dense(), y)

    x, y = batch()
    with pytest.raises(hfta.Unsupported, match="train::record: expected dense inputs, got one of layout Sparse"):
        array.record(sgd, fn, plan=WIDE)(x.to_sparse(), y)
    trainer = hfta.Trainer(array, sgd, fn)
    trainer.run([(x.to_sparse(), y)], epochs=1)
    assert "dense inputs" in trainer.report()


def test_a_module_list_is_a_sequence_of_models():
    assert hfta.fuse(nn.ModuleList([net(), net()])).lanes == 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: hfta.loguniform(0, 1), 'expected low > 0 for "loguniform"'),
        (lambda: hfta.uniform(2, 1), '"uniform"'),
        (lambda: hfta.uniform("a", 1), "hfta.uniform: expected numbers, got 'a', 1"),
        (lambda: hfta.uniform(float("nan"), 1), '"uniform"'),
        (lambda: hfta.quniform(0, 1, 0), '"quniform"'),
        (lambda: hfta.integer(1.5, 2), "hfta.integer: expected whole numbers, got 1.5, 2, 1"),
        (lambda: hfta.choice(), 'expected at least one choice for "choice"'),
        (lambda: hfta.choice(object()), "hfta.choice: expected numbers, text, booleans or None"),
    ],
)
def test_a_distribution_without_values_is_refused_where_it_is_made(make, said):
    with pytest.raises(hfta.InvalidArgument) as caught:
        make()
    assert said in str(caught.value) and "\n" not in str(caught.value)
