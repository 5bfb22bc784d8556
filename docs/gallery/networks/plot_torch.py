"""
A hinge forest in a PyTorch network
===================================

:class:`hforest.torch.HingeForest` is an ``nn.Module``. Here it takes the place of the hidden and the last
layer of a small network. All networks have the same first layer, and ``torch.optim.Adam`` trains them.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import hforest.torch
from hforest import demo

torch.set_num_threads(1)
digits = demo.load_digits()
x, x_test = (torch.tensor(a / 16) for a in (digits.x_train, digits.x_test))
y, y_test = (torch.tensor(a).long() for a in (digits.y_train, digits.y_test))


def network(head):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 40, bias=False), hforest.torch.RunningNorm(40), *head())


networks = {
    "ReLU, 256 units": network(lambda: [nn.Linear(40, 256), nn.ReLU(), nn.Linear(256, 10)]),
    "hinge forest, 50 trees of depth 6": network(
        lambda: [hforest.torch.HingeForest(40, n_trees=50, depth=6, outputs=10)]
    ),
    "hinge ferns, 50 of depth 6": network(
        lambda: [hforest.torch.HingeForest(40, n_trees=50, depth=6, outputs=10, kind="fern")]
    ),
}

# %%
# The training loop is PyTorch's.

curves = {name: [] for name in networks}
for name, net in networks.items():
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
    for _ in range(12):
        net.train()
        for batch in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            curves[name].append(100 * (net(x_test).argmax(dim=1) != y_test).double().mean().item())

fig, ax = plt.subplots(figsize=(8, 4.4))
for (name, values), style in zip(curves.items(), ("o-", "s--", "^:"), strict=True):
    ax.plot(range(1, 13), values, style, label=name)
ax.set(
    xlabel="epoch", ylabel="test error (%)", ylim=(0, None),
    title="Heads of a network on 3823 digits, learning rate 0.005",
)  # fmt: skip
ax.legend()
plt.show()
