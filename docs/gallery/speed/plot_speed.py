"""
Speed beside other libraries
============================

The bars show how many times as fast as other libraries hforest grows and applies forests, on one thread of an
AMD EPYC. They come from the records of ``python bench/grow.py`` and ``python bench/predict.py``; nothing is
timed while this page is built. The virtual machines had other work, and the libraries ran in turn in the same
run. The page of :doc:`performance </performance>` has all conditions, the errors of the forests and the
commands.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt

folders = (Path.cwd(), *Path.cwd().parents)
results = next(a / "bench/results" for a in folders if (a / "bench/results").is_dir())
grow = json.loads((results / "grow.json").read_text())
predict = json.loads((results / "predict.json").read_text())
print(grow["machine"], predict["machine"], sep="\n")

# %%
# Each library grows 100 trees to purity. hforest then applies trees that scikit-learn grew.

pairs = {
    "random forest:\nscikit-learn": ("exact", "scikit-learn"),
    "random forest:\nscikit-learn-intelex": ("exact", "scikit-learn-intelex"),
    "extra trees:\nscikit-learn": ("extra", "scikit-learn, extra trees"),
    "sparse oblique:\ntreeple": ("sparse", "treeple, oblique"),
    "patches to 3×3:\ntreeple": ("patches to 3x3", "treeple, patches to 3x3"),
}
sets = {
    "synthetic": "synthetic, 20 000 × 100",
    "letter": "letter, 15 000 × 16",
    "usps": "USPS, 256 pixels",
    "mnist": "MNIST, 10 000 × 784",
}
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 5.6), width_ratios=[1.5, 1])
for k, (name, label) in enumerate(sets.items()):
    for place, (own, peer) in enumerate(pairs.values()):
        found = [
            row["against"][peer] for row in grow["rows"] if row.get("set") == name and row["rung"] == own
            and row["threads"] == 1 and peer in row["against"]
        ]  # fmt: skip
        if found:
            bar = left.barh(place + 0.2 * k - 0.3, found[0], 0.18, color=f"C{k}", label=label)
            left.bar_label(bar, fmt="%.1f", padding=2, fontsize=8)
            label = None
left.set_yticks(range(len(pairs)), pairs)
left.legend(loc="upper center", bbox_to_anchor=(0.4, -0.13), ncols=2)
left.set_title("growing")

shapes, peers = [], {"sklearn": "scikit-learn", "onnx": "onnxruntime"}
for row in predict["rows"]:
    if row["rows"] > 1 and row["rung"] in peers and row["threads"] == 1:
        _, features, trees, depth, classes = row["shape"]
        shape = f"{features} features,\n{classes} classes, " + (f"depth {depth}" if depth else "to purity")
        shapes += [shape] if shape not in shapes else []
        k = list(peers).index(row["rung"])
        bar = right.barh(shapes.index(shape) + 0.3 * k - 0.15, row["ratio"], 0.28, color=f"C{k + 4}")
        right.bar_label(bar, fmt="%.1f", padding=2, fontsize=8)
right.set_yticks(range(len(shapes)), shapes)
right.legend(
    [plt.Rectangle((0, 0), 1, 1, color=f"C{k + 4}") for k in range(2)],
    peers.values(),
    loc="upper center",
    bbox_to_anchor=(0.4, -0.13),
    ncols=2,
)
right.set_title("applying 100 trees")
for ax in (left, right):
    ax.axvline(1, color="black", lw=0.8)
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.set_xlabel("times as fast (1: equal)")
fig.suptitle("One thread of an AMD EPYC, AVX-512")
plt.show()
