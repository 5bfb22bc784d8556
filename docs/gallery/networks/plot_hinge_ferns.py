"""
Trees and ferns
===============

A hinge tree of depth D has :math:`2^D - 1` decisions, one at each vertex. A fern has D decisions, one at
each level, and evaluates all of them for every sample. So each decision of a fern is a line through the whole
plane. The number of the leaf of a sample is the binary number of its answers. A fern has as many leaves as a
tree but stores fewer thresholds, which stay in cache. Four lines divide the plane into at most eleven parts;
with more than two independent columns all 16 leaves occur.
"""

import matplotlib.pyplot as plt
import numpy as np

from hforest import hinge

rng = np.random.default_rng(3)
axis = np.linspace(-2, 2, 400)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
depth = 4

# %%
# The columns are the two coordinates, their sum and their difference; level i compares column i.
# The threshold of each vertex of the tree is the median of the points that reach it.

columns = np.array([[1, 0], [0, 1], [0.7, 0.7], [0.7, -0.7]])
points = rng.normal(size=(300, 2)) * [1.0, 0.8] + [0.2, -0.3]
tree_features = np.array([[int(np.log2(v + 1)) for v in range(2**depth - 1)]], np.int32)
tree_thresholds = hinge.median_thresholds(points @ columns.T, tree_features)
fern_features = np.arange(4, dtype=np.int32)[None]
fern_thresholds = np.array([[0.2, -0.3, 0.5, 0.2]])
grid = grid @ columns.T

leaves = {
    f"tree: {2**depth - 1} decisions": hinge.traverse(grid, tree_thresholds, tree_features).leaf,
    f"fern: {depth} decisions": hinge.traverse(grid, fern_thresholds, fern_features, kind="fern").leaf,
}
fig, axes = plt.subplots(1, 2, figsize=(10, 5), sharey=True)
colors = plt.get_cmap("tab20")(np.random.default_rng(5).permutation(16))
for ax, (title, leaf) in zip(axes, leaves.items(), strict=True):
    image = leaf.reshape(400, 400)
    pale = 0.45 * colors[image] + 0.55
    ax.imshow(pale, origin="lower", extent=(-2, 2, -2, 2), interpolation="nearest")
    for number in np.unique(leaf):
        row, column = np.nonzero(image == number)
        if len(row) > 1200:
            place = axis[column].mean(), axis[row].mean()
            ax.text(*place, f"{number}\n{number:04b}", ha="center", va="center", fontsize=8)
    ax.set(title=f"{title}, {len(np.unique(leaf))} of 16 leaves", xlabel="$x_0$")
axes[0].set_ylabel("$x_1$")
fig.suptitle("Leaves by number and by the answers that lead to them (first answer first)")
plt.show()
