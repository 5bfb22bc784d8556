"""
The same forest, with gradients
===============================

A random forest is constant in each cell between its thresholds: its gradient is 0 wherever it exists.
The hinge forest on the right begins with the same splits (:func:`hforest.hinge.from_forest`). The output
of a hinge tree is the weight of the leaf times the least margin on the path, :math:`h(x) = w_l |r^*|`,
which is continuous. So Adam trains thresholds and weights, and the gradient with respect to the input
reaches the layer before.
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

forest = hforest.grow(x, y, 15, max_depth=5, rng=0)

# %%
# Its splits as hinge trees, and 600 steps of Adam.

(thresholds, features, weights), intercept, _ = hinge.from_forest(x, y, forest)
weights, intercept = 4 * weights, 4 * intercept
state = hinge.adam_state(thresholds, weights)
for step in range(1, 601):
    batch = rng.integers(0, len(x), 64)
    scores, route = hinge.adam_forward(x[batch], thresholds, features, weights, state, step, 0.005)
    _, grad = layers.softmax_loss(scores + intercept, y[batch])
    hinge.adam_backward(grad, route, x[batch], thresholds, features, weights, state, step, 0.005)
hinge.adam_sync(thresholds, weights, state, 600, 0.005)


def difference(points):
    """Returns the score of class 1 less that of class 0, and its gradient with respect to the points."""
    scores, route = hinge.forward_with_route(points, thresholds, features, weights, aggregate="sum")
    sign = np.tile(np.array([-1, 1], np.float32), (len(points), 1))
    grads = hinge.backward(sign, route, points, thresholds, features, weights, aggregate="sum")
    return (scores + intercept) @ np.array([-1, 1], np.float32), grads.x


# %%
# Outputs on a grid, and the gradient's directions on a coarser one.

axis = np.linspace(-2.6, 2.6, 300, dtype=np.float32)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
arrows = grid.reshape(300, 300, 2)[12::25, 12::25].reshape(-1, 2)
panels = {
    "Random forest: gradient 0": 2 * tree.predict(forest, grid)[:, 1] - 1,
    "Hinge forest: trained by gradients": difference(grid)[0],
}
fig, axes = plt.subplots(1, 2, figsize=(9.6, 4.4), sharex=True, sharey=True)
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    values = values.reshape(300, 300)
    high = np.abs(values).max()
    ax.pcolormesh(axis, axis, values, cmap="RdBu_r", vmin=-high, vmax=high, rasterized=True)
    ax.contour(axis, axis, values, levels=[0], colors="black", linewidths=1.4)
    for label, marker in ((0, "o"), (1, "s")):
        ax.scatter(
            *x[y == label].T, s=16, marker=marker, color=("#1f5f9f", "#c0392b")[label], edgecolor="white",
            linewidth=0.4, label=f"class {label}",
        )  # fmt: skip
    ax.set(title=title, xlabel="$x_0$ (standard deviations)", aspect="equal")
axes[0].set_ylabel("$x_1$ (standard deviations)")
axes[0].legend(loc="lower left", fontsize=9, frameon=True, markerscale=1.5)
gradient = difference(arrows)[1]
gradient /= np.linalg.norm(gradient, axis=1, keepdims=True)
axes[1].quiver(*arrows.T, *gradient.T, color="#333333", width=0.004, scale=18, pivot="mid")
fig.suptitle("The same forest, with gradients")
plt.show()
