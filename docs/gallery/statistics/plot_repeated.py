"""
Repeated measurements
=====================

Data sets have 24 subjects of four rows, each with one class, which does not depend on the columns. Rows of a
subject resemble each other: their columns have the correlation 0, 0.3 or 0.9. A test that permutes rows takes
this resemblance for a dependence. With ``groups=subject`` it permutes subjects. The record is that of
``bench/stats_groups.py``.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binomtest

folders = (Path.cwd(), *Path.cwd().parents)
results = next(a / "bench/results" for a in folders if (a / "bench/results").is_dir())
record = json.loads((results / "stats_groups.json").read_text())

# %%
# Lines are shares of rejected data sets at the level 5 %, with intervals of 95 %.

fig, axes = plt.subplots(1, 2, figsize=(6.4, 3.6), sharey=True)
for ax, (word, title) in zip(axes, {"none": "without groups", "groups": "with groups"}.items(), strict=True):
    for k, row in enumerate(record["rows"]):
        cells = [name for name in row["p"] if name.startswith(f"{word} ")]
        at = np.array([float(name.split()[1]) for name in cells])
        small = [np.array(row["p"][name]) <= record["level"] for name in cells]
        share = np.array([a.mean() for a in small])
        ends = [binomtest(int(a.sum()), a.size).proportion_ci(method="wilson") for a in small]
        low, high = np.array([(end.low, end.high) for end in ends]).T
        ax.errorbar(
            at + 0.012 * (k - 1.5), share, yerr=[share - low, high - share], fmt="o-", capsize=3,
            label=row["test"],
        )  # fmt: skip
    ax.axhline(record["level"], color="black", linewidth=0.8, linestyle=":")
    ax.set(title=title, xlabel="correlation in a subject", xticks=at, ylim=(0, 1))
axes[0].set_ylabel("null data sets rejected")
axes[0].yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
axes[1].legend()
plt.show()
