"""
A random forest becomes a hinge forest
======================================

The first picture shows a random forest. The next ones show the hinge forest that begins with its splits
(:func:`hforest.hinge.from_forest`), while Adam trains its thresholds and weights. Both losses are mean
logarithmic losses: of 400 training samples and of 4,000 test samples.

.. image:: /pictures/becoming.png
   :alt: The borders of the random forest become smooth, and both losses fall.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import hinge, layers, tree

rng = np.random.default_rng(0)


def samples(n):
    """Returns points of two half circles, and which of the two they belong to."""
    angle = rng.uniform(0, np.pi, n)
    y = np.arange(n) % 2
    x = np.stack([np.cos(angle) + y - 0.5, np.where(y, 0.25 - np.sin(angle), np.sin(angle) - 0.25)], axis=1)
    return ((x + rng.normal(scale=0.2, size=x.shape)) / (0.9, 0.65)).astype(np.float32), y


x, y = samples(400)
x_test, y_test = samples(4000)
forest = hforest.grow(x, y, 15, max_depth=5, bootstrap=True, rng=0)

# %%
# The outputs on a grid and both losses: of the forest, then after some steps of Adam.

axis = np.linspace(-2.8, 2.8, 160, dtype=np.float32)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
places = (grid, x, x_test)


def logit(share):
    """Returns the difference of scores that belongs to a share of class 1."""
    share = np.clip(share, 0.01, 0.99)
    return np.log(share / (1 - share))


def losses(of_x, of_test):
    """Returns the mean logarithmic losses of the training and of the test samples."""
    pairs = ((of_x, y), (of_test, y_test))
    return [float(np.logaddexp(0, np.where(label, -score, score)).mean()) for score, label in pairs]


(thresholds, features, weights), intercept, _ = hinge.from_forest(x, y, forest)
weights, intercept = 4 * weights, 4 * intercept
state = hinge.adam_state(thresholds, weights)
shown = [0, 0, 0, 1, 2, 3, 5, 8, 12, 17, 23, 30, 40, 50, 65, 80, 100, 120, 140, 160]
fields = [logit(tree.predict(forest, a)[:, 1]) for a in places]
history = [(0, fields[0], *losses(*fields[1:]))]
for step in range(1, shown[-1] + 1):
    batch = rng.integers(0, len(x), 64)
    scores, route = hinge.adam_forward(x[batch], thresholds, features, weights, state, step, 0.005)
    _, grad = layers.softmax_loss(scores + intercept, y[batch])
    hinge.adam_backward(grad, route, x[batch], thresholds, features, weights, state, step, 0.005)
    if step in shown:
        hinge.adam_sync(thresholds, weights, state, step, 0.005)
        fields = []
        for a in places:
            out = hinge.forward(a, thresholds, features, weights, aggregate="sum") + intercept
            fields.append(out[:, 1] - out[:, 0])
        history.append((step, fields[0], *losses(*fields[1:])))
history = [history[0]] * 2 + history + [history[-1]] * 8

# %%
# Twelve levels of the share of class 1, and the losses so far, after the last step.
# ``matplotlib.animation.FuncAnimation(fig, draw, len(history))`` shows all pictures in turn.

fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), dpi=100, width_ratios=(1, 1.1))
levels = np.linspace(0, 1, 13)
left.set(aspect="equal", xticks=[], yticks=[])
right.set(xlim=(0, shown[-1]), ylim=(0, 1.3 * history[0][3]), xlabel="steps of Adam", ylabel="loss")


def draw(frame):
    """Draws one picture."""
    step, field, *_ = history[frame]
    for artist in [*left.collections, *right.lines, *right.texts]:
        artist.remove()
    share = 1 / (1 + np.exp(-field.reshape(len(axis), -1)))
    left.contourf(axis, axis, share, levels=levels, cmap="RdBu_r")
    left.contour(axis, axis, share, levels=[0.5], colors="black", linewidths=1.2)
    for label, marker, color in ((0, "o", "#1f5f9f"), (1, "s", "#c0392b")):
        left.scatter(*x[y == label].T, s=9, marker=marker, color=color, edgecolor="white", linewidth=0.3)
    left.set_title("random forest" if frame < 3 else f"hinge forest after {step} steps")
    steps = [h[0] for h in history[: frame + 1]]
    for column, name, color in ((2, "training samples", "#777777"), (3, "test samples", "#000000")):
        values = [h[column] for h in history[: frame + 1]]
        right.plot(steps, values, color=color)
        right.plot(steps[-1:], values[-1:], "o", color=color)
        right.text(0.97, 0.97 - 0.1 * (column - 2), f"{name}: {values[-1]:.3f}", color=color,
                   ha="right", va="top", transform=right.transAxes)  # fmt: skip


draw(len(history) - 1)
plt.show()
