"""
Intervals from the leaves
=========================

A regression forest's leaves hold targets, whose quantiles are estimates of the distribution of a new one
(Meinshausen 2006).
"""

import matplotlib.pyplot as plt
import numpy as np

from hforest import classic, tree

rng = np.random.default_rng(0)
x = rng.uniform(0, 6, (2000, 1))
y = np.sin(x[:, 0]) + rng.normal(0, 0.1 + 0.1 * x[:, 0])
forest = classic.grow(x, y, 200, task="regression", min_samples_leaf=20, rng=0)

line = np.linspace(0, 6, 300)[:, None]
levels = np.array([0.05, 0.5, 0.95])
low, middle, high = tree.quantiles(forest, tree.leaf_targets(forest, x, y), line, levels).reshape(300, 3).T

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.scatter(x, y, s=3, color="0.75", label="samples")
ax.fill_between(line[:, 0], low, high, alpha=0.3, label="5 to 95 %")
ax.plot(line, middle, label="median")
ax.plot(line, tree.predict(forest, line), ":", label="mean")
ax.set(xlabel="feature", ylabel="target")
ax.legend()
plt.show()
