"""
Margins along a path
====================

At each level of its path through a hinge tree a sample has a margin, ``x[f] - t``: its feature less the
threshold of the vertex. It goes right if the margin is positive, and left otherwise. The output depends on
the margin of least magnitude, :math:`r^*`, alone. So for each sample and tree one threshold gets a gradient,
that of the vertex with this margin.

The picture shows the margins of one handwritten digit in twelve trees of depth 6.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import demo, hinge

digits = demo.load_digits()
mean, deviation = digits.x_train.mean(axis=0), digits.x_train.std(axis=0) + 0.5
x = ((digits.x_train - mean) / deviation).astype(np.float32)
forest = hforest.grow(x, digits.y_train, 12, max_depth=6, rng=0)
thresholds, features, _ = hinge.from_forest(x, digits.y_train, forest, depth=6).parameters
shown = int(np.flatnonzero(digits.y_train == 3)[5])
sample = x[shown : shown + 1]

leaf, margin, vertex = hinge.traverse(sample, thresholds, features)

# %%
# ``traverse`` returns the leaf, the margin of least magnitude and its vertex. The leaf gives the other
# margins: the bits of its number are the decisions, from the root down.

signed = np.empty((12, 6))
for m in range(12):
    v = 0
    for level in range(6):
        signed[m, level] = sample[0, features[m, v]] - thresholds[m, v]
        v = 2 * v + 1 + int(leaf[0, m] >> (5 - level) & 1)
least = np.abs(signed).argmin(axis=1)
np.testing.assert_array_equal(signed[np.arange(12), least].astype(np.float32), margin[0])

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 5), width_ratios=[1, 2.6])
left.imshow(digits.x_train[shown].reshape(8, 8), cmap="gray_r")
left.set(title=f"the sample: a {digits.y_train[shown]}", xticks=[], yticks=[])
image = right.imshow(signed, cmap="PuOr", vmin=-3, vmax=3, aspect="auto")
for m in range(12):
    for level in range(6):
        chosen = level == least[m]
        right.text(
            level, m, f"{signed[m, level]:+.2f}", ha="center", va="center", fontsize=9,
            weight="bold" if chosen else "normal", color="white" if abs(signed[m, level]) > 1.9 else "black",
        )  # fmt: skip
    right.add_patch(plt.Rectangle((least[m] - 0.48, m - 0.48), 0.96, 0.96, fill=False, linewidth=2.5))
right.set(
    title="margins on the path; framed: the least, $r^*$", xlabel="level (0: root)", ylabel="tree",
    xticks=range(6), yticks=range(12),
)  # fmt: skip
fig.colorbar(image, ax=right, label="margin $x_f - t$ (standard deviations)", extend="both")
plt.show()
