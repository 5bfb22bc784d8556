"""Hinge forests whose trees are divided among workers; training is bit-identical to that on one worker."""

import itertools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from ... import hinge
from ...core import check
from ...core.aliases import Array, FloatArray
from ..rows.communicators import Communicator, as_communicator
from ..rows.workers import Workers
from .chunks import Sums, first_tree, joined, node_sums, number_of_chunks, own_trees, owned
from .gradients import check_rows
from .shard_arrays import (
    check_forest,
    check_settings,
    check_state,
    digest,
    learned,
    move,
    of_arrays,
    row_gradient,
    zeros,
)


class ShardRoute(NamedTuple):
    """The route of samples through a worker's own trees, from `HingeShards.forward`."""

    chunks: tuple[hinge.Route, ...]
    """A route for each of this worker's chunks of trees."""
    x: FloatArray
    """The samples."""
    step: int
    """Number of steps taken before this call."""


class ShardGradients(NamedTuple):
    """The gradients of a worker's own trees, and that of the input, from `HingeShards.backward`."""

    x: FloatArray | None
    """(n_samples, n_features), summed over the trees of all workers; None without `input_gradient`."""
    thresholds: hinge.RowGradient
    """At touched rows of the flattened (tree, vertex) axis of this worker's trees."""
    features: hinge.RowGradient | None
    """At the rows of `thresholds`; None where features are columns."""
    weights: hinge.RowGradient
    """At touched rows of the flattened (tree, leaf) axis of this worker's trees."""


class HingeShards:
    """Hinge forest in training with its trees divided among workers; bit-identical for any number of workers.

    Other parameters: see `hforest.hinge.forward` and `hforest.optim.adam`.

    Parameters
    ----------
    comm : Communicator or None
        `TorchComm`, `MpiComm`, or an object with their methods and attributes; None: one worker alone. Every
        worker makes this object and calls its methods in the same order, with the same samples.
    thresholds, features, weights : arrays
        As `hinge.forward` takes them. The whole forest, the same on every worker, which copies its own trees;
        or, with `n_trees`, this worker's own trees (`own_trees`), which are then changed in place.
    n_trees : int, optional
        Number of trees of all workers, if each worker passes only its own trees.
    n_chunks : int, optional
        Chunks of trees, 1 to n_trees: outputs of a chunk are added in float64 and rounded once. By default
        16, but at most n_trees. Workers own whole chunks. Results depend on n_chunks in their last bits.
    aggregate : "sum" or "mean"
        How outputs of trees are combined.
    state : hinge.AdamState, optional
        Of the same trees, with every row at step `steps`; by default zeros. It is copied, or changed in
        place, as the parameters are.
    steps : int
        Steps taken before.

    Attributes
    ----------
    thresholds, features, weights : arrays
        This worker's own trees. Leaves that recent batches did not reach lack steps: call `sync` before they
        are read.
    state : hinge.AdamState
        Of these.
    trees : slice
        Which trees of the forest they are.
    steps : int
        Steps taken.

    Raises
    ------
    ValueError
        Arrays or settings that differ between workers. Any error on one worker is raised on all, with its
        number. The methods raise in the same way.
    RuntimeError
        A worker ended or does not answer; the text is that of the communicator. The methods raise in the same
        way.

    Notes
    -----
    Outputs are h(x) = sum over trees of w_leaf |r*| (Lay et al. 2018, eq. 10). Each chunk's sum is computed
    by its owner, and sums of chunks are added in a fixed binary tree, in the dtype of x. So are gradients of
    the input. A worker sends the sums of the largest nodes of that tree whose chunks it owns. It sends one
    sum if the numbers of chunks and workers are powers of two, and at most 2 log2(chunks) sums. For each of
    these nodes a worker sends ``itemsize n_samples n_outputs`` bytes forward and ``itemsize n_samples
    n_features`` backward (none without the gradient of the input). Everything else is less than 1 KB per
    step, in three messages. Every worker receives what all others send.

    The thresholds of the first ten levels, and every row that a batch touches, take each step of Adam; other
    rows take missed steps when they are next read, as `hinge.adam_forward` does. With ``margin="projection"``
    all thresholds and features take each step.

    Values that workers compute outside of the forest, such as a layer before it, must be bit-identical on all
    workers. Messages have checksums of x and of grad_y, and a difference is an error on every worker.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> from hforest import hinge, scale
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(50, 3)); target = np.sign(x[:, 0] * x[:, 1])
    >>> shards = scale.HingeShards(None, "tree", *hinge.init(20, 3, 3, dtype=np.float64, rng=rng))
    >>> for step in range(200):
    ...     y, route = shards.forward(x)
    ...     shards.step(shards.backward((y - target) / 50, route), 0.01)
    >>> bool(np.mean((shards.forward(x)[0] - target) ** 2) < 0.05)
    True
    """

    def __init__(
        self,
        comm: Communicator | None,
        kind: Literal["tree", "fern"],
        thresholds: FloatArray,
        features: Array,
        weights: FloatArray,
        *,
        margin: Literal["column", "projection"] = "column",
        n_trees: int | None = None,
        n_chunks: int | None = None,
        aggregate: Literal["sum", "mean"] = "sum",
        state: hinge.AdamState | None = None,
        steps: int = 0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
    ) -> None:
        self.comm = as_communicator(comm)
        whole = hinge.Parameters(thresholds, features, weights)
        betas: dict[str, Any] = {"beta1": beta1, "beta2": beta2, "eps": eps}

        def checked() -> dict[str, Any]:
            check.choice("aggregate", aggregate, ("sum", "mean"))
            dtype = check_forest(whole, kind=kind, margin=margin)
            n = len(thresholds) if n_trees is None else check.integer("n_trees", n_trees, 1, check.MAX_TREES)
            chunks = number_of_chunks(n_chunks, n)
            trees = own_trees(self.comm, n, n_chunks=chunks)
            n_owned = trees.stop - trees.start
            check.require(
                n_trees is None or len(thresholds) == n_owned, "thresholds",
                f"the {n_owned} trees {trees.start} to {trees.stop - 1} of {n}", len(thresholds),
                "pass the trees of own_trees(comm, n_trees)",
            )  # fmt: skip
            at = check.integer("steps", steps, 0, 2**62 - 1)
            check_settings(dtype, at + 1, 0.0, betas)
            if state is not None:
                check_state(whole, state, at)
            digests = tuple(digest(a) for a in (*whole, *(state or ())) if n_trees is None and a is not None)
            return {
                "kind": str(kind), "margin": str(margin), "n_trees": n, "n_chunks": chunks,
                "aggregate": str(aggregate), "steps": at,
                **{name: float(b) for name, b in betas.items()}, "dtype": str(dtype),
                "thresholds": thresholds.shape[1:], "features": features.shape[1:],
                "weights": weights.shape[1:], "state": state is not None,
                "parameters": "a part" if n_trees is not None else digests,
            }  # fmt: skip

        of_workers = Workers(self.comm).collect(checked, ())
        for name, *values in zip(of_workers[0], *(variant.values() for variant in of_workers), strict=True):
            check.same(name, values, "pass the same forest and settings on every worker")
        self._variant: dict[str, Any] = {"kind": kind, "margin": margin}
        self.n_trees, self.n_chunks, self.steps = (
            int(of_workers[0][name]) for name in ("n_trees", "n_chunks", "steps")
        )
        self.aggregate, self.betas = aggregate, betas
        self.trees = own_trees(self.comm, self.n_trees, n_chunks=self.n_chunks)
        if n_trees is None:
            whole = hinge.Parameters(*(a[self.trees].copy() for a in whole))
            if state is not None:
                state = of_arrays(lambda a: a[self.trees].copy(), state)
        self._forest = whole
        self.thresholds, self.features, self.weights = whole
        self.state = zeros(whole) if state is None else state
        self._lr = 0.0
        self._chunks = owned(self.n_chunks, self.comm.rank, self.comm.size)
        starts = [first_tree(c, self.n_chunks, self.n_trees) for c in (*self._chunks, self._chunks.stop)]
        self._slices = [slice(a - starts[0], b - starts[0]) for a, b in itertools.pairwise(starts)]

    def _exchange(self, call: str, function: Callable[[], Any], **arrays: FloatArray) -> list[Any]:
        """Returns all workers' results of a function, after checking that calls and arrays agree."""

        def checked() -> tuple[str, list[str], Any]:
            sent = function()
            return f"{call} after {self.steps} steps", [digest(a) for a in arrays.values()], sent

        calls, digests, sent = zip(*Workers(self.comm).collect(checked, ()), strict=True)
        check.same("comm", calls, "call the same methods in the same order on every worker")
        for name, *of_workers in zip(arrays, *digests, strict=True):
            check.same(name, of_workers, "pass the same array on every worker")
        return list(sent)

    def forward(self, x: FloatArray) -> tuple[FloatArray, ShardRoute]:
        """Returns the outputs of the whole forest after all steps taken (Lay et al. 2018, eq. 10).

        Parameters
        ----------
        x : (n_samples, n_features) array of float32 or float64
            Finite; the same on every worker, or it is an error.

        Returns
        -------
        y : (n_samples, *outputs) array
            The same on every worker.
        route : ShardRoute
            For `backward`.

        Notes
        -----
        Rows of the weights that are read take their missed steps, which equal single steps up to rounding.
        Further calls of `forward` therefore change the last bits of a training. One message.
        """

        routes: list[hinge.Route] = []

        def sums() -> Sums:
            check.on_cpu(x=x)
            check.same_device(x=x)
            check.array("x", x, check.floating("x", x), ("n_samples", "n_features"), {})
            check.finite("x", x)
            if self._slices:
                arguments = (*self._forest, self.state, self.steps + 1, self._lr)
                _, whole = hinge.adam_forward(x, *arguments, **(self._variant | self.betas))
            parts = []
            for s in self._slices:
                one = hinge.Route(*(np.ascontiguousarray(a[:, s]) for a in whole))
                parts.append(hinge.leaf_outputs(one.leaf, one.margin, self.weights[s], aggregate="sum"))
                routes.append(one)
            return node_sums(parts, self._chunks, self.n_chunks)

        y = joined(self._exchange("forward", sums, x=x), self.n_chunks)
        if self.aggregate == "mean":
            y /= self.n_trees
        return y, ShardRoute(tuple(routes), x, self.steps)

    def backward(
        self, grad_y: FloatArray, route: ShardRoute, *, input_gradient: bool = True
    ) -> ShardGradients:
        """Returns gradients with respect to own parameters and the input (Lay et al. 2018, eq. 11-12).

        One message; no parameter changes.

        Parameters
        ----------
        grad_y : (n_samples, *outputs) array, dtype of the forest
            dL/dy, the same on every worker.
        route : ShardRoute
            From `forward`, without a step in between.
        input_gradient : bool
            Whether the gradient with respect to the input is summed over workers; the same on every worker.

        Returns
        -------
        ShardGradients
            x (n_samples, n_features), the same on every worker, or None; thresholds, features and weights of
            this worker's trees, at touched rows.

        Raises
        ------
        ValueError
            A route from before a step.
        """
        of_chunks: list[hinge.Gradients] = []

        def sums() -> Sums | None:
            check.on_cpu(grad_y=grad_y)
            check.same_device(grad_y=grad_y)
            check.flag("input_gradient", input_gradient)
            self._check_route(route)
            check.floating("grad_y", grad_y)
            of_sum = grad_y / grad_y.dtype.type(self.n_trees) if self.aggregate == "mean" else grad_y
            for s, one in zip(self._slices, route.chunks, strict=True):
                p = [a[s] for a in self._forest]
                variant: dict[str, Any] = {**self._variant, "aggregate": "sum"}
                of_chunks.append(hinge.backward_sparse(of_sum, one, route.x, *p, **variant))
            if not input_gradient:
                return None
            return node_sums([grads.x for grads in of_chunks], self._chunks, self.n_chunks)

        of_workers = self._exchange("backward", sums, grad_y=grad_y)
        check.same(
            "input_gradient", [a is not None for a in of_workers], "pass the same value on every worker"
        )
        starts = [s.start for s in self._slices]
        rows = {
            name: row_gradient([getattr(grads, name) for grads in of_chunks], starts, param)
            for name, param in learned(self._forest).items()
        }
        x = joined(of_workers, self.n_chunks) if input_gradient else None
        return ShardGradients(x, rows["thresholds"], rows.get("features"), rows["weights"])

    def step(self, gradients: ShardGradients, lr: float) -> None:
        """Moves this worker's parameters by a step of Adam, in place (Kingma & Ba 2015, Alg. 1).

        One message, of less than 300 bytes.

        Parameters
        ----------
        gradients : ShardGradients
            From `backward`; `x` is not read.
        lr : float
            Learning rate, at least 0; the same on every worker. If it differs from that of the last step, all
            rows first take their missed steps at the old rate. After an error no worker has taken the step.
        """
        step = self.steps + 1

        def checked() -> float:
            remedy = "pass the gradients that backward returned"
            check.instance("gradients", gradients, ShardGradients, "ShardGradients", remedy)
            check_settings(self.weights.dtype, step, lr, self.betas)
            for name, param in learned(self._forest).items():
                place, rows = f"gradients.{name}", getattr(gradients, name)
                check.instance(
                    place,
                    rows,
                    hinge.RowGradient,
                    "a RowGradient",
                    "pass the gradients that backward returned",
                )
                check_rows(place, rows, param.dtype, param.shape[2:], param.shape[0] * param.shape[1])
            rate = float(check.scalar(lr))
            if rate != self._lr:
                self._sync()
            return rate

        rates = self._exchange("step", checked)
        check.same("lr", rates, "pass the same rate on every worker")
        self._lr = rates[0]
        if len(self.weights):
            lazy = self._variant["margin"] == "column"
            move(learned(self._forest), self.state, gradients, lazy, step, {"lr": self._lr, **self.betas})
        self.steps = step

    def _sync(self) -> None:
        if len(self.weights):
            hinge.adam_sync(self.thresholds, self.weights, self.state, self.steps, self._lr, **self.betas)

    def sync(self) -> None:
        """Takes the missed steps of this worker's trees, in place, after which they can be read or saved.

        It calls `hinge.adam_sync`. One message, of less than 200 bytes.

        Raises
        ------
        ValueError
            Moments that are NaN or infinite: training has diverged.
        """
        self._exchange("sync", self._sync)

    def parameters(self) -> hinge.Parameters:
        """Returns the trees of all workers on every worker, after `sync`, as new arrays.

        Every worker sends its own trees.
        """

        of_workers = self._synced("parameters", self._forest)
        return hinge.Parameters(*(np.concatenate(arrays) for arrays in zip(*of_workers, strict=True)))

    def adam_state(self) -> hinge.AdamState:
        """Returns the state of the trees of all workers on every worker, after `sync`, as new arrays.

        Every worker sends the state of its own trees, twice the bytes of its parameters. With `parameters`
        and `steps`, training can continue elsewhere on any number of workers.
        """

        return of_arrays(lambda *arrays: np.concatenate(arrays), *self._synced("adam_state", self.state))

    def _synced(self, call: str, arrays: Any) -> list[Any]:
        """Returns the arrays of all workers after their trees have taken missed steps."""

        def synced() -> Any:
            self._sync()
            return arrays

        return self._exchange(call, synced)

    def _check_route(self, route: ShardRoute) -> None:
        check.instance("route", route, ShardRoute, "a ShardRoute", "pass the second result of forward")
        n, n_chunks = len(self._slices), len(route.chunks)
        check.require(
            route.step == self.steps and n_chunks == n, "route",
            f"the route of {n} chunks after {self.steps} steps",
            f"a route of {n_chunks} chunks after {route.step} steps", "call forward before backward",
        )  # fmt: skip
