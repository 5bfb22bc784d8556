"""
Regions of a hinge tree and of a CART tree
==========================================

A hinge tree's output is the leaf's weight times the least margin on the path (p1 eq 10): it is 0 at every
threshold that is nearest, and grows with the distance from it. A CART tree's output jumps there.
"""

import matplotlib.pyplot as plt
import numpy as np

from hforest import classic, hinge, tree

rng = np.random.default_rng(3)
x = rng.uniform(-1, 1, (600, 2)).astype(np.float32)
y = (np.hypot(x[:, 0], x[:, 1]) < 0.7).astype(int)

cart = classic.grow(x, y, 1, max_depth=4, max_features=None, bootstrap=False, rng=0)
start = hinge.tree_greedy_init(x, y, 1, 4, max_features=None, rng=0)

line = np.linspace(-1, 1, 300, dtype=np.float32)
grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
of_cart = tree.predict(cart, grid)[:, 1]
of_hinge = hinge.tree_forward(grid, *start, aggregate="sum")
of_hinge = of_hinge[:, 1] - of_hinge[:, 0]

figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
titles = ("CART: share of class 1 (gold)", "hinge: output of class 1 - class 0")
for ax, z, title in zip(axes, (of_cart, of_hinge), titles, strict=True):
    limit = abs(z).max()
    low = 0 if z is of_cart else -limit
    image = ax.imshow(
        z.reshape(300, 300), extent=(-1, 1, -1, 1), origin="lower", cmap="RdBu_r", vmin=low, vmax=limit
    )
    colours = np.where(y[:150], "gold", "white")
    ax.scatter(*x[:150].T, c=colours, s=10, edgecolors="k", linewidths=0.5)
    ax.set(title=title, xlabel="feature 0", ylabel="feature 1")
    figure.colorbar(image, ax=ax, shrink=0.8)
plt.show()
