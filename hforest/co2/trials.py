"""The search for settings on a held-out part of the samples (p2 section 5)."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from .. import tree
from ..core import check, supervised
from ..core.aliases import Array, ArrayLike, FloatArray, IntArray, Progress, Rng
from ..core.progress import check_progress, reporting
from . import checks
from .forest import grow

_SET_BY_SAMPLE = ("sample_weight",)  # of all samples, of which a trial grows on a part


class Trials(NamedTuple):
    """Settings that were tried, and the error of each on the held-out part."""

    nu: FloatArray
    """(n_trials,) float64."""
    lr: FloatArray
    """(n_trials,) float64; p2's eta."""
    max_features: IntArray
    """(n_trials,) int64; p2's q."""
    error: FloatArray
    """(n_trials,) float64: share of samples predicted wrongly, or mean squared error."""


_Setting = tuple[float, float, int]


def _values(name: str, given: Any) -> list[Any]:
    """The values of a setting to be tried."""
    one_axis = given.ndim == 1 if isinstance(given, np.ndarray) else isinstance(given, Sequence)
    if not one_axis or isinstance(given, str | bytes):
        raise TypeError(
            f"{name}: expected a sequence of values, got {type(given).__name__}; pass such as [{name}]"
        )
    return list(given)


def _grid(
    nu: Sequence[float], lr: Sequence[float], max_features: Sequence[Any] | None, n_features: int
) -> list[_Setting]:
    grid = [
        (check.number("nu", a, 0.0, open_low=True), check.number("lr", b, 0.0, open_low=True), n_candidates)
        for a in _values("nu", nu)
        for b in _values("lr", lr)
        for n_candidates in [
            checks.candidates(c, n_features)
            for c in ([checks.DEFAULT] if max_features is None else _values("max_features", max_features))
        ]
    ]
    if not grid:
        raise ValueError(
            "nu, lr, max_features: expected at least one setting, got none; pass such as nu=[10]"
        )
    return grid


def _fixed(settings: Mapping[str, object] | None) -> dict[str, Any]:
    """The further arguments of `grow`, which are neither set by `search` nor given for each sample."""
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(
            f"settings: expected None or a mapping, got {type(settings).__name__}; pass such as "
            '{"max_depth": 8}'
        )
    fixed = dict(settings or {})
    known = set(inspect.signature(grow).parameters) - set(inspect.signature(search).parameters)
    known.difference_update(_SET_BY_SAMPLE)
    for name in fixed:
        if name not in known:
            raise ValueError(
                f"settings: expected names of further arguments of grow, got {name!r}; choose from "
                + ", ".join(sorted(known))
            )
    return fixed


def search(
    x: ArrayLike,
    y: ArrayLike,
    n_trees: int = 30,
    *,
    nu: Sequence[float] = (0.1, 1.0, 4.0, 10.0, 43.0, 100.0),
    lr: Sequence[float] = (0.03, 0.01, 0.003),
    max_features: Sequence[int | float | str | None] | None = None,
    held_out: float = 0.2,
    settings: Mapping[str, object] | None = None,
    trials: Trials | None = None,
    task: str = "classification",
    n_classes: int | None = None,
    checkpoint: Callable[[Trials], object] | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> Trials:
    """Returns the errors of settings on a part of the samples that is held out of the forests.

    Parameters
    ----------
    x, y, n_trees, task, n_classes
        As `grow` takes them; NumPy arrays or what numpy.asarray takes.
    nu, lr : sequence of float
        Bounds on ``||w||**2`` and learning rates (p2's eta) to try; by default the paper's.
    max_features : sequence, optional
        Numbers of features sampled at a node (p2's q) to try, each as `grow` takes it; by default that of
        `grow` alone.
    held_out : float
        Share of the samples that is kept out of the forests, above 0 and below 1.
    settings : mapping of str, optional
        Further arguments of `grow`, the same in all trials, such as ``{"bootstrap": False}``.
    trials : Trials, optional
        What an earlier search with the same samples, settings and int as `rng` returned; these are not tried
        again.
    checkpoint : callable, optional
        Called as checkpoint(trials) after each trial.
    progress : callable or bool, optional
        Called as progress(done, n_trials) after each trial; False ends the search and returns the trials so
        far. True shows a bar.
    rng : None, int or numpy.random.Generator
        Where the seed of the held-out part and of every forest comes from.

    Returns
    -------
    Trials
        Those given, then the new ones in the order of nu, then lr, then max_features.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As from `grow`; no setting, or a share of which nothing is left; a `checkpoint` that cannot be called.

    Notes
    -----
    p2 section 5 holds out 20 %, and compares forests of 30 trees over a grid of nu and eta.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = x.sum(axis=1) > 0
    >>> trials = hforest.co2.search(x, y, 3, nu=[1, 10], lr=[0.1], rng=0)
    >>> trials.nu, len(trials.error)
    (array([ 1., 10.]), 2)
    """
    check_progress(progress)
    check.function("checkpoint", checkpoint, "trials")
    check.on_cpu(x=x, y=y)
    x = supervised.samples("x", x)
    found = supervised.target(y, len(x), task, n_classes, checks.MAX_MAGNITUDE)
    learned: Array = found.targets if found.labels is None else found.labels
    n_classes = None if found.labels is None else found.n_outputs
    n_held = int(check.number("held_out", held_out, 0.0, 1.0, open_low=True) * len(x))
    if not 0 < n_held < len(x):
        raise ValueError(
            f"held_out: expected a share that leaves samples on both sides, got {held_out} of {len(x)}; "
            "pass such as 0.2"
        )
    seed = check.repeatable_seed(rng)
    grid, fixed = _grid(nu, lr, max_features, x.shape[1]), _fixed(settings)
    rows = [] if trials is None else _tried(trials)
    tried = {row[:3] for row in rows}
    order = np.random.default_rng(seed).permutation(len(x))
    kept, held = np.sort(order[n_held:]), np.sort(order[:n_held])
    x_kept, y_kept, x_held, y_held = x[kept], learned[kept], x[held], learned[held]
    values: Any = nullcontext()
    with reporting(progress, len(grid), "trial") as report:
        for setting in grid:
            if setting in tried:
                continue
            with values, check.items_of("settings", fixed):
                forest = grow(
                    x_kept, y_kept, n_trees, nu=setting[0], lr=setting[1], max_features=setting[2], task=task,
                    n_classes=n_classes, rng=seed, **fixed,
                )  # fmt: skip
            rows.append((*setting, _error(tree.predict(forest, x_held), y_held, task)))
            values = check.unchecked()  # the first trial has checked all that the others share
            if checkpoint is not None:
                checkpoint(_trials(rows))
            if not report(sum(row[:3] in grid for row in rows)):
                break
    return _trials(rows)


def _tried(trials: Trials) -> list[tuple[Any, ...]]:
    """The rows of a caller's trials."""
    if not isinstance(trials, Trials):
        raise TypeError(
            f"trials: expected a Trials, got {type(trials).__name__}; pass what search returned or what "
            "checkpoint was called with"
        )
    sizes: check.Sizes = {}
    with check.fields_of("trials"):
        check.same_device(**trials._asdict())
        for name, a in trials._asdict().items():
            dtype = np.dtype(np.int64 if name == "max_features" else np.float64)
            check.array(name, a, dtype, ("n_trials",), sizes)
    return list(zip(*(a.tolist() for a in trials), strict=True))


def _error(p: FloatArray, y: FloatArray | IntArray, task: str) -> float:
    if task == "classification":
        return float((p.argmax(axis=1) != y).mean())
    return float(((p - y.astype(p.dtype)) ** 2).mean())


def _trials(rows: list[tuple[Any, ...]]) -> Trials:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    dtypes = (np.float64, np.float64, np.int64, np.float64)
    return Trials(*(np.array(a, dtype) for a, dtype in zip(columns, dtypes, strict=True)))
