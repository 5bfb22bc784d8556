"""
Large tables, threads and vector paths
======================================

The first picture shows the time of growing by the number of rows. The second shows the speed with each set of
vector instructions, and the gain by a second thread. The data are the records of ``python bench/large.py``
and ``python bench/grow.py``; nothing is timed while this page is built. The page of :doc:`performance
</performance>` has the conditions and the commands.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt

folders = (Path.cwd(), *Path.cwd().parents)
results = next(a / "bench/results" for a in folders if (a / "bench/results").is_dir())
large = json.loads((results / "large.json").read_text())
paths = json.loads((results / "grow_paths.json").read_text())
grow = json.loads((results / "grow.json").read_text())
print(large["machine"], paths["machine"], sep="\n")

# %%
# Times are those of one tree on 30 columns, with each library's preparation of the table. The columns of
# "skewed" are flags, codes and numbers with heavy tails; those of "clusters" are normal numbers.

forests = {
    "exact": "hforest, exact",
    "binned": "hforest, 255 bins",
    "scikit-learn": "scikit-learn",
    "scikit-learn-intelex": "scikit-learn-intelex",
    "ydf": "ydf",
    "lightgbm": "LightGBM",
    "xgboost": "XGBoost",
}
fig, axes = plt.subplots(1, 2, figsize=(11, 5), sharey=True)
for ax, table in zip(axes, ("clusters", "skewed"), strict=True):
    for k, (forest, label) in enumerate(forests.items()):
        points = sorted(
            (row["rows"] / 1e6, row["seconds"]) for row in large["rows"]
            if (row["table"], row["forest"], row["threads"], row["trees"]) == (table, forest, 2, 1)
            and "seconds" in row
        )  # fmt: skip
        style = "-" if label.startswith("hforest") else "--"
        ax.plot(*zip(*points, strict=True), "o" + style, color=f"C{k}", label=label)
    ax.set(xscale="log", yscale="log", xlabel="million rows", title=table)
    ax.set_xticks([0.5, 1, 5], ["0.5", "1", "5"])
    ax.minorticks_off()
    ax.grid(alpha=0.3)
axes[0].set_ylabel("seconds")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
fig.suptitle("One tree, two threads of an AMD EPYC (Zen 5), AVX-512")
plt.show()

# %%
# Left: vector paths beside scikit-learn in the same run. Right: one and two threads on MNIST's first 10 000
# images. A ratio above 2 is noise of the machine.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), width_ratios=[1.5, 1])
rungs, sets = ("exact", "binned", "sparse"), ("synthetic", "letter", "usps", "mnist")
for k, path in enumerate(("avx512", "avx2", "plain")):
    times = {
        (row["rung"], row["set"]): row["against"]["scikit-learn"] for row in paths["rows"]
        if row["simd"] == path and row["rung"] in rungs
    }  # fmt: skip
    places = [s + 4.6 * r + 0.27 * k - 0.27 for r in range(3) for s in range(4)]
    left.bar(places, [times[rung, name] for rung in rungs for name in sets], 0.26, label=path)
left.set_xticks(
    [s + 4.6 * r for r in range(3) for s in range(4)], [*sets] * 3, rotation=60, ha="right",
    rotation_mode="anchor", fontsize=9,
)  # fmt: skip
for r, rung in enumerate(rungs):
    left.text(4.6 * r + 1.5, 1, rung, ha="center", va="top", transform=left.get_xaxis_transform())
left.axhline(1, color="black", lw=0.8)
left.set_ylabel("times as fast as scikit-learn")
left.set_ylim(0, 21)
left.legend(title="HFOREST_SIMD")

of = [row for row in grow["rows"] if row.get("part") and "MNIST with one thread and two" in row["part"]]
names = [row["rung"] for row in of if row["threads"] == 1 and "scikit-learn" not in row["rung"]]
seconds = {(row["rung"], row["threads"]): row["seconds"] for row in of}
ratios = [seconds[name, 1] / seconds[name, 2] for name in names]
bar = right.barh(range(len(names)), ratios, 0.6, color="C3")
right.bar_label(bar, fmt="%.1f", padding=2, fontsize=8)
right.set_yticks(range(len(names)), names)
right.invert_yaxis()
right.set_xlim(0, 2.5)
right.set_xlabel("one thread's time over two threads'")
fig.suptitle("Growing 100 trees on an AMD EPYC (Zen 5)")
plt.show()
