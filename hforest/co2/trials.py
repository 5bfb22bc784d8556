"""Search for settings, by out-of-bag errors or on held-out samples (Norouzi et al. 2015,
section 5, hold out a fifth of the training samples; out-of-bag errors are those of Breiman 2001).
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import tree
from ..core import check, supervised
from ..core.aliases import Array, ArrayLike, CO2Features, FloatArray, IntArray, Progress, Rng, Task
from ..core.progress import check_progress, reporting
from ..growth import bootstrap_counts
from ..tree import Forest
from ..tree.estimates import out_of_bag_values
from . import checks
from .forest import grow

_SET_BY_SAMPLE = ("sample_weight",)  # with an entry per sample, of which a trial takes a part


class Trials(NamedTuple):
    """Settings of trials, and the out-of-bag or held-out error of each."""

    nu: FloatArray
    """(n_trials,) float64."""
    lr: FloatArray
    """(n_trials,) float64; eta in Norouzi et al. 2015."""
    max_features: IntArray
    """(n_trials,) int64; q in Norouzi et al. 2015."""
    error: FloatArray
    """(n_trials,) float64: share of wrong labels, or mean squared error."""


_Setting = tuple[float, float, int]


def _values(name: str, values: Any) -> list[Any]:
    """Returns the values of a setting to try."""
    one_axis = values.ndim == 1 if isinstance(values, np.ndarray) else isinstance(values, Sequence)
    if not one_axis or isinstance(values, str | bytes):
        raise TypeError(
            f"{name}: expected a sequence of values, got {type(values).__name__}; pass a list such as "
            f"[{name}]"
        )
    return list(values)


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
            "nu, lr, max_features: expected at least one setting, got none; pass, for example, nu=[10]"
        )
    return grid


def _fixed(settings: Mapping[str, object] | None) -> dict[str, Any]:
    """Returns further arguments of `grow`: neither those that `search` sets nor arrays over samples."""
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(
            f"settings: expected None or a mapping, got {type(settings).__name__}; pass a dict such as "
            '{"max_depth": 8}'
        )
    fixed = dict(settings or {})
    known = set(inspect.signature(grow).parameters) - set(inspect.signature(search).parameters)
    known.difference_update(_SET_BY_SAMPLE)
    for name in fixed:
        if name not in known:
            raise ValueError(
                f"settings: expected names of other arguments of grow, got {name!r}; choose from "
                + ", ".join(sorted(known))
            )
    return fixed


class _Part(NamedTuple):
    """Training and validation samples of the forests."""

    training: IntArray | None
    """Numbers of the training samples; None: all."""
    validation: IntArray
    """Numbers of the validation samples."""
    counts: IntArray | None
    """(n_trees, n_samples) in-bag counts, or None if validation samples are held out."""

    @property
    def settings(self) -> dict[str, Any]:
        return {} if self.counts is None else {"bootstrap": self.counts}

    def error(self, forest: Forest, x: FloatArray, y: Array, task: Task) -> float:
        if self.counts is None:
            p = tree.predict(forest, x[self.validation])
        else:
            p = out_of_bag_values(forest, tree.apply(forest, x), self.counts)[self.validation]
        return _error(p, y[self.validation], task)


def _held_out(n: int, share: float, seed: int) -> _Part:
    n_held = int(check.number("held_out", share, 0.0, 1.0, open_low=True) * n)
    if not 0 < n_held < n:
        raise ValueError(
            f"held_out: expected a share that leaves samples on both sides, got {share} of {n}; pass a "
            "share such as "
            "0.2"
        )
    order = np.random.default_rng(seed).permutation(n)
    return _Part(np.sort(order[n_held:]), np.sort(order[:n_held]), None)


def _bootstraps(n: int, n_trees: int, fixed: Mapping[str, Any], seed: int) -> _Part:
    if "bootstrap" in fixed:
        raise ValueError(
            "settings['bootstrap']: expected no value without held_out, since out-of-bag errors need "
            f"bootstrap samples, got {type(fixed['bootstrap']).__name__}; pass held_out=0.2"
        )
    counts = bootstrap_counts(n, check.integer("n_trees", n_trees, 1, check.MAX_TREES), rng=seed)
    judges = np.flatnonzero((counts == 0).any(axis=0))
    if not len(judges):
        raise ValueError(
            f"n_trees: expected enough trees that at least one sample is out-of-bag, got {n_trees} that "
            f"draw all {n}; pass a larger n_trees, or held_out=0.2"
        )
    return _Part(None, judges, counts)


def search(
    x: ArrayLike,
    y: ArrayLike,
    n_trees: int = 30,
    *,
    nu: Sequence[float] = (0.1, 1.0, 4.0, 10.0, 43.0, 100.0),
    lr: Sequence[float] = (0.03, 0.01, 0.003),
    max_features: Sequence[CO2Features] | None = None,
    held_out: float | None = None,
    settings: Mapping[str, object] | None = None,
    trials: Trials | None = None,
    task: Task = "classification",
    n_classes: int | None = None,
    checkpoint: Callable[[Trials], object] | None = None,
    progress: Progress = None,
    rng: Rng = None,
) -> Trials:
    """Returns errors of forests with different settings, out-of-bag or on held-out samples.

    Other parameters: see `grow`.

    Parameters
    ----------
    nu, lr : sequence of float
        Bounds on ``||w||**2`` and learning rates (eta in Norouzi et al. 2015) to try; by default the paper's.
    max_features : sequence, optional
        Numbers of features sampled at a node (q in Norouzi et al. 2015) to try, each as `grow` takes it; by
        default that of `grow` alone.
    held_out : float, optional
        Share of the samples that is held out to measure errors, above 0 and below 1. By default forests grow
        on bootstraps of all samples, the same for all forests, and each sample is predicted by the trees that
        did not draw it (the out-of-bag estimate of Breiman 2001).
    settings : mapping of str, optional
        Further arguments of `grow`, the same in all trials, such as ``{"max_depth": 8}``; `bootstrap` only
        with `held_out`.
    trials : Trials, optional
        Result of an earlier search with the same samples, settings and int as `rng`; its settings are not
        tried again.
    checkpoint : callable, optional
        Called as checkpoint(trials) after each trial.

    Returns
    -------
    Trials
        Those of the argument, then new ones in the order of nu, then lr, then max_features.

    Raises
    ------
    ValueError
        Only samples that every tree drew.

    Notes
    -----
    Norouzi et al. 2015, section 5, hold out 20 % (``held_out=0.2``), and compare forests of 30 trees over a
    grid of nu and eta. Out-of-bag errors are of all samples, so they differ less from one split to another.

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
    target = supervised.target(y, len(x), task, n_classes, checks.MAX_MAGNITUDE)
    n_classes = None if target.labels is None else target.n_outputs
    seed = check.repeatable_seed(rng)
    grid, fixed = _grid(nu, lr, max_features, x.shape[1]), _fixed(settings)
    rows = [] if trials is None else _tried(trials)
    tried = {row[:3] for row in rows}
    part = (
        _bootstraps(len(x), n_trees, fixed, seed) if held_out is None else _held_out(len(x), held_out, seed)
    )
    x_grow, y_grow = (x, target.y) if part.training is None else (x[part.training], target.y[part.training])
    with reporting(progress, len(grid), "trial") as report:
        for setting in grid:
            if setting in tried:
                continue
            with check.items_of("settings", fixed):
                forest = grow(
                    x_grow, y_grow, n_trees, nu=setting[0], lr=setting[1], max_features=setting[2], task=task,
                    n_classes=n_classes, rng=seed, **fixed, **part.settings,
                )  # fmt: skip
            rows.append((*setting, part.error(forest, x, target.y, task)))
            if checkpoint is not None:
                checkpoint(_trials(rows))
            if not report(sum(row[:3] in grid for row in rows)):
                break
    return _trials(rows)


def _tried(trials: Trials) -> list[tuple[Any, ...]]:
    """Returns the rows of a caller's trials."""
    check.instance(
        "trials",
        trials,
        Trials,
        "a Trials",
        "pass the value that search returned or that checkpoint received",
    )
    sizes: check.Sizes = {}
    with check.fields_of("trials"):
        check.same_device(**trials._asdict())
        for name, a in trials._asdict().items():
            dtype = np.dtype(np.int64 if name == "max_features" else np.float64)
            check.array(name, a, dtype, ("n_trials",), sizes)
    return list(zip(*(a.tolist() for a in trials), strict=True))


def _error(p: FloatArray, y: FloatArray | IntArray, task: Task) -> float:
    if task == "classification":
        return float((p.argmax(axis=1) != y).mean())
    return float(((p - y.astype(p.dtype)) ** 2).mean())


def _trials(rows: list[tuple[Any, ...]]) -> Trials:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    dtypes = (np.float64, np.float64, np.int64, np.float64)
    return Trials(*(np.array(a, dtype) for a, dtype in zip(columns, dtypes, strict=True)))
