"""Training of a member: Adam on thresholds, leaf weights and inner products, judged by held-out rows."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from .. import hinge, layers
from ..core.aliases import FloatArray, IntArray
from ..core.check import unchecked
from . import descent, recipe
from .model import Member, forest_outputs, inputs, probabilities, trees_scores
from .recipe import Rows, Settings, loss_of
from .start import Start, begin

LOSSES: dict[str, Callable[..., tuple[float, FloatArray]]] = {
    "classification": layers.softmax_loss,
    "regression": layers.squared_loss,
}


class Batch(NamedTuple):
    """Rows of a step."""

    x: FloatArray
    y: FloatArray | IntArray
    offset: FloatArray | None
    """(n_samples, n_outputs): what the trees' outputs are added to; None for 0."""
    weight: FloatArray | None
    """(n_samples,): factors of the gradients; None for 1."""


def optimizer_of(member: Member) -> descent.Adam:
    """Adam on copies of a member's arrays, before the first step."""
    forest = hinge.Parameters(member.thresholds.copy(), member.features, member.weights.copy())
    kernel = member.kernel.copy()
    moments = np.zeros_like(kernel), np.zeros_like(kernel)
    state = hinge.adam_state(forest.thresholds, forest.weights)
    return descent.Adam(forest, state, kernel, *moments, rate=recipe.KERNEL_RATE)


class _State(NamedTuple):
    """What training changes."""

    thresholds: FloatArray
    weights: FloatArray
    kernel: FloatArray


def member_steps(
    member: Member,
    optimizer: descent.Adam,
    batches: Iterable[Batch],
    task: str,
    first: int,
    lr: float,
) -> Iterator[tuple[int, float, float]]:
    """Makes a step on each batch, after `first` ones, as `descent.steps` does."""
    kernel, loss_of_task = optimizer.kernel, LOSSES[task]

    def features(x: FloatArray) -> tuple[FloatArray, descent.Backward]:
        return inputs(x, kernel), lambda grad: x.T @ grad[:, len(kernel) :]

    def given(batch: Batch) -> tuple[FloatArray, descent.Loss]:
        def loss(scores: FloatArray) -> tuple[float, FloatArray]:
            scores += member.intercept
            if batch.offset is not None:
                scores += batch.offset
            value, grad = loss_of_task(scores, batch.y)
            if batch.weight is not None:
                grad *= batch.weight[:, None].astype(np.float32)
            return value, grad

        return batch.x, loss

    return descent.steps(
        optimizer, features, map(given, batches), first, lambda step: lr * min(1.0, step / recipe.WARM_UP)
    )


def _drawn(rows: Rows, size: int, n_batches: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Rows of mini-batches: permutations, or draws by weight."""
    n, left = len(rows.x), np.zeros(0, np.int64)
    cumulative = None if rows.weight is None else np.cumsum(rows.weight / rows.weight.sum())
    for _ in range(n_batches):
        if cumulative is not None:
            yield np.minimum(np.searchsorted(cumulative, rng.random(size)), n - 1)
            continue
        if len(left) < size:
            left = rng.permutation(n)
        yield left[:size]
        left = left[size:]


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
    member, offset = start
    optimizer = optimizer_of(member)
    state = _State(optimizer.forest.thresholds, optimizer.forest.weights, optimizer.kernel)
    mean = _State(*(a.astype(np.float64) for a in state))
    drawn = _drawn(rows, min(settings.batch_size, len(rows.x)), settings.steps, rng)
    batches = (Batch(rows.x[i], rows.y[i], offset[i], None) for i in drawn)
    judge = _Judge(member, held, settings)
    n_states, going = 0, True
    for step, lr, _ in member_steps(member, optimizer, batches, settings.task, 0, settings.lr):
        last = step == settings.steps
        # Rows catch up with their missed steps every SAMPLE_EVERY steps, at the rate of that time.
        if step % recipe.SAMPLE_EVERY == 0 or last:
            hinge.adam_sync(state.thresholds, state.weights, optimizer.state, step, lr)
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
