"""
Speed of hinge forests beside PyTorch and NumPy
===============================================

The first picture compares hforest, ``torch.compile``, PyTorch, JAX and NumPy on the same hinge forests: the
forward pass, and forward with backward. The points of PyTorch and JAX are those of their fastest formulation.
The second compares four ways to take a training step. The points come from the records of ``python
bench/hinge.py --peers`` and ``python bench/training.py``; nothing is timed while this page is built. The
bench compares all results before it takes times, and PyTorch compiles each shape in a process of its own. The
page of :doc:`performance </performance>` has the conditions and the commands.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt

folders = (Path.cwd(), *Path.cwd().parents)
results = next(a / "bench/results" for a in folders if (a / "bench/results").is_dir())
peers = json.loads((results / "hinge_peers.json").read_text())
training = json.loads((results / "training.json").read_text())
print(peers["machine"], training["machine"], sep="\n")

# %%
# The other libraries compute dense gradients.

libraries = {
    "hforest": "hforest",
    "hforest, sparse gradients": "hforest sparse",
    "torch.compile": "torch.compile",
    "PyTorch": "torch",
    "JAX": "jax.jit",
    "NumPy": "numpy",
}
rows = [row for row in peers["rows"] if "shape" in row]
searched = ("torch.compile", "torch", "jax.jit")  # shown if all their formulations were timed
rows = [row for row in rows if row["rung"] not in searched or "candidates" in row]
shapes = []
for row in rows:
    if (row["shape"], row["kind"]) not in shapes:
        shapes.append((row["shape"], row["kind"]))
shapes.sort(key=lambda pair: (pair[0][0] * pair[0][2], pair[1]))  # by pairs of a sample and a tree

fig, axes = plt.subplots(1, 2, figsize=(11, 5.6), sharey=True)
for ax, job, title in zip(
    axes, ("forward", "forward+backward"), ("forward", "forward and backward"), strict=True
):
    for k, (label, rung) in enumerate(libraries.items()):
        points = []
        for place, (shape, kind) in enumerate(shapes):
            times = [
                row["ns_per_pair"] for row in rows
                if (row["shape"], row["kind"]) == (shape, kind) and (row["job"], row["rung"]) == (job, rung)
            ]  # fmt: skip
            if times:
                points.append((min(times), place))
        if points:
            ax.plot(*zip(*points, strict=True), "ovs^PD"[k], color=f"C{k}", label=label)
    ax.set_xscale("log")
    ax.set_xlabel("nanoseconds per sample and tree")
    ax.set_title(title)
    ax.grid(alpha=0.3)
axes[0].set_yticks(
    range(len(shapes)),
    [f"{n} × {f}, {m} {kind}s,\ndepth {d}, {k} outputs" for (n, f, m, d, k), kind in shapes],
    fontsize=8.5,
)
axes[0].invert_yaxis()
fig.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=6)
fig.suptitle("Processor time on one thread of an Intel Xeon (AVX-512), float32; samples × features")
plt.show()

# %%
# A training step of 1000 trees or ferns of depth 10 on MNIST. Sparse gradients and a lazy, exact Adam skip
# the leaves that a batch does not reach.

ways = {
    "fused": "one pass, no arrays of gradients",
    "rows": "sparse gradients, lazy Adam",
    "dense": "dense gradients, Adam",
    "numpy": "the same in NumPy",
}
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), width_ratios=[1.4, 1])
for k, kind in enumerate(("tree", "fern")):
    for place, rung in enumerate(ways):
        (time,) = (
            row["forest_ms"] for row in training["rows"]
            if row["kind"] == kind and row.get("rung") == rung and row["threads"] == 1
            and "network_ms" in row
        )  # fmt: skip
        bar = left.barh(place + 0.38 * k - 0.19, time, 0.36, color=f"C{k}")
        left.bar_label(bar, fmt="%.1f", padding=2, fontsize=8)
    deep = [row for row in training["rows"] if "depth" in row and row["kind"] == kind]
    right.plot([row["depth"] for row in deep], [row["forest_ms"] for row in deep], "o-", label=f"{kind}s")
left.set_yticks(range(4), [f"{rung}:\n{text}" for rung, text in ways.items()])
left.invert_yaxis()
left.margins(x=0.1)
left.set_xlabel("milliseconds of a step, the forest's part")
right.set_xlabel("depth")
right.set_ylabel("milliseconds, fused")
right.set_ylim(0)
right.legend()
fig.suptitle("A step of training, batch of 53, one thread of an Intel Xeon with AVX-512")
plt.show()
