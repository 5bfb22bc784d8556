"""
The out-of-bag error
====================

Each tree of a random forest is grown on a bootstrap sample, which leaves out about a third of the samples.
The out-of-bag prediction of a sample comes from the trees that did not draw it. Its error estimates the test
error without a test set. Only about a third of the trees predict a sample, so the estimate is too high where
trees are few.
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import demo, growth, tree

digits = demo.load_digits()
x, y = digits.x_train, digits.y_train
numbers = [5, 10, 20, 40, 80, 160]
kinds = {"random forest": hforest.grow, "extra trees": partial(hforest.grow, splitter="random")}

fig, ax = plt.subplots(figsize=(8, 4.5))
for color, (name, grow) in zip(("C0", "C1"), kinds.items(), strict=True):
    lines = {"out-of-bag": [], "test": []}
    for n in numbers:
        counts = growth.bootstrap_counts(len(x), n, rng=1)
        forest = grow(x, y, n, bootstrap=counts, rng=0)
        p = tree.out_of_bag(forest, x, counts)
        drawn = ~np.isnan(p).any(axis=1)  # a sample that every tree drew has no prediction
        lines["out-of-bag"].append(100 * (p[drawn].argmax(axis=1) != y[drawn]).mean())
        p = tree.predict(forest, digits.x_test)
        lines["test"].append(100 * (p.argmax(axis=1) != digits.y_test).mean())
    ax.plot(numbers, lines["out-of-bag"], "o-", color=color, label=f"{name}, out-of-bag")
    ax.plot(numbers, lines["test"], "s--", color=color, label=f"{name}, test")
ax.set(
    xscale="log", xticks=numbers, xticklabels=numbers, ylim=(0, None), xlabel="trees", ylabel="error (%)",
    title=f"{len(x)} training and {len(digits.x_test)} test digits",
)  # fmt: skip
ax.minorticks_off()
ax.legend()
plt.show()
