"""
Growing a forest by ranges of trees
===================================

:func:`hforest.scale.grow` divides a forest into ranges of trees and gives them to the workers of an
executor. Here these are two threads; they can be processes or machines. The seed, the number of the tree and
the node determine each random number. So the forest is bit-identical to that of a single call, whichever
worker grows a tree. More trees can be added later: ``first_tree`` says where a range begins, and
:func:`hforest.tree.join` joins ranges.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import demo, scale, tree

digits = demo.load_digits()
x, y = digits.x_train, digits.y_train
hforest.set_num_threads(1)  # per call: the executor has two workers
tasks = []


def grow(x, y, n_trees, *, first_tree, rng):
    """Grows a range of trees, and records the worker and the times."""
    begin = time.perf_counter()
    forest = hforest.grow(x, y, n_trees, first_tree=first_tree, rng=rng)
    tasks.append((threading.get_ident(), begin, time.perf_counter(), first_tree, n_trees))
    return forest


# %%
# The first call grows trees 0 to 99, the second 100 to 199. The joined forest equals that of one call.

with ThreadPoolExecutor(2) as executor:
    first = scale.grow(executor, x, y, 100, grow=grow, n_tasks=8, rng=0)
    second = scale.grow(executor, x, y, 100, grow=grow, first_tree=100, n_tasks=8, rng=0)
forest = tree.join([first, second])
whole = hforest.grow(x, y, 200, rng=0)
assert all(np.array_equal(a, b) for a, b in zip(forest, whole, strict=True))

# %%
# The right panel shows the test error of the first n trees.

numbers = [1, 2, 5, 10, 20, 50, 100, 150, 200]
votes = [tree.predict(hforest.grow(x, y, 1, first_tree=k, rng=0), digits.x_test) for k in range(200)]
shares = np.cumsum(votes, axis=0)
errors = [100 * (shares[n - 1].argmax(axis=1) != digits.y_test).mean() for n in numbers]

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), width_ratios=[1.7, 1])
workers = list(dict.fromkeys(worker for worker, *_ in tasks))
start = min(begin for _, begin, *_ in tasks)
for worker, begin, end, first_tree, n_trees in tasks:
    place, width = workers.index(worker), 1000 * (end - begin)
    color = "#a6cee3" if first_tree < 100 else "#fdbf6f"
    left.barh(place, width, left=1000 * (begin - start), height=0.7, color=color, edgecolor="black")
    middle = 1000 * (begin - start) + width / 2
    text = f"{first_tree}–{first_tree + n_trees - 1}"
    left.text(middle, place, text, ha="center", va="center", rotation=90, fontsize=9)
left.set_yticks(range(len(workers)), [f"worker {k}" for k in range(len(workers))])
left.set(xlabel="milliseconds since the start", title="trees of each task (blue: first call, orange: second)")
right.plot(numbers, errors, "o-")
right.set(
    xscale="log", xticks=numbers[::2], xticklabels=numbers[::2], ylim=(0, None), xlabel="trees, joined",
    ylabel="test error (%)", title="the joined forest",
)  # fmt: skip
right.minorticks_off()
plt.show()
