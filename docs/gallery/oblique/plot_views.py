"""
Views: groups of columns
========================

Left: the labels depend on a view of five columns, and a second view has up to 10,000 columns of noise. If a
sparse oblique forest draws its candidates from all columns, few of them contain one of the five. With groups
of columns (:func:`hforest.project.grouped_distribution`) each node draws a fixed number of candidates from
each view. Both forests are honest, have as many candidates per node, and are judged by out-of-bag AUC.

Right: two views of five columns each depend on the labels, but the second is the first plus noise. Does one
view add information to the other? :func:`hforest.stats.conditional_test` gives a p-value. The picture shows
those of twelve data sets in increasing order, beside those expected where a view adds nothing.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import project, stats

N, N_TREES = 200, 200
SIZES = [5, 20, 100, 500, 2000, 10_000]


def labels(view, rng):
    return (view[:, 0] + view[:, 1] + rng.normal(size=N) > 0).astype(int)


rng = np.random.default_rng(0)
small, large = rng.normal(size=(N, 5)), rng.normal(size=(N, SIZES[-1]))
y = labels(small, rng)
counts = stats.honest_counts(y, N_TREES, rng=0)
areas = {"all columns": [], "groups of columns": []}
for size in SIZES:
    x = np.concatenate([small, large[:, :size]], axis=1)
    sparse = project.sparse_distribution(size + 5)
    views = project.grouped_distribution(sparse, [range(5), range(5, size + 5)])
    for name, distribution in zip(areas, (sparse, views), strict=True):
        forest = hforest.grow(
            x, y, N_TREES, projections=distribution, n_projections=sum(views.n_projections),
            bootstrap=counts.structure, rng=0,
        )  # fmt: skip
        p, _ = stats.posterior(forest, x, y, counts)
        areas[name].append(stats.auc(p, y))

p_values = {"the first view, given the second": [], "the second view, given the first": []}
for seed in range(12):
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(N, 5))
    second, y = first + rng.normal(size=(N, 5)), labels(first, rng)
    for name, (view, other) in zip(p_values, ((first, second), (second, first)), strict=True):
        p_values[name].append(stats.conditional_test(view, y, other, n_trees=50, rng=0).p_value)

fig, axes = plt.subplots(1, 2, figsize=(10.5, 4.2))
for name, values in areas.items():
    axes[0].semilogx(SIZES, values, "o-", label=name)
axes[0].axhline(0.5, color="black", lw=1, ls=":", label="chance")
axes[0].set(xlabel="columns of noise beside the five", ylabel="AUC, out-of-bag", ylim=(0.4, 1))
axes[0].legend()
ranks = np.arange(1, 13)
for name, values in p_values.items():
    axes[1].plot(ranks, np.sort(values), "o-", label=name)
axes[1].plot(ranks, ranks / 13, color="black", lw=1, ls=":", label="a view that adds nothing")
axes[1].set(xlabel="data set, in order of p-values", ylabel="p-value", ylim=(-0.02, 1.02))
axes[1].legend()
plt.show()
