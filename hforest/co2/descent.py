"""The convex-concave procedure (Norouzi et al. 2015, Alg. 1) over any sums of losses, in plain NumPy.

The reference implementation and caller's losses use it.
"""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..core.aliases import FloatArray, IntArray
from ..core.launch import numbers
from ..core.philox import EPOCH, ORDER, below, philox
from ..core.scores import beats

LANES, HALVINGS = numbers("co2/fit.h", "HF_LANES", "HF_HALVINGS")


class Schedule(NamedTuple):
    """`StumpSettings` and the other settings for backends; `lr` is eta in Norouzi et al. 2015."""

    nu: float
    eta: float
    momentum: float
    decay: float
    tolerance: float
    smooth: float
    tau: int
    batch: int
    min_steps: int
    patience: int
    max_rounds: int
    convex_rounds: int
    min_samples: int


class Node(Protocol):
    """Samples with a loss; theta is (2, n_outputs) float64, left and right."""

    x: FloatArray
    """(n_samples, n_features)."""

    def surrogate(self, w: FloatArray, theta: FloatArray, order: Any) -> tuple[float, Any]:
        """Returns eq. 10 over the samples in this order, and the sign of w.x of every sample."""

    def slopes(
        self, w: FloatArray, theta: FloatArray, sign: Any, order: Any
    ) -> tuple[FloatArray, Any, float]:
        """Returns sums over some samples of subgradients (eq. 11) for w and theta, and of weights."""


def padded(row: FloatArray) -> FloatArray:
    """Returns the numbers of a row in blocks of LANES."""
    return np.concatenate([row, np.zeros(-len(row) % LANES, row.dtype)]).reshape(-1, LANES)


def fold(lanes: FloatArray) -> Any:
    """Returns the sum of lanes, by halves."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


def project(w: FloatArray, nu: float) -> FloatArray:
    """Returns w, scaled so that ``||w||**2 <= nu``."""
    # Alg. 1, lines 15 and 16, rounded to the inside of the ball.
    lanes = np.zeros(LANES)
    for block in padded(w.astype(np.float64)):
        lanes = lanes + block * block
    square = float(fold(lanes))
    if square > nu:
        w = w * w.dtype.type(math.sqrt(nu / square) * (1 - (2.0**-22 if w.itemsize == 4 else 2.0**-50)))
    return w


def shuffled(key: int, n: int) -> IntArray:
    """Returns the samples in the random order of a key."""
    order = list(range(n))
    words = [word for i in range(0, n - 1, 4) for word in philox(key, i // 4, ORDER)]
    for i in range(n - 1):
        other = i + below(words[i], n - i)
        order[i], order[other] = order[other], order[i]
    return np.array(order)


def epoch_order(key: int, epoch: int, order: IntArray) -> IntArray:
    n = len(order)
    words = philox(key, epoch, EPOCH)
    start, stride = below(words[0], n), 1 + below(words[1], n)
    while math.gcd(stride, n) != 1:
        stride += 1
    return order[(start + stride * np.arange(n)) % n]


def descend(
    node: Node, schedule: Schedule, key: int, w: FloatArray, theta: FloatArray, history: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns the best w and theta from this start; appends surrogates of start and rounds to history."""
    c, n, real = schedule, len(node.x), w.dtype.type
    samples = shuffled(key, n)
    size = min(c.batch, n)
    n_steps = -(-n // size)
    n_epochs = max(c.tau, -(-c.min_steps // n_steps))
    new = project(w.copy(), c.nu)
    speed, speeds = np.zeros_like(w), np.zeros_like(theta)
    value, sign = node.surrogate(new, theta, samples)
    best = (value, new, theta)
    history[0] = value
    eta, waiting, lowered, epoch = c.eta, 0, 0, 0
    for round_ in range(c.max_rounds):
        if lowered == HALVINGS or not value > 0:
            break
        if round_ < c.convex_rounds:
            sign = np.zeros(n, np.int64)  # the tangent of -|w.x| at w_old = 0
        for _ in range(n_epochs):
            order = epoch_order(key, epoch, samples)
            epoch += 1
            for first in range(0, n, size):
                slope, pull, total = node.slopes(new, theta, sign, order[first : first + size])
                rate = eta / total
                with np.errstate(over="ignore", invalid="ignore"):
                    speeds = c.momentum * speeds - rate * np.asarray(pull)
                    theta = theta + speeds
                    speed = real(c.momentum) * speed + real(-rate) * slope
                    new = project(new + speed, c.nu)
        before = value
        # w_old = w (Alg. 1, line 4): its signs come with the surrogate.
        value, sign = node.surrogate(new, theta, samples)
        history[round_ + 1] = value
        if beats(-value, -best[0]):
            best = (value, new, theta)
        if round_ >= c.convex_rounds:
            waiting += not value < before - c.tolerance * before
        if waiting > c.patience:
            waiting, lowered, eta = 0, lowered + 1, eta * c.decay
    return best[1:]
