"""
A hinge tree beside a CART tree
===============================

A CART tree outputs one constant per leaf. A hinge tree (Lay et al. 2018) outputs the weight of the leaf
times the least margin on the path, :math:`h(x) = w_l |r^*|`. Both split the plane by rules
``x[f] <= t``. The output of the CART tree jumps where a sample changes its leaf. That of the hinge tree is 0
on both sides there. So it is continuous and has a gradient with respect to the thresholds.

The hinge tree starts with the splits of the CART tree (:func:`hforest.hinge.from_forest`). Then Adam trains
its thresholds and weights.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import hinge, layers, tree

rng = np.random.default_rng(0)
angle = rng.uniform(0, np.pi, 400)
y = np.arange(400) % 2
x = np.stack([np.cos(angle) + y - 0.5, np.where(y, 0.25 - np.sin(angle), np.sin(angle) - 0.25)], axis=1)
x = ((x + rng.normal(scale=0.15, size=x.shape)) / x.std(axis=0)).astype(np.float32)

# %%
# ``cart`` is one tree of depth 5. The output of a single hinge tree is zero at each of its splits. So the
# picture also shows 15 hinge trees, whose sum is zero only between the classes.

cart = hforest.grow(x, y, 1, max_depth=5, bootstrap=False, max_features=None, rng=0)
many = hforest.grow(x, y, 15, max_depth=5, rng=0)


def train(grown, steps=600):
    """Returns hinge trees that start as a grown forest, after some steps of Adam."""
    (t, f, w), intercept, _ = hinge.from_forest(x, y, grown)
    w, intercept = 4 * w, 4 * intercept
    state = hinge.adam_state(t, w)
    for step in range(1, steps + 1):
        batch = rng.integers(0, len(x), 64)
        scores, route = hinge.adam_forward(x[batch], t, f, w, state, step, 0.005)
        _, grad = layers.softmax_loss(scores + intercept, y[batch])
        hinge.adam_backward(grad, route, x[batch], t, f, w, state, step, 0.005)
    hinge.adam_sync(t, w, state, steps, 0.005)
    return t, f, w, intercept


one, forest = train(cart), train(many)

# %%
# On a grid, the output of the CART tree is the share of class 1, from -1 to 1. That of the hinge trees is the
# difference of their two class scores.

axis = np.linspace(-2.6, 2.6, 300, dtype=np.float32)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def difference(parameters):
    *arrays, intercept = parameters
    scores = hinge.forward(grid, *arrays, aggregate="sum") + intercept
    return (scores[:, 1] - scores[:, 0]).reshape(300, 300)


panels = {
    "CART tree: constant in a leaf": 2 * tree.predict(cart, grid)[:, 1].reshape(300, 300) - 1,
    "one hinge tree: linear in a leaf": difference(one),
    "15 hinge trees": difference(forest),
}
fig, axes = plt.subplots(1, 3, figsize=(11, 4), sharex=True, sharey=True)
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    high = np.abs(values).max()
    ax.pcolormesh(axis, axis, values, cmap="RdBu_r", vmin=-high, vmax=high, rasterized=True)
    ax.contour(axis, axis, values, levels=[0], colors="black", linewidths=1.2)
    for label, marker in ((0, "o"), (1, "s")):
        ax.scatter(
            *x[y == label].T, s=16, marker=marker, color=("#1f5f9f", "#c0392b")[label], edgecolor="white",
            linewidth=0.4, label=f"class {label}",
        )  # fmt: skip
    ax.set(title=title, xlabel="$x_0$ (standard deviations)", aspect="equal")
axes[0].set_ylabel("$x_1$ (standard deviations)")
axes[0].legend(loc="lower left", fontsize=9, frameon=True, markerscale=1.5)
fig.suptitle("Output (blue: class 0, red: class 1) and decision boundary (black)")
plt.show()
