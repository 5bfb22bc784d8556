"""
Hyperplanes of CO2 trees
========================

Where a class boundary is oblique a tree of single features needs a staircase. A CO2 tree optimises a
hyperplane at each node (p2 Alg. 1) and needs a few.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest.plot
from hforest import classic, co2, tree

rng = np.random.default_rng(0)
x = rng.normal(size=(800, 2))
y = (x[:, 0] + x[:, 1] > 0).astype(int) + 2 * (x[:, 0] - 0.6 * x[:, 1] > 0.4)

figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
grow = {
    "single features": lambda: classic.grow(
        x, y, 1, max_features=None, bootstrap=False, min_samples_leaf=5, rng=0
    ),
    "CO2": lambda: co2.grow(x, y, 1, max_features=None, min_samples_leaf=5, rng=0),
}
for ax, (name, function) in zip(axes, grow.items(), strict=True):
    forest = function()
    hforest.plot.regions(lambda a, forest=forest: tree.predict(forest, a), x, y, ax=ax)
    ax.set(
        title=f"{name}: {int((forest.feature != -1).sum())} splits", xlabel="feature 0", ylabel="feature 1"
    )
plt.show()
