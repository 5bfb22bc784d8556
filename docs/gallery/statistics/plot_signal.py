"""
Is there signal?
================

A table has sixty rows, a hundred columns and two classes. A forest predicts its own training rows well
whether or not the labels depend on the columns. Even out-of-bag predictions of a small table can look good by
chance. A permutation test grows the same forest on permuted labels many times. Its p-value says how often
permuted labels give as good a result.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import stats

rng = np.random.default_rng(0)
y = np.arange(60) % 2
noise = rng.normal(size=(60, 100))
signal = noise.copy()
signal[:, 7] += 1.8 * y  # one of the hundred columns depends on the class

# %%
# ``permutation_test`` grows one honest forest on the labels as they are, and 199 on permuted ones. Its
# ``statistic`` and ``null`` are the values of the chosen statistic, here the area under the ROC curve. By
# default the permutations end early where the p-value is large; here all are drawn.

tests = {
    name: stats.permutation_test(x, y, statistic="auc", n_permutations=199, max_exceed=None, rng=0)
    for name, x in {"a hundred columns of noise": noise, "one of them tells": signal}.items()
}

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, sharex=True)
for ax, (name, test) in zip(axes, tests.items(), strict=True):
    ax.hist(test.null, bins=np.linspace(0.1, 0.95, 35), color="lightgrey", label="permuted labels")
    ax.axvline(test.statistic, color="C3", label="labels as they are")
    ax.set(title=f"{name}: p = {test.p_value:.3f}", xlabel="out-of-bag AUC")
axes[0].set_ylabel("permutations")
axes[0].legend()
fig.tight_layout()
plt.show()

# %%
# How much information do the columns have on the labels? ``information`` is in nats; two equally frequent
# classes have log 2 = 0.69. It is that of the forest's posteriors, so a better learner can find more.

counts = stats.honest_counts(y, 500, rng=0)
for name, x in {"noise": noise, "signal": signal}.items():
    forest = hforest.grow(x, y, 500, bootstrap=counts.structure, rng=0)
    p, votes = stats.posterior(forest, x, y, counts)
    print(f"{name}: AUC {stats.auc(p, y):.2f}, information {stats.information(p, y):.3f} nats")
