"""Good values of the arguments of hforest.images."""

import functools
from pathlib import Path
from typing import Any

import numpy as np

import hforest
from hforest import images, project

from .growing import folder
from .values import Setting, options, value

options("images.window", 3, 1, (3, 3), (1, 3))
options("images.step", 1)
options("images.border", "reflect", "wrap", "leave_out")
options("images.n_trees", 2, 1)
options("images.n_pixels", 12, 5)
options("images.n_draws", 1, 3)
options("images.trees_per_draw", 1, 2)
options("images.first_draw", 0, 7)
options("images.margin", 0, (1, 0))
options("images.void", None, 3)
options("images.weight_back", 1.0, 0.0, 0.5)
options("images.max_memory", 1 << 20, 5000)
options("images.sizes", [3], (1, 3))
options("images.n_orientations", 4, 0)
options("images.sigma", 1.0, 0.5)

_SPACE = (5, 4)


@value("images.grow")
def _grower(s: Setting) -> Any:
    projections = project.probe_distribution(3 * int(np.prod(np.broadcast_to(s.argument("window"), 2))), 0.5)
    return s.choice((hforest.grow, functools.partial(hforest.grow, projections=projections)))


@value("images.images")
def _images(s: Setting) -> np.ndarray:
    return s.numbers(min(s.n, 3), *_SPACE, 3)


def _labels_of(s: Setting) -> np.ndarray:
    """Labels of which each class occurs."""
    shape = (min(s.n, 3), *_SPACE)
    return (np.arange(np.prod(shape)) * 7 % s.n_classes).reshape(shape)


value("images.labels", "images.predicted")(_labels_of)
value("images.counts")(lambda s: 1 + s.indices(9, s.n_classes, s.n_classes, dtype=np.int64))


@value("images.model")
def _model(s: Setting) -> images.Model:
    x, y = s.numbers(2, *_SPACE, 3), (np.arange(40) * 7 % s.n_classes).reshape(2, *_SPACE)
    window, normalize = s.choice((3, (1, 3))), s.flag()
    return images.fit(x, y, hforest.grow, window=window, normalize=normalize, n_trees=2, n_pixels=20, rng=0)


@value("images.load.file")
def _file(s: Setting) -> Path:
    path = folder() / "images"
    images.save(path, _model(s))
    return path
