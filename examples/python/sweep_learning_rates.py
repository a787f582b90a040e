"""Trains one small network with 16 learning rates at once and keeps the best one.

Run it: PYTHONPATH=build/python python examples/python/sweep_learning_rates.py
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

import hfta

LANES, CLASSES, FEATURES = 16, 4, 12


class Net(nn.Module):
    """An ordinary module: it knows nothing of lanes."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(FEATURES, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(48, CLASSES)

    def forward(self, x):
        return self.head(self.hidden(x))


def loss_of(net, x, y):
    return F.cross_entropy(net(x), y)


def accuracy_of(net, x, y):
    return (net(x).argmax(1) == y).float().mean()


def blobs(count, generator):
    """Points around one centre per class, close enough to each other that no model gets all right."""
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
    y = torch.randint(CLASSES, (count,), generator=generator)
    return centres[y] + 1.5 * torch.randn(count, FEATURES, generator=generator), y


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--output", default="best.pt", help="where the best lane's state dict goes")
    options = parser.parse_args()

    generator = torch.Generator().manual_seed(0)
    inputs, targets = blobs(2048, generator)
    held_out = blobs(1024, generator)

    rates = torch.logspace(-5, 0, LANES)
    # The same initial weights for all, so that the rate alone tells them apart.
    array = hfta.fuse(Net, seeds=[0] * LANES)
    adam = hfta.optim.Adam(array, lr=rates)
    step = array.record(adam, loss_of)

    for epoch in range(options.epochs):
        order = torch.randperm(len(inputs), generator=generator)
        for rows in order.split(64):
            losses = step(inputs[rows], targets[rows])
        print(f"epoch {epoch + 1}: last losses from {losses.min():.3f} to {losses.max():.3f}")

    array.eval()
    accuracies = array.evaluate(accuracy_of, *held_out)
    best = int(accuracies.argmax())
    for lane, (rate, accuracy) in enumerate(zip(rates.tolist(), accuracies.tolist())):
        print(f"lane {lane:2}  lr {rate:8.2e}  accuracy {accuracy:.3f}{'  <- best' if lane == best else ''}")

    torch.save(array.lane_state_dict(best), options.output)
    # From here on it is PyTorch alone.
    net = Net().eval()
    net.load_state_dict(torch.load(options.output, weights_only=True))
    with torch.no_grad():
        alone = accuracy_of(net, *held_out).item()
    print(f"{options.output}: lane {best}, accuracy {alone:.3f} in plain PyTorch")


if __name__ == "__main__":
    main()
