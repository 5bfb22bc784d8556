"""
Where a manifold forest looks
=============================

A random forest's splits read single pixels of digits; a manifold forest's read sums over patches, so that
neighbours share the gain (p3 section 3.2). Brighter pixels gain more.
"""

import matplotlib.pyplot as plt

import hforest.plot
from hforest import classic, demo, manifold

digits = demo.load_digits()
forests = {
    "random forest": classic.grow(digits.x_train, digits.y_train, 100, rng=0),
    "manifold forest": manifold.grow(digits.x_train, digits.y_train, 100, shape=(8, 8), rng=0),
}
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.8), layout="constrained")
for ax, (name, forest) in zip(axes, forests.items(), strict=True):
    hforest.plot.importance(forest, (8, 8), ax=ax)
    ax.set_title(name)
plt.show()
