"""Good values of the arguments of functions that grow, apply, store and compare forests."""

import functools
import os
import tempfile
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import hforest
from hforest import cascade, co2, demo, growth, hinge, project, tabular, tree

from .values import Setting, _Called, options, result_of, value

FOLDER = Path(tempfile.gettempdir()) / f"hforest-fuzz-{os.getpid()}"
"""Files of this process; made when first needed, removed by the runner."""


def folder() -> Path:
    FOLDER.mkdir(exist_ok=True)
    return FOLDER


# --------------------------------------------------------------------------------- learning in general

options("max_bins", None, 2, 256)


@value("categorical")
def _categorical(s: Setting) -> Any:
    x = s.argument("x")
    if not isinstance(x, np.ndarray) or not x.size or s.given("windows") is not None:
        return None
    first = x[:, 0][~np.isnan(x[:, 0])]
    fits = bool(((first >= 0) & (first == np.floor(first))).all())
    # No arrays: numbers in another dtype could be a mask.
    return s.choice((None, [0], (0,), ()) if fits else (None, ()))


@value("cascade.grow.x")
def _x_with_missing(s: Setting) -> np.ndarray:
    # Its first column can be categories.
    x = s.numbers(s.n, s.n_features)
    if s.n_features:
        x[:, 0] = s.random.integers(0, 40, s.n)
    if s.flag():
        x[s.random.random(x.shape) < 0.2] = np.nan
    return x


options("max_depth", None, 0, 2)
options("first_row", 0, 3)
options("min_samples_split", 2, 5)
options("min_samples_leaf", 1, 2)
options("min_impurity_decrease", 0.0, 0.1)
options("max_leaf_nodes", None, 2, 5)
options("min_weight_fraction_leaf", 0.0, 0.2)
options("co2.max_features", None, "n**0.6", "sqrt", 1, 0.5)


def _regression(s: Setting) -> bool:
    return s.given("task") == "regression" or s.given("loss") == "squared"


def _every_label(s: Setting) -> np.ndarray:
    labels = np.arange(s.n) % min(s.n_classes, s.n)
    return s.random.permutation(labels).astype(np.int64)


@value("learners.y", "hinge.fit_weights.y", "hinge.bayes_weights.y")
def _y(s: Setting) -> np.ndarray:
    if _regression(s):
        width = s.argument("theta0").shape[0] if "theta0" in s.target.parameters else s.choice((0, 1, 2))
        of_counts = s.target.name in _OF_COUNTS and s.argument("criterion") == "poisson"
        numbers = s.positive if of_counts else s.numbers
        return numbers(s.n, width) if width else numbers(s.n)
    return _every_label(s)


def _several(s: Setting) -> bool:
    """Whether samples have several labels."""
    return s.target.name in _OF_SEVERAL and not _regression(s) and s.argument("y").ndim == 2


_OF_COUNTS = ("growth.grow", "scale.grow_by_rows")
"""Functions whose targets are counts with criterion="poisson"."""

_OF_SEVERAL = ("growth.grow", "growth.grow_with_leaves", "scale.grow_by_rows", "tree.refit")
"""Functions that take several labels a sample."""


@value("growth.grow.y", "growth.grow_with_leaves.y", "scale.grow_by_rows.y")
def _one_or_several(s: Setting) -> np.ndarray:
    y = _y(s)
    if _regression(s) or getattr(s.argument("x"), "are_windows", False) or s.flag():
        return y
    return np.stack([y, y[::-1]], axis=1)


def _classes(s: Setting) -> Any:
    if _several(s) and s.flag():
        return [s.n_classes, s.n_classes + 1]
    return None if _regression(s) else s.n_classes + s.choice((0, 1))


value("learners.n_classes", "hinge.fit_weights.n_classes", "hinge.bayes_weights.n_classes")(_classes)
value("demo.n_classes")(lambda s: s.n_classes)
value("hinge.from_forest.y")(lambda s: s.choice((_y, lambda s: None))(s))


@value("sample_weight")
def _sample_weight(s: Setting) -> np.ndarray:
    whole = s.random.integers(0, 3, s.n).astype(np.float64)
    whole[:1] = 1
    return whole if s.flag() else whole * 0.37


value("cascade.sample_weight")(lambda s: s.positive(s.n))  # each class has samples for all folds


@value("class_weight")
def _class_weight(s: Setting) -> Any:
    if _regression(s):
        return None
    if _several(s):
        return s.choice((None, "balanced", "balanced_subsample", [None, {0: 2}]))
    n_classes = s.argument("n_classes") or len(np.unique(s.argument("y")))
    ones = dict.fromkeys(range(n_classes), 1.5)
    words = ("balanced", *["balanced_subsample"] * (s.target.name in _OF_SEVERAL))
    return s.choice((None, *words, ones, np.full(n_classes, 2.0)))


@value("criterion")
def _criterion(s: Setting) -> Any:
    names = (
        (None, "squared_error", "friedman_mse") if _regression(s) else ("gini", "entropy", "log_loss", None)
    )
    return s.choice((*names, "poisson") if s.target.name in _OF_COUNTS and _regression(s) else names)


@value("bootstrap")
def _bootstrap(s: Setting) -> Any:
    counts = growth.bootstrap_counts(s.n, s.n_trees, rng=0)
    return s.choice((True, False, "poisson", counts))


@value("max_samples")
def _max_samples(s: Setting) -> Any:
    return s.choice((None, 1, s.n + 2, 0.5, 1.5)) if s.argument("bootstrap") is True else None


@value("y_order")
def _y_order(s: Setting) -> Any:
    order = np.arange(s.n * s.n_trees).reshape(s.n_trees, s.n) * 3 % s.n
    return order if s.argument("class_weight") is None and s.flag() else None


@value("growth.samples.windows")
def _places(s: Setting) -> Any:
    x = s.argument("x")
    finite = isinstance(x, np.ndarray) and x.size and np.isfinite(x).all()
    return (np.arange(s.n) * s.n_features, np.arange(s.n_features)) if finite and s.flag() else None


def _windows(s: Setting) -> growth.Samples:
    x = s.numbers(s.n + 1, s.n_features)
    return hforest.samples(x, windows=(np.arange(s.n), np.arange(s.n_features)))


@value("growth.samples.x")
def _rows(s: Setting) -> Any:
    x = _x_with_missing(s)
    return scipy.sparse.csr_array(x) if s.choice((False, False, True)) else x


@value("growth.grow.x", "alternating.grow.x")
def _samples(s: Setting) -> Any:
    if s.n_features and not _regression(s) and s.choice((False, False, True)):
        return _windows(s)
    x = _rows(s)
    if s.argument("projections") is not None or s.flag():
        return x
    categorical = None if scipy.sparse.issparse(x) or not x.size or np.isnan(x[:, 0]).any() else [0]
    return hforest.samples(x, max_bins=s.choice((None, 4)), categorical=s.choice((None, categorical)))


@value("co2.grow.x")
def _rows_or_windows_of_stumps(s: Setting) -> Any:
    may = not _regression(s) and s.argument("splitter") == "co2" and s.n_features
    return _windows(s) if may and s.choice((False, False, True)) else s.numbers(s.n, s.n_features)


@value("tree.apply.x", "tree.predict.x", "tree.vote_shares.x")
def _rows_or_windows(s: Setting) -> Any:
    may = s.n and s.n_features
    return _windows(s) if may and s.choice((False, False, True)) else s.numbers(s.n, s.n_features)


@value("growth.max_features", "alternating.max_features")
def _max_features(s: Setting) -> Any:
    return "auto" if s.argument("projections") is not None else s.choice(("auto", "sqrt", None, 1, 0.5))


options("growth.splitter", "best", "random")


@value("monotonic_cst")
def _signs(s: Setting) -> Any:
    x, y = s.argument("x"), np.asarray(s.argument("y"))
    several = y.ndim == 2 or (not _regression(s) and (s.argument("n_classes") or len(np.unique(y))) > 2)
    refused = several or isinstance(x, growth.Samples) or s.argument("projections") is not None
    signs = s.random.integers(-1, 2, s.n_features)
    signs[s.given("categorical") or []] = 0
    return None if refused else s.choice((None, signs))


options("growth.n_draws", None, 1, 7)


@value("split.values")
def _candidates(s: Setting) -> np.ndarray:
    return s.numbers(s.n_features, s.n)


@value("split.counts")
def _counts(s: Setting) -> np.ndarray:
    squared = s.argument("criterion") == "squared_error"
    if not squared:
        return np.abs(s.numbers(s.n, s.n_classes))
    y = s.numbers(s.n, 4).astype(np.float64)
    return np.stack([np.full(s.n, 4.0), y.sum(1), (y**2).sum(1)], axis=1).astype(s.dtype)


options("split.impurity.criterion", "gini", "entropy", "squared_error")

# --------------------------------------------------------------------------------------- projections

options("patch_min", 1)
value("patch_max")(lambda s: s.choice((1, 2)))
options("single_share", 0.0, 0.5, 1.0)


@value("shape")
def _shape(s: Setting) -> Any:
    if s.target.package == "project":
        return s.choice(((3, 4), (2, 3, 4)) if s.argument("channels") else ((4,), (3, 4), (2, 3, 4)))
    return (s.n_features,)


# ------------------------------------------------------------------------------------- alternating


class Exponential:
    """The value (order 0) or the derivative (order 1) of a loss of margins, with a readable representation."""

    def __init__(self, order: int) -> None:
        self.order = order

    def __call__(self, margin: np.ndarray) -> np.ndarray:
        return (1 - 3 * self.order) * np.exp(-2 * margin)

    def __repr__(self) -> str:
        return f"Exponential({self.order})"


options("alternating.loss", "exponential", "logistic", (Exponential(0), Exponential(1)))
options("alternating.min_loss_decrease", None, 0.0, 0.1)
options("alternating.task", "classification")


# --------------------------------------------------------------------------------------------- co2

options("nu", 10.0, 0.5)
options("max_rounds", 2, 0)
options("co2.splitter", "co2", "oc1")
options("restarts", 0, 1)


class Squared:
    """The value (order 0) or the gradient (order 1) of a loss of labels, with a readable representation."""

    def __init__(self, order: int) -> None:
        self.order = order

    def __call__(self, theta: np.ndarray, y: np.ndarray) -> np.ndarray:
        if y.ndim != 1 or y.dtype.kind not in "biu" or not all(0 <= int(a) < 2**20 for a in y):
            raise ValueError("y: expected labels, got others; pass labels")
        gap = theta - y[:, None].astype(np.float64)
        return 2 * gap if self.order else (gap**2).sum(axis=1)

    def __repr__(self) -> str:
        return f"Squared({self.order})"


PAIR = Squared(0), Squared(1)
options("co2.surrogate.loss co2.surrogate_grad.loss", "log", "squared", PAIR)


options("co2.fit_stump.loss co2.refine.loss", None, PAIR)


@value("co2.fit_stump.task", "co2.refine.task")
def _task_of_stump(s: Setting) -> str:
    return s.choice(("classification", "regression")) if s.argument("loss") is None else "classification"


@value("co2.fit_stump.n_classes")
def _classes_of_stump(s: Setting) -> Any:
    return None if s.argument("loss") is not None else _classes(s)


@value("co2.fit_stump.theta")
def _start_of_stump(s: Setting) -> np.ndarray | None:
    return None if s.argument("loss") is None else s.numbers(2, s.n_classes)


def _for_refined(s: Setting, n: int) -> np.ndarray:
    """Labels of n samples, or two targets each."""
    return s.numbers(n, 2) if _regression(s) else s.indices(s.n_classes, n)


@value("co2.refine.forest")
def _unrefined(s: Setting) -> tree.Forest:
    settings: dict[str, Any] = {"task": s.argument("task"), "max_depth": s.choice((2, 0, 5)), "rng": 0}
    if not _regression(s):
        settings["n_classes"] = s.n_classes
    if s.flag():
        settings["projections"] = project.sparse_distribution(s.n_features)
    return hforest.grow(s.numbers(9, s.n_features), _for_refined(s, 9), s.n_trees, **settings)


value("co2.refine.y")(lambda s: _for_refined(s, s.n))
value("co2.refine.validation")(lambda s: s.choice((None, (s.numbers(4, s.n_features), _for_refined(s, 4)))))
options("jumps", 1, 0)
options("min_samples_oblique", 1, 3)
options("held_out", None, 0.3, 0.5)
options("settings", None, {"max_depth": 2, "max_rounds": 1})
options("co2.search.nu", [10.0], [1.0, 2.0])
options("co2.search.lr", [0.1], (0.1, 0.01))
options("co2.search.max_features", None, [1])
value("w")(lambda s: s.numbers(s.n_features))
value("theta0", "theta1")(lambda s: s.numbers(s.n_classes))


@value("trials")
def _trials(s: Setting) -> Any:
    return s.choice((lambda s: None, lambda s: result_of(s, "trials", progress=_stop)))(s)


def _stop(done: int, total: int) -> bool:
    return False


@value("stump")
def _stump(s: Setting) -> co2.StumpSettings:
    return co2.StumpSettings(batch_size=s.choice((2, 100)), min_steps=s.choice((1, 20)))


# -------------------------------------------------------------------------------------------- tree


def _with_defaults(s: Setting, forest: tree.Forest) -> tree.Forest:
    """The forest as it is, or with directions of missing values, or with categories, where they are known."""
    plain = s.target.package in ("hinge", "neural")
    kind = "plain" if plain else s.choice(("plain", "missing", "categories"))
    if s.target.last == "to_dict" and kind == "categories":
        kind = "missing"
    if kind == "plain":
        return forest
    is_split = forest.feature != -1
    default_left = np.where(is_split, s.random.integers(0, 4, len(is_split)), 0).astype(np.uint8)
    forest = forest._replace(default_left=default_left)
    if kind == "missing":
        return forest
    n_words = np.where(forest.feature >= 0, s.random.integers(0, 3, len(is_split)), 0)
    indptr = np.concatenate([[0], np.cumsum(n_words)]).astype(np.int64)
    bits = s.random.integers(0, 2**32, int(indptr[-1]), np.uint32)
    threshold = np.where(n_words > 0, 0, forest.threshold).astype(forest.threshold.dtype)
    return forest._replace(category_indptr=indptr, category_bits=bits, threshold=threshold)


@value("forest")
def _forest(s: Setting) -> Any:
    return _with_defaults(s, _plain_forest(s))


@value(
    "tree.apply.forest",
    "tree.predict.forest",
    "tree.vote_shares.forest",
    "tree.path.forest",
    "tree.prepare.forest",
)
def _prepared_or_not(s: Setting) -> Any:
    forest = _forest(s)
    return tree.prepare(forest) if s.choice((False, False, True)) else forest


def _plain_forest(s: Setting) -> tree.Forest:
    n = max(s.n, 4)
    x = s.numbers(n, s.n_features)
    kind = s.choice(("classes", "projections", "regression"))
    if s.target.last == "vote_shares" and kind == "regression":
        kind = "classes"
    if s.target.last == "to_dict" and kind == "projections":
        kind = "regression"
    if s.target.last in ("permutation_importance", "out_of_bag"):
        kind = "regression" if _regression(s) else "classes"
    if s.target.package == "hinge":
        columns = "regression" if _regression(s) else "classes"
        kind = s.choice(("projections", columns)) if s.argument("kernel") else columns
    y = np.arange(n) % s.n_classes
    if kind == "projections":
        settings: Any = {
            "projections": project.sparse_distribution(s.n_features),
            "n_projections": 2,
            "max_depth": 4,
        }
        return hforest.grow(x, y, s.n_trees, n_classes=s.n_classes, rng=0, **settings)
    if kind == "regression":
        return hforest.grow(x, s.numbers(n, 2), s.n_trees, task="regression", max_depth=3, rng=0)
    return hforest.grow(x, y, s.n_trees, max_depth=s.choice((4, 0)), n_classes=s.n_classes, rng=0)


value("tree")(lambda s: s.integer(0, s.n_trees - 1))
options("by", "count", "gain")
options("n_repeats", 1, 2)
value("feature_names")(lambda s: [f"column {i}" for i in range(s.n_features)])
for _function in ("out_of_bag", "prune", "pruning_alphas"):
    value(f"tree.{_function}.counts")(lambda s: growth.bootstrap_counts(s.n, s.n_trees, rng=0))
options("tree.prune.ccp_alpha", 0.0, 0.01, 1.0)
options("coverage", 0.9, 0.5, 1.0)
options("method", "inverted_cdf", "linear")
options("min_share", 0.0, 0.3, 1.0)
options("max_neighbors", None, 1, 3)
value("other")(lambda s: s.numbers(s.choice((1, 0, 4)), s.n_features))
value("levels")(lambda s: s.choice((np.array([0.5, 0.1]), np.array([0.0, 1.0, 0.25]), np.zeros(0))))
for _name in ("leaf_targets", "to_dict", "leaf_counts", "refit"):
    value(f"tree.{_name}.x")(lambda s: s.numbers(max(s.n, 1), s.n_features))
    value(f"tree.{_name}.sample_weight")(lambda s: s.positive(len(s.argument("x"))))
    value(f"tree.{_name}.counts")(lambda s: growth.bootstrap_counts(len(s.argument("x")), s.n_trees, rng=0))


@value("tree.shap_values.background")
def _background(s: Setting) -> np.ndarray | None:
    oblique = s.argument("forest").indptr.size > 0
    return s.numbers(4, s.n_features) if oblique or s.flag() else None


@value("tree.shap_values.cover")
def _cover(s: Setting) -> np.ndarray | None:
    return s.numbers(4, s.n_features) if s.argument("background") is None else None


value("tree.shap_values.sample_weight")(lambda s: s.positive(4))
options("tree.shap_values.counts", None)
value("tree.quantiles.counts")(lambda s: growth.bootstrap_counts(s.n, s.n_trees, rng=0))


@value("tree.leaf_targets.y")
def _leaf_targets_of(s: Setting) -> np.ndarray:
    return s.numbers(len(s.argument("x")), *s.choice(((), (2,))))


@value("tree.leaf_counts.y", "tree.refit.y")
def _labels_or_targets(s: Setting) -> np.ndarray:
    n = len(s.argument("x"))
    if _regression(s):
        return s.numbers(n, *s.choice(((), (2,))))
    y = s.random.permutation(np.arange(n) % min(s.n_classes, n)).astype(np.int64)
    return np.stack([y, y[::-1]], axis=1) if s.target.name in _OF_SEVERAL and s.flag() else y


value("tree.leaf_counts.n_classes", "tree.refit.n_classes")(_classes)
value("empty")(
    lambda s: s.choice(("prune", "prior") if _regression(s) else ("prune", "abstain", "uniform", "prior"))
)
value("tree.refit.sample_weight")(lambda s: s.positive(len(s.argument("x"))))


@value("tree.quantiles.targets")
def _targets(s: Setting) -> tree.LeafTargets:
    x = s.numbers(7, s.n_features)
    forest = s.argument("forest")
    counts = growth.bootstrap_counts(7, s.n_trees, rng=0) if s.flag() else None
    return tree.leaf_targets(forest, x, s.numbers(7, 2), counts=counts)


@value("tree.prediction_intervals.errors")
def _errors(s: Setting) -> np.ndarray:
    errors = s.numbers(6, s.argument("forest").value.shape[1])
    errors[0] = s.choice((0.0, np.nan))
    return errors


value("tree.path.x")(lambda s: s.numbers(s.n_features))
options("tree.permutation_importance.columns", None, 0, [0], [[0], range(1)])
value("tree.permutation_importance.x")(lambda s: s.numbers(max(s.n, 1), s.n_features))


@value("tree.permutation_importance.y")
def _y_of_forest(s: Setting) -> np.ndarray:
    x = s.argument("x")
    return s.numbers(len(x), 2) if _regression(s) else s.indices(s.n_classes, len(x), dtype=np.int64)


@value("tree.from_sklearn.model")
def _model_of_sklearn(s: Setting) -> Any:
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError:
        return s.choice((_NoModel(),))
    n = max(s.n, 4)
    x, y = s.numbers(n, s.n_features), np.arange(n) % s.n_classes
    return RandomForestClassifier(n_estimators=2, max_depth=3, random_state=0).fit(x, y)


class _NoModel:
    """Stands for a model where scikit-learn is not installed."""


# ----------------------------------------------------------------------------------------- cascade

options("class_vectors", "out_of_fold", "out_of_bag")
options("n_folds", 2, 3)
options("patience", 1, 2)
options("max_levels", 1, 2)
options("max_windows", None, 5)
options("window", 1)
options("cascade.stride", 1)


@value("tree.join.forests")
def _forests_to_join(s: Setting) -> list[tree.Forest]:
    forest = _forest(s)
    return [forest] * s.choice((2, 1, 3))


@value("forests")
def _forests(s: Setting) -> Any:
    return [functools.partial(hforest.grow, n_trees=2, max_depth=2)]


@value("resume")
def _resume(s: Setting) -> Any:
    seen: list[Any] = []
    if s.flag():
        result_of(s, "resume", checkpoint=seen.append)
    return seen[0] if seen else None


value("cascade.grow.forests", "cascade.grow_scanner.forests")(_forests)


@functools.cache
def _grown(n_classes: int, n_features: int, dtype: np.dtype) -> cascade.Cascade:
    x = np.arange(4 * n_classes * n_features).reshape(-1, n_features).astype(dtype)
    forests = [functools.partial(hforest.grow, n_trees=2, max_depth=2)]
    return cascade.grow(x, np.arange(len(x)) % n_classes, forests, n_folds=2, max_levels=2, rng=0)


@functools.cache
def _scanner(n_classes: int, n_features: int, dtype: np.dtype) -> cascade.Scanner:
    x = np.arange(4 * n_classes * n_features).reshape(-1, n_features).astype(dtype)
    forests = [functools.partial(hforest.grow, n_trees=2, max_depth=2)]
    y = np.arange(len(x)) % n_classes
    return cascade.grow_scanner(x, y, (n_features,), 1, forests, n_folds=2, rng=0)[0]


value("cascade.predict.cascade")(lambda s: _grown(s.n_classes, s.n_features, s.dtype))
value("scanner")(lambda s: _scanner(s.n_classes, s.n_features, s.dtype))
value("grown")(lambda s: s.choice((_grown, _scanner))(s.n_classes, s.n_features, s.dtype))

# ------------------------------------------------------------------------------------------- scale


class _AtOnce(Executor):
    """An executor that runs a task when it is submitted."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        try:
            return future
        finally:
            del future  # else its error would refer to it


options("scale.executor", _AtOnce())


@value("scale.grow")
def _grower(s: Setting) -> Any:
    sparse: Any = {"projections": project.sparse_distribution(s.n_features), "n_projections": 2}
    random: Any = {"splitter": "random", "max_features": 1, "bootstrap": False}
    settings = s.choice(({}, {"max_depth": 2}, {"min_samples_leaf": 2, "bootstrap": True}, sparse, random))
    return functools.partial(hforest.grow, **settings) if settings else hforest.grow


options("scale.n_tasks", None, 1, 2, 100)
options("scale.retries", 0, 3)
options("scale.comm", None)
options("scale.n_chunks", None, 1)
options("scale.max_gathered", None, 0, 3)
options("scale.max_bins", 256, 2, 1)
options("scale.max_features", "auto")
options("scale.grow_by_rows.bootstrap", "poisson", False)
value("scale.grow_by_rows.sample_weight")(lambda s: np.arange(s.n, dtype=s.dtype) % 3 + 1)
value("scale.grow_by_rows.categorical")(
    lambda s: None if s.argument("projections") is not None else _categorical(s)
)
value("scale.x")(_x_with_missing)


@value("scale.shards")
def _shards(s: Setting) -> list[list[Any]]:
    n_outputs = s.integer(1, 3)

    def part() -> list[Any]:
        rows = np.flatnonzero(s.random.random(s.n + 5) < 0.5).astype(np.int64)
        return [hinge.RowGradient(rows, s.numbers(len(rows), n_outputs)), s.numbers(s.n_features)]

    return [part() for _ in range(s.integer(1, 3))]


# -------------------------------------------------------------------------------------------- demo

options("demo.kind", "tree", "fern")
options("demo.Config.n_kernels", 0, 2)
options("demo.Config.optimizer", "adam", "adagrad")


@value("demo.Config.leaves")
def _leaves(s: Setting) -> str:
    return s.choice(("vector", "scalar")) if s.argument("optimizer") == "adagrad" else "vector"


value("demo.Config.output_bias")(lambda s: s.argument("leaves") == "scalar" and s.flag())
options("demo.Config.shuffle", "epochs", "once")
options("demo.Config.task", "classification", "regression")
options("demo.Config.steps demo.Config.eval_every", 2, 1, 3)
options("demo.Config.lr_half_life", 0, 2)
options("demo.Config.seed", 0, 5)
value("n_inputs")(lambda s: s.n_features)
value("n_selected")(lambda s: s.integer(1, s.n_features))
options("n_train", 3, 4)


@value("config")
def _config(s: Setting) -> demo.Config:
    return demo.Config(
        kind=s.choice(("tree", "fern")), n_trees=s.n_trees, depth=s.depth, n_features=3, batch_size=2, steps=3,
        eval_every=2, **s.choice(({}, {"optimizer": "adagrad"}, {"optimizer": "adagrad", "leaves": "scalar"})),
    )  # fmt: skip


@value("demo.state")
def _state(s: Setting) -> dict[str, Any]:
    return demo.start(s.argument("config"), s.n_features, s.n_classes, dtype=s.dtype)


value("x_train", "x_test")(lambda s: s.numbers(s.n, s.n_features))
value("y_train", "y_test")(lambda s: s.indices(s.n_classes, s.n, dtype=np.int64))
value("demo.step.y", "demo.error_rate.y")(lambda s: s.indices(s.n_classes, s.n, dtype=np.int64))
value("demo.checkpoint")(lambda s: _Called())


def _data(s: Setting, least: int = 0) -> demo.Data:
    n, classes = max(s.n, least), np.arange(s.n_classes)
    x, y = s.numbers(n, s.n_features), (np.arange(n) % s.n_classes).astype(np.int32)
    return demo.Data(x, y, x[:1].copy(), y[:1].copy(), classes)


value("demo.save_checkpoint.data")(_data)
value("demo.hold_out.data")(lambda s: _data(s, 2))
options("demo.hold_out.n_rows", 1)


# ----------------------------------------------------------------------------------------- tabular

options("tabular.scaling", "auto", "deviations", "normal")
options("n_members", 1, 2)
options("tabular.n_projections", 3, 0)
options("tabular.steps", 2, 0, 25)
options("average", True, False)
options("share", None, 0.5, 0.0)


@value("tabular.validation")
def _validation(s: Setting) -> Any:
    x, y = s.argument("x"), s.argument("y")
    return s.choice((0.15, 0.0, 0.5, (x[:1].copy(), y[:1].copy())))


@functools.cache
def _fitted(task: str, n_classes: int, n_features: int, dtype: np.dtype, gaps: bool) -> tabular.Model:
    x = np.exp(np.arange(4.0 * n_classes * n_features).reshape(-1, n_features) / 9).astype(dtype)
    y = np.arange(len(x)) % n_classes
    settings: Any = {"scaling": "normal"}
    if gaps:
        x[:, -1] = np.arange(len(x)) % 3
        x[::3, 0] = np.nan
        settings = {"categorical": [n_features - 1]}
    return tabular.fit(x, y, task=task, n_trees=2, depth=2, n_projections=2, steps=3, rng=0, **settings)


@value("tabular.model")
def _model_of_table(s: Setting) -> tabular.Model:
    task = s.choice(("classification", "regression"))
    return _fitted(task, s.n_classes, s.n_features, s.dtype, s.flag())


@value("tabular.predict.model", "tabular.prepare.model")
def _model_of_table_or_prepared(s: Setting) -> tabular.Model | tabular.Prepared:
    model = _model_of_table(s)
    return tabular.prepare(model) if s.flag() else model


@functools.cache
def _of_targets(n_features: int, dtype: np.dtype) -> tabular.Model:
    x = np.random.default_rng(0).normal(size=(80, n_features)).astype(dtype)
    return tabular.fit(x, x[:, 0], task="regression", n_trees=2, depth=2, n_projections=2, steps=3, rng=0)


@value("tabular.predict_interval.model")
def _model_of_targets(s: Setting) -> tabular.Model | tabular.Prepared:
    model = _of_targets(s.n_features, s.dtype)
    return tabular.prepare(model) if s.flag() else model


options("tabular.predict_interval.coverage", 0.5, 0.9)
options("tabular.to_c.name", "model", "a_1")


@value("tabular.partial_fit.y", "tabular.importance.y", "tabular.report.y")
def _more_of_table(s: Setting) -> np.ndarray:
    model, n = s.argument("model"), len(s.argument("x"))
    if model.task == "regression":
        return s.numbers(n)
    return s.indices(len(model.target_center), n)


for _name in ("importance.x", "report.x", "shap_values.x", "shap_values.background"):
    value(f"tabular.{_name}")(lambda s: s.numbers(max(s.n, 1), s.n_features))
options("tabular.shap_values.n_permutations", 1, 2)
options("tabular.importance.score", None, lambda y, p, sample_weight=None: float(len(y)))


@value("tabular.partial_fit.state")
def _state_of_table(s: Setting) -> tabular.TrainingState | None:
    model, n_features = s.argument("model"), s.argument("x").shape[1]
    return None if s.flag() else tabular.partial_fit(model, np.zeros((1, n_features)), [0])[1]


# ------------------------------------------------------------------------------------------- files


@value("file", "path")
def _new_file(s: Setting) -> Path:
    return folder() / "new"


@value("cascade.load.file")
def _cascade_file(s: Setting) -> Path:
    path = folder() / "cascade"
    cascade.save(path, s.choice((_grown, _scanner))(s.n_classes, s.n_features, s.dtype))
    return path


@value("tree.load.file")
def _forest_file(s: Setting) -> Path:
    path = folder() / "forest"
    tree.save(path, _forest(s))
    return path


@value("tabular.load.file")
def _table_file(s: Setting) -> Path:
    path = folder() / "table"
    tabular.save(path, _model_of_table(s))
    return path


@value("demo.load_data.path")
def _data_file(s: Setting) -> Path:
    path = folder() / "data.npz"
    n = max(s.n, 5)
    np.savez(path, x=s.numbers(n, s.n_features).astype(np.float32), y=np.zeros(n, int))
    return path


@value("demo.load_checkpoint.path")
def _checkpoint_file(s: Setting) -> Path:
    path = folder() / "model.npz"
    config = _config(s)
    demo.save_checkpoint(path, config, demo.start(config, s.n_features, s.n_classes, dtype=s.dtype), _data(s))
    return path
