"""A tree as boxes and lines: the text of the boxes, their places, and the drawing."""

import textwrap
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.collections import LineCollection
from matplotlib.font_manager import FontProperties
from numpy.typing import NDArray

from ..tree import Forest, check
from . import shared

MAX_NODES = 2000
"""Maximum number of nodes of a drawing: more take minutes and cannot be read."""
MAX_INCHES = 60.0
"""Maximum width and height of a new figure; larger trees have a smaller font."""
MIN_INCHES = 0.6
MAX_FONTSIZE = 1000.0
PAD = 0.4
"""Distance of a text from its box, in font sizes."""
GAP = 0.9
"""Minimum distance of two boxes of a level, in font sizes."""
ABOVE = 2.6
"""Distance of two levels, in font sizes."""
WIDER = 1.03
"""Reserve in the width of a text."""
SPACING = 1.2
"""Distance of two lines of text in Matplotlib, in font sizes."""
LINE = 26
"""Maximum number of characters of a line."""
LINES = 3
"""Maximum number of lines of a name."""
CATEGORIES = 6
"""Maximum number of categories in a list."""
SMALL = 0.005
"""A leaf names no class with a smaller share, which would read 0.00."""


# ------------------------------------------------------------------------------------------------------- text


def shortened(name: str, length: int) -> str:
    """Returns a name of at most `length` characters; long names lose their middle."""
    if len(name) <= length:
        return name
    before = length // 2
    return f"{name[:before]}…{name[len(name) - (length - 1 - before) :]}"


def together(text: str) -> str:
    """Returns a text that `wrapped` keeps on one line if it fits."""
    return text.replace(" ", "\N{NO-BREAK SPACE}") if len(text) <= LINE else text


def wrapped(text: str) -> str:
    """Returns a text in lines of at most `LINE` characters."""
    lines = textwrap.wrap(text, LINE, break_on_hyphens=False)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ") or text


class Labels:
    """Text of the nodes of one tree in host arrays; nodes have their numbers in the forest."""

    def __init__(
        self, forest: Forest, feature_names: Sequence[str] | None, class_names: Sequence[str], max_terms: int
    ) -> None:
        """`class_names` is empty for a regression."""
        self.forest = forest
        self.feature_names = feature_names
        self.class_names = class_names
        self.max_terms = max_terms
        # Fields of forests that were grown with missing values and categories.
        none = np.zeros(0, np.uint8)
        self.default_left = np.asarray(getattr(forest, "default_left", none))
        self.category_indptr = np.asarray(getattr(forest, "category_indptr", none))
        self.category_bits = np.asarray(getattr(forest, "category_bits", none))
        # Without both, missing values and unknown categories go to the same side, that of more samples.
        differ = (self.default_left & 1) != (self.default_left >> 1)
        self.missing = bool(self.category_bits.size) or bool(differ.any())

    def name(self, feature: int) -> str:
        """Returns the name of a feature; a long one is shortened."""
        if self.feature_names is None:
            return f"x[{feature}]"
        name = " ".join(self.feature_names[feature].split())
        return shortened(name, LINE * LINES)

    def split(self, node: int) -> str:
        """Returns the text of a split: comparison, and side of missing values and unknown categories."""
        feature, threshold = int(self.forest.feature[node]), self.forest.threshold[node]
        sends = int(self.default_left[node]) if self.default_left.size else 0
        by_categories = self.category_indptr.size and (
            self.category_indptr[node + 1] > self.category_indptr[node]
        )
        lines = []
        if by_categories:
            # Categories absent from a node during growth go to the side of unknown ones; the others are
            # listed.
            unknown = bool(sends & 2)
            listed = self._categories(node, unknown)
            lines.append(wrapped(f"{self.name(feature)} {'not ' * unknown}in {{{listed}}}"))
        elif self.default_left.size and not sends & 1 and threshold == np.finfo(threshold.dtype).max:
            return wrapped(f"{self._compared(node)} is not missing")  # every number goes left
        else:
            lines.append(wrapped(f"{self._compared(node)} {together(f'<= {threshold:.4g}')}"))
        if self.missing:
            lines.append(f"missing: {'yes' if sends & 1 else 'no'}")
        return "\n".join(lines)

    def _compared(self, node: int) -> str:
        """Returns the feature, or the projection's terms of largest weight and the number of other terms."""
        if self.forest.feature[node] != -2:
            return self.name(int(self.forest.feature[node]))
        entries = slice(int(self.forest.indptr[node]), int(self.forest.indptr[node + 1]))
        features, weights = self.forest.indices[entries], self.forest.data[entries]
        order = np.argsort(-abs(weights), kind="stable")
        shown = np.sort(order[: self.max_terms])  # in the order of the projection
        terms: list[str] = []
        for i in shown:
            size = f"{abs(weights[i]):.3g}"
            sign = "- " if weights[i] < 0 else "+ " if terms else ""
            terms.append(sign + ("" if size == "1" else f"{size} ") + self.name(int(features[i])))
        more = len(order) - len(shown)
        return " ".join(together(term) for term in [*terms, *([f"+ {more} more"] if more else [])]) or "0"

    def _categories(self, node: int, right: bool) -> str:
        """Returns the categories that go left, or right."""
        bits = self.category_bits[self.category_indptr[node] : self.category_indptr[node + 1]]
        members = np.flatnonzero(((bits[:, None] >> np.arange(32, dtype=np.uint32)) & 1) != right)
        more = len(members) - CATEGORIES
        listed = ", ".join(str(c) for c in members[: CATEGORIES if more > 0 else None])
        return listed + (f", {more} more" if more > 0 else "")

    def leaf(self, value: np.ndarray) -> str:
        """Returns the largest shares of classes, or the predicted targets; `value` (n_outputs,)."""
        if not self.class_names:
            lines = [f"{a:.4g}" for a in value[: self.max_terms]]
            more = len(value) - len(lines)
        else:
            order = np.argsort(-value, kind="stable")
            order = order[value[order] >= min(SMALL, value.max())]
            lines = [
                f"{shortened(self.class_names[k], LINE)} {value[k]:.2f}" for k in order[: self.max_terms]
            ]
            more = len(order) - len(lines)
        return "\n".join(lines + ([f"+ {more} more"] if more else []))


# ---------------------------------------------------------------------------------------- places of the boxes


def tidy(
    left: NDArray[np.integer], right: NDArray[np.integer], width: NDArray[np.floating], gap: float
) -> NDArray[np.float64]:
    """Returns the centres of boxes along the horizontal axis, (n_nodes,), with the root at 0.

    Reingold and Tilford 1981, with boxes of several widths: subtrees have one shape wherever they stand, two
    subtrees stand as close as their outlines allow, and a parent is in the middle between its children.

    Parameters
    ----------
    left, right : (n_nodes,) array of int
        Children, whose numbers are above their parent's; -1 of a leaf. Node 0 is the root.
    width : (n_nodes,) array
        Widths of the boxes.
    gap : float
        Least distance of two boxes of a level.

    Notes
    -----
    Cost: n_nodes times the depth of the tree, at most.
    """
    n = len(left)
    shift = np.zeros(n)  # distance of a node from its parent
    outline: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    """Range of positions of each level, from the root, of subtrees whose parent is not yet placed."""
    for v in range(n - 1, -1, -1):
        root = np.array([-width[v] / 2]), np.array([width[v] / 2])
        if left[v] < 0:
            outline[v] = root
            continue
        of_left, of_right = outline.pop(int(left[v])), outline.pop(int(right[v]))
        shared = min(len(of_left[0]), len(of_right[0]))
        half = float((of_left[1][:shared] - of_right[0][:shared]).max() + gap) / 2
        shift[left[v]], shift[right[v]] = -half, half
        low = np.concatenate([of_left[0] - half, of_right[0][len(of_left[0]) :] + half])
        high = np.concatenate([of_right[1] + half, of_left[1][len(of_right[1]) :] - half])
        outline[v] = np.concatenate([root[0], low]), np.concatenate([root[1], high])
    centre = np.zeros(n)
    for v in range(n):
        if left[v] >= 0:
            centre[left[v]] = centre[v] + shift[left[v]]
            centre[right[v]] = centre[v] + shift[right[v]]
    return centre


# ------------------------------------------------------------------------------------------------ the drawing


class Drawn(NamedTuple):
    """The nodes of a tree down to a depth, breadth-first."""

    node: NDArray[np.int64]
    """(n,) numbers of the nodes in the forest."""
    depth: NDArray[np.int64]
    """(n,)."""
    left: NDArray[np.int64]
    """(n,) left child among the n, which the right child follows; -1 if no children are drawn."""
    hidden: NDArray[np.bool_]
    """(n,) whether it is a split whose children are not drawn."""


def _drawn(forest: Forest, root: int, max_depth: int | None) -> Drawn:
    node, depth, left, hidden = [root], [0], [], []
    at = 0
    while at < len(node):
        v = node[at]
        is_leaf = bool(forest.feature[v] == -1)
        hidden.append(not is_leaf and max_depth is not None and depth[at] >= max_depth)
        left.append(-1 if is_leaf or hidden[-1] else len(node))
        if left[-1] >= 0:
            below = root + int(forest.left[v])
            node += [below, below + 1]
            depth += [depth[at] + 1] * 2
        if len(node) > MAX_NODES:
            raise ValueError(
                f"max_depth: expected a depth with at most {MAX_NODES} nodes, got {max_depth} for a tree "
                "with more nodes; pass a smaller depth, such as max_depth=5"
            )
        at += 1
    return Drawn(np.array(node), np.array(depth), np.array(left), np.array(hidden))


def _leaves_below(forest: Forest, root: int, node: int) -> int:
    """Returns the number of leaves below a node."""
    stack, n = [node], 0
    while stack:
        v = stack.pop()
        if forest.feature[v] == -1:
            n += 1
        else:
            stack += [root + int(forest.left[v]), root + int(forest.left[v]) + 1]
    return n


def _sizes(
    texts: Sequence[str], fontsize: float, scale: float, dpi: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns widths and heights of boxes around texts of `fontsize` points.

    Text is measured as it is drawn at `scale` times that size, where its glyphs stand on whole pixels.
    """
    font = FontProperties(size=fontsize * scale)
    renderer: Any = RendererAgg(1, 1, dpi)  # type: ignore[no-untyped-call]
    lines = {line for text in texts for line in text.split("\n")}
    point = scale * dpi / 72
    wide = {line: renderer.get_text_width_height_descent(line, font, False)[0] / point for line in lines}
    width = np.array([max(wide[line] for line in text.split("\n")) for text in texts])
    height = np.array([1 + SPACING * text.count("\n") for text in texts]) * fontsize
    return WIDER * width + 2 * PAD * fontsize, height + 2 * PAD * fontsize


def tree(
    forest: Forest,
    tree: int = 0,
    *,
    feature_names: Collection[str] | None = None,
    class_names: Collection[str] | None = None,
    max_depth: int | None = None,
    max_terms: int = 3,
    fontsize: float = 9.0,
    ax: Axes | None = None,
) -> Axes:
    """Draws a tree with splits and leaves as boxes, the root on top, and returns the axes.

    Other parameters: see `regions`.

    Parameters
    ----------
    forest : Forest
        Any forest.
    tree : int
        Its number, from 0.
    feature_names : sequence of str, optional
        A name for each feature, by default x[0], x[1], ... Long names are wrapped and shortened.
    max_depth : int, optional
        Deepest level to draw, by default all. Splits on it show the number of leaves below them.
    max_terms : int
        Maximum number of terms shown: those of a projection with the largest weights; class shares, or
        targets, of a leaf.
    fontsize : float
        Size of all text in points, at most 1000. It is reduced if the tree does not fit in `ax`, or in 60
        inches.

    Returns
    -------
    matplotlib.axes.Axes
        ``ax.texts`` are first "yes" and "no", then the boxes, breadth-first.

    Raises
    ------
    ValueError
        More than 2000 nodes to draw.

    Notes
    -----
    A sample for which the text of a split is true goes left. Of forests that were grown with missing values
    or categories, "missing: yes" says that missing values go left, too, "unknown: yes" that unknown
    categories do.

    The values of leaves are shares of classes where `class_names` is given, or if the forest has at least two
    outputs, which are non-negative and sum to 1 in every leaf. The box of such a leaf has the colour of the
    class with the largest share, paler for smaller shares. For other leaves the colour shows the first
    output, between its minimum and maximum in the tree.

    The layout is that of Reingold and Tilford 1981, for boxes of the size of their text. The axes are turned
    off; a new figure fits the tree. Text does not scale when the figure is resized later. Cost: a few
    milliseconds per node.

    Examples
    --------
    >>> import matplotlib, numpy as np, hforest, hforest.plot
    >>> matplotlib.use("Agg")
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 1, bootstrap=False, rng=0)
    >>> ax = hforest.plot.tree(forest, feature_names=["length"], class_names=["short", "long"])
    >>> [text.get_text() for text in ax.texts]
    ['yes', 'no', 'length <= 0.5', 'short 1.00', 'long 1.00']
    """
    check(forest)
    host = Forest(*(a if isinstance(a, np.ndarray) else a.get() for a in forest))
    number = shared.integer("tree", tree, 0, 2**31)
    n_trees = len(host.tree_start) - 1
    if number >= n_trees:
        raise IndexError(f"tree: expected 0 <= tree < n_trees = {n_trees}, got {number}; choose one of them")
    names = shared.names("feature_names", feature_names, int(host.n_features), "n_features")
    n_outputs = host.value.shape[1]
    classes = shared.names("class_names", class_names, n_outputs, "n_classes")
    if classes is None and _are_shares(host.value):
        classes = [f"class {k}" for k in range(n_outputs)]
    deepest = None if max_depth is None else shared.integer("max_depth", max_depth, 0, 2**31)
    max_terms = shared.integer("max_terms", max_terms, 1, 2**20)
    fontsize = shared.positive("fontsize", fontsize, MAX_FONTSIZE)

    root = int(host.tree_start[number])
    drawn = _drawn(host, root, deepest)
    labels = Labels(host, names, classes or (), max_terms)
    value = host.value[(root + number) // 2 :][: (int(host.tree_start[number + 1]) - root + 1) // 2]
    rows = np.where(host.feature[drawn.node] == -1, host.left[drawn.node], 0)
    texts = []
    for v, row, hidden in zip(drawn.node, rows, drawn.hidden, strict=True):
        if hidden:
            texts.append(f"… {_leaves_below(host, root, int(v))} leaves")
        else:
            texts.append(labels.leaf(value[row]) if host.feature[v] == -1 else labels.split(int(v)))
    fill = np.full((len(texts), 3), 0.94)
    leaves = host.feature[drawn.node] == -1
    if classes is not None:
        fill[leaves] = shared.of_shares(value[rows[leaves]])
    else:
        first = value[:, 0].astype(np.float64)
        fill[leaves] = shared.of_values(first[rows[leaves]], first.min(), first.max())
    return _write(drawn, texts, fill, fontsize, ax)


def _are_shares(value: NDArray[np.floating]) -> bool:
    total = value.sum(axis=1, dtype=np.float64)
    return value.shape[1] > 1 and bool((value >= 0).all() and (abs(total - 1) < 1e-4).all())


class Places(NamedTuple):
    """Positions of boxes in points; arrays of several boxes are (n,)."""

    centre: NDArray[np.float64]
    middle: NDArray[np.float64]
    height: NDArray[np.float64]
    low: NDArray[np.float64]
    """(2,) lower left corner of all, with a margin."""
    size: NDArray[np.float64]
    """(2,) width and height of all."""


def _places(drawn: Drawn, texts: Sequence[str], fontsize: float, scale: float, dpi: float) -> Places:
    width, height = _sizes(texts, fontsize, scale, dpi)
    centre = tidy(drawn.left, np.where(drawn.left >= 0, drawn.left + 1, -1), width, GAP * fontsize)
    tallest = np.zeros(drawn.depth.max() + 1)
    np.maximum.at(tallest, drawn.depth, height)
    # Levels are below each other; the centres of the boxes of a level are on one line.
    step = tallest[:-1] / 2 + ABOVE * fontsize + tallest[1:] / 2
    middle = -np.concatenate([[0.0], np.cumsum(step)])[drawn.depth]
    low = np.array([(centre - width / 2).min(), (middle - height / 2).min()]) - fontsize
    high = np.array([(centre + width / 2).max(), (middle + height / 2).max()]) + fontsize
    return Places(centre, middle, height, low, high - low)


def _write(
    drawn: Drawn, texts: Sequence[str], fill: NDArray[np.floating], fontsize: float, caller_ax: Axes | None
) -> Axes:
    """Draws boxes and lines; one unit of the axes is a point where text has `fontsize`."""
    dpi = rcParams["figure.dpi"] if caller_ax is None else shared.axes(caller_ax).figure.dpi
    at = _places(drawn, texts, fontsize, 1.0, dpi)
    inches = np.clip(at.size / 72, MIN_INCHES, MAX_INCHES)
    ax = shared.axes(caller_ax, (float(inches[0]), float(inches[1])))
    if caller_ax is None:
        ax.figure.set_layout_engine("none")  # type: ignore[union-attr]
        ax.set_position((0, 0, 1, 1))
    room = np.array(ax.get_window_extent().size) * 72 / dpi
    scale = min(1.0, *(room / at.size))
    for _ in range(3 if scale < 1 else 0):  # small text is wider, since its glyphs start at whole pixels
        at = _places(drawn, texts, fontsize, scale, dpi)
        scale = min(scale, *(room / at.size))
    ax.axis("off")
    # The space of the axes beside the tree is divided between its two sides.
    spare = np.maximum(room / scale - at.size, 0) / 2
    low, high = at.low - spare, at.low + at.size + spare
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    _draw_lines(ax, drawn, at, fontsize, scale)
    for i, text in enumerate(texts):
        hidden = bool(drawn.hidden[i])
        frame = {
            "boxstyle": f"round,pad={PAD},rounding_size={PAD}",
            "facecolor": "white" if hidden else fill[i],
            "edgecolor": "0.45",
            "linewidth": 0.7 * scale,
            "linestyle": "--" if hidden else "-",
        }
        ax.text(
            at.centre[i], at.middle[i], text, fontsize=fontsize * scale, ha="center", va="center", bbox=frame,
            color="black" if hidden else shared.of_text(fill[i]), parse_math=False, linespacing=SPACING,
        )  # fmt: skip
    return ax


def _draw_lines(ax: Axes, drawn: Drawn, at: Places, fontsize: float, scale: float) -> None:
    """Draws lines from splits to children below the boxes, with "yes" and "no" at the lines of the root."""
    split = np.repeat(np.flatnonzero(drawn.left >= 0), 2)
    if not len(split):
        return
    child = drawn.left[split] + np.tile([0, 1], len(split) // 2)
    lower = np.stack([at.centre[split], at.middle[split] - at.height[split] / 2], axis=1)
    upper = np.stack([at.centre[child], at.middle[child] + at.height[child] / 2], axis=1)
    lines = np.stack([lower, upper], axis=1)
    ax.add_collection(LineCollection(list(lines), colors="0.5", linewidths=0.8 * scale), autolim=False)
    for side, (text, align) in enumerate((("yes", "right"), ("no", "left"))):
        x, y = lines[side].mean(axis=0)
        away = -0.4 if side == 0 else 0.4
        ax.text(x + away * fontsize, y, text, fontsize=fontsize * scale, color="0.3", va="bottom", ha=align)
