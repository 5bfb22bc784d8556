"""A neural decision forest as the head of a network (Zhang 2017, section 2)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.types import Device

from .. import neural
from ..core.keywords import answered
from .library import Layer, check, feature_axis, in_graph, inside_autocast, same_dtype
from .modules import host, numpy_dtype, seed
from .neural import Loss, neural_forest, neural_loss

_BLOCK_BYTES = 2**28
"""Decision functions of a leaf update that exist at a time, in bytes."""


class NeuralForest(Layer):
    """Neural decision forest that returns class probabilities, with soft routing (Zhang 2017, section 2).

    Other parameters: see `neural_loss` and `HingeForest`.

    Parameters
    ----------
    in_features : int
        Columns of the input.
    n_trees, depth, n_classes : int
        At least 1; depth at most 20.
    linear : bool
        Whether decision functions are linear in the input (Zhang 2017), or the columns of the input.
    n_functions : int, optional
        Number of decision functions that the vertices of all trees share, as in Kontschieder et al. 2015:
        each vertex uses one of them, chosen at random. By default each vertex has its own.

    Attributes
    ----------
    linear : torch.nn.Linear or None
        Linear layer from in_features to the decision functions.
    index : (n_trees, 2**depth - 1) buffer of int32, or None
        Decision function of each vertex if they are shared.
    leaves : (n_trees, 2**depth, n_classes) buffer
        Class probabilities, initially uniform. `update_leaves` fits them; they have no gradient.

    Notes
    -----
    A training loop for Algorithm 1 of Zhang 2017: at the start of each epoch call `update_leaves` on the
    features of the training set. Then, for each batch, call ``head.loss(body(x), y).backward()`` and take a
    step of the optimiser.

    Examples
    --------
    >>> import torch, hforest.torch
    >>> head = hforest.torch.NeuralForest(16, n_trees=10, depth=5, n_classes=3)
    >>> x, y = torch.randn(40, 16), torch.arange(40) % 3
    >>> head.update_leaves(x, y)
    >>> head.loss(x, y).backward()
    >>> head(x).shape, head.linear.weight.grad.shape
    (torch.Size([40, 3]), torch.Size([310, 16]))
    """

    linear: Any
    index: Tensor | None
    leaves: Tensor
    _index = "index"

    @answered
    def __init__(
        self,
        in_features: int,
        n_trees: int,
        depth: int,
        n_classes: int,
        *,
        linear: bool = True,
        n_functions: int | None = None,
        loss: Loss = "forest",
        generator: torch.Generator | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        leaves = neural.uniform_leaves(n_trees, depth, n_classes, dtype=numpy_dtype(dtype))
        if loss not in ("forest", "tree"):
            raise ValueError(f"loss: expected one of 'forest', 'tree', got {loss!r}; choose one of them")
        n_vertices = n_trees * (2**depth - 1)
        width = n_vertices if n_functions is None else n_functions
        if width < 1:
            raise ValueError(f"n_functions: expected at least 1, got {width}; choose a larger number")
        if not linear and in_features != width:
            raise ValueError(
                f"in_features: expected {width}, the number of decision functions, got {in_features}; pass "
                "n_functions=in_features, or linear=True"
            )
        self.in_features, self.n_trees, self.depth, self.n_classes = in_features, n_trees, depth, n_classes
        self.loss_kind = loss
        device = torch.empty(0).device if device is None else device
        index = None
        if n_functions is not None:
            index = torch.empty((n_trees, 2**depth - 1), dtype=torch.int32, device=device)
        self.linear = None
        if linear:
            self.linear = nn.utils.skip_init(nn.Linear, in_features, width, device=device, dtype=dtype)
        self.register_buffer("index", index)
        self.register_buffer("leaves", torch.tensor(leaves, device=device))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draws initial values again: `linear` as `torch.nn.Linear` does, and `index`; leaves are uniform.

        Parameters: see `HingeForest.reset_parameters`.
        """
        if self.leaves.is_meta:
            return
        self.leaves.fill_(1 / self.n_classes)
        if self.index is not None:
            drawn = torch.Generator("cpu").manual_seed(seed(generator))
            index = torch.empty_like(self.index, device="cpu")
            self.index.copy_(index.random_(0, self._input()[1], generator=drawn))
        if self.linear is not None:
            drawn = torch.Generator("cpu").manual_seed(seed(generator))
            bound = self.in_features**-0.5
            for parameter in self.linear.parameters():
                values = torch.empty_like(parameter, device="cpu")
                parameter.copy_(values.uniform_(-bound, bound, generator=drawn))

    def _input(self) -> tuple[str, int]:
        n_functions = self.in_features if self.linear is None else self.linear.out_features
        return f"in_features = {self.in_features}, n_functions = {n_functions}", n_functions

    def extra_repr(self) -> str:
        return (
            f"{self.in_features}, n_trees={self.n_trees}, depth={self.depth}, n_classes={self.n_classes}, "
            f"loss={self.loss_kind!r}"
        )

    def decisions(self, x: Tensor) -> Tensor:
        """Returns the decision functions of samples.

        Parameters
        ----------
        x : (*batch, in_features) tensor, such as (n_samples, in_features), or one sample (in_features,)

        Returns
        -------
        f : (*batch, n_trees, 2**depth - 1) tensor, or (*batch, n_functions) where they are shared
            Log odds of going left.
        """
        rows = self._rows(x)
        if not inside_autocast(x):
            same_dtype("x", x, "leaves", self.leaves)
        f = rows if self.linear is None else self.linear(rows)
        if self.index is None:
            return f.reshape(*x.shape[:-1], self.n_trees, 2**self.depth - 1)
        return f if x.dim() == 2 else f.reshape(*x.shape[:-1], f.shape[-1])

    def _rows(self, x: Tensor) -> Tensor:
        # Samples as rows: (n_samples, in_features).
        check(x=x)
        feature_axis(x, "in_features", self.in_features)
        return x if x.dim() == 2 else x.reshape(-1, self.in_features)

    def _labels(self, x: Tensor, y: Tensor) -> Tensor:
        # Labels of the rows of x.
        check(y=y)
        if y.shape != x.shape[:-1]:
            raise ValueError(
                f"y: expected shape {tuple(x.shape[:-1])}, got {tuple(y.shape)}; pass a label for each "
                "sample of x"
            )
        return y.reshape(-1)

    def forward(self, x: Tensor) -> Tensor:
        """Returns class probabilities of samples x, as `decisions` takes them.

        Returns
        -------
        p : (*batch, n_classes) tensor
            The mean over trees.
        """
        if isinstance(x, Proxy):
            return in_graph(self, x)
        p = neural_forest(self.decisions(self._rows(x)), self.leaves, index=self.index)
        return p if x.dim() == 2 else p.reshape(*x.shape[:-1], self.n_classes)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the negative log-likelihood of labels, with exact gradients; see `neural_loss`.

        Parameters
        ----------
        x : (*batch, in_features) tensor
        y : (*batch) tensor of integers
            Class of each sample, 0 to n_classes - 1.
        """
        f = self.decisions(self._rows(x))
        return neural_loss(f, self.leaves, self._labels(x, y), index=self.index, loss=self.loss_kind)

    @torch.no_grad()
    def update_leaves(self, x: Tensor, y: Tensor, *, n_iter: int = 20, restart: bool = False) -> None:
        """Fits the leaves to labelled samples, each tree by itself (Zhang 2017, section 2, last formula).

        Other parameters: see `NeuralForest.loss`.

        Parameters
        ----------
        x : (*batch, in_features) tensor, a training set
            Input of `forward` for all its samples.
        n_iter : int
            Iterations.
        restart : bool
            Whether to start from uniform leaves instead of the current ones, in which a probability of 0
            remains 0.

        Notes
        -----
        `hforest.neural.update_leaves` runs on the CPU. Trees are fitted in groups whose decision functions
        take at most 256 MiB, or one at a time. Shared decision functions are computed all at once.
        """
        n_vertices = 2**self.depth - 1
        x, y = self._rows(x).to(self.leaves.dtype), self._labels(x, y)
        labels, leaves = host(y), self.leaves.clone()
        if restart:
            leaves.fill_(1 / self.n_classes)
        step = max(1, _BLOCK_BYTES // max(1, x.shape[0] * n_vertices * leaves.element_size()))
        shared = host(self.decisions(x)) if self.index is not None else None
        for start in range(0, self.n_trees, step):
            block = slice(start, min(start + step, self.n_trees))
            if shared is not None and self.index is not None:
                f, index = shared, host(self.index[block])
            else:
                columns = slice(block.start * n_vertices, block.stop * n_vertices)
                f, index = host(self._columns(x, columns).reshape(x.shape[0], -1, n_vertices)), None
            updated = neural.update_leaves(f, labels, host(leaves[block]), n_iter, index=index)
            leaves[block] = torch.from_numpy(updated).to(leaves.device)
        self.leaves.copy_(leaves)

    def _columns(self, x: Tensor, columns: slice) -> Tensor:
        if self.linear is None:
            return x.reshape(x.shape[0], -1)[:, columns]
        return nn.functional.linear(x, self.linear.weight[columns], self.linear.bias[columns])
