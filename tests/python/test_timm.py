"""Image models of timm, unchanged: convolutional, mobile, normalizer-free and attention networks train plainly and recorded as alone.

timm imports torchvision for transforms and a frozen norm that these models do not use, and PyPI's torchvision fits no CPU build of this torch: where it cannot be
imported, names stand in for it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from recording import WIDE
from support import Solo, check_lane, close

import hfta


class Name(type):
    """A class of any name, whose attributes are such classes too."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(name, (), {})


class Names(types.ModuleType):
    __getattr__ = Name.__getattr__


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] == "torchvision" else None

    def create_module(self, spec):
        return Names(spec.name)

    def exec_module(self, module):
        pass


@pytest.fixture(scope="module")
def timm():
    if any(importlib.util.find_spec(name) is None for name in ("timm", "huggingface_hub", "yaml", "safetensors", "PIL")):
        pytest.skip("needs: pip install --no-deps timm, with huggingface_hub, pyyaml, safetensors and pillow")
    stands_in = importlib.util.find_spec("torchvision") is None
    finder = StandIn()
    if stands_in:
        sys.meta_path.append(finder)
    try:
        yield importlib.import_module("timm")
    finally:
        if stands_in:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]


def loss_of(net, x, y):
    return F.cross_entropy(net(x), y, label_smoothing=0.1)


MODELS = {
    "test_resnet": {},
    "test_efficientnet": {"drop_rate": 0.2, "drop_path_rate": 0.1},
    "mobilenetv3_small_050": {},
    "test_vit": {"img_size": 64, "drop_path_rate": 0.1, "proj_drop_rate": 0.1},
    "test_convnext": {"drop_path_rate": 0.1},
    "test_nfnet": {},
    "test_byobnet": {},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_as_alone(timm, name):
    torch.manual_seed(0)
    lanes, rates = 2, [0.02, 0.01]
    models = [timm.create_model(name, num_classes=5, **MODELS[name]).double() for _ in range(lanes)]
    batches = [(torch.randn(3, 3, 64, 64).double(), torch.randint(5, (3,))) for _ in range(3)]
    arrays = [hfta.fuse(models), hfta.fuse(models)]
    optimizers = [hfta.optim.SGD(array, lr=rates, momentum=0.9) for array in arrays]
    step = arrays[1].record(optimizers[1], loss_of, plan=WIDE)
    solos = [Solo(model, lane, lane, lambda p, lane: torch.optim.SGD(p, lr=rates[lane], momentum=0.9)) for lane, model in enumerate(models)]
    for k, batch in enumerate(batches):
        plain, recorded = arrays[0].train_step(optimizers[0], loss_of, *batch), step(*batch)
        for lane, solo in enumerate(solos):
            expected = solo.step(loss_of, batch)
            close(plain[lane], expected, f"plain step {k} lane {lane}", 3)
            close(recorded[lane], expected, f"recorded step {k} lane {lane}", 3)
    for array in arrays:
        for lane, solo in enumerate(solos):
            check_lane(array, lane, solo, 3)
    for array in arrays:
        array.eval()
    for solo in solos:
        solo.model.eval()
    with torch.no_grad():
        for lane, solo in enumerate(solos):
            expected = solo.model(batches[0][0])
            close(arrays[1](batches[0][0])[lane], expected, f"outputs of lane {lane}", 3)
            close(arrays[1].evaluate(lambda net, x: net(x), batches[0][0], recorded=True)[lane], expected, f"recorded outputs of lane {lane}", 3)
