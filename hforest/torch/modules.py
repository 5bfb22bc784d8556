"""A hinge forest as a module: parameters, initialisation, maps, and states of HingeTreeForTorch."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.types import Device

from .. import hinge, tree
from ..core.keywords import answered
from .cuda import host_array
from .library import (
    Aggregate,
    Kind,
    MarginName,
    check_dim,
    check_integer,
    disable_compiler,
    eager,
    feature_axis,
    in_graph,
)
from .operators import outputs
from .rows import TableLayer

_CALLS, _SAMPLES, _SHARE = 8, (32, 256), 0.04
"""Call in training whose samples are looked at, least and greatest number of these, and the least share of
the leaves that a tree's samples can reach."""

_DTYPES: dict[torch.dtype, type] = {torch.float32: np.float32, torch.float64: np.float64}


def numpy_dtype(dtype: torch.dtype | None) -> type:
    """Returns NumPy's float32 or float64 for a PyTorch dtype; None means PyTorch's default dtype."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in _DTYPES:
        raise TypeError(f"dtype: expected float32 or float64, got {dtype}; pass torch.float32")
    return _DTYPES[dtype]


def seed(generator: torch.Generator | None) -> int:
    """Returns a seed for NumPy drawn from PyTorch's generator, so `torch.manual_seed` fixes it."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**63 - 1, (), generator=generator, device=device))


def host(t: Tensor) -> np.ndarray:
    """Returns a tensor as a C-contiguous NumPy array, copied from the GPU if necessary."""
    return host_array(t.detach().cpu().contiguous())


class Forest(TableLayer):
    """Base class of hinge forest modules: their tensors, and loading of HingeTreeForTorch states."""

    thresholds: nn.Parameter
    features: Tensor
    _places = 1
    """Columns of a channel."""
    _index = "features"
    _calls = 0
    """Calls in training, until samples have been looked at."""

    def __init__(
        self, draw: Callable[..., hinge.Parameters], aggregate: Aggregate, sparse: bool,
        generator: torch.Generator | None, device: Device, dtype: torch.dtype | None, kind: Kind,
        margin: MarginName,
    ) -> None:  # fmt: skip
        # draw: the function of kind, margin, dtype and rng that returns initial values.
        super().__init__()
        self._draw = partial(draw, kind=kind, margin=margin)
        start = self._draw(dtype=numpy_dtype(dtype), rng=seed(generator))
        w = start.weights
        leaf, margins = (np.empty((0, len(w)), dtype) for dtype in (np.int32, w.dtype))
        hinge.leaf_outputs(leaf, margins, w, aggregate=aggregate)  # checks the word
        self.n_trees, self.depth = len(w), w.shape[1].bit_length() - 1
        self.kind, self.margin, self.aggregate, self.sparse = kind, margin, aggregate, sparse
        device = torch.empty(0).device if device is None else device
        thresholds, features, weights = (torch.tensor(a, device=device) for a in start)
        self.thresholds, self.weights = nn.Parameter(thresholds), nn.Parameter(weights)
        if features.is_floating_point():
            self.features = nn.Parameter(features)
        else:
            self.register_buffer("features", features)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws initial values again: thresholds, features and weights are those of a new layer.

        Parameters
        ----------
        generator : torch.Generator or None
            As for a new layer.
        """
        if not self.thresholds.is_meta:
            dtype = np.float64 if self.thresholds.dtype == torch.float64 else np.float32
            for name, a in self._draw(dtype=dtype, rng=seed(generator))._asdict().items():
                getattr(self, name).copy_(torch.from_numpy(a))

    def _outputs(self, x: Tensor, *parameters: Tensor, windows: hinge.Windows | None = None) -> Tensor:
        # Returns outputs with these parameters, by default with those of the module.
        if self._calls <= _CALLS and self.training and torch.is_grad_enabled() and not parameters:
            self._look(x, windows)
        if (self.sparse or self.missed is not None) and torch.compiler.is_dynamo_compiling():
            return _uncompiled(self, x, parameters, windows)
        missed = None if parameters else self.missed
        if missed is not None and (missed.closed or missed.table is not self.table):
            missed = None
        weights = self.weights if missed is None else missed.table
        thresholds, features, weights = parameters or (self.thresholds, self.features, weights)
        variant = {"kind": self.kind, "margin": self.margin, "windows": windows, "aggregate": self.aggregate}
        return outputs(x, thresholds, features, weights, variant, self.sparse, missed)

    def _look(self, x: Tensor, windows: hinge.Windows | None) -> None:
        # Warns once if samples reach few leaves, as those of another scale than the thresholds do. The first
        # calls are not looked at: running statistics need some batches.
        if not eager(x, self.thresholds, self.features) or x.dtype != self.thresholds.dtype:
            return
        self._calls = min(self._calls + 1, _CALLS)
        if self._calls < _CALLS or (windows is None and len(x) < _SAMPLES[0]) or not len(x):
            return
        some = x[: _SAMPLES[1]] if windows is None else x[:1]
        arrays = (host(a) for a in (some, self.thresholds, self.features))
        leaf = hinge.traverse(*arrays, kind=self.kind, margin=self.margin, windows=windows).leaf
        leaf = leaf.reshape(-1, self.n_trees)[: _SAMPLES[1]]
        if len(leaf) < _SAMPLES[0]:
            return
        self._calls = _CALLS + 1
        reached = self.n_trees + np.count_nonzero(np.diff(np.sort(leaf, axis=0), axis=0))
        least_reached = max(1.5, _SHARE * min(len(leaf), 2**self.depth))
        if self.depth > 2 and self.n_trees > 3 and reached < least_reached * self.n_trees:
            warnings.warn(
                f"x: expected samples that reach many leaves, got {len(leaf)} samples in {reached} of "
                f"{self.n_trees * 2**self.depth:,} leaves of {self.n_trees} trees; normalise them by "
                "hforest.torch.RunningNorm, or set thresholds by median_thresholds or from_forest",
                stacklevel=2,
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        self.take_missed_steps()
        thresholds, weights, features = (prefix + name for name in ("thresholds", "weights", "features"))
        ordinals = state_dict.pop(prefix + "ordinals", None)
        if ordinals is not None:
            if ordinals.dim() == 3:
                # A tree for each pair of an output and a channel, which it sees alone.
                channel = torch.arange(ordinals.shape[1], device=ordinals.device)[:, None]
                ordinals = (ordinals + channel * self._places).flatten(0, 1)
                for name in (thresholds, weights):
                    if name in state_dict and state_dict[name].dim() > 2:
                        state_dict[name] = state_dict[name].flatten(0, 1)
            state_dict[features] = ordinals.to(torch.int32)
            w = state_dict.get(weights)
            if w is not None and w.dim() >= 2 and w.shape[1] == 2**self.depth:
                state_dict[weights] = w[:, _reversed_bits(self.depth).to(w.device)]
        elif prefix + "projections" in state_dict:  # the former name of features that are learned
            state_dict[features] = state_dict.pop(prefix + "projections")
        super()._load_from_state_dict(state_dict, prefix, *arguments)


@disable_compiler
def _uncompiled(layer: Forest, x: Tensor, parameters: Any, windows: Any) -> Tensor:
    # The graph breaks here: compilers have neither sparse gradients nor missed steps.
    return layer._outputs(x, *parameters, windows=windows)


def _reversed_bits(depth: int) -> Tensor:
    """Returns, for each leaf, HingeTreeForTorch's number of that leaf: its bits in reverse order."""
    leaf = torch.arange(2**depth)
    return sum(((leaf >> level) & 1) << (depth - 1 - level) for level in range(depth))


class HingeForest(Forest):
    """Layer of randomly initialised hinge trees or ferns (Lay et al. 2018).

    Other parameters: see `hforest.hinge.init` and `hinge_forest`.

    Parameters
    ----------
    in_features : int
        Number of features of the input.
    dim : 1 or -1
        Axis of the features in the input; see `forward`.
    sparse : bool
        Whether the gradient of `weights` is sparse, for `RowAdam`: its steps equal those of dense Adam, at a
        cost proportional to the leaves that a batch reaches. For more than a million leaf weights on the CPU.
    generator : torch.Generator, optional
        Source of random numbers; by default PyTorch's own.
    device : torch.device, optional
        Device of parameters and buffers; by default PyTorch's default device.
    dtype : torch.float32 or torch.float64, optional
        Dtype of floating-point parameters and buffers; by default PyTorch's default dtype.

    Attributes
    ----------
    thresholds : (n_trees, n_vertices) Parameter
        n_vertices is 2**depth - 1 for trees and depth for ferns. Initial values are U(-3, 3), so normalise
        the input (`RunningNorm`), or set thresholds from samples (`median_thresholds`, `from_forest`).
    weights : (n_trees, 2**depth, *outputs) Parameter
    features : (n_trees, n_vertices) buffer of int32, or (n_trees, n_vertices, in_features) Parameter

    Notes
    -----
    Parameters are initialised by `hforest.hinge.init` with a seed drawn from `generator`.

    `load_state_dict` also takes the state of RandomHingeForest and RandomHingeFern of HingeTreeForTorch,
    whose keys are `thresholds`, `ordinals` and `weights`. In that library the first decision is the least
    significant bit of a leaf's number; here it is the most significant one.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> forest = hforest.torch.HingeForest(6, n_trees=100, depth=7, outputs=10)
    >>> forest(torch.randn(32, 6)).shape, forest(torch.randn(32, 6, 8, 8)).shape
    (torch.Size([32, 10]), torch.Size([32, 10, 8, 8]))
    """

    dim = 1

    @answered
    def __init__(
        self,
        in_features: int,
        n_trees: int,
        depth: int,
        outputs: int | Sequence[int] = (),
        *,
        kind: Kind = "tree",
        margin: MarginName = "column",
        aggregate: Aggregate = "sum",
        features: Literal["random", "sequential"] = "random",
        scale: float = 0.01,
        dim: int = 1,
        sparse: bool = False,
        generator: torch.Generator | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_integer("in_features", in_features, 1)
        draw = partial(hinge.init, n_trees, depth, in_features, outputs, features=features, scale=scale)
        super().__init__(draw, aggregate, sparse, generator, device, dtype, kind, margin)
        self.in_features, self.outputs = int(in_features), tuple(self.weights.shape[2:])
        self.dim = check_dim(dim)

    def extra_repr(self) -> str:
        return (
            f"{self.in_features}, n_trees={self.n_trees}, depth={self.depth}, outputs={self.outputs}, "
            f"kind={self.kind!r}, margin={self.margin!r}, aggregate={self.aggregate!r}"
        ) + (", dim=-1" if self.dim == -1 else "")

    def _input(self) -> tuple[str, int]:
        return f"in_features = {self.in_features}", self.in_features

    def forward(self, x: Tensor) -> Tensor:
        """Returns the outputs of the forest.

        Parameters
        ----------
        x : (n, in_features) or (n, in_features, *spatial) tensor, or one sample (in_features,)
            Each position of `spatial` is one sample. With ``dim=-1`` (*batch, in_features), as in
            `torch.nn.Linear`.

        Returns
        -------
        y : (n, *outputs, *spatial) tensor, or (n, n_trees, *outputs, *spatial) without `aggregate`
            A view, with the spatial axes moved to the end. With ``dim=-1`` the axes of `batch` are first; a
            single sample has none.
        """
        if isinstance(x, Proxy):
            return in_graph(self, x)
        axis = self._axis(x)
        if x.dim() == 2:
            return self._outputs(x)
        if axis == 1 and x.numel():
            return self._outputs(x.flatten(2), windows=hinge.Windows(1)).unflatten(-1, x.shape[2:])
        return self._spatial(self._outputs(self._rows(x)), x)

    def _axis(self, x: Tensor) -> int:
        # The axis of the features, with checks of x.
        if not isinstance(x, Tensor):
            raise TypeError(
                f"x: expected a torch.Tensor, got {type(x).__name__}; convert it with torch.as_tensor(x)"
            )
        return feature_axis(x, "in_features", self.in_features, self.dim)

    def _rows(self, x: Tensor) -> Tensor:
        # Samples as rows: (n * prod(spatial), in_features).
        return x.movedim(self._axis(x), -1).reshape(-1, self.in_features)

    def _spatial(self, y: Tensor, x: Tensor) -> Tensor:
        # The spatial axes of x behind the others: (n, ..., *spatial) of rows (n * prod(spatial), ...).
        if self._axis(x) == -1:
            return y.reshape(*x.shape[:-1], *y.shape[1:])
        n_axes = x.dim() - 2
        y = y.reshape(x.shape[0], *x.shape[2:], *y.shape[1:])
        return y.movedim(tuple(range(1, 1 + n_axes)), tuple(range(-n_axes, 0)))

    # ----------------------------------------------------------------------------------------- starts

    @torch.no_grad()
    def median_thresholds(self, x: Tensor) -> None:
        """Sets the thresholds to the medians of the samples that reach each vertex.

        Parameters
        ----------
        x : tensor
            As in `forward`, at least one sample.
        """
        medians = hinge.median_thresholds(host(self._rows(x)), self._columns(), kind=self.kind)
        self.thresholds.copy_(torch.from_numpy(medians))

    @torch.no_grad()
    def from_forest(
        self,
        x: Tensor,
        y: Tensor | None,
        forest: tree.Forest,
        *,
        l2: float = 0.3,
        task: Literal["classification", "regression"] = "classification",
    ) -> Tensor:
        """Sets thresholds, features and weights to those that approximate a grown forest.

        Parameters and errors: see `hforest.hinge.from_forest`; x and y are tensors.

        Returns
        -------
        intercept : tensor of shape `outputs`
            The prediction is ``self(x) + intercept``; without `aggregate`, the mean of it over the trees.
        """
        if self.kind != "tree":
            raise ValueError("kind: expected 'tree', got 'fern'; use median_thresholds for ferns")
        self._columns()
        samples, targets = host(self._rows(x)), None if y is None else host(y)
        parameters, intercept, _ = hinge.from_forest(samples, targets, forest, self.depth, l2=l2, task=task)
        if parameters.weights.shape != self.weights.shape:
            n_trees, _, n_outputs = parameters.weights.shape
            raise ValueError(
                f"forest: expected n_trees = {self.n_trees} and outputs = {self.outputs}, got {n_trees} and "
                f"{(n_outputs,)}; create the HingeForest with the sizes of the forest"
            )
        self.thresholds.copy_(torch.from_numpy(parameters.thresholds))
        self.features.copy_(torch.from_numpy(parameters.features))
        factor = 1 if self.aggregate == "sum" else self.n_trees
        self.weights.copy_(factor * torch.from_numpy(parameters.weights))
        return torch.from_numpy(intercept).to(self.weights)

    # ------------------------------------------------------------------------------------- thresholds

    def thresholds_consistent(self) -> Tensor:
        """Returns whether both children of each vertex can be reached, (n_trees, n_vertices) bool.

        See `hforest.hinge.thresholds_consistent`. Always True for a fern, whose decisions are independent.
        Requires ``margin="column"``, as does `repair_thresholds`.
        """
        f = self._columns()
        if self.kind == "fern":
            return torch.ones_like(self.features, dtype=torch.bool)
        consistent = hinge.thresholds_consistent(host(self.thresholds), f)
        return torch.from_numpy(consistent).to(self.features.device)

    @torch.no_grad()
    def repair_thresholds(self) -> None:
        """Changes thresholds that contradict an ancestor so that both children can be reached.

        See `hforest.hinge.repair_thresholds`. Thresholds of a fern never change.
        """
        f = self._columns()
        if self.kind == "tree":
            self.thresholds.copy_(torch.from_numpy(hinge.repair_thresholds(host(self.thresholds), f)))

    def _columns(self) -> np.ndarray:
        if self.margin != "column":
            raise ValueError(
                f"margin: expected 'column', got {self.margin!r}; create the forest with margin='column', "
                "after an nn.Linear"
            )
        return host(self.features)

    # ------------------------------------------------------------------------------------------- maps

    def _route(self, x: Tensor) -> hinge.Route:
        arrays = (host(a) for a in (self._rows(x), self.thresholds, self.features))
        return hinge.traverse(*arrays, kind=self.kind, margin=self.margin)

    def _map(self, a: np.ndarray, x: Tensor) -> Tensor:
        return self._spatial(torch.from_numpy(a).to(x.device), x)

    def leaf_map(self, x: Tensor) -> Tensor:
        """Returns the leaf of each sample in each tree; x as in `forward`.

        Returns
        -------
        leaf : (n, n_trees, *spatial) tensor of int32
            0 to 2**depth - 1, from left to right.
        """
        return self._map(self._route(x).leaf, x)

    def margin_map(self, x: Tensor) -> Tensor:
        """Returns the signed margin of least magnitude of each sample in each tree; x as in `forward`.

        Returns
        -------
        margin : (n, n_trees, *spatial) tensor, dtype of x
        """
        return self._map(self._route(x).margin, x)

    def path_map(self, x: Tensor) -> Tensor:
        """Returns the columns that are compared on the path of each sample, root first; x as in `forward`.

        Returns
        -------
        feature : (n, n_trees, *spatial, depth) tensor of int32
            The same for all samples in a fern. Requires ``margin="column"``.
        """
        features, leaf = self._columns(), self._route(x).leaf
        if self.kind == "tree":
            path = hinge.tree_path(leaf, features).feature
        else:
            path = np.repeat(features[None], len(leaf), axis=0)
        feature = self._map(path, x)
        return feature.movedim(2, x.dim()) if self._axis(x) == 1 else feature

    def leaf_counts(self, x: Tensor) -> Tensor:
        """Returns the number of samples that reach each leaf; x as in `forward`.

        Returns
        -------
        counts : (n_trees, 2**depth) tensor of int64
            Above 0 for each leaf that some sample reaches.
        """
        counts = hinge.leaf_counts(self._route(x).leaf, 2**self.depth)
        return torch.from_numpy(counts).to(x.device)
