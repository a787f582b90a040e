"""Models and steps of the contract tests: small, with odd sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hfta


@dataclass
class Case:
    """A model, its loss, and data for a step."""

    build: Callable[[], nn.Module]
    fn: Callable[..., Any]
    data: Callable[[torch.dtype], tuple[Any, ...]]
    tolerant: tuple[str, ...] = ()  # names of parameters whose true gradient is zero: judged by the outputs


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Dropout(0.25), nn.Linear(7, 3))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.down = nn.Conv2d(6, 4, 3, stride=2, groups=2)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(F.relu(self.down(x)).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed = nn.Embedding(11, 5, padding_idx=0)
        self.body = kind(5, 6, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 3)

    def forward(self, tokens):
        out, _ = self.body(self.embed(tokens))
        return self.head(out.mean(1))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens, padding):
        return self.head(self.layer(self.embed(tokens), src_key_padding_mask=padding).mean(1))


def classify(net, *inputs) -> Tensor:
    *x, y = inputs
    return F.cross_entropy(net(*x), y)


def vectors(dtype):
    return torch.randn(4, 5, dtype=dtype), torch.randint(3, (4,))


def images(dtype):
    return torch.randn(4, 2, 9, 7, dtype=dtype), torch.randint(3, (4,))


def texts(dtype):
    return torch.randint(11, (4, 6)), torch.randint(3, (4,))


def padded(dtype):
    tokens, y = texts(dtype)
    padding = torch.zeros(4, 6, dtype=torch.bool)
    padding[1, 4:] = padding[3, 2:] = True
    return tokens, padding, y


CASES = {
    "mlp": Case(mlp, classify, vectors),
    "cnn": Case(Cnn, classify, images),
    "gru": Case(lambda: Recurrent(nn.GRU), classify, texts),
    "lstm": Case(lambda: Recurrent(nn.LSTM), classify, texts),
    "transformer": Case(Attention, classify, padded, tolerant=("in_proj_bias",)),
}


def per_lane_data(case: Case, dtype: torch.dtype, lanes: int) -> tuple[Any, ...]:
    """The first input per lane, the rest shared."""
    first, *rest = case.data(dtype)
    return hfta.per_lane(torch.stack([first, *(case.data(dtype)[0] for _ in range(lanes - 1))])), *rest
