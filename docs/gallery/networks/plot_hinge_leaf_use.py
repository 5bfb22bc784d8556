"""
Leaves that samples reach
=========================

A complete tree of depth 8 has 256 leaves. With random thresholds samples reach few of them, and the weights
of the other leaves get no gradient. Thresholds at medians (:func:`hforest.hinge.median_thresholds`) spread
the samples evenly over the leaves. Those of a grown forest (:func:`hforest.hinge.from_forest`) make smaller
leaves where classes are mixed; below a pure leaf of the forest nothing is split, so leaves stay unused.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import demo, hinge

digits = demo.load_digits()
mean, deviation = digits.x_train.mean(axis=0), digits.x_train.std(axis=0) + 0.5
x = ((digits.x_train - mean) / deviation).astype(np.float32)
n_trees, depth = 50, 8

forest = hforest.grow(x, digits.y_train, n_trees, max_depth=depth, rng=0)
thresholds, features, _ = hinge.init(n_trees, depth, x.shape[1], rng=0)
starts = {
    "random thresholds, U(−3, 3)": (thresholds, features),
    "medians": (hinge.median_thresholds(x, features), features),
    "grown forest": hinge.from_forest(x, digits.y_train, forest, depth).parameters[:2],
}

# %%
# ``leaf_counts`` counts the samples of each leaf, from the leaves of a traversal.

fig, ax = plt.subplots(figsize=(8, 4.5))
for (name, (t, f)), mark in zip(starts.items(), ("-", "--", "-."), strict=True):
    leaf = hinge.traverse(x, t, f).leaf
    counts = np.sort(hinge.leaf_counts(leaf, 2**depth), axis=1)[:, ::-1].mean(axis=0)
    used = (hinge.leaf_counts(leaf, 2**depth) > 0).mean()
    label = f"{name}: {used:.0%} of leaves used"
    ax.plot(np.arange(1, 2**depth + 1), np.where(counts > 0, counts, np.nan), mark, lw=2, label=label)
ax.axhline(len(x) / 2**depth, color="gray", lw=1)
ax.text(250, len(x) / 2**depth * 1.15, "even: n / 256", ha="right", color="gray")
ax.set(
    yscale="log", ylim=(0.02, 4000), xlim=(0, 257),
    xlabel="leaves of a tree, most used first", ylabel="samples in the leaf (mean of 50 trees)",
    title=f"{len(x)} digits in trees of depth {depth}",
)  # fmt: skip
ax.legend()
plt.show()
