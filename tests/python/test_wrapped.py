"""Models and functions that are scripted, traced, compiled, hooked, checkpointed or transformed: recorded right, or refused by name."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from recording import WIDE, agrees, batch, mse, net, refuses
from torch import nn
from torch.utils.checkpoint import checkpoint

import hfta


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "build",
    [
        lambda: torch.jit.script(net()),
        lambda: nn.Sequential(torch.jit.script(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 2)),
        lambda: torch.jit.trace(net(), torch.randn(5, 3)),
    ],
    ids=["scripted", "with a scripted part", "traced"],
)
def test_scripted_and_traced_models_are_recorded(build):
    agrees(mse, build=build)


def compiled(module, how):
    """Compiled and run before, so that what was compiled is there."""
    module.compile(**how) if isinstance(how, dict) else None
    wrapped = module if isinstance(how, dict) else torch.compile(module, backend=how)
    wrapped(torch.randn(5, 3)).sum().backward()
    wrapped.zero_grad()
    return wrapped


@pytest.mark.parametrize("how", ["eager", "aot_eager", {"backend": "aot_eager"}], ids=["eager", "aot_eager", "in place"])
def test_models_that_were_compiled_and_run_are_recorded(how):
    agrees(mse, build=lambda: nn.Sequential(compiled(nn.Linear(3, 4), how), nn.Tanh(), nn.Linear(4, 2)))


def test_a_compiled_function_is_recorded():
    agrees(torch.compile(mse, backend="aot_eager"))


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.a, self.drop, self.b, self.use_reentrant = nn.Linear(3, 6), nn.Dropout(0.5), nn.Linear(6, 2), use_reentrant

    def forward(self, x):
        if self.use_reentrant:
            x = x.detach().requires_grad_()
        return self.b(checkpoint(lambda y: self.drop(self.a(y)).tanh(), x, use_reentrant=self.use_reentrant))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_draw_the_same_mask_again(use_reentrant):
    """Row 9 of the ways to wrong numbers: the recompute draws the mask of the first pass."""
    agrees(mse, build=lambda: Checkpointed(use_reentrant))


def hooked(register):
    def build():
        model = net()
        register(model)
        return model

    return build


HOOKS = {
    "forward pre": lambda model: model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,)),
    "backward": lambda model: model[0].register_full_backward_hook(lambda module, into, out: tuple(None if g is None else g * 0.5 for g in into)),
    "backward pre": lambda model: model[2].register_full_backward_pre_hook(lambda module, out: (out[0] * 0.5,)),
    "with arguments": lambda model: model[1].register_forward_hook(lambda module, given, named, out: out + 1, with_kwargs=True),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_of_modules_are_recorded(hook):
    """Answer e."""
    agrees(mse, build=hooked(HOOKS[hook]))


def on_parameters(model, x, y):
    handles = [p.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01)) for p in model.parameters()]
    out = model(x)
    loss = F.mse_loss(out, y) + F.mse_loss(out * 2, y)
    (gradient,) = torch.autograd.grad(loss, out, retain_graph=True)
    del handles
    return loss + gradient.square().sum().detach()


def on_saved_tensors(model, x, y):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        first = mse(model, x, y)
    with torch.autograd.graph.save_on_cpu():
        return first + mse(model, x * 0.5, y)


def by_transforms(model, x, y):
    parameters = dict(model.named_parameters())
    out = torch.func.functional_call(model, parameters, (x,))
    each = torch.func.vmap(lambda row: row.square().sum())(out)
    slope = torch.func.grad(lambda v: v.pow(3).sum())(x)
    jacobian = torch.func.jacrev(lambda v: v.sin())(x[0])
    return F.mse_loss(out, y) + each.mean() + (slope.mean() + jacobian.sum()) * out.mean()


@pytest.mark.parametrize("fn", [on_parameters, on_saved_tensors, by_transforms])
def test_what_hooks_and_transforms_do_is_recorded(fn):
    """Answers e and l. What hooks leave on the parameters of a lane stays there, so each call has a model of its own."""
    agrees(fn, steps=1) if fn is on_parameters else agrees(fn)


def test_numbers_of_the_host_are_recorded():
    """Answer j: Python numbers, tensors made inside, one over a count."""

    def fn(model, x, y):
        weights = torch.tensor([1.0, 0.5])
        return (2.5 * (model(x) - y).square() * weights).sum() / y.numel() + torch.full((2,), 0.5).mean() * model(x).mean()

    agrees(fn)


# Answer h: what reads the host below the function.
READERS = {
    "one_hot": lambda model, x, y: mse(model, x, y) + F.one_hot((x[:, 0] > 0).long()).float().mean(),
    "clip": lambda model, x, y: mse(model, x, y) * nn.utils.clip_grad_norm_([(x * 1).requires_grad_()], 1.0, error_if_nonfinite=True).new_ones(()) + x.max().item(),
    "nonzero": lambda model, x, y: model(x)[x[:, 0].nonzero().squeeze(1)].mean(),
    "masked_select": lambda model, x, y: model(x).masked_select(y > 0).mean(),
    "unique": lambda model, x, y: mse(model, x, y) * len(torch.unique(y.round())),
    "repeat_interleave": lambda model, x, y: model(x).repeat_interleave((y[:, 0] > 0).long() + 1, dim=0).mean(),
    "bincount": lambda model, x, y: mse(model, x, y) * torch.bincount((y[:, 0] > 0).long()).sum(),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_depends_on_data_is_refused(reader, array, sgd):
    refuses(READERS[reader], "reads (a value|values) on the host|shape depends on data", array, sgd)


def test_an_optimizer_inside_the_function_is_refused(array, sgd):
    def steps_itself(model, x, y):
        inner = torch.optim.Adam(model.parameters())
        loss = mse(model, x, y)
        loss.backward(retain_graph=True)
        inner.step()
        return loss

    with pytest.raises((hfta.Unsupported, RuntimeError)):
        array.record(sgd, steps_itself, plan=WIDE)(*batch())
    array.zero_grad()
    array.record(sgd, mse, plan=WIDE)(*batch())


def test_control_flow_operators_are_refused_with_a_reason(array, sgd):
    def conditional(model, x, y):
        return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (model(x),)).mean()

    with pytest.raises((hfta.Unsupported, NotImplementedError, RuntimeError), match=r"\w"):
        array.record(sgd, conditional, plan=WIDE)(*batch())
    assert torch._C._len_torch_dispatch_stack() == 0
    array.record(sgd, mse, plan=WIDE)(*batch())


def test_a_loader_that_is_read_inside_leaves_the_process_sound(array, sgd):
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 3), torch.randn(8, 2)), batch_size=4)

    def reads(model, x, y):
        x, y = next(iter(loader))
        return mse(model, x, y)

    with pytest.raises(hfta.Unsupported):
        array.record(sgd, reads, plan=WIDE)(*batch())
    array.record(sgd, mse, plan=WIDE)(*batch())
