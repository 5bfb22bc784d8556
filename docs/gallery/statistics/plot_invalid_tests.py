"""
Two tests of forests that do not keep their level
=================================================

Where the labels do not depend on the columns, a p-value of at most 0.05 should occur in 5 % of the data sets.
Two tests of forests that are in use do not keep this level. The first, against one forest, rejects too
rarely; the second, of two forests, rejects too often if it has many trees. A permutation test keeps the
level. All data sets have 64 rows, 16 columns of noise and two classes.
"""

import matplotlib.pyplot as plt
import numpy as np

from hforest import classic, stats, tree

N, D, N_SETS = 64, 16, 50


def data(number):
    rng = np.random.default_rng(number)
    return rng.normal(size=(N, D)), rng.permutation(np.arange(N) % 2)


# %%
# **Labels permuted against one forest.** The forest is grown once. Its out-of-bag posteriors are compared
# with permuted labels. But it was grown on the labels in their order, so the two comparisons differ.


def against_one_forest(x, y, seed):
    counts = stats.honest_counts(y, 100, draw="bootstrap", rng=seed)
    forest = classic.grow(x, y, 100, bootstrap=counts.structure, rng=seed)
    p = stats.posterior(forest, x, y, counts).p
    rng = np.random.default_rng(seed)
    null = [stats.auc(p, rng.permutation(y), missing="omit") for _ in range(99)]
    return (1 + sum(a >= stats.auc(p, y, missing="omit") for a in null)) / 100


# %%
# **Two forests** (Coleman, Peng and Mentch 2022). A forest is compared with a second one on columns that
# are permuted once, by their errors on new rows. Then their trees are divided at random into two forests,
# again and again. The share of larger differences is taken for a p-value. More trees make the estimate of the
# difference more precise, but it remains the difference from a single permutation.


def votes(x, y, new, n_trees, rng):
    """Returns the share of class 1 for each new row, by each tree of subsamples of N**0.6 rows."""
    counts = np.zeros((n_trees, N), np.int32)
    rows = np.argsort(rng.random((n_trees, N)), axis=1)[:, : round(N**0.6)]
    np.put_along_axis(counts, rows, 1, axis=1)
    forest = classic.grow(x, y, n_trees, bootstrap=counts, rng=rng)
    root = forest.tree_start[:-1]
    leaf = forest.left[root + tree.apply(forest, new)]
    return forest.value[(root + np.arange(n_trees)) // 2 + leaf][:, :, 1]


def two_forests(n_trees):
    def share(x, y, seed):
        rng = np.random.default_rng(seed)
        new, labels = data(seed + 10000)
        p = np.hstack([votes(a, y, new, n_trees, rng) for a in (x, rng.permutation(x))])

        def difference(first):
            errors = [((p[:, some].mean(axis=1) - labels) ** 2).mean() for some in (first, ~first)]
            return errors[1] - errors[0]

        first = np.arange(2 * n_trees) < n_trees
        null = [difference(rng.permutation(first)) for _ in range(99)]
        return (1 + sum(a >= difference(first) for a in null)) / 100

    return share


def permutations(x, y, seed):
    return stats.permutation_test(
        x, y, statistic="auc", n_trees=50, n_permutations=39, max_exceed=5, rng=seed
    ).p_value


ways = {
    "one forest": against_one_forest,
    "two forests, 25 trees": two_forests(25),
    "two forests, 400 trees": two_forests(400),
    "permutation_test": permutations,
}
p = {name: np.array([way(*data(i), i) for i in range(N_SETS)]) for name, way in ways.items()}

# %%
# A test that keeps its level has a curve on or below the diagonal.

level = np.linspace(0, 1, 201)
fig, ax = plt.subplots(figsize=(6, 5))
for name, values in p.items():
    ax.plot(level, (values[:, None] <= level).mean(axis=0), label=name)
ax.plot([0, 1], [0, 1], "k:", label="what ought to be")
ax.set(xlabel="level", ylabel=f"share of {N_SETS} data sets with p at most the level")
ax.legend(fontsize=9)
plt.show()

for name, values in p.items():
    print(f"{name:24} {np.mean(values <= 0.05):.2f} of the data sets at the level 0.05")
