"""Models that people bring, unchanged, against plain PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support import Solo, check_steps, close
from torch import nn

import hfta

WIDE = hfta.Plan(width=8)


def trains(build, fn, data, *, steps=5, lanes=3, recorded=True, tolerant=(), lr=0.01):
    models = [build() for _ in range(lanes)]
    array = hfta.fuse(models)
    adam = hfta.optim.Adam(array, lr=lr)
    solos = [
        Solo(model, lane, lane, lambda p, lane: torch.optim.Adam([q for q in p if q.requires_grad], lr=lr))
        for lane, model in enumerate(models)
    ]
    step = array.record(adam, fn, plan=WIDE) if recorded else lambda *inputs: array.train_step(adam, fn, *inputs)
    check_steps(array, solos, step, fn, data, steps, tolerant)
    return array


class UNet(nn.Module):
    def __init__(self):
        super().__init__()

        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())

        self.down1, self.down2, self.middle = block(1, 4), block(4, 6), block(6, 8)
        self.up2, self.up1 = nn.ConvTranspose2d(8, 6, 2, stride=2), nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.out2, self.out1, self.head = block(12, 6), block(8, 4), nn.Conv2d(4, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.up2(self.middle(F.max_pool2d(b, 2)))
        b = self.up1(self.out2(torch.cat([c, b], 1)))
        return self.head(self.out1(torch.cat([b, a], 1)))


def test_a_u_net():
    trains(
        lambda: UNet().double(),
        lambda net, x, y: F.cross_entropy(net(x), y),
        lambda: (torch.randn(2, 1, 8, 12).double(), torch.randint(2, (2, 8, 12))),
    )


def test_a_gan():
    def mlp(i, o):
        return nn.Sequential(nn.Linear(i, 8), nn.LeakyReLU(0.2), nn.Linear(8, o)).double()

    makers, critics = [mlp(2, 3) for _ in range(3)], [mlp(3, 1) for _ in range(3)]
    g, d = hfta.fuse(makers), hfta.fuse(critics)
    opt_g, opt_d = hfta.optim.Adam(g, lr=0.01, betas=(0.5, 0.9)), hfta.optim.Adam(d, lr=[0.01, 0.02, 0.03], betas=(0.5, 0.9))

    def critic_loss(g, d, z, real):
        return (F.softplus(-d(real)) + F.softplus(d(g(z).detach()))).mean()

    def maker_loss(g, d, z):
        return F.softplus(-d(g(z))).mean()

    step_d, step_g = hfta.record((g, d), opt_d, critic_loss, plan=WIDE), hfta.record((g, d), opt_g, maker_loss, plan=WIDE)
    stock_g = [torch.optim.Adam(m.parameters(), lr=0.01, betas=(0.5, 0.9)) for m in makers]
    stock_d = [torch.optim.Adam(m.parameters(), lr=lr, betas=(0.5, 0.9)) for m, lr in zip(critics, [0.01, 0.02, 0.03])]
    for k in range(5):
        z, real = torch.randn(4, 2).double(), torch.randn(4, 3).double()
        got_d, got_g = step_d(z, real), step_g(z)
        for lane, (maker, critic) in enumerate(zip(makers, critics)):
            for fn, stock, got, inputs in ((critic_loss, stock_d, got_d, (z, real)), (maker_loss, stock_g, got_g, (z,))):
                stock[lane].zero_grad()
                loss = fn(maker, critic, *inputs)
                loss.backward()
                stock[lane].step()
                close(got[lane], loss.detach(), f"step {k} lane {lane}", k + 1)


def test_a_dqn_learner_with_a_target_net_and_data_of_each_lane():
    def mlp():
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()

    models = [mlp() for _ in range(3)]
    online, target = hfta.fuse(models), hfta.fuse(models)
    adam = hfta.optim.Adam(online, lr=0.01)
    solos, targets = [Solo(m, i, i, lambda p, i: torch.optim.Adam(p, lr=0.01)) for i, m in enumerate(models)], models

    def td_loss(net, target, batch):
        chosen = net(batch["state"]).gather(1, batch["action"].unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            goal = batch["reward"] + 0.9 * (1 - batch["done"]) * target(batch["next"]).max(1).values
        return F.smooth_l1_loss(chosen, goal)

    step = hfta.record((online, target), adam, td_loss, plan=WIDE)
    for k in range(6):
        data = {
            "state": torch.randn(3, 6, 4).double(),
            "action": torch.randint(3, (3, 6)),
            "reward": torch.randn(3, 6).double(),
            "done": torch.randint(2, (3, 6)).double(),
            "next": torch.randn(3, 6, 4).double(),
        }
        batch = {name: hfta.per_lane(tensor) for name, tensor in data.items()}
        losses = step(batch)
        for lane, solo in enumerate(solos):
            close(
                losses[lane],
                solo.step(lambda net, batch, lane=lane: td_loss(net, targets[lane], batch), (batch,)),
                f"step {k} lane {lane}",
                k + 1,
            )
        if k == 2:
            for lane, solo in enumerate(solos):
                target.load_lane_state_dict(lane, online.lane_state_dict(lane))
                targets[lane].load_state_dict(solo.model.state_dict())


def test_a_ppo_learner():
    class ActorCritic(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.pi, self.v = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 1)

        def forward(self, x):
            h = torch.tanh(self.body(x))
            return torch.distributions.Categorical(logits=self.pi(h), validate_args=False), self.v(h).squeeze(-1)

    def ppo_loss(net, state, action, before, advantage, value):
        policy, now = net(state)
        ratio = (policy.log_prob(action) - before).exp()
        clipped = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        return -clipped + 0.5 * F.mse_loss(now, value) - 0.01 * policy.entropy().mean()

    def data():
        return tuple(
            hfta.per_lane(t)
            for t in (torch.randn(3, 6, 4).double(), torch.randint(3, (3, 6)), *(torch.randn(3, 6).double() for _ in range(3)))
        )

    trains(lambda: ActorCritic().double(), ppo_loss, data)


def test_a_graph_layer_with_index_add():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.message, self.update = nn.Linear(4, 5), nn.Linear(9, 3)

        def forward(self, x, edges):
            gathered = torch.zeros(x.shape[0], 5, dtype=x.dtype).index_add(0, edges[1], self.message(x[edges[0]]))
            return self.update(torch.cat([x, gathered], 1))

    edges = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 4]])
    trains(
        lambda: Graph().double(),
        lambda net, x, e, y: F.cross_entropy(net(x, e), y),
        lambda: (torch.randn(5, 4).double(), edges, torch.randint(3, (5,))),
    )


def test_a_lora_set_on_a_frozen_trunk():
    class Lora(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(7)
            self.trunk = nn.Linear(4, 6).requires_grad_(False)
            torch.seed()
            self.a, self.b = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.zeros(6, 2))

        def forward(self, x):
            return self.trunk(x) + x @ self.a.T @ self.b.T

    array = trains(
        lambda: Lora().double(), lambda net, x, y: F.mse_loss(net(x), y), lambda: (torch.randn(5, 4).double(), torch.randn(5, 6).double())
    )
    assert torch.equal(array.lane(0).trunk.weight, array.lane(2).trunk.weight)


def test_weights_with_parametrizations():
    def build():
        return nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.utils.parametrizations.spectral_norm(nn.Linear(5, 2))
        ).double()

    trains(build, lambda net, x, y: F.mse_loss(net(x), y), lambda: (torch.randn(5, 4).double(), torch.randn(5, 2).double()))


def test_a_decoder_of_x_transformers():
    package = pytest.importorskip("x_transformers", reason="needs: pip install x-transformers")

    def build():
        layers = package.Decoder(dim=16, depth=2, heads=2, attn_dim_head=8, rotary_pos_emb=True)
        return package.TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=layers)

    def next_token(net, tokens):
        return F.cross_entropy(net(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:])

    trains(build, next_token, lambda: (torch.randint(20, (4, 16)),), lr=1e-3)


@pytest.mark.parametrize("layer", ["SAGEConv", "GCNConv"])
def test_layers_of_torch_geometric(layer):
    package = pytest.importorskip("torch_geometric.nn", reason="needs: pip install torch_geometric")
    kind = getattr(package, layer)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = kind(4, 6), kind(6, 3)

        def forward(self, x, edges):
            return self.last(F.relu(self.first(x, edges)), edges)

    edges = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 4]])

    def loss(net, x, e, y):
        return F.cross_entropy(net(x, e), y)

    def data():
        return torch.randn(5, 4), edges, torch.randint(3, (5,))

    if layer == "GCNConv":  # picks self loops by a mask
        array = hfta.fuse([Net() for _ in range(2)])
        with pytest.raises(hfta.Unsupported, match="shape depends on data"):
            array.record(hfta.optim.Adam(array), loss, plan=WIDE)(*data())
    trains(Net, loss, data, recorded=layer == "SAGEConv")
