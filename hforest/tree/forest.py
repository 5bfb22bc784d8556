"""The Forest tuple, and the checks that every function makes of it."""

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from ..core import check as checks
from ..core import dispatch, machine, notebooks
from ..core.aliases import FloatArray, IntArray
from ..core.defaults import sends_missing_left, sends_unknown_left

PACKAGE = __name__.rpartition(".")[0]

NO_DEFAULTS = checks.NO_DEFAULTS

_FOLLOWED = ("n_features", "tree_start", "feature", "left", "indptr", "indices", "category_indptr")
"""Arrays of a forest with node numbers, features or places, which walks follow without a check."""

LEAF_FIELDS = ("value",)
"""Arrays of a forest with a row for each leaf, in the order of growth/leaf.h."""

ROUTES = ("default_left", "category_indptr", "category_bits")
"""Arrays that NO_DEFAULTS has in this order."""

OPTIONAL = (*ROUTES, "class_start")
"""Arrays that may be empty."""

_FAULTS = {
    1: "a leaf whose row of values lies outside its tree",
    2: "a child that does not come after its parent in the same tree",
    3: "a threshold that is NaN",
    4: "a feature outside 0 <= feature < n_features",
    5: "a projection outside indices",
    6: "a projection with a feature outside 0 <= feature < n_features",
    7: "a child of two parents",
    8: "a node without a parent",
}


class Forest(NamedTuple):
    """Trees as arrays; n_nodes and n_leaves count over all trees, `real` is float32 or float64.

    A node with feature -1 is a leaf. A split compares feature `feature`, or if that is -2 the projection
    ``sum data[j] * x[indices[j]]`` over ``indptr[v] <= j < indptr[v + 1]``. It sends values ``<= threshold``
    to node `left` of the tree, others to node ``left + 1``. `default_left` routes missing values, the next
    two arrays route categories; arrays without a use are empty. A tree of N nodes has (N + 1) / 2 leaves;
    rows of `value` are numbered within a tree, as nodes are. Arrays of a forest that was grown or loaded are
    read-only: to change one, pass a copy to `_replace`.
    """

    n_features: IntArray
    """() int64: number of features of x."""
    tree_start: IntArray
    """(n_trees + 1,) int64: first node of each tree; the last entry is n_nodes."""
    feature: IntArray
    """(n_nodes,) int32: feature of a split, -1 of a leaf, -2 of a split by a projection."""
    threshold: FloatArray
    """(n_nodes,) real; 0 in a leaf."""
    left: IntArray
    """(n_nodes,) int32: left child, or in a leaf its row of `value`; both numbered within the tree."""
    value: FloatArray
    """(n_leaves, n_outputs) real: shares of the classes, or means."""
    gain: FloatArray
    """(n_nodes,) real: decrease of the weighted impurity by a split; 0 in a leaf.

    If sums or gains would leave the range of the dtype, sample weights are first scaled by a power of two,
    and gains with them.
    """
    indptr: IntArray
    """(n_nodes + 1,) int64: start of each projection, as in a CSR matrix; (0,) without projections."""
    indices: IntArray
    """(n_entries,) int32: features of the projections."""
    data: FloatArray
    """(n_entries,) real: their weights."""
    default_left: IntArray = NO_DEFAULTS[0]
    """(n_nodes,) uint8: bit 0: missing values (NaN) go left; bit 1: unknown categories go left. 0 in a leaf.
    What the samples of a node lack goes to the side of more samples. (0,): the forest refuses both."""
    category_indptr: IntArray = NO_DEFAULTS[1]
    """(n_nodes + 1,) int64: start of each set of categories; a split with a set does not compare its
    threshold, 0. (0,): no split has a set."""
    category_bits: IntArray = NO_DEFAULTS[2]
    """(n_words,) uint32: bit ``c % 32`` of word ``c // 32`` of a node is 1 if category c goes left. Negative
    numbers, fractions and numbers beyond the words are unknown categories."""
    class_start: IntArray = NO_DEFAULTS[1]
    """(n_labels + 1,) int64 of several labels a sample: label j has the columns class_start[j] to
    class_start[j + 1] - 1 of `value`. (0,): one label, or targets."""

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.tree_start) - 1

    @property
    def n_classes(self) -> int:
        """Number of columns of `value`: classes, or in a regression targets."""
        return int(self.value.shape[1])

    def __repr__(self) -> str:
        try:
            sizes = f"n_trees={self.n_trees}, n_nodes={len(self.feature)}, n_features={int(self.n_features)}"
            return f"Forest({sizes}, n_classes={self.n_classes}, {self.threshold.dtype})"
        except Exception:  # from fields that contradict each other or are not arrays
            return f"Forest{tuple(self)!r}"

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        n_splits = len(self.feature) - len(self.value)
        on_cpu = isinstance(self.feature, np.ndarray)
        return [
            ("Forest", self.threshold.dtype),
            ("trees", self.n_trees),
            ("depth", notebooks.span(depths(checked(self))) if on_cpu else "on the GPU"),
            ("splits", f"{n_splits}, of which {int((self.feature == -2).sum())} by projections"),
            ("leaves", len(self.value)),
            ("features", int(self.n_features)),
            ("outputs", self.n_classes),
        ]


def levels(forest: Forest) -> list[IntArray]:
    """Returns the splits of each level, root first: as many arrays as the forest has levels of splits."""
    splits_of_level: list[IntArray] = []
    node = forest.tree_start[:-1]
    tree = np.arange(len(node))
    while True:
        splits = forest.feature[node] != -1
        if not splits.any():
            return splits_of_level
        tree, node = tree[splits], node[splits]
        splits_of_level.append(node)
        first = forest.tree_start[tree] + forest.left[node]
        tree, node = np.concatenate([tree, tree]), np.concatenate([first, first + 1])


def depths(forest: Forest) -> IntArray:
    """Returns (n_trees,) int64: the depth of each tree."""
    result = np.zeros(len(forest.tree_start) - 1, np.int64)
    for nodes in levels(forest):
        result[np.unique(np.searchsorted(forest.tree_start, nodes, "right")) - 1] += 1
    return result


class _Marked(Forest):
    """A valid forest of read-only arrays, which calls do not check again.

    `_replace`, copies and pickles are plain forests. Functions read `_arrays`, for a caller can set shape and
    dtype of an array.
    """

    __module__, __qualname__ = PACKAGE, "Forest"
    _arrays: Forest

    def __new__(cls, *arrays: Any) -> Forest:  # type: ignore[misc]
        return Forest(*arrays)

    _make = Forest._make  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Forest, tuple(self)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"forest.{name}: expected no assignment, got one; make another forest by forest._replace"
        )


_Marked.__name__ = "Forest"


def marked(forest: Forest, valid: bool = True) -> Forest:
    """Returns a forest that calls do not check again, after a check if it may not be `valid`.

    Its arrays are read-only, on the memory of the argument: nobody else may have an array on this memory.
    Forests of CuPy arrays, and all forests inside `unchecked()`, are returned unchanged.
    """
    if dispatch.is_cupy(forest.feature) or not checks.values_checked():
        return forest
    return read_only(forest if valid else check(forest))


def read_only(forest: Forest) -> Forest:
    """Returns a forest with a mark on the memory of a valid one."""
    if type(forest) is _Marked:
        return forest
    result = tuple.__new__(_Marked, map(machine.read_only, forest))
    result.__dict__["_arrays"] = Forest(*map(machine.read_only, forest))
    return result


def is_marked(forest: Forest) -> bool:
    """Returns whether calls do not check a forest again."""
    return type(forest) is _Marked


def copied(forest: Forest, x: object = None) -> Forest:
    """Returns a forest that its owner cannot change, after `check_layout`: a marked one itself, or a copy."""
    if is_marked(forest):
        return forest
    check_layout(forest, x)
    return Forest(*map(checks.owned, forest))


def trusted(forest: Forest, x: object = None) -> Forest:
    """Returns a forest that nobody changes: one with a mark itself, or a checked copy.

    CuPy arrays are a TypeError. x: see `check_layout`.
    """
    checks.on_cpu(**{"forest.feature": getattr(forest, "feature", None)})
    copy = copied(forest, x)
    check_contents(copy, copy, "value", "gain", "data")
    return read_only(copy)


def arrays_of(forest: Forest, x: object = None) -> Forest:
    """Returns the arrays of a forest, after `check_layout` of one without a mark.

    They must neither be changed nor passed on to users. Of a forest without a mark, which its owner may
    change during the call, the arrays that walks follow are copies, and the others views.
    """
    if type(forest) is _Marked:
        return forest._arrays
    check_layout(forest, x)
    if not checks.values_checked():
        return forest
    return Forest(
        **{name: checks.owned(a) if name in _FOLLOWED else a.view() for name, a in forest._asdict().items()}
    )


def arrays_on_cpu(forest: Forest, x: object = None) -> Forest:
    """Returns what `arrays_of` does; CuPy arrays are a TypeError."""
    checks.on_cpu(**{"forest.feature": getattr(forest, "feature", None)})
    return arrays_of(forest, x)


def check_contents(forest: Forest, arrays: Forest, *names: str) -> None:
    """Checks nodes, and numbers of the named arrays, of `arrays_of` a forest, unless it has a mark."""
    if type(forest) is not _Marked:
        check_nodes(arrays)
        check_numbers(arrays, *names)


def checked(forest: Forest) -> Forest:
    """Returns the arrays of a forest after `check`."""
    arrays = arrays_of(forest)
    check_contents(forest, arrays, "value", "gain", "data")
    return arrays


def check_layout(forest: Forest, x: object = None) -> np.dtype:
    """Checks kinds, dtypes and shapes, without reading the nodes; returns the dtype of the forest.

    `x` are the samples of the same call, which may be the forest by mistake.
    """
    if not isinstance(forest, Forest):
        kind, remedy = type(forest).__name__, "pass the result of grow, or Forest(**arrays)"
        home = type(forest).__module__
        names = [name for name in ("forest", "forest_") if isinstance(getattr(forest, name, None), Forest)]
        if names:
            remedy = f"pass its attribute `{names[0]}`"
        elif home.startswith("hforest.") and hasattr(sys.modules[home], "predict"):
            remedy = f"apply it by {home}.predict"
        elif home.startswith("sklearn."):
            remedy = "convert it by tree.from_sklearn"
        if isinstance(x, Forest):
            kind, remedy = f"{kind} and the forest as x", "swap them: the forest comes before x"
        raise TypeError(f"forest: expected a hforest.tree.Forest, got {kind}; {remedy}")
    for a in forest:
        if type(a) is not np.ndarray:
            arrays = forest._asdict()
            # Defaults are NumPy arrays.
            some = {
                name: a for name, a in arrays.items()
                if name not in OPTIONAL or type(a) is not np.ndarray or a.size
            }  # fmt: skip
            checks.same_device(**{f"forest.{name}": a for name, a in some.items()})
            break
    dtype = checks.floating("forest.threshold", forest.threshold)
    sizes: checks.Sizes = {}
    checks.array("forest.n_features", forest.n_features, checks.INT64, (), sizes)
    checks.array("forest.tree_start", forest.tree_start, checks.INT64, ("n_trees + 1",), sizes)
    checks.array("forest.feature", forest.feature, checks.INT32, ("n_nodes",), sizes)
    checks.array("forest.threshold", forest.threshold, dtype, ("n_nodes",), sizes)
    checks.array("forest.left", forest.left, checks.INT32, ("n_nodes",), sizes)
    checks.array("forest.value", forest.value, dtype, ("n_leaves", "n_outputs"), sizes)
    checks.array("forest.gain", forest.gain, dtype, ("n_nodes",), sizes)
    checks.array(
        "forest.indptr",
        forest.indptr,
        checks.INT64,
        (sizes["n_nodes"] + 1 if forest.indptr.size else 0,),
        sizes,
    )
    checks.array("forest.indices", forest.indices, checks.INT32, ("n_entries",), sizes)
    checks.array("forest.data", forest.data, dtype, ("n_entries",), sizes)
    _check_defaults(forest, sizes)
    if forest.class_start is not NO_DEFAULTS[1]:
        checks.array("forest.class_start", forest.class_start, checks.INT64, ("n_labels + 1",), sizes)
    sizes["n_trees"] = sizes["n_trees + 1"] - 1
    checks.at_least_one(sizes, "n_trees", "n_outputs")
    if 2 * sizes["n_leaves"] != sizes["n_nodes"] + sizes["n_trees"]:
        raise ValueError(
            f"forest.value: expected (n_nodes + n_trees) / 2 = {(sizes['n_nodes'] + sizes['n_trees']) / 2:g} "
            f"rows, got {sizes['n_leaves']}; pass one row per leaf: a tree of N nodes has (N + 1) / 2 leaves"
        )
    return dtype


def _check_defaults(forest: Forest, sizes: checks.Sizes) -> None:
    """Checks kinds, dtypes and shapes of the arrays that route missing values and categories."""
    arrays = (forest.default_left, forest.category_indptr, forest.category_bits)
    if all(a is b for a, b in zip(arrays, NO_DEFAULTS, strict=True)):
        return
    n_nodes, n_words = sizes["n_nodes"], np.size(forest.category_bits)
    has_sets = n_words > 0 or np.size(forest.category_indptr) > 0
    known = has_sets or np.size(forest.default_left) > 0
    shapes = ((n_nodes if known else 0,), (n_nodes + 1 if has_sets else 0,), (n_words,))
    for name, a, empty, shape in zip(ROUTES, arrays, NO_DEFAULTS, shapes, strict=True):
        if not hasattr(a, "dtype"):
            raise TypeError(
                f"forest.{name}: expected an array of {empty.dtype}, got {type(a).__name__}; pass an array"
            )
        checks.array(f"forest.{name}", a, empty.dtype, shape, sizes)


def _check_sets(forest: Forest) -> None:
    """Checks that sets of categories lie in category_bits, and belong to splits by features."""
    if forest.default_left.size and int(forest.default_left.max()) > 3:
        raise ValueError(
            f"forest.default_left: expected 0 to 3, got {int(forest.default_left.max())}; pass arrays of one "
            "forest, unchanged"
        )
    indptr = forest.category_indptr
    if not indptr.size:
        return
    size = indptr[1:] - indptr[:-1]
    if int(indptr[0]) or int(indptr[-1]) != forest.category_bits.size or int(size.min()) < 0:
        raise IndexError(
            f"forest.category_indptr: expected 0, ..., n_words = {forest.category_bits.size} in ascending "
            "order, got other numbers; pass arrays of one forest, unchanged"
        )
    if bool((size[forest.feature < 0] > 0).any()):
        raise ValueError(
            "forest.category_indptr: expected sets of categories only at splits by features, got one at a "
            "leaf or a projection; pass arrays of one forest, unchanged"
        )


def _check_classes(forest: Forest) -> None:
    """Checks that the classes of several labels are the columns of values."""
    start = dispatch.to_numpy(forest.class_start)
    if start.size and (
        start[0] != 0 or start[-1] != forest.value.shape[1] or bool((np.diff(start) < 1).any())
    ):
        raise ValueError(
            f"forest.class_start: expected 0, ..., n_outputs = {forest.value.shape[1]} in ascending order, "
            "got other numbers; pass arrays of one forest, unchanged"
        )


def knows_missing(forest: Forest) -> bool:
    """Returns whether the splits of a forest route missing values."""
    return forest.default_left.size > 0


def has_sets(forest: Forest) -> bool:
    """Returns whether some split has a set of categories."""
    return bool(forest.category_bits.size)


def check_comparisons(name: str, forest: Forest) -> None:
    """Checks that every split compares numbers with a threshold: none has a set or routes missing values."""
    if has_sets(forest):
        raise ValueError(
            f"{name}: expected splits by thresholds, got sets of categories; grow it on samples in which "
            "categories are encoded as numbers, without categorical="
        )
    xp = dispatch.array_module(forest.threshold)
    if forest.default_left.size and bool((forest.threshold == xp.finfo(forest.threshold.dtype).max).any()):
        raise ValueError(
            f"{name}: expected splits between numbers, got a split between missing values and all numbers; "
            "grow it on samples in which missing values are filled in"
        )


def check_nodes(forest: Forest) -> None:
    """Checks that no node leads out of its tree, x or the arrays, and that all but roots have one parent.

    Walks do not test this.
    """
    start = dispatch.to_numpy(forest.tree_start)
    sizes = np.diff(start)
    if start[0] != 0 or start[-1] != forest.feature.size or bool(((sizes < 1) | (sizes % 2 == 0)).any()):
        raise ValueError(
            f"forest.tree_start: expected 0, ..., n_nodes = {forest.feature.size} in odd, positive steps, "
            "got other numbers; pass arrays of one forest, unchanged: a tree has one leaf more than splits"
        )
    if bool((sizes >= 2**31).any()):
        raise ValueError(
            "forest.tree_start: expected trees of fewer than 2**31 nodes, got a larger one; grow smaller "
            "trees"
        )
    n_features = int(forest.n_features)
    if not 0 <= n_features <= checks.MAX_COUNT:
        raise ValueError(
            f"forest.n_features: expected 0 to 2**31 - 1, got {n_features}; pass the number of columns of x"
        )
    fault_at = dispatch.array_module(forest.feature).empty(2, np.int64)
    dispatch.backend(PACKAGE, forest.feature).faults(forest, fault_at)
    _check_sets(forest)
    _check_classes(forest)
    node, fault = (int(i) for i in dispatch.to_numpy(fault_at))
    if node >= 0:
        error = ValueError if fault == 3 else IndexError
        tree = int(np.searchsorted(start, node, side="right")) - 1
        raise error(
            f"forest: expected nodes that lead to leaves, got {_FAULTS[fault]} at node {node - start[tree]} "
            f"of tree {tree}; pass arrays of one forest, unchanged"
        )


def check_numbers(forest: Forest, *names: str) -> None:
    """Checks that no number of these arrays is NaN or infinite."""
    for name in names:
        try:
            checks.finite(f"forest.{name}", getattr(forest, name))
        except ValueError as error:
            text = str(error).split("; ")[0]
            raise ValueError(f"{text}; pass arrays of one forest, unchanged") from None


def check(forest: Forest) -> Forest:
    """Returns the forest if its arrays are valid; use it on a forest of unknown origin.

    Parameters
    ----------
    forest : Forest
        Arrays of any origin.

    Returns
    -------
    Forest
        The argument itself.

    Raises
    ------
    ValueError
        Trees with an even number of nodes, thresholds that are NaN, values that are not finite.
    IndexError
        Children that do not come after their parent (a walk might never end) or lie outside their tree, nodes
        with two parents or none, features, projections or sets of categories out of range.

    Notes
    -----
    A forest that passes can be applied to any x of n_features columns inside `hforest.unchecked()`. Nodes may
    have any order in which children come after their parent; all functions that grow or convert trees write
    them breadth-first. Leaves of a tree may share a row of values, so that other rows are unused. Cost: one
    read of the arrays; none for a forest that was grown, loaded, joined or converted. During the check,
    forests with projections and trees that are not breadth-first take a byte of memory for each node of the
    largest tree; on a GPU every forest takes four bytes per node.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> forest = hforest.tree.Forest(
    ...     n_features=np.array(2), tree_start=np.array([0, 3]),
    ...     feature=np.array([1, -1, -1], np.int32), threshold=np.array([0.5, 0, 0]),
    ...     left=np.array([1, 0, 1], np.int32), value=np.array([[0.0], [4.0]]), gain=np.array([8.0, 0, 0]),
    ...     indptr=np.zeros(0, int), indices=np.zeros(0, np.int32), data=np.zeros(0))
    >>> forest is hforest.tree.check(forest)
    True
    """
    checked(forest)
    return forest


def goes_right(forest: Forest, at: int, value: Any) -> bool:
    """Returns whether a value goes to the right child of node `at`, a number over all trees.

    If the forest refuses missing values, NaN goes left.
    """
    if forest.default_left.size:
        if math.isnan(value):
            return not sends_missing_left(forest.default_left[at])
        bits: Any = ()
        if forest.category_indptr.size:
            bits = forest.category_bits[forest.category_indptr[at] : forest.category_indptr[at + 1]]
        if len(bits):
            if not 0 <= value < 32 * len(bits) or value != int(value):
                return not sends_unknown_left(forest.default_left[at])
            return not int(bits[int(value) // 32]) >> int(value) % 32 & 1
    return bool(value > forest.threshold[at])


def narrowed(forest: Forest, second: IntArray) -> Forest:
    """Returns the splits of a forest without sets, for samples in which infinity replaces missing values.

    Splits that send missing values right compare column second[f] of a feature f, where they are +inf; the
    others compare column f, where they are -inf.
    """
    xp, threshold = dispatch.array_module(forest.threshold), forest.threshold
    goes_right = (forest.feature >= 0) & ~sends_missing_left(forest.default_left)
    feature = xp.where(goes_right, second[xp.maximum(forest.feature, 0)], forest.feature)
    # +inf goes right. Not by minimum, which makes float32 subnormals 0 in CuPy.
    largest = threshold.dtype.type(xp.finfo(threshold.dtype).max)
    threshold = xp.where(threshold > largest, largest, threshold)
    return forest._replace(feature=feature.astype(np.int32), threshold=threshold, default_left=NO_DEFAULTS[0])


def of_leaves(forest: Forest, rows: IntArray | slice) -> dict[str, FloatArray]:
    """Returns the given rows of the arrays that have a row for each leaf, by name."""
    return {name: getattr(forest, name)[rows] for name in LEAF_FIELDS}


def on_host(forest: Forest) -> Forest:
    """Returns the forest with NumPy arrays."""
    return Forest(*(dispatch.to_numpy(a) for a in forest))


def root_of(forest: Forest, tree: int) -> int:
    """Returns the first node of a tree; raises if there is no such tree."""
    n_trees = forest.tree_start.size - 1
    tree = checks.integer("tree", tree, 0)
    if tree >= n_trees:
        raise IndexError(f"tree: expected 0 <= tree < n_trees = {n_trees}, got {tree}; choose one of them")
    return int(forest.tree_start[tree])
