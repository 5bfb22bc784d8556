"""Further training of a fitted model on new rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import hinge
from ..core import check, supervised
from ..core.aliases import ArrayLike, IntArray, Task
from ..core.check import unchecked
from ..core.threads import one_blas_thread
from ..hinge import AdamState
from . import recipe
from .encoding import columns
from .fitting import check_converged
from .model import (
    FLOAT32,
    Member,
    Model,
    check_width,
    checked,
    forest_outputs,
    goals_of,
    numbers_of,
    offset_of,
)
from .training import Batch, Moments, copied, steps, zeros

BATCH_SIZE, LEARNING_RATE = 64, 0.006
"""Batch size for rows that are used once: smaller than in `fit`, so that they give more steps."""


class TrainingState(NamedTuple):
    """State that `partial_fit` needs in its next call, besides the model."""

    moments: tuple[Moments, ...]
    """Moments of each member."""
    n_steps: IntArray
    """() int64: steps of Adam so far."""


def _check_state(state: Any, model: Model) -> None:
    remedy = "pass what partial_fit returned"
    check.instance("state", state, TrainingState, "a TrainingState", remedy)
    if not isinstance(state.moments, tuple | list) or len(state.moments) != len(model.members):
        raise ValueError(
            f"state.moments: expected one item per member, {len(model.members)} in all, got another "
            f"number; {remedy}"
        )
    check.on_cpu(**{"state.n_steps": state.n_steps})
    check.same_device(**{"state.n_steps": state.n_steps})
    check.array("state.n_steps", state.n_steps, check.INT64, (), {})
    check.integer("state.n_steps", int(state.n_steps), 0, check.MAX_COUNT)
    for i, (moment, member) in enumerate(zip(state.moments, model.members, strict=True)):
        check.instance(f"state.moments[{i}]", moment, Moments, "Moments", "pass what partial_fit returned")
        check.instance(
            f"state.moments[{i}].trees",
            moment.trees,
            AdamState,
            "an AdamState",
            "pass what partial_fit returned",
        )
        if moment.trees.features_m is not None or moment.trees.features_v is not None:
            raise TypeError(
                f"state.moments[{i}].trees: expected None as the moments of features, which are not "
                "learned, got arrays; pass what partial_fit returned"
            )
        t, w = member.thresholds.shape, member.weights.shape
        with check.fields_of(f"state.moments[{i}]"):
            for name, a, shape, dtype in (
                ("kernel_m", moment.kernel_m, member.kernel.shape, FLOAT32),
                ("kernel_v", moment.kernel_v, member.kernel.shape, FLOAT32),
                ("thresholds_m", moment.trees.thresholds_m, t, FLOAT32),
                ("thresholds_v", moment.trees.thresholds_v, t, FLOAT32),
                ("thresholds_last", moment.trees.thresholds_last, t, check.INT64),
                ("weights_m", moment.trees.weights_m, w, FLOAT32),
                ("weights_v", moment.trees.weights_v, w, FLOAT32),
                ("weights_last", moment.trees.weights_last, w[:2], check.INT64),
            ):
                check.same_device(**{name: a})
                check.array(name, a, dtype, shape, {})
                if dtype is FLOAT32:
                    check.finite(name, a)
                elif a.size and not 0 <= int(a.min()) <= int(a.max()) <= int(state.n_steps):
                    raise ValueError(
                        f"{name}: expected steps from 0 to n_steps = {int(state.n_steps)}, got other "
                        "numbers; pass "
                        "what partial_fit returned"
                    )


@one_blas_thread()
def partial_fit(
    model: Model,
    x: ArrayLike,
    y: ArrayLike,
    *,
    state: TrainingState | None = None,
    sample_weight: ArrayLike | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
) -> tuple[Model, TrainingState]:
    """Returns a model trained on further rows, and the state for the next call.

    Other parameters: see `fit`.

    Parameters
    ----------
    model : Model
        Result of `fit`, or of the previous call; not modified. Rows of `fit` fix the scaling of columns and
        the classes, so they should be representative.
    x : (n_samples, n_features) array_like of real numbers, or a table
        Samples, at least one, in the units of the table of `fit`, finite or NaN for missing values. They are
        read once, in order. Numbers outside the range of a column in `fit` are clipped to it; unknown
        categories are treated as missing.
    state : TrainingState, optional
        State of the previous call with this model. By default Adam starts from zero moments.
    batch_size : int, optional
        Number of samples per Adam step; by default 64.
    lr : float, optional
        Learning rate; by default 0.006. It rises over the first 25 steps.

    Returns
    -------
    model : Model
        New arrays; units of columns and targets, encodings, grown forests and shares are those of `model`.
        It has no errors of held-out rows, which were those of `model`: `predict_interval` refuses it.
    state : TrainingState
        For the next call.

    Notes
    -----
    Adam trains thresholds, leaf weights and inner products of each member, as in `fit`, on the softmax or
    squared loss of a batch. The loss is that of the member's hinge trees, plus ``offset`` times the
    predictions of its grown forest. A sample of weight w counts w times. Grown forests and boosted trees do
    not change. Cost: about half a millisecond per step and member, and the forests' predictions.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.random.default_rng(0).normal(size=(4000, 4))
    >>> y = x[:, 0] * x[:, 1] > 0
    >>> model = hforest.tabular.fit(x[:200], y[:200], n_trees=20, share=1.0, validation=0.0, rng=0)
    >>> more, state = hforest.tabular.partial_fit(model, x[200:3000], y[200:3000])
    >>> def error(model):
    ...     return (hforest.tabular.predict(model, x[3000:]).argmax(axis=1) != y[3000:]).mean()
    >>> bool(error(more) < 0.9 * error(model)), int(state.n_steps)
    (True, 44)
    """
    model, n_features = checked("model", model)
    check.on_cpu(x=x, y=y)
    x, _ = supervised.samples_or_missing("x", numbers_of(model, x))
    check_width(x, n_features)
    goal = goals_of(model, y, len(x))
    if model.task == "regression":
        goal = np.ascontiguousarray((goal - model.target_center) / model.target_scale, np.float32)
    weight = None if sample_weight is None else supervised.sample_weight(sample_weight, x[:, 0])
    if weight is not None and not weight.all():
        positive = weight > 0
        x, goal, weight = x[positive], goal[positive], weight[positive]
    batch_size = BATCH_SIZE if batch_size is None else check.integer("batch_size", batch_size, 1)
    lr = LEARNING_RATE if lr is None else check.number("lr", lr, 0.0, 1.0, open_low=True)
    if state is None:
        state = TrainingState(tuple(map(zeros, model.members)), np.array(0))
    _check_state(state, model)
    z, native = columns(model.scaling, model.encoding, x)
    rows = recipe.Rows(z, goal, weight, native)
    members, moments = [], []
    for member, before in zip(model.members, state.moments, strict=True):
        with unchecked(), np.errstate(over="ignore", invalid="ignore"):
            trained, after = _trained(member, before, rows, model.task, int(state.n_steps), batch_size, lr)
        check_converged(trained)
        members.append(trained)
        moments.append(after)
    n_steps = int(state.n_steps) + -(-len(rows.x) // batch_size)
    return model._replace(members=tuple(members), held_out=None), TrainingState(
        tuple(moments), np.array(n_steps)
    )


def _batches(member: Member, rows: recipe.Rows, task: Task, size: int) -> Iterator[Batch]:
    multiple = np.float32(member.offset)
    for begin in range(0, len(rows.x), size):
        x, y, weight, native = rows.part(slice(begin, begin + size))
        offset = multiple * offset_of(forest_outputs(member, x, native), task) if multiple else None
        yield x, y, offset, weight


def _trained(
    member: Member, before: Moments, rows: recipe.Rows, task: Task, first: int, batch_size: int, rate: float
) -> tuple[Member, Moments]:
    """Returns the member after one pass over the rows, and its moments; step `first` was the last one."""
    trees = AdamState._make(None if a is None else a.copy() for a in before.trees)
    changed, moments = copied(member), Moments(trees, before.kernel_m.copy(), before.kernel_v.copy())
    batches = _batches(member, rows, task, batch_size)
    *_, (step, lr, _) = steps(changed, moments, batches, task, first, rate)
    hinge.adam_sync(changed.thresholds, changed.weights, trees, step, lr)
    return changed, moments
