"""One member of a model: grown, started and trained. Nothing is checked here."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from .. import classic, hinge, layers
from ..core.aliases import FloatArray, IntArray
from ..core.check import unchecked
from ..optim import adam
from ..tree import Forest
from .model import Member, forest_outputs, inputs, trees_outputs

# Chosen by errors on held-out rows; docs/tabular.md says on which tables, and bench/tabular_ablation.py shows
# what each is worth.
NONZERO = 2
"""Columns that an inner product has at the start."""
PLAIN = 0.5
"""Share of the trees that are grown on the plain columns alone."""
MAX_FEATURES = 40
"""Features sampled at a node of a regression tree, at most."""
RIDGE = 1.0
FACTORS = (3.0, 4.0, 6.0, 8.0)
"""Scores of classes that fit shares are multiplied by one of these: that of the least held-out loss."""
DEFAULT_FACTOR = 4.0
TOLERANCE = 0.05
WEIGHT_UNIT = 1.0
"""Leaf weights are trained in units of its inverse."""
WARM_UP = 50
"""Steps over which the learning rate rises to its value."""
SAMPLE_EVERY = 10
"""Steps between two states that enter the average."""
LATENESS = 8.0
"""The average over t states gives a late one the weight (LATENESS + 1) / (t + LATENESS)."""
JUDGE_EVERY = 100
"""Steps between two judgements on held-out rows."""
PATIENCE = 5
"""Judgements without a better one after which training ends."""
SHARES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of the hinge trees in the prediction, of which held-out rows choose one."""


Task = Literal["classification", "regression"]


class Settings(NamedTuple):
    """Settings of `fit`, checked."""

    task: Task
    n_classes: int | None
    n_trees: int
    depth: int
    n_projections: int
    steps: int
    batch_size: int
    lr: float
    average: bool
    share: float | None


class Rows(NamedTuple):
    """Rows of a table with columns in a common unit."""

    x: FloatArray
    """(n_samples, n_features) float32."""
    y: FloatArray | IntArray
    """(n_samples,) int32 labels, or (n_samples, n_outputs) float32 targets in deviations."""
    weight: FloatArray | None
    """(n_samples,) float64, above 0; None for equal weights."""

    def part(self, rows: IntArray) -> "Rows":
        """Returns some of the rows."""
        return Rows(self.x[rows], self.y[rows], None if self.weight is None else self.weight[rows])


class _State(NamedTuple):
    """What training changes."""

    thresholds: FloatArray
    weights: FloatArray
    kernel: FloatArray


def loss_of(y: FloatArray, rows: Rows, task: str) -> float:
    """Mean negative log probability of the labels, or mean squared error, weighted; `y` are predictions."""
    if task == "classification":
        losses = -np.log(np.maximum(y[np.arange(len(y)), rows.y], 1e-9))
    else:
        losses = ((y - rows.y) ** 2).sum(axis=1)
    return float(np.average(losses, weights=rows.weight))


def _random_kernel(x: FloatArray, n_projections: int, rng: np.random.Generator) -> FloatArray:
    """Sparse random inner products with a deviation of 1 over the rows."""
    n_features = x.shape[1]
    kernel = np.zeros((n_features, n_projections), np.float32)
    for j in range(n_projections):
        chosen = rng.choice(n_features, min(NONZERO, n_features), replace=False)
        kernel[chosen, j] = rng.standard_normal(len(chosen))
    if n_projections:
        deviation = (x @ kernel).std(axis=0)
        kernel /= np.where(deviation > 1e-4, deviation, 1)
    return kernel


def _drawn(rows: Rows, rng: np.random.Generator) -> Rows:
    """As many rows, each as often as its weight says: systematic resampling."""
    if rows.weight is None:
        return rows
    n = len(rows.x)
    share = np.cumsum(rows.weight / rows.weight.sum())
    picked = np.searchsorted(share, (np.arange(n) + rng.random()) / n)
    return rows.part(np.minimum(picked, n - 1))


def _forest(rows: Rows, kernel: FloatArray, settings: Settings, rng: np.random.Generator) -> Forest:
    """Trees on plain columns, then trees on columns and inner products, as one forest."""
    z = inputs(rows.x, kernel)
    n_plain = round(PLAIN * settings.n_trees) if kernel.size else settings.n_trees
    grown = []
    for a, n_trees in ((rows.x, n_plain), (z, settings.n_trees - n_plain)):
        if n_trees:
            max_features: int | str = "sqrt"
            if settings.task == "regression":
                max_features = min(max(a.shape[1] // 3, min(a.shape[1], 3)), MAX_FEATURES)
            grown.append(
                classic.grow(
                    a,
                    rows.y,
                    n_trees,
                    sample_weight=rows.weight,
                    max_features=max_features,
                    task=settings.task,
                    n_classes=settings.n_classes,
                    rng=rng,
                )
            )
    first, last = grown[0], grown[-1]
    if len(grown) == 1:
        return first._replace(n_features=np.array(z.shape[1]))
    joined = {
        name: np.concatenate([getattr(first, name), getattr(last, name)])
        for name in ("feature", "threshold", "left", "value", "gain")
    }
    start = np.concatenate([first.tree_start, last.tree_start[1:] + first.tree_start[-1]])
    return last._replace(tree_start=start, **joined)


def _grown(rows: Rows, held: Rows | None, settings: Settings, rng: np.random.Generator) -> Member:
    """A member before training: hinge trees that start as a grown forest."""
    task, classes = settings.task, settings.task == "classification"
    kernel = _random_kernel(rows.x, settings.n_projections, rng)
    forest = _forest(rows, kernel, settings, rng)
    fit_on = _drawn(rows, rng)
    (t, f, w), intercept = hinge.tree_from_forest(
        inputs(fit_on.x, kernel), fit_on.y, forest, settings.depth, l2=RIDGE, tolerance=TOLERANCE, task=task
    )
    share = np.array(1.0 if settings.share is None else settings.share)
    member = Member(kernel, t, f, w, intercept, kernel, forest, share)
    if not classes:
        return member
    factors = FACTORS if held is not None else (DEFAULT_FACTOR,)
    scaled = [
        member._replace(weights=w * np.float32(a), intercept=intercept * np.float32(a)) for a in factors
    ]
    if held is None:
        return scaled[0]
    return min(scaled, key=lambda m: loss_of(trees_outputs(m, held.x, task), held, task))


class _Batches:
    """Rows of mini-batches: permutations, or draws by weight."""

    def __init__(self, rows: Rows, size: int, rng: np.random.Generator) -> None:
        self._n, self._size, self._rng = len(rows.x), size, rng
        self._cumulative = None if rows.weight is None else np.cumsum(rows.weight / rows.weight.sum())
        self._left = np.zeros(0, np.int64)

    def next(self) -> IntArray:
        """Returns the rows of one batch."""
        if self._cumulative is not None:
            picked = np.searchsorted(self._cumulative, self._rng.random(self._size))
            return np.minimum(picked, self._n - 1)
        if len(self._left) < self._size:
            self._left = self._rng.permutation(self._n)
        batch, self._left = self._left[: self._size], self._left[self._size :]
        return batch


class _Judge:
    """Keeps the state with the least loss on held-out rows."""

    def __init__(self, member: Member, held: Rows | None, task: str) -> None:
        self._member, self._held, self._task = member, held, task
        self.best, self._least, self._waited = member, np.inf, 0
        if held is not None:
            self._least = loss_of(trees_outputs(member, held.x, task), held, task)

    def __call__(self, state: _State) -> bool:
        """Judges a state; returns whether training is to go on."""
        t, w, kernel = (np.ascontiguousarray(a, np.float32) for a in state)
        member = self._member._replace(thresholds=t, weights=w / np.float32(WEIGHT_UNIT), kernel=kernel)
        if self._held is None:
            self.best = member
            return True
        loss = loss_of(trees_outputs(member, self._held.x, self._task), self._held, self._task)
        self._waited = 0 if loss < 0.999 * self._least else self._waited + 1
        if loss < self._least:
            self.best, self._least = member, loss
        return self._waited < PATIENCE


def _trained(
    member: Member,
    rows: Rows,
    held: Rows | None,
    settings: Settings,
    report: Callable[[int], bool],
    rng: np.random.Generator,
) -> tuple[Member, bool]:
    """The member after training, and whether it was not stopped by `report`."""
    classes = settings.task == "classification"
    unit = np.float32(1 / WEIGHT_UNIT)
    state = _State(member.thresholds.copy(), member.weights / unit, member.kernel.copy())
    mean = _State(*(a.astype(np.float64) for a in state))
    t, w, kernel = state
    moments = hinge.adam_state(t, w)
    kernel_m, kernel_v = np.zeros_like(kernel), np.zeros_like(kernel)
    n_features, n_inputs = len(kernel), sum(kernel.shape)
    batches = _Batches(rows, min(settings.batch_size, len(rows.x)), rng)
    judge = _Judge(member, held, settings.task)
    n_states, going = 0, True
    for step in range(1, settings.steps + 1):
        batch = batches.next()
        x, y = rows.x[batch], rows.y[batch]
        # Adam has caught up with its missed steps after SAMPLE_EVERY steps at most, so that a rate that rises
        # in between changes them a little.
        lr = settings.lr * min(1.0, step / WARM_UP)
        scores, route = hinge.tree_adam_forward(inputs(x, kernel), t, member.features, w, moments, step, lr)
        scores *= unit
        scores += member.intercept
        _, grad = layers.softmax_loss(scores, y) if classes else layers.squared_loss(scores, y)
        grad_z = hinge.tree_adam_backward(grad, *route, t, member.features, w, moments, n_inputs, step, lr)
        if kernel.size:
            adam(kernel, x.T @ grad_z[:, n_features:], kernel_m, kernel_v, step, lr)
        last = step == settings.steps
        if step % SAMPLE_EVERY == 0 or last:
            hinge.adam_sync(t, w, moments, step, lr)
            n_states += 1
            late = min(1.0, (LATENESS + 1) / (n_states + LATENESS)) if settings.average else 1.0
            for a, b in zip(mean, state, strict=True):
                a += late * (b - a)
        if step % JUDGE_EVERY == 0 or last:
            going = judge(mean)
        if not report(step):
            return judge.best, False
        if not going:
            break
    return judge.best, True


def _mixed(member: Member, held: Rows | None, settings: Settings) -> Member:
    """The member with the share of the hinge trees that has the least held-out loss."""
    if settings.share is not None or held is None:
        return member
    y, grown = trees_outputs(member, held.x, settings.task), forest_outputs(member, held.x)
    share = min(SHARES, key=lambda a: loss_of(a * y + (1 - a) * grown, held, settings.task))
    return member._replace(share=np.array(share))


def member_of(
    rows: Rows, held: Rows | None, settings: Settings, report: Callable[[int], bool], rng: np.random.Generator
) -> tuple[Member, bool]:
    """A member fitted to rows, judged on held-out ones, and whether to go on with the next one."""
    with unchecked(), np.errstate(over="ignore", invalid="ignore"):
        member = _grown(rows, held, settings, rng)
        member, going = _trained(member, rows, held, settings, report, rng)
        return _mixed(member, held, settings), going
