"""
Margins along the path of a hinge tree
======================================

A sample's path compares it with one threshold a level. The vertex of the least margin is the only one whose
threshold and feature have a gradient (p1 eq 11).
"""

import matplotlib.pyplot as plt
import numpy as np

from hforest import demo, hinge

x = demo.load_digits().x_train[::1100] / np.float32(16)
thresholds, features, weights = hinge.tree_init(1, 6, 64, rng=1)
thresholds[:] = np.random.default_rng(0).uniform(0, 1, thresholds.shape)
leaf, margin, vertex = hinge.tree_traverse(x, thresholds, features)

figure, axes = plt.subplots(1, 4, figsize=(10, 3), sharey=True, layout="constrained")
for i, ax in enumerate(axes):
    path, v = [], 0
    while v < thresholds.shape[1]:
        path.append(v)
        v = 2 * v + 1 + int(x[i, features[0, v]] > thresholds[0, v])
    margins = [float(x[i, features[0, v]] - thresholds[0, v]) for v in path]
    colours = ["tab:orange" if v == vertex[i, 0] else "tab:blue" for v in path]
    ax.bar(range(len(path)), margins, color=colours)
    least = path.index(vertex[i, 0])
    ax.plot(least, margins[least], "o", color="tab:orange")
    ax.axhline(0, color="k", linewidth=0.8)
    ax.set(title=f"sample {i}: leaf {leaf[i, 0]}", xlabel="level", xticks=range(len(path)))
axes[0].set_ylabel("margin x_f - t (orange: the least)")
plt.show()
