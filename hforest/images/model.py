"""The model of labelled images, and its checks."""

from typing import NamedTuple

import numpy as np

from ..core import check
from ..core.aliases import Border, FloatArray
from ..tree import Forest
from ..tree.callers import check_forest
from .windows import Frame, check_frame


class Model(NamedTuple):
    """A forest that reads windows, with the form of the windows and the factors of the classes."""

    window: tuple[int, ...]
    """Numbers of pixels along each axis of space, odd."""
    step: int
    """Distance from a pixel of the window to the next one that is read."""
    border: Border
    """Mode of the pixels outside of an image, or "leave_out"."""
    n_channels: int
    """Number of channels of the images."""
    class_factor: FloatArray
    """(n_classes,) float64: factor by which each class was over- or undersampled, as in `Draws`."""
    forest: Forest
    """Forest whose features are the numbers of a window, channels last, in C order."""
    scale: FloatArray | None = None
    """(n_features,) float64: windows are divided by their norms and multiplied by it. None: they are read as
    they are."""

    @property
    def n_classes(self) -> int:
        """Returns the number of classes."""
        return len(self.class_factor)


def frame_of(model: Model) -> Frame:
    """Returns the shape of a checked model's windows."""
    return Frame(tuple(model.window), model.step, model.border)


def check_fields(model: Model) -> None:
    """Checks that the fields of a model fit each other; its forest is checked by `check_forest`."""
    check.instance(
        "window", model.window, tuple | list, "a tuple of ints", "pass the model that fit or load returned"
    )
    check.require(1 <= len(model.window) <= 3, "window", "1 to 3 sizes", len(model.window), "fit a new model")
    frame = check_frame(model.window, model.step, model.border, len(model.window))
    n_channels = check.integer("n_channels", model.n_channels, 1, check.MAX_COUNT)
    n_features, n_classes = frame.n_features(n_channels), model.forest.value.shape[1]
    check.require(
        int(model.forest.n_features) == n_features, "forest", f"n_features = {n_features}",
        int(model.forest.n_features), "pass the model that fit or load returned, unchanged",
    )  # fmt: skip
    float64 = np.dtype(np.float64)
    check.array("class_factor", model.class_factor, float64, (n_classes,), {})
    if model.scale is not None:
        check.array("scale", model.scale, float64, (n_features,), {})
    for name, a, least in (("class_factor", model.class_factor, 0.0), ("scale", model.scale, 1e-300)):
        check.require(
            a is None or bool(((a >= least) & (a <= 1e300)).all()), name,
            f"finite numbers of at least {least:g}", a, "pass the model that fit or load returned, unchanged",
        )  # fmt: skip


def check_model(model: Model) -> None:
    """Returns a checked model of a caller."""
    check.instance("model", model, Model, "a hforest.images.Model", "pass a model from fit or load")
    check.instance(
        "model.forest", model.forest, Forest, "a hforest.tree.Forest", "pass a model from fit or load"
    )
    check_forest("model.forest", model.forest)
    with check.fields_of("model"):
        check_fields(model)
