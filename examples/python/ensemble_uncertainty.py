"""Trains an ensemble as one array and draws what it does not know: the band is wide where there were no data.

Run it: PYTHONPATH=build/python python examples/python/ensemble_uncertainty.py
"""

import argparse
import importlib.util

import torch
import torch.nn.functional as F
from torch import nn

import hfta

LANES, POINTS = 24, 96


def net():
    model = nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
    # Wide initial weights: the models differ more where no measurement holds them together.
    nn.init.normal_(model[0].weight, std=2.0)
    nn.init.normal_(model[2].weight, std=0.4)
    return model


def loss_of(net, x, y):
    return F.mse_loss(net(x), y)


def measurements(generator):
    """A noisy curve, measured on both sides of a gap."""
    left = torch.empty(POINTS // 2, 1).uniform_(-2.0, -0.5, generator=generator)
    right = torch.empty(POINTS // 2, 1).uniform_(0.3, 1.6, generator=generator)
    x = torch.cat([left, right])
    return x, torch.sin(3 * x) + 0.1 * torch.randn(x.shape, generator=generator)


def draw(path, x, y, grid, mean, band):
    import matplotlib

    matplotlib.use("Agg")  # no window
    from matplotlib import pyplot

    grid, mean, band = grid.flatten(), mean.flatten(), band.flatten()
    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    axes.fill_between(grid, mean - 2 * band, mean + 2 * band, alpha=0.25, linewidth=0, label="mean ± 2 standard deviations")
    axes.plot(grid, mean, label=f"mean of {LANES} models")
    axes.plot(grid, torch.sin(3 * grid), "k--", linewidth=0.8, label="the curve")
    axes.plot(x.flatten(), y.flatten(), "k.", markersize=4, label="measurements")
    axes.set(xlabel="x", ylabel="y", ylim=(-3, 3))
    axes.legend(loc="upper center", ncols=2)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--output", default="ensemble.png")
    options = parser.parse_args()

    generator = torch.Generator().manual_seed(0)
    x, y = measurements(generator)
    # Each model has weights of its own by its seed, and a bootstrap sample of its own.
    rows = torch.randint(POINTS, (LANES, POINTS), generator=generator)
    xs, ys = hfta.per_lane(x[rows]), hfta.per_lane(y[rows])  # [lanes, points, 1]

    array = hfta.fuse(net, lanes=LANES)
    adam = hfta.optim.Adam(array, lr=1e-2)
    schedule = hfta.optim.lr_scheduler.CosineAnnealingLR(adam, T_max=options.steps)
    step = array.record(adam, loss_of)
    for _ in range(options.steps):
        losses = step(xs, ys)
        schedule.step()
    print(f"{LANES} models, last losses from {losses.min():.4f} to {losses.max():.4f}")

    grid = torch.linspace(-2.6, 2.4, 251).unsqueeze(1)
    predictions = array(grid)  # [lanes, 251, 1]
    mean, band = predictions.mean(0), predictions.std(0)
    measured = array(x).std(0).mean()
    in_gap = band[(grid > -0.4) & (grid < 0.2)].mean()
    outside = band[grid > 1.9].mean()
    print(f"standard deviation: {measured:.3f} at the measurements, {in_gap:.3f} in the gap, {outside:.3f} beyond them")

    if importlib.util.find_spec("matplotlib") is None:
        print("no plot: matplotlib is not installed")
        return
    draw(options.output, x, y, grid, mean, band)
    print(f"{options.output}: drawn")


if __name__ == "__main__":
    main()
