"""Convolution with hinge forests as modules (Lay et al. 2018)."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import hinge
from .convolution import NAMES, Ints, hinge_fern_conv, hinge_tree_conv, per_axis
from .modules import check_choices, numpy_dtype, reversed_bits, seed
from .operators import Aggregate, Kind


class _HingeConv(torch.nn.Module):
    """What the modules for one, two and three axes share."""

    thresholds: torch.nn.Parameter
    weights: torch.nn.Parameter
    features: Tensor
    n_axes = 0

    def __init__(
        self,
        in_channels: int,
        n_trees: int,
        depth: int,
        kernel_size: Ints,
        outputs: Ints = (),
        *,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        vector_features: int = 0,
        kind: Kind = "tree",
        aggregate: Aggregate = "sum",
        generator: torch.Generator | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_choices(kind, aggregate)
        sizes = (kernel_size, stride, padding, dilation)
        given = [tuple(per_axis(name, a, self.n_axes)) for name, a in zip(NAMES, sizes, strict=True)]
        self.kernel_size, self.stride, self.padding, self.dilation = given
        shape = (outputs,) if isinstance(outputs, int) else tuple(outputs)
        counts = {"in_channels": in_channels, "n_trees": n_trees}
        for name, count in {**counts, "groups": groups, "vector_features": vector_features}.items():
            if not isinstance(count, (int, np.integer)):
                raise TypeError(
                    f"{name}: expected an int, got {type(count).__name__}; pass an integer such as 1"
                )
        if aggregate and groups > 1:
            counts["outputs"] = shape[0] if len(shape) == 1 else 0
        for name, count in counts.items():
            if groups < 1 or count < 1 or count % groups:
                raise ValueError(
                    f"{name}: expected a positive multiple of groups = {groups}, got {count}; choose other "
                    "groups, or aggregate=None for trees apart"
                )
        if vector_features < 0 or (vector_features and groups > 1):
            raise ValueError(
                "vector_features: expected at least 0, and 0 with groups, "
                f"got {vector_features} with groups = {groups}; leave one of them out"
            )
        if aggregate and groups > 1:
            shape = (shape[0] // groups,)
        self.in_channels, self.n_trees, self.depth, self.groups = in_channels, n_trees, depth, groups
        self.vector_features, self.kind, self.aggregate = vector_features, kind, aggregate
        make = hinge.tree_init if kind == "tree" else hinge.fern_init
        places = math.prod(self.kernel_size)
        n_columns = in_channels // groups * places
        start = make(
            n_trees, depth, n_columns + vector_features, shape,
            dtype=numpy_dtype(dtype), rng=seed(generator),
        )  # fmt: skip
        # A number of the vector is a channel of its own, read in the middle of the window.
        middle = int(np.ravel_multi_index([size // 2 for size in self.kernel_size], self.kernel_size))
        of_vector = n_columns + (start.features - n_columns) * places + middle
        features = np.where(start.features < n_columns, start.features, of_vector).astype(np.int32)
        device = torch.get_default_device() if device is None else device
        self.thresholds = torch.nn.Parameter(torch.from_numpy(start.thresholds).to(device))
        self.weights = torch.nn.Parameter(torch.from_numpy(start.weights).to(device))
        self.register_buffer("features", torch.from_numpy(features).to(device))

    def forward(self, x: Tensor, vector: Tensor | None = None) -> Tensor:
        """Returns the outputs, (n_images, *outputs, *out), or with the trees before them.

        `vector` is (n_images, vector_features), where the layer has such.
        """
        if x.ndim != 2 + self.n_axes or x.shape[1] != self.in_channels:
            raise ValueError(
                f"x: expected (n_images, {self.in_channels}, *space) with {self.n_axes} axes in space, "
                f"got shape {tuple(x.shape)}; pass images of that many channels"
            )
        wanted = (len(x), self.vector_features) if self.vector_features else None
        given = None if vector is None else tuple(vector.shape)
        if given != wanted:
            raise ValueError(
                f"vector: expected shape {wanted}, got {given}; vector_features says how many numbers come "
                "with an image, 0 for no vector"
            )
        if vector is not None:
            place = vector.to(x.dtype).reshape(*vector.shape, *([1] * self.n_axes))
            x = torch.cat([x, place.expand(-1, -1, *x.shape[2:])], dim=1)
        apply = hinge_tree_conv if self.kind == "tree" else hinge_fern_conv
        words = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        if self.groups == 1:
            return apply(
                x, self.thresholds, self.features, self.weights, self.kernel_size, **words,
                aggregate=self.aggregate,
            )  # fmt: skip
        parts = (a.chunk(self.groups) for a in (self.thresholds, self.features, self.weights))
        return torch.cat(
            [
                apply(images, t, f, w, self.kernel_size, **words, aggregate=self.aggregate)
                for images, t, f, w in zip(x.chunk(self.groups, dim=1), *parts, strict=True)
            ],
            dim=1,
        )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        # HingeTreeForTorch has a tree for each pair of an output and a channel, which it sees alone.
        ordinals = state_dict.pop(prefix + "ordinals", None)
        if ordinals is not None:
            channel = torch.arange(self.in_channels, device=ordinals.device)[:, None]
            features = ordinals + channel * math.prod(self.kernel_size)
            state_dict[prefix + "features"] = features.flatten(0, 1).to(torch.int32)
            for name in ("thresholds", "weights"):
                a = state_dict.get(prefix + name)
                if a is not None and a.dim() > 2:
                    a = a.flatten(0, 1)
                    bits = reversed_bits(self.depth).to(a.device)
                    state_dict[prefix + name] = a[:, bits] if name == "weights" else a
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def extra_repr(self) -> str:
        """Returns the settings, for `repr`."""
        return (
            f"{self.in_channels}, {self.n_trees}, {self.depth}, kernel_size={self.kernel_size}, "
            f"outputs={tuple(self.weights.shape[2:])}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, groups={self.groups}, kind={self.kind!r}, "
            f"aggregate={self.aggregate!r}"
        )


class HingeConv1d(_HingeConv):
    """A hinge forest at each window of a sequence, (n, in_channels, length).

    As `HingeConv2d` with one axis in space.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> layer = hforest.torch.HingeConv1d(3, 10, 4, kernel_size=5, outputs=2, padding=2)
    >>> layer(torch.zeros(8, 3, 20)).shape
    torch.Size([8, 2, 20])
    """

    n_axes = 1


class HingeConv2d(_HingeConv):
    """A hinge forest at each window of an image: convolution with a forest in place of a linear map.

    Parameters
    ----------
    in_channels : int
        Channels of the input (n, in_channels, height, width).
    n_trees, depth : int
        Trees or ferns, and levels of each.
    kernel_size : int or tuple of ints
        Size of the windows.
    outputs : int or tuple of ints
        Shape of a leaf's weights. The result is (n, *outputs, height, width) of the windows.
    stride, padding, dilation : int or tuple of ints
        As in `torch.nn.Conv2d`; padding is with zeros.
    groups : int
        Parts of the channels; each has n_trees / groups trees, which see its channels alone. With
        `aggregate` it has outputs / groups of the outputs.
    vector_features : int
        Numbers of a vector that comes with each image, ``layer(x, vector)``: a vertex compares a number of
        the window or of the vector, which has a channel of its own (x is copied with them). Windows whose
        middle is in the padding read 0.
    kind : "tree" or "fern"
    aggregate : "sum", "mean" or None
        Outputs of the trees are added, averaged, or kept apart: (n, n_trees, *outputs, height, width).
    generator : torch.Generator, optional
        Where random numbers come from; PyTorch's own by default.
    device : torch.device, optional
    dtype : torch.float32 or torch.float64, optional
        Of thresholds and weights; PyTorch's default dtype by default.

    Attributes
    ----------
    thresholds, weights : parameters
        As `hinge_tree_conv` takes them.
    features : buffer

    Notes
    -----
    The start is that of `hforest.hinge.tree_init` or `fern_init` (Lay et al. 2018, Alg. 1). Windows are read
    by index arithmetic: no tensor of all windows is made, forward or backward.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> layer = hforest.torch.HingeConv2d(3, 10, 4, kernel_size=5, outputs=2, padding=2)
    >>> layer(torch.zeros(8, 3, 12, 12)).shape
    torch.Size([8, 2, 12, 12])
    """

    n_axes = 2


class HingeConv3d(_HingeConv):
    """A hinge forest at each window of a volume, (n, in_channels, depth, height, width).

    As `HingeConv2d` with three axes in space.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> layer = hforest.torch.HingeConv3d(2, 10, 4, kernel_size=3, outputs=2, stride=2)
    >>> layer(torch.zeros(1, 2, 7, 7, 7)).shape
    torch.Size([1, 2, 3, 3, 3])
    """

    n_axes = 3
