"""
Labels of pixels
================

The street scenes have three classes: sky, road with lines, and discs as bright as the road; all have noise.
Forests predict the class of a pixel from the window around it (:func:`hforest.images.fit`), as Norouzi et
al. 2015, section 6.2, do with faces. The first three read raw pixels: a random forest, a two-probe forest
and a CO2 forest. The fourth is a random forest that also reads means over boxes, gradients and coordinates.
The last one reads in addition the class probabilities that the fourth predicts (auto-context).

Titles give the class-average Jaccard score on ten test images. A split by one or two pixels reads mostly
noise. CO2 splits and means over boxes average over many pixels.
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import co2, images, project

HEIGHT, WIDTH, NOISE = 48, 64, 0.3


def scenes(n, rng):
    row, column = np.mgrid[:HEIGHT, :WIDTH]
    horizon = rng.integers(12, 26, (n, 1, 1)) + rng.normal(size=(n, 1, 1)) * (column - WIDTH / 2) / 20
    labels = np.where(row < horizon, 0, 1)
    value = np.where(labels == 0, 1 - row / HEIGHT, 0.3 + 0.25 * np.sin(column * 0.7 + row * 0.9))
    for i in range(n):
        for _ in range(2):
            middle, radius = rng.uniform((18, 8), (40, 56)), rng.uniform(5, 9)
            disc = ((row - middle[0]) ** 2 + (column - middle[1]) ** 2 < radius**2) & (labels[i] != 2)
            labels[i][disc], value[i][disc] = 2, 0.3
    return (value + NOISE * rng.normal(size=value.shape))[..., None].astype(np.float32), labels


def channels(x):
    parts = (x, images.boxes(x, [3, 7, 13]), images.gradients(x, 4), images.coordinates(x))
    return np.concatenate(parts, axis=-1)


rng = np.random.default_rng(0)
(x, y), (x_test, y_test) = scenes(24, rng), scenes(10, rng)
settings = {"window": 13, "step": 2, "n_trees": 16, "n_pixels": 3000, "rng": 0}
leaf = {"min_samples_leaf": 5}
probes = project.probe_distribution(7 * 7, 0.5)  # of the 7 x 7 pixels of a window
models = {
    "random forest": images.fit(x, y, partial(hforest.grow, **leaf), **settings),
    "two-probe": images.fit(x, y, partial(hforest.grow, projections=probes, **leaf), **settings),
    "CO2": images.fit(x, y, partial(co2.grow, max_depth=8, **leaf), **settings),
}
inputs = dict.fromkeys(models, x_test)
wide, wide_test = channels(x), channels(x_test)
grow = partial(hforest.grow, **leaf)
models["channels"], inputs["channels"] = images.fit(wide, y, grow, **settings), wide_test

# Class probabilities of the training images come from a forest grown on the other half of them.
shares = np.empty((*y.shape, 3), np.float32)
for i in range(2):
    half = images.fit(wide[1 - i :: 2], y[1 - i :: 2], grow, **settings)
    shares[i::2] = images.predict(half, wide[i::2])
models["context"] = images.fit(np.concatenate([wide, shares], axis=-1), y, grow, **settings)
inputs["context"] = np.concatenate([wide_test, images.predict(models["channels"], wide_test)], axis=-1)


def score(model, x):
    label = images.predict_labels(model, x, weight_back=0.5)
    return images.scores(images.confusion(y_test, label)).mean_jaccard


fig, axes = plt.subplots(2, 4, figsize=(11, 5))
axes[0, 0].imshow(x_test[0, ..., 0], cmap="gray")
axes[0, 0].set_title("image")
axes[0, 1].imshow(y_test[0], vmin=0, vmax=2)
axes[0, 1].set_title("labels")
for axis, (name, model) in zip(axes.reshape(-1)[2:], models.items(), strict=False):
    axis.imshow(images.predict_labels(model, inputs[name][:1], weight_back=0.5)[0], vmin=0, vmax=2)
    axis.set_title(f"{name}: {100 * score(model, inputs[name]):.0f} %")
for axis in axes.reshape(-1):
    axis.set_axis_off()
plt.show()
