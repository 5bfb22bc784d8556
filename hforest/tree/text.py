"""Trees as text."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..core import check as checks
from ..core.defaults import sends_missing_left, sends_unknown_left, shows_missing
from .forest import Forest, checked, on_host, root_of

_LISTED = 12  # maximum number of listed categories of a set
_INDENTED = 100  # maximum indentation in levels: the text of a chain would grow with the square of its length


def to_text(
    forest: Forest,
    tree: int = 0,
    *,
    feature_names: Collection[str] | None = None,
    max_depth: int | None = None,
) -> str:
    """Returns a tree as indented text, one line per node.

    Parameters
    ----------
    forest : Forest
        Any forest.
    tree : int
        Its number, from 0.
    feature_names : sequence of str, optional
        Names of the features, by default x[0], x[1], ...
    max_depth : int, optional
        Deepest level to print, by default all.

    Returns
    -------
    str
        Lines; the children of a split are labelled yes (``<= threshold``, or a category of the set) and no.
        The side of missing values is printed if the forest was grown on some. Lines of deeper levels than
        100 are indented as level 100, and begin with their level in brackets.

    Notes
    -----
    Cost: a Python step and at most a few hundred characters per node.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> print(hforest.tree.to_text(forest, feature_names=["length"]))
    length <= 0.5
      yes: 1 0
      no: 0 1
    """
    forest = checked(forest)
    root = root_of(forest, tree)
    deepest = None if max_depth is None else checks.integer("max_depth", max_depth, 0)
    host = on_host(forest)
    n_features = int(host.n_features)
    names = None if feature_names is None else _names(feature_names)
    if names is not None and len(names) != n_features:
        raise ValueError(
            f"feature_names: expected n_features = {n_features} names, got {len(names)}; pass one name per "
            "feature"
        )
    first_row = (root + tree) // 2
    missing = shows_missing(host.default_left, host.threshold, host.category_bits)
    lines: list[str] = []
    stack = [(0, 0, "")]
    while stack:
        v, depth, prefix = stack.pop()
        at = root + v
        if host.feature[at] == -1:
            text = " ".join(f"{a:.6g}" for a in host.value[first_row + host.left[at]])
        else:
            text = f"{_compared(host, at, names)} {_condition(host, at, missing)}"
        hidden = deepest is not None and depth >= deepest and host.feature[at] != -1
        level = f"[{depth}] " if depth > _INDENTED else ""
        lines.append("  " * min(depth, _INDENTED) + level + prefix + ("..." if hidden else text))
        if host.feature[at] != -1 and not hidden:
            stack += [(int(host.left[at]) + 1, depth + 1, "no: "), (int(host.left[at]), depth + 1, "yes: ")]
    return "\n".join(lines)


def _names(names: Any) -> list[str]:
    """Returns the names in a list, a tuple, an array or an index of a data frame."""
    sequence = names.tolist() if hasattr(type(names), "tolist") else names
    if not isinstance(sequence, list | tuple):
        raise TypeError(
            f"feature_names: expected a sequence of str, got {type(names).__name__}; pass a list of names"
        )
    for i, name in enumerate(sequence):
        checks.instance(f"feature_names[{i}]", name, str, "a str", f"pass str({name!r})")
    return list(sequence)


def _condition(host: Forest, at: int, missing: bool) -> str:
    """Returns the condition of a split on the value that it compares; `missing`: and on missing values."""
    bits = host.category_bits[:0]
    if host.category_indptr.size:
        bits = host.category_bits[host.category_indptr[at] : host.category_indptr[at + 1]]
    text = f"<= {host.threshold[at]:.6g}"
    if bits.size:
        # Categories that did not occur in a node are on the side of unknown ones; the other side is listed.
        unknown = bool(sends_unknown_left(host.default_left[at]))
        there = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little") != unknown)
        listed = [str(c) for c in there[:_LISTED]] + ["..."] * (len(there) > _LISTED)
        text = f"{'not ' * unknown}in {{{', '.join(listed)}}}"
    if missing and sends_missing_left(host.default_left[at]):
        return f"{text} or missing"
    if missing and host.threshold[at] == np.finfo(host.threshold.dtype).max:
        return "is not missing"  # every number goes left
    return text


def _compared(host: Forest, at: int, names: Sequence[str] | None) -> str:
    def name(f: int) -> str:
        return f"x[{f}]" if names is None else names[f]

    if host.feature[at] >= 0:
        return name(host.feature[at])
    entries = range(host.indptr[at], host.indptr[at + 1])
    return " ".join(f"{host.data[j]:+.6g} {name(host.indices[j])}" for j in entries) or "0"
