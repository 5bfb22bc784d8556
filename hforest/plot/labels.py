"""Text in the boxes of a tree."""

import textwrap
from collections.abc import Sequence

import numpy as np

from ..tree import Forest

LINE = 26
"""Maximum number of characters of a line."""
LINES = 3
"""Maximum number of lines of a name."""
CATEGORIES = 6
"""Maximum number of categories in a list."""
SMALL = 0.005
"""A leaf names no class with a smaller share, which would read 0.00."""


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
        if self.default_left.size:
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
        words = self.category_bits[self.category_indptr[node] : self.category_indptr[node + 1]]
        members = np.flatnonzero(((words[:, None] >> np.arange(32, dtype=np.uint32)) & 1) != right)
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
