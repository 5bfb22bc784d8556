"""
Quantiles and intervals of a regression forest
==============================================

A regression forest predicts means. With the targets of the training samples in each leaf
(:func:`hforest.tree.leaf_targets`) it predicts any quantile (:func:`hforest.tree.quantiles`). The band
between two quantiles is wide where the targets vary much. Intervals of out-of-bag errors
(:func:`hforest.tree.prediction_intervals`) have the same width for all samples.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import growth, tree

rng = np.random.default_rng(0)
x = rng.uniform(0, 10, (800, 1))
noise = 0.1 + 0.08 * x[:, 0]
y = np.sin(x[:, 0]) + noise * rng.normal(size=800)
at = np.linspace(0, 10, 400)[:, None]
truth = np.sin(at[:, 0])
spread = 1.645 * (0.1 + 0.08 * at[:, 0])  # 90 % of the samples lie within

counts = growth.bootstrap_counts(len(x), 200, rng=0)
forest = hforest.grow(x, y, 200, bootstrap=counts, min_samples_leaf=15, task="regression", rng=0)
band = tree.quantiles(forest, tree.leaf_targets(forest, x, y), at, [0.05, 0.95])
errors = y[:, None] - tree.out_of_bag(forest, x, counts)
interval = tree.prediction_intervals(forest, at, errors, coverage=0.9)

bands = {
    "quantiles 0.05 and 0.95": (band[:, 0, 0], band[:, 0, 1]),
    "out-of-bag intervals of 90 %": (interval.low.ravel(), interval.high.ravel()),
}
fig, axes = plt.subplots(1, 2, figsize=(10.5, 4.4), sharey=True)
for ax, (title, (low, high)) in zip(axes, bands.items(), strict=True):
    ax.scatter(x, y, s=6, color="gray", alpha=0.6, label="samples")
    ax.fill_between(at[:, 0], low, high, color="C0", alpha=0.3, label="predicted")
    ax.plot(at, tree.predict(forest, at), color="C0", label="predicted mean")
    for side in (-1, 1):
        ax.plot(at[:, 0], truth + side * spread, "k--", lw=1.3, label="truth: 90 %" if side == 1 else None)
    ax.set(title=title, xlabel="$x$")
axes[0].set_ylabel("$y$")
axes[0].legend(loc="lower left", ncols=2, fontsize=9)
plt.show()
