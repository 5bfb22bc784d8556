"""Convolution with hinge forests as modules (Lay et al. 2018)."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Optional

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.types import Device

from .. import hinge
from ..core.keywords import answered
from .library import Aggregate, Kind, MarginName, check_integer, in_graph
from .modules import Forest
from .operators import per_axis

Ints = int | tuple[int, ...]


def _draw(
    n_trees: int, depth: int, n_columns: int, vector_features: int, kernel: tuple[int, ...],
    outputs: tuple[int, ...], **settings: Any,
) -> hinge.Parameters:  # fmt: skip
    # Initial values of a layer.
    start = hinge.init(n_trees, depth, n_columns + vector_features, outputs, **settings)
    if vector_features:
        # A number of the vector is a channel of its own, read in the middle of the window.
        middle = int(np.ravel_multi_index([size // 2 for size in kernel], kernel))
        of_vector = n_columns + (start.features - n_columns) * math.prod(kernel) + middle
        features = np.where(start.features < n_columns, start.features, of_vector).astype(np.int32)
        start = start._replace(features=features)
    return start


class _HingeConv(Forest):
    """Base class of the modules for one, two and three spatial axes."""

    n_axes = 0
    _more: Sequence[int] = ()
    """Zeros at the ends of axes beyond the padding, as `torch.nn.functional.pad` takes them."""

    @answered
    def __init__(
        self,
        in_channels: int,
        n_trees: int,
        depth: int,
        kernel_size: Ints,
        outputs: Ints = (),
        *,
        stride: Ints = 1,
        padding: Ints | Literal["valid", "same"] = 0,
        dilation: Ints = 1,
        groups: int = 1,
        vector_features: int = 0,
        kind: Kind = "tree",
        margin: MarginName = "column",
        aggregate: Aggregate = "sum",
        sparse: bool = False,
        generator: torch.Generator | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        numbers = 0 if padding in ("valid", "same") else padding
        sizes = {"kernel_size": kernel_size, "stride": stride, "padding": numbers, "dilation": dilation}
        kernel, *steps = (tuple(per_axis(name, a, self.n_axes)) for name, a in sizes.items())
        more = [0] * self.n_axes
        if padding == "same":
            if any(step != 1 for step in steps[0]):
                raise ValueError(
                    f"stride: expected 1 with padding='same', got {stride}; choose stride=1, or a padding"
                )
            totals = [step * (size - 1) for step, size in zip(steps[2], kernel, strict=True)]
            steps[1], more = tuple(total // 2 for total in totals), [total % 2 for total in totals]
        shape = (outputs,) if isinstance(outputs, int) else tuple(outputs)
        counts = {"in_channels": in_channels, "n_trees": n_trees}
        for name, count in {**counts, "groups": groups, "vector_features": vector_features}.items():
            check_integer(name, count)
        if aggregate and groups > 1:
            counts["outputs"] = shape[0] if len(shape) == 1 else 0
        for name, count in counts.items():
            if groups < 1 or count < 1 or count % groups:
                raise ValueError(
                    f"{name}: expected a positive multiple of groups = {groups}, got {count}; choose other "
                    "groups, or aggregate=None for separate outputs of each tree"
                )
        if vector_features < 0 or (vector_features and (groups > 1 or margin != "column")):
            raise ValueError(
                "vector_features: expected at least 0, and 0 with groups or another margin than 'column', "
                f"got {vector_features} with groups = {groups}, margin = {margin!r}; leave one of them out"
            )
        if aggregate and groups > 1:
            shape = (shape[0] // groups,)
        places = math.prod(kernel)
        n_columns = in_channels // groups * places
        draw = partial(_draw, n_trees, depth, n_columns, vector_features, kernel, shape)
        super().__init__(draw, aggregate, sparse, generator, device, dtype, kind, margin)
        self._more = [n for size in reversed(more) for n in (0, size)]
        self.kernel_size, (self.stride, self.padding, self.dilation), self._places = kernel, steps, places
        self.in_channels, self.groups, self.vector_features = in_channels, groups, vector_features

    # Graphs of torch.fx of PyTorch 2.8 with Tensor | None cannot be pickled.
    def forward(self, x: Tensor, vector: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
        """Returns the outputs, (n_images, *outputs, *out), or (n_images, n_trees, *outputs, *out).

        `vector` is (n_images, vector_features) for a layer with `vector_features`, else None.
        """
        if isinstance(x, Proxy):
            return in_graph(self, x, *([] if vector is None else [vector]))
        if x.ndim != 2 + self.n_axes or x.shape[1] != self.in_channels:
            one = x.ndim == 1 + self.n_axes
            remedy = "x[None] for one image" if one else f"images of in_channels = {self.in_channels}"
            raise ValueError(
                f"x: expected (n_images, {self.in_channels}, *space) with {self.n_axes} spatial axes, got "
                f"shape {tuple(x.shape)}; pass {remedy}"
            )
        if any(self._more):
            x = nn.functional.pad(x, self._more)
        wanted = (len(x), self.vector_features) if self.vector_features else None
        actual = None if vector is None else tuple(vector.shape)
        if actual != wanted:
            raise ValueError(
                f"vector: expected shape {wanted}, got {actual}; pass vector_features numbers with each "
                "image, or no vector if it is 0"
            )
        if vector is not None:
            place = vector.to(x.dtype).reshape(*vector.shape, *([1] * self.n_axes))
            x = torch.cat([x, place.expand(-1, -1, *x.shape[2:])], dim=1)
        windows = hinge.Windows(self.kernel_size, self.stride, self.padding, self.dilation)
        if self.groups == 1:
            return self._outputs(x, windows=windows)
        tensors = (self.thresholds, self.features, self.weights)
        parts = zip(x.chunk(self.groups, dim=1), *(a.chunk(self.groups) for a in tensors), strict=True)
        return torch.cat([self._outputs(*part, windows=windows) for part in parts], dim=1)

    def _input(self) -> tuple[str, int]:
        channels = self.in_channels // self.groups + self.vector_features
        sizes = (
            f"in_channels = {self.in_channels}, kernel_size = {self.kernel_size}, groups = {self.groups}, "
            f"vector_features = {self.vector_features}"
        )
        return sizes, channels * self._places

    def extra_repr(self) -> str:
        """Returns the settings, for `repr`."""
        padding = "'same'" if any(self._more) else self.padding
        return (
            f"{self.in_channels}, {self.n_trees}, {self.depth}, kernel_size={self.kernel_size}, "
            f"outputs={tuple(self.weights.shape[2:])}, stride={self.stride}, padding={padding}, "
            f"dilation={self.dilation}, groups={self.groups}, kind={self.kind!r}, margin={self.margin!r}, "
            f"aggregate={self.aggregate!r}"
        )


class HingeConv1d(_HingeConv):
    """Hinge forest applied to each window of a sequence, (n, in_channels, length).

    As `HingeConv2d` with one spatial axis.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> layer = hforest.torch.HingeConv1d(3, 10, 4, kernel_size=5, outputs=2, padding=2)
    >>> layer(torch.zeros(8, 3, 20)).shape
    torch.Size([8, 2, 20])
    """

    n_axes = 1


class HingeConv2d(_HingeConv):
    """Hinge forest applied to each window of an image: convolution with a forest in place of a linear map.

    Other parameters: see `HingeForest`.

    Parameters
    ----------
    in_channels : int
        Number of channels of the input (n, in_channels, height, width).
    kernel_size : int or tuple of ints
        Size of the windows.
    outputs : int or tuple of ints
        Shape of a leaf's weights. The result is (n, *outputs, out_height, out_width), one output per window.
    stride, padding, dilation : int or tuple of ints
        As in `torch.nn.Conv2d`, with zero padding; `padding` may be "valid" or, with stride 1, "same". "same"
        copies x where dilation * (kernel_size - 1) is odd, for a zero at the end alone.
    groups : int
        Number of groups of channels. Each group has n_trees / groups trees, which read only its channels.
        With `aggregate` each group gives outputs / groups of the outputs.
    vector_features : int
        Length of a vector that is passed with each image, ``layer(x, vector)``: a vertex compares a value of
        the window or of the vector. Each vector value becomes a channel, for which x is copied. Windows
        centred in the padding read 0.
    margin : "column" or "projection"
        Vertices compare values of the window, or its inner products with learned vectors, one per vertex.
    aggregate : "sum", "mean" or None
        Whether outputs of trees are summed, averaged, or returned separately (None): (n, n_trees, *outputs,
        out_height, out_width).

    Attributes
    ----------
    thresholds, weights : parameters
        As `hinge_forest` takes them.
    features : buffer, or a parameter with ``margin="projection"``

    Notes
    -----
    Parameters are initialised by `hforest.hinge.init` (Lay et al. 2018, Alg. 1). Windows are read by index
    arithmetic: neither pass allocates a tensor of all windows.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> layer = hforest.torch.HingeConv2d(3, 10, 4, kernel_size=5, outputs=2, padding=2)
    >>> layer(torch.zeros(8, 3, 12, 12)).shape
    torch.Size([8, 2, 12, 12])
    """

    n_axes = 2


class HingeConv3d(_HingeConv):
    """Hinge forest applied to each window of a volume, (n, in_channels, depth, height, width).

    As `HingeConv2d` with three spatial axes.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> layer = hforest.torch.HingeConv3d(2, 10, 4, kernel_size=3, outputs=2, stride=2)
    >>> layer(torch.zeros(1, 2, 7, 7, 7)).shape
    torch.Size([1, 2, 3, 3, 3])
    """

    n_axes = 3
