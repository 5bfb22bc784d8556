"""
Multi-grained scanning
======================

Before the levels of its cascade, gcForest (Zhou and Feng 2017) classifies the windows of an image. Its
forests are grown on windows, each with the label of its image. :func:`hforest.cascade.scan_vectors` returns
the class probabilities of each window. The picture shows the probability of the true digit in each window
of 4 by 4 pixels.
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import cascade, demo

digits = demo.load_digits()
x, y = digits.x_train[::3], digits.y_train[::3]  # samples come sorted by class
random = partial(hforest.grow, splitter="random", max_features=1, bootstrap=False)  # completely random trees
forests = [partial(hforest.grow, n_trees=20), partial(random, n_trees=20)]
scanner, _ = cascade.grow_scanner(x, y, (8, 8), 4, forests, max_windows=8, rng=0)

shown = [int(np.flatnonzero(digits.y_test == k)[1]) for k in range(10)]
vectors = cascade.scan_vectors(scanner, digits.x_test[shown])
vectors = vectors.reshape(10, 5, 5, 2, 10)  # sample, row, column, forest, class

fig, axes = plt.subplots(2, 10, figsize=(11, 3.1))
for k in range(10):
    axes[0, k].imshow(digits.x_test[shown[k]].reshape(8, 8), cmap="gray_r")
    axes[0, k].set_title(str(k))
    drawn = axes[1, k].imshow(vectors[k, ..., k].mean(axis=2), cmap="viridis", vmin=0, vmax=0.8)
    for ax in axes[:, k]:
        ax.set(xticks=[], yticks=[])
axes[0, 0].set_ylabel("image", rotation=0, ha="right", va="center")
axes[1, 0].set_ylabel("windows\n5 × 5", rotation=0, ha="right", va="center")
fig.colorbar(drawn, ax=axes[1, :], label="p(true digit)", pad=0.01, extend="max")
fig.suptitle("Probability of the true digit in each window of 4 × 4 pixels (chance: 0.1)")
plt.show()
