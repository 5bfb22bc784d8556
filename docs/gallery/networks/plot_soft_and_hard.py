"""
Soft and hard decisions
=======================

A split of a neural forest sends a sample to both sides, with probabilities: right with
``sigmoid(scale * (x - t))``. With a large scale the model predicts as the grown forest that it started from.
With a small scale its gradients are large enough to train it.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import neural, tree

rng = np.random.default_rng(0)
x = rng.uniform(-2, 2, (400, 1)).astype(np.float32)
y = (np.sin(3 * x[:, 0]) + rng.normal(0, 0.4, 400) > 0).astype(int)
forest = hforest.grow(x, y, 10, max_depth=3, rng=0)

line = np.linspace(-2, 2, 600, dtype=np.float32)[:, None]
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.scatter(x, y + rng.uniform(-0.03, 0.03, 400), s=6, color="0.7", label="samples")
for scale in (1.0, 5.0, 50.0):
    model = neural.from_forest(x, forest, scale=scale, rng=0)
    ax.plot(line, neural.predict(model, line)[:, 1], label=f"soft, scale {scale:g}")
ax.plot(line, tree.predict(forest, line)[:, 1], "k:", label="the grown forest")
ax.set(xlabel="feature", ylabel="share of class 1")
ax.legend(fontsize=8)
plt.show()
