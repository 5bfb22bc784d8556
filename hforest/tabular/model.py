"""Models of tables: fields, checks, and the predictions of members in NumPy, for training."""

from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np

from .. import hinge, tree
from ..core import check, notebooks, series, supervised
from ..core.aliases import ArrayLike, FloatArray, IntArray, Task
from ..tree import Forest
from ..tree.callers import trusted
from .columns import converted
from .encoding import Encoding, check_encoding
from .kinds import Columns, check_columns
from .recipe import LEAST_PROBABILITY, SMOOTHING
from .scaling import Scaling, check_numpy, check_scaling
from .targets import known_places

Mean = Literal["arithmetic", "geometric"]
MEANS = ("arithmetic", "geometric")
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)


class Boosted(NamedTuple):
    """Boosted trees of a member, its linear part, and their share of its prediction."""

    forest: Forest
    """Forest of float32 on scaled columns, NaN for missing values, whose predictions are scores (softmax; of
    two classes that of the second one) or targets."""
    share: FloatArray
    """() float64: share of this part in the prediction, 0 to 1."""
    linear: FloatArray | None = None
    """(n_encoded, n_outputs) float32 in a regression: the product of the columns, without missing values, and
    `linear` is added to the predictions of the forest. None: nothing is added."""


class Member(NamedTuple):
    """Hinge trees and the grown forest from which they started, with the inner products that each reads.

    With ``z = [x, x @ kernel]`` of scaled columns x the trees return ``hinge.forward(z, thresholds, features,
    weights, aggregate="sum") + intercept + offset * g``. g are the predictions of the forest: targets, or
    logarithms of class shares. For classes the result is scores (softmax).
    """

    kernel: FloatArray
    """(n_encoded, n_projections) float32: the learned inner products. A column of numbers is one encoded
    column."""
    thresholds: FloatArray
    """(n_trees, 2**depth - 1) float32."""
    features: IntArray
    """(n_trees, 2**depth - 1) int32: columns of z."""
    weights: FloatArray
    """(n_trees, 2**depth, n_outputs) float32."""
    intercept: FloatArray
    """(n_outputs,) float32."""
    grown_kernel: FloatArray
    """(n_encoded, n_projections) float32: the inner products that the forest read when it was grown."""
    forest: Forest
    """Forest of float32 on ``[x, x @ grown_kernel]``; columns have NaN for missing values."""
    offset: FloatArray
    """() float64: multiple of the forest's predictions to which the outputs of the trees are added."""
    share: FloatArray
    """() float64: share of the hinge trees in the prediction, 0 to 1; the rest is the forest's."""
    boosted: Boosted | None = None
    """A further part of the prediction; None without."""
    squares: FloatArray | None = None
    """(n_leaves, n_outputs) float32 in a regression: means of squared out-of-bag errors in the leaves of the
    forest, for `predict_interval`; targets are in deviations. None in a classification."""

    @property
    def smoothing(self) -> float:
        """Added to shares of classes before logarithms are taken: g are log((p + s) / (1 + s n_classes))."""
        return SMOOTHING


class Model(NamedTuple):
    """The model of a table that `fit` returns and `predict` applies."""

    task: Task
    """ "classification" or "regression"."""
    scaling: Scaling
    """Scaling of the columns."""
    members: tuple[Member, ...]
    """Members, whose predictions are averaged."""
    target_center: FloatArray
    """(n_outputs,) float64: means of the targets; 0 for classes."""
    target_scale: FloatArray
    """(n_outputs,) float64: deviations of the targets; 1 for classes."""
    encoding: Encoding | None = None
    """Encoding of missing values and categories; None if the training rows had neither."""
    columns: Columns | None = None
    """Columns of the table to which the model was fitted; None for an array."""
    classes: Any = None
    """(n_classes,) labels in the order of probabilities: ``classes[p.argmax(axis=1)]`` are those of rows;
    text as StringDType. None in a regression, and in files of earlier versions."""
    mean: Mean = "arithmetic"
    """Mean of the members' predictions; "geometric" only for probabilities."""
    held_out: FloatArray | None = None
    """(n_errors, n_outputs) float64: errors of held-out rows in a regression, in expected errors, for
    `predict_interval`. None without such rows."""

    @property
    def least_probability(self) -> float:
        """Minimum probability of which a geometric mean is taken."""
        return LEAST_PROBABILITY

    def __repr__(self) -> str:
        try:
            columns = len(self.scaling.low if self.columns is None else self.columns.names)
            sizes = f"n_members={len(self.members)}, n_columns={columns}, n_outputs={len(self.target_center)}"
            return f"Model(task={self.task!r}, {sizes})"
        except Exception:  # from fields that are not what fit returned
            return f"Model{tuple(self)!r}"

    @notebooks.shown_by
    def _repr_html_(self) -> notebooks.Rows:
        columns, classes, members = self.columns, self.classes, self.members
        n_columns, n_outputs = len(self.scaling.low), len(self.target_center)
        return [
            ("Model", self.task),
            ("members", len(members)),
            ("columns", n_columns if columns is None else notebooks.counted(columns.names)),
            (
                "classes" if self.task == "classification" else "targets",
                n_outputs if classes is None else notebooks.counted(classes),
            ),
            ("hinge trees", sum(len(member.features) for member in members)),
            ("grown trees", sum(member.forest.n_trees for member in members)),
            ("boosted trees", sum(a.boosted.forest.n_trees for a in members if a.boosted is not None)),
        ]


def inputs(x: FloatArray, kernel: FloatArray) -> FloatArray:
    """Returns the columns followed by the inner products, float32."""
    n_features = x.shape[1]
    z = np.empty((len(x), n_features + kernel.shape[1]), np.float32)
    z[:, :n_features] = x
    if kernel.shape[1]:
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(x, kernel, out=z[:, n_features:])
        if check.values_checked() and not bool(np.isfinite(z).all()):
            raise_large_products()
    return z


def raise_large_products() -> NoReturn:
    """Raises the error of inner products beyond the range of float32."""
    raise ValueError(
        "model: expected inner products of columns in the range of float32, got larger ones; pass what fit "
        "returned"
    )


def probabilities(scores: FloatArray) -> FloatArray:
    """Returns the softmax of rows, in float64."""
    p = scores.astype(np.float64)
    p -= p.max(axis=1, keepdims=True)
    p = series.exp(p)
    p /= p.sum(axis=1, keepdims=True)
    return p


def offset_of(y: FloatArray, task: Task) -> FloatArray:
    """Returns the offset of the trees' outputs: logarithms of smoothed shares, or targets; float32.

    `y` (n_samples, n_outputs) are predictions of the forest.
    """
    if task == "classification":
        y = series.log((y + SMOOTHING) / (1 + SMOOTHING * y.shape[1]))
    return y.astype(np.float32)


def forest_inputs(x: FloatArray, kernel: FloatArray, native: FloatArray | None) -> FloatArray:
    """Returns the input of a grown forest, float32: columns, with NaN from `native`, and inner products."""
    z = inputs(x, kernel)
    if native is not None:
        z[:, : x.shape[1]] = native
    return z


def forest_outputs(member: Member, x: FloatArray, native: FloatArray | None = None) -> FloatArray:
    """Returns predictions of the grown forest alone, (n_samples, n_outputs) float64; `x` is scaled."""
    return tree.predict(member.forest, forest_inputs(x, member.grown_kernel, native)).astype(np.float64)


def trees_scores(member: Member, x: FloatArray, grown: FloatArray | None, task: Task) -> FloatArray:
    """Returns class scores, or standardised targets, (n_samples, n_outputs) float32.

    `grown` are the `forest_outputs` of the samples, or None if the member's `offset` is 0.
    """
    t, f, w = member.thresholds, member.features, member.weights
    y = hinge.forward(inputs(x, member.kernel), t, f, w, aggregate="sum") + member.intercept
    multiple = np.float32(member.offset)
    if not multiple:
        return y
    assert grown is not None
    return y + multiple * offset_of(grown, task)


def trees_outputs(member: Member, x: FloatArray, grown: FloatArray | None, task: Task) -> FloatArray:
    """Returns predictions of the hinge trees, (n_samples, n_outputs) float64; see `trees_scores`."""
    y = trees_scores(member, x, grown, task)
    return probabilities(y) if task == "classification" else y.astype(np.float64)


def of_scores(scores: FloatArray, task: Task) -> FloatArray:
    """Returns probabilities of the scores of boosted trees, or targets as they are."""
    if task == "regression":
        return scores
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    return probabilities(scores)


def boosted_outputs(boosted: Boosted, x: FloatArray, task: Task, native: FloatArray | None) -> FloatArray:
    """Returns predictions of boosted trees and their linear part, (n_samples, n_outputs) float64."""
    scores = tree.predict(boosted.forest, x if native is None else native).astype(np.float64)
    return of_scores(scores if boosted.linear is None else scores + x @ boosted.linear, task)


def mixed(some: FloatArray, others: FloatArray, share: float) -> FloatArray:
    """Returns the mean of two predictions, of which `some` has a share."""
    return share * some + (1 - share) * others


def outputs(member: Member, x: FloatArray, task: Task, native: FloatArray | None) -> FloatArray:
    """Returns predictions of a member, (n_samples, n_outputs) float64; `x` is scaled."""
    if member.boosted is not None:
        others = outputs(member._replace(boosted=None), x, task, native)
        some = boosted_outputs(member.boosted, x, task, native)
        return mixed(some, others, float(member.boosted.share))
    share = float(member.share)
    grown = forest_outputs(member, x, native) if share < 1 or float(member.offset) else None
    if grown is None or share >= 1:
        return trees_outputs(member, x, grown, task)
    return mixed(trees_outputs(member, x, grown, task), grown, share) if share > 0 else grown


# ------------------------------------------------------------------------------------------- checks


def _checked_forest(forest: Any, n_features: int, n_outputs: int) -> Forest:
    """Returns a valid forest of a member, whose arrays belong to the call."""
    forest = trusted(forest)
    got = int(forest.n_features), forest.value.shape[1], forest.threshold.dtype
    if got != (n_features, n_outputs, FLOAT32):
        raise ValueError(
            f"forest: expected {n_features} features, {n_outputs} outputs and float32, got {got[0]}, "
            f"{got[1]} and {got[2]}; pass what fit returned"
        )
    return forest


def _checked_member(name: str, member: Any, n_features: int, n_outputs: int, task: Task) -> Member:
    """Returns a valid member whose features and forest belong to the call (`check.owned`)."""
    check.instance(name, member, Member, "a Member", "pass what fit returned")
    plain = {field: a for field, a in member._asdict().items() if field not in ("forest", "boosted")}
    check_numpy({f"{name}.{field}": a for field, a in plain.items() if a is not None or field != "squares"})
    sizes: check.Sizes = {"n_features": n_features, "n_outputs": n_outputs}
    with check.fields_of(name):
        for field in ("kernel", "grown_kernel"):
            check.array(field, plain[field], FLOAT32, ("n_features", "n_projections"), sizes)
        depth = check.tree_depth("thresholds", member.thresholds)
        check.array("thresholds", member.thresholds, FLOAT32, ("n_trees", 2**depth - 1), sizes)
        check.array("features", member.features, check.INT32, ("n_trees", 2**depth - 1), sizes)
        check.array("weights", member.weights, FLOAT32, ("n_trees", 2**depth, "n_outputs"), sizes)
        check.array("intercept", member.intercept, FLOAT32, ("n_outputs",), sizes)
        for field in ("offset", "share"):
            check.array(field, plain[field], FLOAT64, (), sizes)
        check.at_least_one(sizes, "n_trees")
        for field in ("kernel", "grown_kernel", "thresholds", "weights", "intercept", "offset", "share"):
            check.finite(field, plain[field])
        check.number("share", float(member.share), 0.0, 1.0)
        n_inputs = n_features + sizes["n_projections"]
        features = check.owned(member.features)
        check.indices("features", features, n_inputs, "n_features + n_projections")
        forest = _checked_forest(member.forest, n_inputs, n_outputs)
        boosted = member.boosted
        if boosted is not None:
            check.instance("boosted", boosted, Boosted, "Boosted or None", "pass what fit returned")
            with check.fields_of("boosted"):
                check_numpy({"share": boosted.share})
                check.array("share", boosted.share, FLOAT64, (), sizes)
                check.number("share", float(boosted.share), 0.0, 1.0)
                n_scores = 1 if n_outputs == 2 and task == "classification" else n_outputs
                boosted = boosted._replace(forest=_checked_forest(boosted.forest, n_features, n_scores))
                if boosted.linear is not None:
                    check_numpy({"linear": boosted.linear})
                    check.array("linear", boosted.linear, FLOAT32, ("n_features", "n_outputs"), sizes)
                    check.finite("linear", boosted.linear)
        if member.squares is not None:
            check.array("squares", member.squares, FLOAT32, forest.value.shape, {})
            check.finite("squares", member.squares)
            check.require(
                (member.squares >= 0).all(), "squares", "numbers of at least 0", "smaller ones",
                "pass what fit returned",
            )  # fmt: skip
    return member._replace(features=features, forest=forest, boosted=boosted)


def checked(name: str, model: Any) -> tuple[Model, int]:
    """Returns a valid model, whose members' indices belong to the call, and the number of its columns."""
    check.instance(name, model, Model, "a Model", "pass a model from fit or load")
    check.choice(f"{name}.task", model.task, supervised.TASKS)
    check.choice(f"{name}.mean", model.mean, MEANS if model.task == "classification" else MEANS[:1])
    n_features = check_scaling(f"{name}.scaling", model.scaling)
    if model.columns is not None and check_columns(f"{name}.columns", model.columns) != n_features:
        raise ValueError(
            f"{name}.columns: expected {n_features} features, as {name}.scaling has, got another number; "
            "pass what "
            "fit returned"
        )
    n_encoded = n_features
    if model.encoding is not None:
        n_encoded = check_encoding(f"{name}.encoding", model.encoding, n_features)
    sizes: check.Sizes = {}
    for field in ("target_center", "target_scale"):
        a = getattr(model, field)
        check_numpy({f"{name}.{field}": a})
        check.array(f"{name}.{field}", a, FLOAT64, ("n_outputs",), sizes)
        check.finite(f"{name}.{field}", a)
    check.at_least_one(sizes, "n_outputs")
    if model.classes is not None:
        check_classes(f"{name}.classes", model.classes, sizes["n_outputs"])
    if model.held_out is not None:
        check_numpy({f"{name}.held_out": model.held_out})
        check.array(f"{name}.held_out", model.held_out, FLOAT64, ("n_errors", "n_outputs"), sizes)
        check.finite(f"{name}.held_out", model.held_out)
    check.instance(f"{name}.members", model.members, tuple | list, "a tuple", "pass what fit returned")
    if not model.members:
        raise ValueError(f"{name}.members: expected at least one, got none; pass what fit returned")
    members = tuple(
        _checked_member(f"{name}.members[{i}]", member, n_encoded, sizes["n_outputs"], model.task)
        for i, member in enumerate(model.members)
    )
    return model._replace(members=members), n_features


def check_classes(name: str, classes: Any, n_outputs: int) -> None:
    """Checks labels of classes: distinct numbers, booleans or texts."""
    check_numpy({name: classes})
    fits = classes.shape == (n_outputs,) and classes.dtype.kind in "biufUT"
    check.require(
        fits and len(np.unique(classes)) == n_outputs, name, f"the labels of {n_outputs} classes",
        f"an array of shape {classes.shape} and dtype {classes.dtype}", "pass what fit returned",
    )  # fmt: skip


def check_width(x: FloatArray, n_features: int) -> None:
    """Checks that samples have the number of columns that a model was fitted on."""
    if x.shape[1] != n_features:
        raise ValueError(
            f"x: expected the {n_features} columns that the model was fitted on, got {x.shape[1]}; pass "
            "the same columns"
        )


def numbers_of(model: Model, x: ArrayLike) -> ArrayLike:
    """Returns a table as numbers, by the columns of a model; without columns x itself."""
    return x if model.columns is None else converted("x", model.columns, x)


def goals_of(model: Model, y: ArrayLike, n: int) -> FloatArray | IntArray:
    """Returns labels as numbers of classes (n,) int32, or targets (n, n_outputs) float64."""
    n_outputs = len(model.target_center)
    if model.task == "classification":
        places = y if model.classes is None else known_places("y", model.classes, y)
        return supervised.labels("y", places, n, n_outputs)[0]
    numbers = supervised.targets("y", y, n)
    check.require(
        numbers.shape[1] == n_outputs, "y", f"the {n_outputs} targets of the model", numbers.shape[1],
        "pass as many targets",
    )  # fmt: skip
    return numbers
