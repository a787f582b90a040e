"""A random search over a small convolutional network on Fashion-MNIST: examples/fashion_mnist.toml with a model of Python's.

Run it: PYTHONPATH=build/python python examples/python/fashion_mnist_study.py
Look at it: hfta trials runs/fashion_mnist/study.db, or optuna-dashboard sqlite:///runs/fashion_mnist/study.db
"""

import argparse
import gzip
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import hfta

SPACE = {
    "optimizer": ["adam", "sgd"],
    "lr": hfta.loguniform(1e-3, 5e-2),
    "weight_decay": hfta.loguniform(1e-6, 1e-3),
    "dropout": hfta.uniform(0, 0.5),
}


class Net(nn.Sequential):
    """An ordinary module; the trial's parameters come as a dict."""

    def __init__(self, parameters):
        super().__init__(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Dropout(parameters["dropout"]), nn.Linear(32 * 7 * 7, 10)),
        )


def loss_of(net, x, y):
    return F.cross_entropy(net(x), y)


def metrics_of(net, x, y):
    return {"accuracy": (net(x).argmax(1) == y).float().mean()}


def read(folder, part):
    """Images and labels of an IDX pair."""
    images = torch.frombuffer(bytearray(gzip.open(folder / f"{part}-images-idx3-ubyte.gz").read()[16:]), dtype=torch.uint8)
    labels = torch.frombuffer(bytearray(gzip.open(folder / f"{part}-labels-idx1-ubyte.gz").read()[8:]), dtype=torch.uint8)
    return (images.reshape(-1, 1, 28, 28).float() - 72.9) / 90.0, labels.long()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--items", type=int, default=55000, help="images to train on")
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    options = parser.parse_args()

    images, labels = read(options.data, "train")
    training = torch.utils.data.TensorDataset(images[: options.items], labels[: options.items])
    batches = torch.utils.data.DataLoader(training, batch_size=64, shuffle=True, drop_last=True)
    count = min(5000, options.items)
    held_out = list(zip(images[-count:].split(500), labels[-count:].split(500)))

    # Trials of one optimizer train together, each lane with its own rate, decay and dropout.
    study = hfta.sweep(
        Net,
        SPACE,
        loss_of,
        batches,
        held_out,
        metrics=metrics_of,
        metric="accuracy",
        direction="maximize",
        trials=options.trials,
        epochs=options.epochs,
        optimizer_options={"momentum": 0.9},  # for those that have it
        schedules=lambda optimizer, epochs: [hfta.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)],
        callbacks=[
            lambda report: print(f"epoch {report.epoch + 1}: {report.steps} steps of {len(report.lanes)} lanes in {report.seconds:.1f} s")
        ],
        storage="runs/fashion_mnist/study.db",
        seed=1,
    )
    best = study.best_trial
    print(f"best: trial {best.number}, accuracy {best.value:.3f}, {best.parameters}, weights in {study.weights(best.number)}")


if __name__ == "__main__":
    main()
