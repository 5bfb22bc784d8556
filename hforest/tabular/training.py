"""Training of a member: Adam on thresholds, leaf weights and inner products, judged by held-out rows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .. import hinge, layers
from ..core.aliases import FloatArray, IntArray
from ..core.check import unchecked
from ..optim import adam
from . import recipe
from .model import Member, forest_outputs, inputs, probabilities, trees_scores
from .recipe import Rows, Settings, loss_of
from .start import Start, begin


class _State(NamedTuple):
    """What training changes."""

    thresholds: FloatArray
    weights: FloatArray
    kernel: FloatArray


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


class _Judged(NamedTuple):
    """The best mixture of the outputs of hinge trees and of a grown forest on held-out rows."""

    loss: float
    factor: float
    share: float


def _best_mixture(scores: FloatArray, grown: FloatArray, held: Rows, settings: Settings) -> _Judged:
    shares = recipe.SHARES if settings.share is None else (settings.share,)
    if settings.task == "regression":
        return min(_Judged(loss_of(a * scores + (1 - a) * grown, held, "regression"), 1.0, a) for a in shares)
    found = []
    for factor in recipe.TEMPERATURES:
        p = probabilities(factor * scores)
        for a in shares:
            loss = loss_of(a * p + (1 - a) * grown, held, "classification")
            found.append(_Judged(loss, factor, a))
    return min(found)


class _Judge:
    """Keeps the state that has, mixed with the grown forest, the least loss on held-out rows."""

    def __init__(self, member: Member, held: Rows | None, settings: Settings) -> None:
        self._member, self._held, self._settings = member, held, settings
        self.best, self._least, self._waited = member, np.inf, 0
        if held is not None:
            self._grown = forest_outputs(member, held.x)
            self._judge(member, held)
            self._waited = 0

    def __call__(self, state: _State) -> bool:
        """Judges a state; returns whether training is to go on."""
        t, w, kernel = (np.ascontiguousarray(a, np.float32) for a in state)
        member = self._member._replace(thresholds=t, weights=w, kernel=kernel)
        if self._held is None:
            self.best = member
            return True
        self._judge(member, self._held)
        return self._waited < recipe.PATIENCE

    def _judge(self, member: Member, held: Rows) -> None:
        found = _best_mixture(
            trees_scores(member, held.x, self._settings.task), self._grown, held, self._settings
        )
        self._waited = 0 if found.loss < 0.999 * self._least else self._waited + 1
        if found.loss < self._least:
            factor = np.float32(found.factor)
            self._least = found.loss
            self.best = member._replace(
                weights=factor * member.weights,
                intercept=factor * member.intercept,
                offset=np.array(found.factor * float(member.offset)),
                share=np.array(found.share),
            )


def _trained(
    start: Start,
    rows: Rows,
    held: Rows | None,
    settings: Settings,
    report: Callable[[int], bool],
    rng: np.random.Generator,
) -> tuple[Member, bool]:
    """The member after training, and whether it was not stopped by `report`."""
    classes = settings.task == "classification"
    member, offset = start
    state = _State(member.thresholds.copy(), member.weights.copy(), member.kernel.copy())
    mean = _State(*(a.astype(np.float64) for a in state))
    t, w, kernel = state
    moments = hinge.adam_state(t, w)
    kernel_m, kernel_v = np.zeros_like(kernel), np.zeros_like(kernel)
    n_features, n_inputs = len(kernel), sum(kernel.shape)
    batches = _Batches(rows, min(settings.batch_size, len(rows.x)), rng)
    judge = _Judge(member, held, settings)
    n_states, going = 0, True
    for step in range(1, settings.steps + 1):
        batch = batches.next()
        x, y = rows.x[batch], rows.y[batch]
        # Rows catch up with their missed steps every SAMPLE_EVERY steps, at the rate of that time.
        lr = settings.lr * min(1.0, step / recipe.WARM_UP)
        scores, route = hinge.tree_adam_forward(inputs(x, kernel), t, member.features, w, moments, step, lr)
        scores += member.intercept
        scores += offset[batch]
        _, grad = layers.softmax_loss(scores, y) if classes else layers.squared_loss(scores, y)
        grad_z = hinge.tree_adam_backward(grad, *route, t, member.features, w, moments, n_inputs, step, lr)
        if kernel.size:
            adam(kernel, x.T @ grad_z[:, n_features:], kernel_m, kernel_v, step, recipe.KERNEL_RATE * lr)
        last = step == settings.steps
        if step % recipe.SAMPLE_EVERY == 0 or last:
            hinge.adam_sync(t, w, moments, step, lr)
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
    """A member fitted to rows, judged on held-out ones, and whether to go on with the next one."""
    with unchecked(), np.errstate(over="ignore", invalid="ignore"):
        start = begin(rows, held, settings, rng)
        return _trained(start, rows, held, settings, report, rng)
