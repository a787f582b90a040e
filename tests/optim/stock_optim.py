"""What stock PyTorch does: continues saved optimizers, and prints the learning rates of its schedulers.

    stock_optim.py optimizers FOLDER    reads FOLDER/NAME.in.pt, writes FOLDER/NAME.out.pt
    stock_optim.py schedules FOLDER     prints one line of rates for each schedule, and one for each goes on from FOLDER/NAME.pt
"""

import pathlib
import sys
import warnings

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR, StepLR


def continue_optimizer(path):
    """Loads the state dict strictly, takes the given gradients' steps, and saves what it has then."""
    saved = torch.load(path, weights_only=False)
    parameters = [torch.nn.Parameter(p.clone(), requires_grad=bool(t)) for p, t in zip(saved["parameters"], saved["trainable"])]
    groups = [{"params": [parameters[i] for i in members]} for members in saved["groups"]]
    options = {"nesterov": True, "momentum": 0.9} if saved["nesterov"] else {}
    optimizer = getattr(torch.optim, saved["class"])(groups, **options)
    keys = set(optimizer.state_dict()["param_groups"][0])
    given = set(saved["state"]["param_groups"][0])
    assert keys == given, f"{path}: keys {given} differ from PyTorch's {keys}"
    optimizer.load_state_dict(saved["state"])
    for gradients in saved["gradients"]:
        for parameter, gradient in zip(parameters, gradients):
            if parameter.requires_grad:
                parameter.grad = gradient.clone()
        optimizer.step()
    result = {"parameters": [p.detach() for p in parameters], "state": optimizer.state_dict()}
    torch.save(result, path.with_name(path.name.replace(".in.pt", ".out.pt")))


def schedules():
    """The schedules of schedule_test.cpp, by the same names."""
    return {
        "step": lambda o: StepLR(o, step_size=3, gamma=0.5),
        "cosine": lambda o: CosineAnnealingLR(o, T_max=7, eta_min=0.001),
        "linear": lambda o: LinearLR(o, start_factor=0.1, end_factor=1.0, total_iters=6),
        "warm_cosine": lambda o: SequentialLR(o, [LinearLR(o, start_factor=0.25, total_iters=4), CosineAnnealingLR(o, T_max=9)], milestones=[4]),
        "three": lambda o: SequentialLR(o, [LinearLR(o, start_factor=0.5, total_iters=3), StepLR(o, 2, 0.7), CosineAnnealingLR(o, 5, 1e-4)], milestones=[3, 8]),
    }


def two_groups():
    """An optimizer with the learning rates of schedule_test.cpp."""
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    return torch.optim.SGD([{"params": [weights[0]], "lr": 0.1}, {"params": [weights[1]], "lr": 0.037}])


def print_schedules(folder):
    warnings.simplefilter("ignore")
    for name, make in schedules().items():
        optimizer = two_groups()
        scheduler = make(optimizer)
        rates = []
        for step in range(24):
            if step == 11:
                optimizer.param_groups[0]["lr"] *= 0.9
            rates += [group["lr"].hex() for group in optimizer.param_groups]
            scheduler.step()
        print(name, *rates)
        saved = torch.load(folder / f"{name}.pt", weights_only=False)
        optimizer = two_groups()
        scheduler = make(optimizer)
        scheduler.load_state_dict(saved["schedule"])
        for group, rate in zip(optimizer.param_groups, saved["rates"]):
            group["lr"] = rate
        rates = []
        for _ in range(12):
            scheduler.step()
            rates += [group["lr"].hex() for group in optimizer.param_groups]
        print("resumed", name, *rates)


if __name__ == "__main__":
    if sys.argv[1] == "optimizers":
        for file in sorted(pathlib.Path(sys.argv[2]).glob("*.in.pt")):
            continue_optimizer(file)
    else:
        print_schedules(pathlib.Path(sys.argv[2]))
