"""
How trees and ferns use their leaves
====================================

A fern has one decision a level, which all its vertices of that level share; a tree has one a vertex. With
thresholds at medians of what reaches them, a tree's leaves have equal shares of the samples, a fern's
have not.
"""

import matplotlib.pyplot as plt
import numpy as np

from hforest import hinge

rng = np.random.default_rng(0)
x = (rng.normal(size=(4096, 20)) @ rng.normal(size=(20, 20))).astype(np.float32)
depth, kinds = 6, {}
for kind in ("tree", "fern"):
    start = getattr(hinge, f"{kind}_init")(50, depth, 20, rng=0)
    thresholds = getattr(hinge, f"{kind}_median_thresholds")(x, start.features)
    leaf = getattr(hinge, f"{kind}_traverse")(x, thresholds, start.features).leaf
    kinds[kind] = hinge.leaf_counts(leaf, 2**depth) / len(x)

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for kind, share in kinds.items():
    of_rank = -np.sort(-share, axis=1)
    ax.plot(np.arange(1, 2**depth + 1), of_rank.mean(axis=0), label=f"{kind}s, mean of 50")
ax.axhline(2.0**-depth, color="k", linewidth=0.8, linestyle=":", label="equal shares")
ax.set(xlabel="leaf, by its share", ylabel="share of the samples", yscale="log", ylim=(1e-4, 0.3))
ax.legend()
plt.show()
