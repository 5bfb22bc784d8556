"""`fit`: a model of a table from its raw columns."""

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import numpy as np

from ..core import check, class_factors, supervised
from ..core.aliases import ArrayLike, ClassWeight, FloatArray, IntArray, Progress, Rng, Scaled, Task
from ..core.keywords import answered
from ..core.progress import Report, check_progress, reporting, unheard
from ..core.threads import get_num_threads, one_blas_thread, set_num_threads
from .columns import converted, learned, stacked, warn
from .encoding import columns as encoded_columns
from .encoding import fit_encoding, without_categories
from .intervals import held_out_errors
from .kinds import Columns, check_columns
from .model import Mean, Member, Model
from .recipe import Rows, Settings
from .scaling import KINDS, measure, transformed
from .tables import is_table
from .targets import class_weight_of, known_places, labels
from .training import member_of

MAX_LEAVES = 2**24
BATCH_SIZE = 128
LEARNING_RATE = 0.012
DEPTH = {"classification": 6, "regression": 4}
PASSES, MIN_STEPS, MAX_STEPS = 15, 400, 1500
SIDE_BY_SIDE = 20000
"""Maximum number of rows for which members are fitted at the same time. Forests of more rows keep all threads
busy, and can be interrupted while they grow."""
SECONDS = 0.05
"""Seconds between two reports of the progress of members that are fitted at the same time."""
MIN_HELD_OUT = 8
"""Minimum number of held-out rows; fewer rows are not used."""


def default_steps(n_samples: int, batch_size: int) -> int:
    """Returns the default maximum of steps: a fixed number of passes over the rows, within bounds."""
    return int(min(MAX_STEPS, max(MIN_STEPS, PASSES * n_samples // batch_size)))


class _Targets:
    """Labels, or standardised targets."""

    def __init__(self, target: supervised.Target) -> None:
        self.center, self.scale = np.zeros(target.n_outputs), np.ones(target.n_outputs)
        if target.targets is not None:
            y = target.targets
            unit = np.maximum(abs(y).max(axis=0), np.finfo(float).tiny)
            deviation = (y / unit).std(axis=0) * unit
            varies = (y.min(axis=0) < y.max(axis=0)) & (deviation > 0)
            self.center = np.where(varies, (y / unit).mean(axis=0) * unit, y[0])
            self.scale = np.where(varies, deviation, 1.0)

    def __call__(self, target: supervised.Target) -> Any:
        if target.targets is None:
            return target.labels
        return np.ascontiguousarray((target.targets - self.center) / self.scale, np.float32)


def _numbers_of(
    x: ArrayLike, categorical: Any, known: Columns | None
) -> tuple[ArrayLike, Columns | None, Any]:
    """Returns the numbers of a table, its columns, and the categorical ones; an array stays as it is."""
    if known is not None:
        check_columns("columns", known)
        remedy = "name them in the call of tabular.columns"
        check.require(categorical is None, "categorical", "None with columns", "categorical columns", remedy)
        of_table, numbers = known, converted("x", known, x)
    elif not is_table(x):
        return x, None, categorical
    else:
        of_table, features, faults = learned("x", x, "from_dtype" if categorical is None else categorical)
        numbers = stacked(features, len(features[0]) if features else 0)
        warn(faults)
    check.require(
        numbers.shape[1], "x", "a column of different values", "columns of one value each", "pass more rows"
    )
    mask = of_table.categorical
    return numbers, of_table, mask if mask.any() else None


def _validation_rows(
    validation: object, n_features: int, classes: Any, n_outputs: int, of_table: Columns | None
) -> tuple[FloatArray, supervised.Target]:
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise TypeError(
            f"validation: expected a share of the rows or a pair (x, y), got {type(validation).__name__}; "
            "pass a share such as 0.15, or a tuple of samples and targets"
        )
    check.on_cpu(**{"validation[0]": validation[0], "validation[1]": validation[1]})
    table = validation[0] if of_table is None else converted("validation[0]", of_table, validation[0])
    x, _ = supervised.samples_or_missing("validation[0]", table)
    if x.shape[1] != n_features:
        raise ValueError(
            f"validation[0]: expected the {n_features} columns of x, got {x.shape[1]}; pass the same columns"
        )
    if classes is not None:
        places = known_places("validation[1]", classes, validation[1])
        places, _ = supervised.labels("validation[1]", places, len(x), n_outputs)
        return x, supervised.Target(places, None, n_outputs)
    targets = supervised.targets("validation[1]", validation[1], len(x))
    if targets.shape[1] != n_outputs:
        raise ValueError(
            f"validation[1]: expected the {n_outputs} targets of y, got {targets.shape[1]}; pass as many "
            "targets"
        )
    return x, supervised.Target(None, targets, n_outputs)


def _parts(n: int, n_members: int, share: float, rng: np.random.Generator) -> list[IntArray]:
    """Returns the held-out rows of each member: disjoint as far as possible, none if they are too few."""
    size = int(share * n)
    if size < MIN_HELD_OUT:
        return [np.zeros(0, np.int64)] * n_members
    order = rng.permutation(n)
    n_parts = n // size
    return [np.sort(order[size * (i % n_parts) :][:size]) for i in range(n_members)]


@answered
@one_blas_thread()
def fit(
    x: ArrayLike,
    y: ArrayLike,
    *,
    task: Task = "classification",
    n_classes: int | None = None,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    categorical: ArrayLike | None = None,
    columns: Columns | None = None,
    scaling: Scaled = "auto",
    n_members: int = 3,
    n_trees: int = 50,
    depth: int | None = None,
    n_projections: int = 300,
    n_boosted: int = 300,
    steps: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    average: bool = True,
    share: float | None = None,
    validation: float | tuple[ArrayLike, ArrayLike] = 0.15,
    progress: Progress = None,
    rng: Rng = None,
) -> Model:
    """Returns a model of a table: a forest, hinge trees that start from it, and boosted trees.

    Parameters
    ----------
    x : (n_samples, n_features) array_like of real numbers, or a table
        Samples, at least one, finite or NaN for missing values, in any units: columns are scaled. A data
        frame, structured array or mapping is read by `columns`; `predict` then takes tables with the same
        columns.
    y : (n_samples,) array_like of labels, or (n_samples,) or (n_samples, n_outputs) array_like of targets
        Labels of one kind (see `labels`): text, booleans or numbers, which ``Model.classes`` holds in
        ascending order; or targets of any real dtype in a regression.
    n_classes : int, optional
        Number of classes if some do not occur; labels are then integers from 0 to n_classes - 1.
    sample_weight : (n_samples,) array_like, optional
        Weights of the samples, at least 0, not all 0. A sample of weight 0 has no influence.
    categorical : (n_features,) array_like of bools, or array_like of feature numbers, optional
        Categorical columns, which hold integers from 0 to 65535, or NaN. Their order is not used; leave
        ordered categories as numbers. For a table: names of categorical columns besides those of text and of
        categorical dtypes.
    columns : Columns, optional
        Result of `tabular.columns` for x, in place of `categorical`: how the columns of a table are read.
    scaling : "auto", "deviations" or "normal"
        Scaling of the columns. "deviations": standard deviations from the mean; "normal": normal quantiles of
        the ranks; "auto": "normal" for columns with long tails (kurtosis above 12), else "deviations".
    n_members : int
        Number of models whose predictions are averaged. Each holds out different rows. With at most 20 000
        rows members are fitted in parallel, one per thread (`set_num_threads`).
    n_trees : int
        Trees of a member.
    depth : int, optional
        Depth of a hinge tree, 1 to 30, with ``n_trees * 2**depth`` at most 2**24. By default 6, in a
        regression 4. The depth of the grown forest is not limited.
    n_projections : int
        Number of inner products per member, initially of two random columns each; 0 for none.
    n_boosted : int
        Maximum number of boosted trees per member, 0 for none. Held-out rows choose their number and their
        share of the prediction; without such rows, or with `share`, there are none.
    steps : int, optional
        Maximum number of Adam steps per member; with 0 there is no training. By default 15 passes over the
        rows, but 400 to 1500 steps.
    batch_size : int, optional
        Number of samples per step; by default 128.
    lr : float, optional
        Learning rate; by default 0.012.
    average : bool
        Whether states evaluated on held-out rows are averages over the preceding steps, with the largest
        weights for the last steps.
    share : float, optional
        Weight of the hinge trees in the prediction, 0 to 1; the grown forest has the rest. By default it is
        selected on held-out rows, and 1 without them.
    validation : float or pair (x, y)
        Share of the rows that a member holds out, 0 to 0.5, or a pair of samples and labels or targets.
        Training ends when the loss on them stops improving, and the best state is kept. With 0, or fewer than
        8 rows, nothing is held out, and the last state is kept.

    Returns
    -------
    Model
        For `predict` and `save`.

    Raises
    ------
    ValueError
        Categories other than integers from 0 to 65535; a learning rate with which training diverges.

    Notes
    -----
    A forest (`hforest.grow`) is grown on the scaled columns and on standardised sparse random inner products
    of them. In a regression it has several kinds of trees, whose weights minimise the out-of-bag error
    (Breiman 1996); kinds of weight 0 are left out. Hinge trees start with the splits of trees boosted on the
    residuals of its out-of-bag predictions; ridge regression (`hinge.from_forest`) on these residuals gives
    their leaf weights. Adam (`hinge.adam_backward`) then trains thresholds, leaf weights and inner products
    with softmax or squared loss. Boosted trees (Friedman 2001) take Newton steps on the loss, in a regression
    from a ridge regression on all columns. Grown trees read NaN directly. For hinge trees and inner products,
    ridge regressions on other columns impute missing values. All trees read categories as target statistics
    and indicators (`Encoding`). docs/tabular.md measures the effect of each part. `progress` counts the steps
    and boosted trees of all members; if it ends training, those that have started are returned with their
    best states. Cost: growing the forest and the boosted trees, the ridge regressions, and about half a
    millisecond per step.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(600, 4)) * [1e-9, 1.0, 50.0, 1e9]
    >>> y = x[:, 0] / 1e-9 + x[:, 1] > x[:, 2] / 50
    >>> model = hforest.tabular.fit(x[:400], y[:400], n_trees=20, steps=300, rng=0)
    >>> p = hforest.tabular.predict(model, x[400:])
    >>> bool((p.argmax(axis=1) == y[400:]).mean() > 0.94)
    True
    """
    check_progress(progress)
    check.choice("task", task, supervised.TASKS)
    check.on_cpu(x=x, y=y)
    x, of_table, categorical = _numbers_of(x, categorical, columns)
    x, _ = supervised.samples_or_missing("x", x)
    mask = supervised.categorical(categorical, x.shape[1])
    if mask is not None:
        supervised.categories("x", x, mask)
    classes = None
    if task == "classification" and n_classes is None:
        classes, y = labels(y)
        class_weight, n_classes = class_weight_of(class_weight, classes), len(classes)
    goal = supervised.target(y, len(x), task, n_classes)
    if task == "classification" and classes is None:
        classes = np.arange(goal.n_outputs)
    reference = x[:, 0]
    weight = class_factors.applied(class_weight, goal, supervised.sample_weight(sample_weight, reference))
    supervised.similar("sample_weight", weight)
    check.choice("scaling", scaling, KINDS)
    n_members = check.integer("n_members", n_members, 1, 2**10)
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    depth = DEPTH[task] if depth is None else check.integer("depth", depth, 1, check.MAX_DEPTH)
    if n_trees << depth > MAX_LEAVES:
        raise ValueError(
            f"depth: expected n_trees * 2**depth of at most 2**24, got {n_trees} trees of depth {depth}; "
            "lower one of them"
        )
    n_projections = check.integer("n_projections", n_projections, 0, 2**20)
    n_boosted = check.integer("n_boosted", n_boosted, 0, check.MAX_TREES)
    batch_size = BATCH_SIZE if batch_size is None else check.integer("batch_size", batch_size, 1)
    lr = LEARNING_RATE if lr is None else check.number("lr", lr, 0.0, 1.0, open_low=True)
    check.flag("average", average)
    if share is not None:
        share = check.number("share", share, 0.0, 1.0)
    targets = _Targets(goal)
    validation_rows = None
    held_share = 0.0
    if isinstance(check.scalar(validation), int | float | np.number) and not isinstance(validation, bool):
        held_share = check.number("validation", validation, 0.0, 0.5)
    else:
        validation_rows = _validation_rows(validation, x.shape[1], classes, goal.n_outputs, of_table)
    positive = np.flatnonzero(weight > 0)
    equal = bool((weight[positive] == weight[positive[0]]).all())
    seed = check.seed(rng)
    x = x[positive]
    numbers = without_categories(x, mask)
    units = measure(numbers, scaling)
    rows = Rows(transformed(units, numbers), targets(goal)[positive], None if equal else weight[positive])
    encoding, held = None, None
    if mask is not None or bool(np.isnan(rows.x).any()):
        encoding, rows = fit_encoding(rows, x, mask, task, goal.n_outputs, seed)
    if validation_rows is not None:
        filled, native = encoded_columns(units, encoding, validation_rows[0])
        held = Rows(filled, targets(validation_rows[1]), None, native)
    n = len(rows.x)
    steps = default_steps(n, batch_size) if steps is None else check.integer("steps", steps, 0, 2**40)
    parts = [np.zeros(0, np.int64)] * n_members
    if validation_rows is None:
        parts = _parts(n, n_members, held_share, np.random.default_rng([seed, n_members]))
    if share is not None or (held is None and not len(parts[0])):
        n_boosted = 0
    settings = Settings(
        task, goal.n_outputs if task == "classification" else None, n_trees, depth, n_projections, steps,
        batch_size, lr, bool(average), share, n_boosted,
    )  # fmt: skip

    def fitted(i: int, report: Report) -> tuple[Member, bool]:
        learned, judged, part = rows, held, parts[i]
        if len(part):
            learned, judged = rows.part(np.delete(np.arange(n), part)), rows.part(part)
        member, going = member_of(
            learned, judged, settings, report, np.random.default_rng([seed, n_members, i])
        )
        check_converged(member)
        return member, going

    steps += settings.n_boosted
    with reporting(progress, max(1, n_members * steps), "step") as report:
        threads = min(get_num_threads(), n_members) if n <= SIDE_BY_SIDE else 1
        found = _side_by_side(fitted, n_members, steps, threads, report)
    members = tuple(member for member in found if member is not None)
    mean: Mean = "geometric" if task == "classification" else "arithmetic"
    model = Model(task, units, members, targets.center, targets.scale, encoding, of_table, classes, mean)
    if task == "classification":
        return model
    if held is not None:
        return model._replace(held_out=held_out_errors(members, held))
    judged = [
        held_out_errors((member,), rows.part(part))
        for member, part in zip(found, parts, strict=True) if member is not None and len(part)
    ]  # fmt: skip
    return model._replace(held_out=np.concatenate(judged)) if judged else model


def _side_by_side(
    fitted: Callable[[int, Report], tuple[Member, bool]], n: int, steps: int, threads: int, report: Report
) -> list[Member | None]:
    """Returns members `fitted(i, report)`, fitted one per thread; None if `report` ended the training before.

    `report` is called only from this thread, with the number of steps of all members so far.
    """
    done, stop = [0] * n, threading.Event()

    def member(i: int, report: Report) -> Member | None:
        def counted(step: int) -> bool:
            done[i] = step
            return report(sum(done)) and not stop.is_set()

        if i and stop.is_set():
            return None
        try:
            result, going = fitted(i, counted)
        except BaseException:
            stop.set()
            raise
        done[i] = steps
        if not going:
            stop.set()
        return result

    if threads == 1:
        members = [member(i, report) for i in range(n)]
    else:
        # It takes long to load.
        from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

        share = -(-get_num_threads() // threads)
        with ThreadPoolExecutor(threads, initializer=set_num_threads, initargs=(share,)) as pool:
            futures = [pool.submit(copy_context().run, member, i, unheard) for i in range(n)]
            try:
                while wait(futures, SECONDS, FIRST_EXCEPTION).not_done and not stop.is_set():
                    if not report(sum(done)):
                        stop.set()
                members = [future.result() for future in futures]
                if not stop.is_set():
                    report(sum(done))
            finally:
                stop.set()
    return members


def check_converged(member: Member) -> None:
    """Checks that the trained parameters are finite."""
    for a in (member.kernel, member.thresholds, member.weights):
        if not bool(np.isfinite(a).all()):
            raise ValueError(
                "lr: expected a learning rate with which training converges, got one with which it "
                "diverges; pass a smaller lr"
            )
