"""
Importance images of three forests
==================================

The importance of a pixel by gain is the decrease of impurity by all splits that read it. A random forest
reads single pixels. A sparse oblique forest (SPORF) reads sums and differences of a few pixels anywhere, and
a manifold forest (MORF, Perry et al. 2019) sums over patches. Here the classes differ in one patch of 3 by 3
pixels, and all other pixels are noise.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest.plot
from hforest import project, tree

rng = np.random.default_rng(0)
y = rng.integers(0, 2, 1200)
x = rng.normal(size=(1200, 12, 12)).astype(np.float32)
x[:, 3:6, 7:10] += 0.45 * y[:, None, None]
x = x.reshape(1200, 144)
train, test = slice(0, 600), slice(600, None)

kinds = {
    "random forest: pixels": None,
    "SPORF: a few pixels": project.sparse_distribution(144),
    "MORF: patches": project.patch_distribution((12, 12), patch_min=2, patch_max=4),
}

fig, axes = plt.subplots(1, 3, figsize=(11, 4))
for ax, (name, projections) in zip(axes, kinds.items(), strict=True):
    forest = hforest.grow(x[train], y[train], 200, projections=projections, rng=0)
    image = hforest.plot.importance_image(forest, (12, 12))
    drawn = ax.imshow(image / image.sum(), cmap="magma")
    ax.add_patch(plt.Rectangle((6.5, 2.5), 3, 3, fill=False, color="cyan", lw=2))
    error = (tree.predict(forest, x[test]).argmax(axis=1) != y[test]).mean()
    ax.set(title=f"{name}\ntest error {error:.1%}", xticks=[], yticks=[])
    fig.colorbar(drawn, ax=ax, shrink=0.75, label="share of the importance")
fig.suptitle("Importance by gain, 200 trees; cyan: the patch on which the classes differ")
plt.show()
