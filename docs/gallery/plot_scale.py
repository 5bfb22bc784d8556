"""
A forest in ranges of trees
===========================

Random numbers are keyed by the seed, the number of the tree and the node. So the trees of one forest can be
grown in ranges, by several workers or on several days: `hforest.scale.grow_by_trees` gives ranges to an
executor, `first_tree` is where a range begins, and :func:`hforest.tree.join` puts ranges together. The joined
forest has the bits of one that was grown at once. Here a forest grows until more trees do not help.
"""

from concurrent.futures import ThreadPoolExecutor

import matplotlib.pyplot as plt
import numpy as np

from hforest import classic, demo, scale, tree

digits = demo.load_digits()
x, y = digits.x_train, digits.y_train
ranges, n_trees, errors = [], [], []
with ThreadPoolExecutor(2) as executor:
    for first in range(0, 160, 10):
        ranges.append(scale.grow_by_trees(executor, classic.grow, x, y, 10, first_tree=first, rng=0))
        forest = tree.join(ranges)
        p = tree.predict(forest, digits.x_test)
        n_trees.append(first + 10)
        errors.append(100 * (p.argmax(axis=1) != digits.y_test).mean())

# %%
# The same forest, grown by one call:

whole = classic.grow(x, y, 160, rng=0)
assert all(np.array_equal(a, b) for a, b in zip(forest, whole, strict=True))

fig, ax = plt.subplots(figsize=(8, 4.2))
ax.bar(np.array(n_trees) - 5, errors, width=9.4, color=[f"C{i % 2}" for i in range(len(errors))])
ax.plot(n_trees, errors, "ko-", ms=4)
ax.set(
    xlabel="trees (each bar: a range of 10, grown by two workers)", ylabel="test error (%)",
    title="All ranges so far, joined: error on 1797 test digits",
)  # fmt: skip
plt.show()
