"""Training of a member: Adam on thresholds, leaf weights and inner products, with held-out rows."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import hinge, layers
from ..core.aliases import FloatArray, IntArray, Task
from ..core.check import unchecked
from ..optim import adam
from . import descent, recipe
from .boosting import with_boosted
from .model import Member, inputs, probabilities, trees_scores
from .recipe import Rows, Settings, loss_of
from .start import Start, begin


class Moments(NamedTuple):
    """Adam's moments of a member."""

    trees: hinge.AdamState
    """Moments of thresholds and leaf weights."""
    kernel_m: FloatArray
    """First moments of the inner products, shape and dtype of the member's kernel."""
    kernel_v: FloatArray
    """Second moments of the inner products."""


def zeros(member: Member) -> Moments:
    """Returns the moments before the first step."""
    trees = hinge.adam_state(member.thresholds, member.weights)
    return Moments(trees, np.zeros_like(member.kernel), np.zeros_like(member.kernel))


LEARNED = ("thresholds", "weights", "kernel")
"""The fields of a member that training changes."""


def copied(member: Member) -> Member:
    """Returns a member with copies of the trained arrays."""
    return member._replace(**{name: getattr(member, name).copy() for name in LEARNED})


Batch = tuple[FloatArray, FloatArray | IntArray, FloatArray | None, FloatArray | None]
"""Samples, labels or targets, offsets of the trees' outputs, and factors of the gradients; or None."""


def steps(
    member: Member, moments: Moments, batches: Iterable[Batch], task: Task, first: int, lr: float
) -> Iterator[tuple[int, float, float]]:
    """Takes an Adam step on each batch, in place, after `first` steps; yields as `descent.steps` does."""
    kernel = member.kernel
    trees = member.thresholds, member.features, member.weights, moments.trees
    n_trees, n_outputs = len(member.weights), member.weights.shape[2]

    def forward(z: FloatArray, step: int, lr: float) -> tuple[FloatArray, hinge.Route]:
        leaf, margin, vertex = (np.empty((len(z), n_trees), t) for t in (np.int32, z.dtype, np.int32))
        out = np.empty((len(z), n_outputs), z.dtype), hinge.Route(leaf, margin, vertex)
        hinge.kernels.adam_forward(z, *trees, step, lr, out=out)
        return out

    def backward(grad: FloatArray, route: hinge.Route, z: FloatArray, step: int, lr: float) -> FloatArray:
        grad_z = np.empty_like(z)
        hinge.kernels.adam_backward(grad, route, z, *trees, step, lr, out=grad_z)
        return grad_z

    def features(x: FloatArray) -> tuple[FloatArray, Callable[[FloatArray, int, float], None]]:
        def move(grad: FloatArray, step: int, lr: float) -> None:
            if kernel.size:
                grad, rate = x.T @ grad[:, len(kernel) :], recipe.KERNEL_RATE * lr
                adam(kernel, grad, moments.kernel_m, moments.kernel_v, step, rate)

        return inputs(x, kernel), move

    def loss(
        scores: FloatArray, y: Any, offset: FloatArray | None, weight: FloatArray | None
    ) -> tuple[float, FloatArray]:
        scores += member.intercept
        if offset is not None:
            scores += offset
        value, grad = (layers.softmax_loss if task == "classification" else layers.squared_loss)(scores, y)
        if weight is not None:
            grad *= weight[:, None].astype(np.float32)
        return value, grad

    # The arrays are this package's, or have been checked.
    return descent.steps(
        features, forward, loss, backward, batches, first, lambda step: lr * min(1.0, step / recipe.WARM_UP),
    )  # fmt: skip


def _drawn(rows: Rows, size: int, n_batches: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Yields rows of mini-batches: from permutations, or drawn by weight."""
    n, left = len(rows.x), np.zeros(0, np.int64)
    cumulative = None if rows.weight is None else np.cumsum(rows.weight / rows.weight.sum())
    for _ in range(n_batches):
        if cumulative is not None:
            left = np.minimum(np.searchsorted(cumulative, rng.random(size)), n - 1)
        elif len(left) < size:
            left = rng.permutation(n)
        yield left[:size]
        left = left[size:]


class _Judged(NamedTuple):
    """Best mixture of the outputs of hinge trees and of a grown forest on held-out rows."""

    loss: float
    factor: float
    share: float


def _best_mixture(scores: FloatArray, grown: FloatArray, held: Rows, settings: Settings) -> _Judged:
    shares = recipe.SHARES if settings.share is None else (settings.share,)
    if settings.task == "regression":
        return min(_Judged(loss_of(a * scores + (1 - a) * grown, held, "regression"), 1.0, a) for a in shares)
    candidates = []
    for factor in recipe.TEMPERATURES:
        p = probabilities(factor * scores)
        for a in shares:
            loss = loss_of(a * p + (1 - a) * grown, held, "classification")
            candidates.append(_Judged(loss, factor, a))
    return min(candidates)


class _Judge:
    """Keeps the state whose mixture with the grown forest has the least loss on held-out rows."""

    def __init__(self, start: Start, held: Rows | None, settings: Settings) -> None:
        member = start.member
        self._member, self._held, self._settings = member, held, settings
        self.best, self._least, self._waited = member, np.inf, 0
        if held is not None:
            assert start.grown is not None
            self._grown = start.grown
            self._judge(member, held)
            self._waited = 0

    def __call__(self, state: list[FloatArray]) -> bool:
        """Evaluates the current state; returns whether training continues."""
        learned: dict[str, Any] = dict(zip(LEARNED, (a.astype(np.float32) for a in state), strict=True))
        member = self._member._replace(**learned)
        if self._held is None:
            self.best = member
            return True
        self._judge(member, self._held)
        return self._waited < recipe.PATIENCE

    def _judge(self, member: Member, held: Rows) -> None:
        scores = trees_scores(member, held.x, self._grown, self._settings.task)
        mixture = _best_mixture(scores, self._grown, held, self._settings)
        self._waited = 0 if mixture.loss < 0.999 * self._least else self._waited + 1
        if mixture.loss < self._least:
            factor = np.float32(mixture.factor)
            self._least = mixture.loss
            self.best = member._replace(
                weights=factor * member.weights,
                intercept=factor * member.intercept,
                offset=np.array(mixture.factor * float(member.offset)),
                share=np.array(mixture.share),
            )


def _trained(
    start: Start,
    rows: Rows,
    held: Rows | None,
    settings: Settings,
    report: Callable[[int], bool],
    rng: np.random.Generator,
) -> tuple[Member, bool]:
    """Returns the trained member, and False if `report` stopped its training."""
    member, offset = start.member, start.offset
    trained, moments = copied(member), zeros(member)
    state = [getattr(trained, name) for name in LEARNED]
    mean = [a.astype(np.float64) for a in state]
    drawn = _drawn(rows, min(settings.batch_size, len(rows.x)), settings.steps, rng)
    batches = ((rows.x[i], rows.y[i], offset[i], None) for i in drawn)
    judge = _Judge(start, held, settings)
    n_states, going = 0, True
    for step, lr, _ in steps(trained, moments, batches, settings.task, 0, settings.lr):
        last = step == settings.steps
        # Rows catch up with their missed steps every SAMPLE_EVERY steps, at the rate of that time.
        if step % recipe.SAMPLE_EVERY == 0 or last:
            hinge.adam_sync(trained.thresholds, trained.weights, moments.trees, step, lr)
            n_states += 1
            late = min(1.0, (recipe.LATENESS + 1) / (n_states + recipe.LATENESS)) if settings.average else 1.0
            for a, b in zip(mean, state, strict=True):
                a += late * (b - a)
        if step % recipe.JUDGE_EVERY == 0 or last:
            going = judge(mean)
        if not report(step):
            return judge.best, False
        if not going:
            break
    return judge.best, True


def member_of(
    rows: Rows, held: Rows | None, settings: Settings, report: Callable[[int], bool], rng: np.random.Generator
) -> tuple[Member, bool]:
    """Returns a member fitted to rows with held-out rows, and whether to continue with the next one."""
    with unchecked(), np.errstate(over="ignore", invalid="ignore"):
        start = begin(rows, held, settings, rng)
        done = 0

        def counted(step: int) -> bool:
            nonlocal done
            done = step
            return report(step)

        member, going = _trained(start, rows, held, settings, counted, rng)
        if held is None or not settings.n_boosted or not going:
            return member, going
        return with_boosted(member, rows, held, settings, lambda n: report(done + n), rng)
