"""
Levels of a cascade
===================

A cascade (gcForest, Zhou and Feng 2017) stacks levels of forests. The forests of a level read the input and
the class vectors of the level before. A class vector of a training sample comes from trees grown without
this sample. So the score of a level on the training set estimates the accuracy on new samples. Growth stops
when this score no longer improves.
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import cascade, demo

digits = demo.load_digits()
x, y = digits.x_train[::3], digits.y_train[::3]  # samples come sorted by class
random = partial(hforest.grow, splitter="random", max_features=1, bootstrap=False)  # completely random trees
level = [partial(hforest.grow, n_trees=40)] * 2 + [partial(random, n_trees=40)] * 2
states = []
grown = cascade.grow(x, y, level, max_levels=5, patience=5, checkpoint=states.append, rng=0)

# %%
# After each level ``checkpoint`` gets the cascade of all levels so far, and applies it to the test set.

test = [100 * (cascade.predict(s, digits.x_test).argmax(axis=1) == digits.y_test).mean() for s in states]
scores = 100 * np.array(states[-1].scores)

fig, ax = plt.subplots(figsize=(7.5, 4.2))
levels = np.arange(1, len(states) + 1)
ax.plot(levels, scores, "o-", label=f"out-of-fold, {len(x)} training digits")
ax.plot(levels, test, "s--", label=f"{len(digits.x_test)} test digits")
kept = len(grown.levels)
ax.annotate(
    "the level that grow keeps", (kept, scores[kept - 1]), (40, 8), textcoords="offset points",
    arrowprops={"arrowstyle": "->"},
)  # fmt: skip
ax.margins(y=0.15)
ax.set(
    xlabel="levels of the cascade", ylabel="accuracy (%)", xticks=levels,
    title="Levels of two random and two completely random forests, 40 trees each",
)  # fmt: skip
ax.legend()
plt.show()
