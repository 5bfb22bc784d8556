r"""
Regions of a CO2 tree and of a CART tree
========================================

CO2 (Norouzi et al. 2015) splits a node by a hyperplane, :math:`w \cdot x \ge 0`. Continuous optimisation
fits it, from the best of some univariate splits. Where the boundaries between classes are oblique, a tree of
hyperplanes needs fewer splits than one of single columns.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import co2, tree

rng = np.random.default_rng(0)
centers = np.array([[0.0, 0.0], [1.6, 1.1], [3.2, 2.2]])
stretch = np.array([[0.45, -1.0], [0.3, 0.65]])  # long clusters, side by side
y = rng.integers(0, 3, 500)
x = centers[y] + rng.normal(size=(500, 2)) @ stretch * [0.9, 0.8]

grown = {
    "columns (CART)": hforest.grow(x, y, 1, bootstrap=False, max_features=None, max_depth=3, rng=0),
    "hyperplanes (CO2)": co2.grow(x, y, 1, max_depth=2, rng=0),
}

# %%
# Each tree is a :class:`hforest.tree.Forest`. Its predictions on a grid show its regions.

low, high = x.min(axis=0) - 0.3, x.max(axis=0) + 0.3
axes_of = [np.linspace(low[k], high[k], 400) for k in range(2)]
grid = np.stack(np.meshgrid(*axes_of), axis=-1).reshape(-1, 2)
colors = np.array([[0.12, 0.47, 0.71], [1.0, 0.5, 0.05], [0.17, 0.63, 0.17]])

fig, axes = plt.subplots(1, 2, figsize=(10, 4.7), sharey=True)
for ax, (title, forest) in zip(axes, grown.items(), strict=True):
    label = tree.predict(forest, grid).argmax(axis=1).reshape(400, 400)
    leaf = tree.apply(forest, grid).reshape(400, 400)
    extent = (low[0], high[0], low[1], high[1])
    ax.imshow(0.35 * colors[label] + 0.65, origin="lower", extent=extent, aspect="auto")
    for number in np.unique(leaf):
        ax.contour(*axes_of, leaf == number, levels=[0.5], colors="black", linewidths=0.8)
    for k, marker in enumerate("os^"):
        ax.scatter(*x[y == k].T, s=11, marker=marker, color=colors[k], label=f"class {k}")
    splits = int((forest.feature != -1).sum())
    error = (tree.predict(forest, x).argmax(axis=1) != y).mean()
    ax.set(title=f"{title}: {splits} splits, error {error:.1%}", xlabel="$x_0$")
axes[0].set_ylabel("$x_1$")
axes[0].legend(loc="upper left", frameon=True)
plt.show()
