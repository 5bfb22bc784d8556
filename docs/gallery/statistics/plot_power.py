"""
Power of tests of dependence
============================

How large must a dependence be before a test finds it? Data sets have 64 rows. In one column the mean depends
on the class, and all others are noise. A t-test of this column sets the upper limit, as it knows the column.
The tests of forests do not know it, and find other kinds of dependence, too. ``bench/stats_power.py``
compares more tests on more data sets.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import ttest_ind

from hforest import stats

N, N_SETS = 64, 25
EFFECTS = (0.0, 0.5, 1.0, 1.5)


def data(d, effect, number):
    rng = np.random.default_rng([number, d])
    y = rng.permutation(np.arange(N) % 2)
    x = rng.normal(size=(N, d))
    x[:, 0] += effect * y
    return x, y


def t_test(x, y, seed):
    return ttest_ind(x[y == 0, 0], x[y == 1, 0]).pvalue


def permutation(x, y, seed):
    # The test ends early where the p-value is large.
    return stats.permutation_test(
        x, y, statistic="auc", n_trees=50, n_permutations=19, max_exceed=1, rng=seed
    ).p_value


def split(x, y, seed):
    return stats.split_test(x, y, statistic="auc", n_permutations=199, rng=seed).p_value


tests = {"t-test of the right column": t_test, "permutation_test": permutation, "split_test": split}
fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
for ax, d in zip(axes, (1, 16), strict=True):
    for (name, test), style in zip(tests.items(), ("k:", "o-", "s-"), strict=True):
        power = [np.mean([test(*data(d, effect, i), i) <= 0.05 for i in range(N_SETS)]) for effect in EFFECTS]
        ax.plot(EFFECTS, power, style, label=name)
    ax.axhline(0.05, color="grey", linewidth=0.8)
    ax.set(title=f"{d} column{'s' * (d > 1)}", xlabel="difference of the means, in deviations")
axes[0].set_ylabel(f"share of {N_SETS} data sets with p at most 0.05")
axes[0].legend()
fig.tight_layout()
plt.show()
