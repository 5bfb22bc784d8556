"""
Patches of the first splits of MORF
===================================

A manifold forest (MORF, Perry et al. 2019) splits images by sums over random rectangles of pixels. On the
left are the patches of the first splits of eight trees. Each lies on the difference of the mean images of
the two digits that the split separates best. On the right is the importance of each pixel by gain in all
trees.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest.plot
from hforest import demo, project, tree

digits = demo.load_digits()
x, y = digits.x_train, digits.y_train
patches = project.patch_distribution((8, 8), patch_min=2, patch_max=4)
forest = hforest.grow(x, y, 100, projections=patches, rng=0)
error = (tree.predict(forest, digits.x_test).argmax(axis=1) != digits.y_test).mean()

# %%
# The root of a tree is its first node. Its projection is a row of a sparse matrix, and ``indices`` are the
# pixels of the patch.

roots = forest.tree_start[:-1]
fig = plt.figure(figsize=(10, 4.8))
parts = fig.subfigures(1, 2, width_ratios=[1.7, 1])
axes = parts[0].subplots(2, 4)
for ax, root in zip(axes.flat, roots[:8], strict=True):
    pixels = forest.indices[forest.indptr[root] : forest.indptr[root + 1]]
    value = x[:, pixels].sum(axis=1)
    right = np.array([(value[y == k] > forest.threshold[root]).mean() for k in range(10)])
    low, high = right.argmin(), right.argmax()
    difference = x[y == high].mean(axis=0) - x[y == low].mean(axis=0)
    ax.imshow(difference.reshape(8, 8), cmap="RdBu_r", vmin=-14, vmax=14)
    rows, columns = np.divmod(pixels, 8)
    corner = columns.min() - 0.5, rows.min() - 0.5
    ax.add_patch(plt.Rectangle(corner, np.ptp(columns) + 1, np.ptp(rows) + 1, fill=False, lw=3))
    ax.set_title(f"{high}: {right[high]:.0%} right,\n{low}: {right[low]:.0%}", fontsize=10)
    ax.set(xticks=[], yticks=[])
parts[0].suptitle("first splits of 8 trees; colour: mean image of one digit minus the other", fontsize=11)
ax = parts[1].subplots()
hforest.plot.importance(forest, (8, 8), by="gain", ax=ax)
ax.set(xticks=range(8), yticks=range(8), xlabel="column", ylabel="row")
parts[1].suptitle(f"gain of the splits that read a pixel, 100 trees\n(test error {error:.1%})", fontsize=11)
plt.show()
