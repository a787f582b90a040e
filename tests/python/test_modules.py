"""Modules and losses of `torch.nn` in their usual options, against plain PyTorch: plain and recorded, both precisions, shared and own data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support import Solo, check_steps
from torch import nn

import hfta


def rows(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape)


def words() -> torch.Tensor:
    return torch.randint(11, (4, 6))


LINE, PLANE, SPACE = rows(3, 4, 11), rows(2, 4, 9, 7), rows(2, 4, 5, 6, 7)

# A module with the data that it takes.
LAYERS = {
    "Linear": (lambda: nn.Linear(5, 3), rows(4, 5)),
    "Linear without bias, more axes": (lambda: nn.Linear(5, 3, bias=False), rows(2, 4, 5)),
    "Bilinear": (lambda: Pairs(nn.Bilinear(5, 5, 3)), rows(4, 5)),
    "Identity": (nn.Identity, rows(4, 5)),
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1), LINE),
    "Conv1d circular": (lambda: nn.Conv1d(4, 6, 3, padding=1, padding_mode="circular"), LINE),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3), PLANE),
    "Conv2d same, without bias": (lambda: nn.Conv2d(4, 6, (3, 5), padding="same", bias=False), PLANE),
    "Conv2d strided": (lambda: nn.Conv2d(4, 6, 3, stride=(2, 1), padding=(1, 2)), PLANE),
    "Conv2d dilated": (lambda: nn.Conv2d(4, 6, 3, dilation=2), PLANE),
    "Conv2d grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), PLANE),
    "Conv2d depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding=1), PLANE),
    "Conv2d reflected": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), PLANE),
    "Conv2d of one image": (lambda: nn.Conv2d(4, 6, 3), rows(4, 9, 7)),
    "Conv3d": (lambda: nn.Conv3d(4, 5, 3, padding=1), SPACE),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2), LINE),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), PLANE),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(4, 5, 3, stride=2), SPACE),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(5), rows(4, 5)),
    "BatchNorm1d of lines, without affine": (lambda: nn.BatchNorm1d(4, affine=False), LINE),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4, momentum=0.3, eps=1e-3), PLANE),
    "BatchNorm2d without statistics": (lambda: nn.BatchNorm2d(4, track_running_stats=False), PLANE),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(4), SPACE),
    "SyncBatchNorm in evaluation": (lambda: nn.SyncBatchNorm(4).eval(), PLANE),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), PLANE),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), PLANE),
    "LayerNorm": (lambda: nn.LayerNorm(5), rows(4, 5)),
    "LayerNorm of two axes": (lambda: nn.LayerNorm((9, 7), elementwise_affine=False), PLANE),
    "RMSNorm": (lambda: nn.RMSNorm(5), rows(4, 5)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), PLANE),
    "MaxPool1d": (lambda: nn.MaxPool1d(3, stride=2, padding=1), LINE),
    "MaxPool2d": (lambda: nn.MaxPool2d(2, ceil_mode=True), PLANE),
    "MaxPool2d dilated": (lambda: nn.MaxPool2d(2, stride=1, dilation=2), PLANE),
    "MaxPool3d": (lambda: nn.MaxPool3d(2), SPACE),
    "AvgPool1d": (lambda: nn.AvgPool1d(2), LINE),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), PLANE),
    "AvgPool3d": (lambda: nn.AvgPool3d(2), SPACE),
    "LPPool2d": (lambda: nn.Sequential(nn.Softplus(), nn.LPPool2d(2, 3)), PLANE),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((3, 2)), PLANE),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d((3, None)), PLANE),
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(1), LINE),
    "FractionalMaxPool2d": (lambda: nn.FractionalMaxPool2d(2, output_size=(4, 3)), PLANE),
    "Padding": (lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.ReplicationPad2d(1), nn.ZeroPad2d((0, 1, 2, 0)), nn.CircularPad2d(1)), PLANE),
    "Upsample": (lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Upsample(size=(8, 6), mode="bilinear", align_corners=True)), PLANE),
    "Upsample bicubic": (lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"), PLANE),
    "PixelShuffle": (lambda: nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(2)), PLANE),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), PLANE),
    "Fold": (lambda: nn.Sequential(nn.Unfold(3, padding=1), nn.Fold((9, 7), 3, padding=1)), PLANE),
    "Dropout": (lambda: nn.Dropout(0.3), rows(4, 5)),
    "Dropout2d": (lambda: nn.Sequential(nn.Dropout2d(0.3), nn.FeatureAlphaDropout(0.2)), PLANE),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.2), rows(4, 5)),
    "Dropout of all and none": (lambda: nn.Sequential(nn.Dropout(0.0), nn.Dropout(0.5), nn.Dropout(1.0)), rows(4, 5)),
    "Embedding": (lambda: nn.Embedding(11, 5, padding_idx=2), words),
    "Embedding of limited norm": (lambda: nn.Embedding(11, 5, max_norm=0.8), words),
    "Embedding scaled": (lambda: nn.Embedding(11, 5, scale_grad_by_freq=True), words),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(11, 5, mode="sum"), words),
    "EmbeddingBag of maxima": (lambda: nn.EmbeddingBag(11, 5, mode="max"), words),
    "RNN": (lambda: First(nn.RNN(5, 6, nonlinearity="relu")), rows(7, 3, 5)),
    "GRU": (lambda: First(nn.GRU(5, 6, num_layers=2, batch_first=True, dropout=0.2)), rows(3, 7, 5)),
    "LSTM": (lambda: First(nn.LSTM(5, 6, bidirectional=True, bias=False)), rows(7, 3, 5)),
    "LSTM projected": (lambda: First(nn.LSTM(5, 6, proj_size=2)), rows(7, 3, 5)),
    "GRUCell": (lambda: Cell(nn.GRUCell(5, 6)), rows(4, 3, 5)),
    "RNNCell": (lambda: Cell(nn.RNNCell(5, 6)), rows(4, 3, 5)),
    "LSTMCell": (lambda: Cell(nn.LSTMCell(5, 6)), rows(4, 3, 5)),
    "MultiheadAttention": (lambda: Attends(nn.MultiheadAttention(6, 2, dropout=0.2, batch_first=True)), rows(3, 5, 6)),
    "MultiheadAttention with biases": (lambda: Attends(nn.MultiheadAttention(6, 3, add_bias_kv=True, add_zero_attn=True)), rows(3, 5, 6)),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, norm_first=True, activation="gelu"), 2, enable_nested_tensor=False),
        rows(3, 5, 6),
    ),
    "Transformer": (lambda: Attends(nn.Transformer(6, 2, 1, 1, 8, batch_first=True), count=2), rows(3, 5, 6)),
    "GLU": (lambda: nn.GLU(1), rows(4, 6)),
    "PReLU": (lambda: nn.PReLU(4), PLANE),
    "RReLU": (nn.RReLU, rows(4, 5)),
    "Softmax": (lambda: nn.Sequential(nn.Softmax(1), nn.LogSoftmax(1)), rows(4, 5)),
    "Softmin": (lambda: nn.Sequential(nn.Softmin(1), nn.Softmax2d()), PLANE),
    "Flatten": (lambda: nn.Sequential(nn.Flatten(1), nn.Unflatten(1, (4, 63))), PLANE),
    "CosineSimilarity": (lambda: Pairs(nn.CosineSimilarity()), rows(4, 5)),
    "PairwiseDistance": (lambda: Pairs(nn.PairwiseDistance()), rows(4, 5)),
    "ParameterList": (lambda: Lists(), rows(4, 5)),
}
for kind in (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Softsign, nn.Softshrink),
    *(nn.Hardshrink, nn.Tanhshrink, nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish),
):
    LAYERS[kind.__name__] = (kind, rows(4, 5))
LAYERS["GELU by tanh"] = (lambda: nn.GELU("tanh"), rows(4, 5))
LAYERS["Threshold"] = (lambda: nn.Threshold(0.1, 0.2), rows(4, 5))


class First(nn.Module):
    """The output of a recurrent layer."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x)[0]


class Cell(First):
    def forward(self, x):
        state = None
        for step in x:
            state = self.body(step, state)
        return state[0] * state[1] if isinstance(state, tuple) else state


class Attends(nn.Module):
    def __init__(self, body, count=3):
        super().__init__()
        self.body, self.count = body, count

    def forward(self, x):
        out = self.body(*[x] * self.count)
        return out[0] if isinstance(out, tuple) else out


class Pairs(First):
    def forward(self, x):
        return self.body(x, x.roll(1, 0) + 0.5)


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(5), torch.randn(5)])
        self.named = nn.ParameterDict({"shift": torch.randn(5)})
        self.parts = nn.ModuleDict({"a": nn.Linear(5, 5), "b": nn.ModuleList([nn.Tanh()])})

    def forward(self, x):
        return self.parts["b"][0](self.parts["a"](x * self.weights[0])) * self.weights[1] + self.named["shift"]


class Scaled(nn.Module):
    """Trainable weights before and behind a layer that may have none."""

    def __init__(self, layer):
        super().__init__()
        self.before, self.layer, self.behind = nn.Parameter(torch.rand(1) + 0.5), layer, nn.Parameter(torch.rand(1) + 0.5)

    def forward(self, x):
        x = x * self.before if x.is_floating_point() else x
        return self.layer(x) * self.behind


def square(net, x):
    return (net(x) - 0.3).square().mean()


def cast(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    return module.to(dtype) if dtype == torch.float64 else module


def trains(build, data, fn, dtype, mode, per_lane, lanes=3, steps=3):
    """An array and its models alone take the same steps."""
    models = [cast(build(), dtype) for _ in range(lanes)]
    array = hfta.fuse(models)
    sgd = hfta.optim.SGD(array, lr=[0.1, 0.05, 0.02][:lanes])
    solos = [Solo(model, i, i, lambda p, i: torch.optim.SGD(p, lr=[0.1, 0.05, 0.02][i])) for i, model in enumerate(models)]
    plan = hfta.Plan(width=1 if lanes == 1 else 2)  # of three lanes: a pair and one alone
    step = array.record(sgd, fn, plan=plan) if mode == "recorded" else lambda *inputs: array.train_step(sgd, fn, *inputs)

    def typed(tensor):
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    def inputs():
        first, *rest = data()
        if per_lane:
            first = hfta.per_lane(torch.stack([typed(data()[0]) for _ in range(lanes)]))
        return (first if per_lane else typed(first), *map(typed, rest))

    check_steps(array, solos, step, fn, inputs, steps)


@pytest.mark.parametrize(("mode", "per_lane"), [("plain", False), ("recorded", False), ("recorded", True)])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_trains_as_alone(name, mode, per_lane):
    build, data = LAYERS[name]
    trains(lambda: Scaled(build()), lambda: (data(),), square, torch.float64, mode, per_lane)


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "BatchNorm2d", "LayerNorm", "GRU", "MultiheadAttention", "Embedding", "MaxPool2d", "Dropout"])
def test_a_layer_trains_as_alone_in_single_precision_and_in_an_array_of_one(name):
    build, data = LAYERS[name]
    trains(lambda: Scaled(build()), lambda: (data(),), square, torch.float32, "recorded", per_lane=False)
    trains(lambda: Scaled(build()), lambda: (data(),), square, torch.float32, "recorded", per_lane=False, lanes=1)


def classes() -> torch.Tensor:
    return torch.tensor([0, 2, 1, 2])


def signs(*shape: int) -> torch.Tensor:
    return torch.randint(2, shape) * 2.0 - 1


# A loss with the target that it takes; the scores are [4, 3].
LOSSES = {
    "CrossEntropyLoss": (lambda: nn.CrossEntropyLoss(), classes),
    "CrossEntropyLoss weighted": (lambda: nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5]), ignore_index=2, label_smoothing=0.1), classes),
    "CrossEntropyLoss of shares": (lambda: nn.CrossEntropyLoss(reduction="sum"), lambda: torch.rand(4, 3)),
    "NLLLoss": (lambda: Logs(nn.NLLLoss()), classes),
    "MSELoss": (lambda: nn.MSELoss(reduction="sum"), rows(4, 3)),
    "L1Loss": (nn.L1Loss, rows(4, 3)),
    "SmoothL1Loss": (lambda: nn.SmoothL1Loss(beta=0.5), rows(4, 3)),
    "HuberLoss": (lambda: nn.HuberLoss(delta=0.7), rows(4, 3)),
    "BCELoss": (lambda: Shares(nn.BCELoss()), lambda: torch.rand(4, 3)),
    "BCEWithLogitsLoss": (lambda: nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 0.5])), lambda: torch.rand(4, 3)),
    "KLDivLoss": (lambda: Logs(nn.KLDivLoss(reduction="batchmean")), lambda: torch.softmax(torch.randn(4, 3), 1)),
    "PoissonNLLLoss": (nn.PoissonNLLLoss, lambda: torch.rand(4, 3)),
    "SoftMarginLoss": (nn.SoftMarginLoss, lambda: signs(4, 3)),
    "HingeEmbeddingLoss": (lambda: nn.HingeEmbeddingLoss(0.5), lambda: signs(4, 3)),
    "MultiMarginLoss": (nn.MultiMarginLoss, classes),
    "MultiLabelMarginLoss": (nn.MultiLabelMarginLoss, lambda: torch.tensor([[0, 2, -1], [1, -1, 0], [2, 1, 0], [-1, 0, 0]])),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss, lambda: torch.randint(2, (4, 3)).float()),
    "CosineEmbeddingLoss": (lambda: Two(nn.CosineEmbeddingLoss(0.1)), lambda: signs(4)),
    "MarginRankingLoss": (lambda: Two(nn.MarginRankingLoss(0.2)), lambda: signs(4, 3)),
    "TripletMarginLoss": (lambda: Triple(nn.TripletMarginLoss()), rows(4, 3)),
}


class Loss(nn.Module):
    def __init__(self, loss=None):
        super().__init__()
        self.loss = loss


class Logs(Loss):
    def forward(self, scores, y):
        return self.loss(scores.log_softmax(1), y)


class Shares(Loss):
    def forward(self, scores, y):
        return self.loss(scores.sigmoid(), y)


class Two(Loss):
    def forward(self, scores, y):
        return self.loss(scores, scores.roll(1, 0), y)


class Triple(Loss):
    def forward(self, scores, y):
        return self.loss(scores, y, scores.roll(1, 0))


class Gauss(Loss):
    def forward(self, scores, y):
        return torch.nn.functional.gaussian_nll_loss(scores, y, scores.exp().detach())


class Judged(nn.Module):
    """The loss is part of the model, so its weights are buffers of the lane."""

    def __init__(self, loss):
        super().__init__()
        self.net, self.loss = nn.Linear(5, 3), loss

    def forward(self, x, y):
        return self.loss(self.net(x), y)


def judged(net, x, y):
    return net(x, y)


@pytest.mark.parametrize("mode", ["plain", "recorded"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_trains_as_alone(name, mode):
    build, target = LOSSES[name]
    trains(lambda: Judged(build()), lambda: (torch.randn(4, 5), target()), judged, torch.float64, mode, per_lane=False)


def test_a_loss_that_looks_at_its_values_trains_plainly_and_is_refused_recorded():
    trains(lambda: Judged(Gauss()), lambda: (torch.randn(4, 5), torch.randn(4, 3)), judged, torch.float64, "plain", per_lane=False)
    with pytest.raises(hfta.Unsupported, match="reads a value on the host"):
        trains(lambda: Judged(Gauss()), lambda: (torch.randn(4, 5), torch.randn(4, 3)), judged, torch.float64, "recorded", per_lane=False)
