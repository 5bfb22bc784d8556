"""
Tests of forests that do not keep their level
=============================================

Where the labels do not depend on the columns, a p-value of at most 0.05 should occur in 5 % of the data sets.
Other tests of forests reject far more, or fewer. All data sets have 64 rows, normal columns and two
classes. The records are those of ``bench/stats.py``, which has the code of each test.

* KMERF (Panda, Shen and Vogelstein) is the distance correlation of the labels with the forest that was grown
  on them. The forest knows these labels, but not the permuted ones.
* Two forests (Coleman, Peng and Mentch 2022), one of them on columns that are permuted once, exchange their
  trees. With more trees their difference is more precise, but it remains that of a single permutation.
* Labels that are permuted against the out-of-bag posteriors of one forest reject too rarely: the forest was
  grown on the labels in their order.
* The tests of :mod:`hforest.stats` grow a forest on each permutation, or on other rows than they test.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binomtest

folders = (Path.cwd(), *Path.cwd().parents)
results = next(a / "bench/results" for a in folders if (a / "bench/results").is_dir())
rows = [
    row
    for name in ("stats_published.json", "stats.json")
    for row in json.loads((results / name).read_text())["rows"]
]
p = {f"{row['test']} {row['n']} {row['d']} {row['statistic']}": np.array(row["p"]) for row in rows}

others = {
    "KMERF, 1 column": "KMERF 64 1 permutations",
    "KMERF, 16 columns": "KMERF 64 16 permutations",
    "two forests of 400 trees": "two forests 400 64 16 mse",
    "two forests of 25 trees": "two forests 25 64 16 mse",
    "permuted against one forest": "one forest 64 16 auc",
}
ours = {
    "permutation_test": "permutation 64 16 auc",
    "split_test": "split 64 16 auc",
    "split_test, no labels": "no labels 64 16 auc",
    "importance_test": "importance 64 16 mdi_oob",
}

# %%
# Points are shares of rejected data sets, 300 for other tests and 2,000 for those of hforest, with
# intervals of 95 %.

fig, ax = plt.subplots(figsize=(5.6, 4.2))
names = [*others, *ours]
for place, (name, cell) in enumerate({**others, **ours}.items()):
    small = p[cell] <= 0.05
    share = small.mean()
    low, high = binomtest(int(small.sum()), small.size).proportion_ci(method="wilson")
    color = "C3" if name in others else "C0"
    ax.errorbar(
        share, place, xerr=[[max(0, share - low)], [max(0, high - share)]], fmt="o", color=color, capsize=3
    )
    left = share > 0.8
    ax.annotate(
        f"{100 * share:.0f} %", (low if left else high, place), (-8 if left else 8, 0),
        textcoords="offset points", va="center", ha="right" if left else "left", color=color,
    )  # fmt: skip
    print(f"{name:28} {100 * share:5.1f} %, {100 * low:.1f} to {100 * high:.1f}, of {small.size} data sets")
ax.axvline(0.05, color="black", linewidth=0.8, linestyle=":")
ax.axhline(len(others) - 0.5, color="lightgrey", linewidth=0.8)
ax.text(0.97, len(others) - 0.6, "other tests", color="C3", ha="right", va="bottom")
ax.text(0.97, len(others) - 0.4, "hforest", color="C0", ha="right", va="top")
ax.set_yticks(range(len(names)), names)
ax.set(xlim=(0, 1.03), ylim=(len(names) - 0.5, -0.5), xlabel="null data sets rejected at the level 5 %")
ax.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
plt.show()
