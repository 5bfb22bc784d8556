"""Criteria, and scores of splits in Python with the operations and the order of score.h."""

import math
from typing import Any, NamedTuple

from .aliases import Task


class Criterion(NamedTuple):
    """An impurity whose decrease scores splits."""

    name: str
    number: int
    """Number of the criterion in kernels of all backends (core/score.h)."""
    task: Task | None
    """None: no caller names it; it takes the place of another criterion, see core/several.py."""
    grown: bool = False
    """Whether only growth has it, on features and on projections."""


GINI, ENTROPY, SQUARED_ERROR, POISSON, LABEL_ENTROPY = 0, 1, 2, 3, 4
CRITERIA = (
    Criterion("gini", GINI, "classification"),
    Criterion("entropy", ENTROPY, "classification"),
    Criterion("squared_error", SQUARED_ERROR, "regression"),
    Criterion("poisson", POISSON, "regression", grown=True),
    Criterion("label_entropy", LABEL_ENTROPY, None),
)
OF_RATIOS = (POISSON, LABEL_ENTROPY)
"""Criteria that score ratios of sums of targets, which are in units of centre 0."""


NAMES = {"log_loss": "entropy", "friedman_mse": "squared_error"}
"""Other names of criteria."""


def name_of(value: Any) -> Any:
    """Returns the name of a criterion in CRITERIA for one of its names; other values themselves."""
    return NAMES.get(value, value) if isinstance(value, str) else value


def numbers(task: Task | None = None, *, grown: bool = False) -> dict[str, int]:
    """Returns the numbers of the criteria of a task, or of all tasks, by name.

    grown: whether those of growth alone are among them.
    """
    named = (c for c in CRITERIA if c.task is not None)
    return {c.name: c.number for c in named if task in (None, c.task) and c.grown <= grown}


def check_criteria(compiled: dict[str, int], module: str) -> None:
    """Checks that a compiled module knows CRITERIA, given the numbers of score.h by name."""
    known = {c.name: c.number for c in CRITERIA}
    if compiled != known:
        raise ImportError(
            f"{module}: expected the criteria {known} of core/scores.py, got {compiled} of core/score.h; "
            "write the same in both and in core/score.pxd, and run `python setup.py build_ext --inplace`"
        )


def beats(score: float, best: float) -> bool:
    """Returns whether a split takes the place of the best so far: of equal scores the first remains."""
    return score > best


def log2(a: float) -> float:
    """Returns log2 of a positive number, by the steps of score.h."""
    m, e = math.frexp(a)
    if m < 0.70710678118654752:
        m, e = 2 * m, e - 1
    s = (m - 1) / (m + 1)
    q = s * s
    total = 1.0 / 23
    for k in range(21, 0, -2):
        total = total * q + 1.0 / k
    return e + s * total * 2.8853900817779268


def xlogx(a: float) -> float:
    """Returns a log2 a, 0 for a = 0."""
    return a * log2(a) if a > 0 else 0.0


def node_score(criterion: int, sums: list[float], weight: float) -> float:
    """Returns -W H of a branch of weight W and impurity H, without terms that all splits of a node share."""
    total = 0.0
    if criterion == ENTROPY:
        for c in sums:
            total += xlogx(c)
        return total - xlogx(weight)
    for c in sums:
        total += c * c
    return total / weight


def score_of_ratios(criterion: int, sums: list[int], mean: list[float], u: int) -> float:
    """Returns the score of a branch by a criterion in OF_RATIOS, by the steps of growth/units.h."""
    total = 0.0
    for q, of_node in zip(sums, mean, strict=True):
        if of_node > 0 and q == 0 and criterion == POISSON:
            return -math.inf
        if q > 0:
            expected = of_node * float(u)
            total += expected * xlogx(float(q) / expected)
    return total


def sum_of_squares(terms: list[float]) -> float:
    """Returns the sum of squares over outputs, from 8 partial sums, by the steps of score.h."""
    partial = [0.0] * 8
    for k, a in enumerate(terms):
        partial[k % 8] += a * a
    a, b, c, d, e, f, g, h = partial
    return ((a + e) + (c + g)) + ((b + f) + (d + h))


def impurity(criterion: int, shares: list[float]) -> float:
    """Returns the impurity of a node from the shares of its classes."""
    total = 0.0
    for p in shares:
        # Gini: 1 - sum p**2. Entropy: -sum p log2 p.
        total += xlogx(p) if criterion == ENTROPY else p * p
    return 0.0 - total if criterion == ENTROPY else 1.0 - total
