"""
Importances of noise with many categories
=========================================

Five columns have random categories, from 2 to 1,000, and are independent of the labels. The sign of a sixth
one, of normal numbers, agrees with three quarters of the labels. The importance of a column by gain rises
with its number of categories, for among many possible splits one always fits the noise.
:func:`hforest.stats.oob_importance` judges splits by out-of-bag rows, which the trees did not draw. By this
measure the importance of noise is about 0, above or below.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import growth, stats, tree

N, N_TREES, N_SETS = 200, 50, 60
CATEGORIES = (2, 4, 10, 100, 1000)
NAMES = [*map(str, CATEGORIES), "tells"]


def data(number):
    rng = np.random.default_rng(number)
    x = np.column_stack([rng.integers(0, k, N) for k in CATEGORIES] + [rng.normal(size=N)])
    return x, (x[:, -1] > 0) ^ (rng.random(N) < 0.25)


by_gain, by_others = [], []
for number in range(N_SETS):
    x, y = data(number)
    counts = growth.bootstrap_counts(N, N_TREES, rng=number)
    forest = hforest.grow(x, y, N_TREES, bootstrap=counts, rng=number)
    by_gain.append(tree.importance(forest, by="gain"))
    by_others.append(stats.oob_importance(forest, x, y, counts))
mean, error = np.stack(by_others, axis=1)

# %%
# **Errors.** The error bars are two standard errors of ``oob_importance`` on the first data set. They come
# from the finite number of trees on the same rows. Importances vary more between data sets: the grey lines
# reach from the 5th to the 95th percentile. Both grow with the number of categories.

fig, axes = plt.subplots(1, 3, figsize=(12, 3.8))
at = np.arange(len(NAMES))
axes[0].bar(at, np.mean(by_gain, axis=0), color="C1")
axes[0].set(ylabel="share of the gains, mean of the data sets", title="by gain")
low, high = np.quantile(mean[:, :-1], [0.05, 0.95], axis=0)
axes[1].vlines(at[:-1], low, high, color="lightgrey", lw=8, label=f"{N_SETS} data sets")
axes[1].errorbar(at[:-1], mean[0, :-1], 2 * error[0, :-1], fmt="o", label="one, with two errors")
axes[1].axhline(0, color="black", lw=1, ls=":")
axes[1].set(ylabel="decrease of the impurity", title="by rows that trees did not draw")
axes[1].set_ylim(-0.026, 0.019)
axes[1].legend(loc="lower left")

# %%
# **P-values.** So an importance of two standard errors is no evidence of dependence.
# :func:`hforest.stats.importance_test` compares each column with 99 permuted copies of itself, which have as
# many categories, in the same forest.

tests = [stats.importance_test(*data(number), n_trees=20, n_copies=99, rng=number) for number in range(20)]
p = np.array([test.p_value for test in tests])
axes[2].boxplot(list(p.T), positions=at, widths=0.5)
axes[2].set(ylabel="p-values of 20 data sets", title="beside permuted copies", ylim=(-0.02, 1.02))
for ax, shown in zip(axes, (6, 5, 6), strict=True):
    ax.set_xticks(at[:shown], NAMES[:shown])
    ax.set_xlabel("categories")
fig.tight_layout()
plt.show()

two_errors = (abs(mean) > 2 * error).mean(axis=0)
rejected = (p <= 0.05).mean(axis=0)
for name, wide, small in zip(NAMES, two_errors, rejected, strict=True):
    print(f"{name:>6}: beyond two errors in {wide:.2f} of the data sets, p at most 0.05 in {small:.2f}")
