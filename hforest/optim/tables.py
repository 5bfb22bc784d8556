"""Tables of the moves of rows without gradients, by step, for the row-sparse Adam.

After step s, a number with moments m and v and without further gradients moves in total by -lr R_s(m, v),

    R_s(m, v) = sum over k >= 1 of [m b1^k / (1 - b1^(s+k))] / [sqrt(v b2^k / (1 - b2^(s+k))) + eps],

the sum of the steps s + k of Kingma & Ba, *Adam*, 2015, Alg. 1, with g = 0. Steps s + 1 to t move it by -lr
(R_s(m, v) - R_t(m b1^(t-s), v b2^(t-s))), whatever t - s. With a centre A_s > 0, h = A_s sqrt(v) and z = h /
(h + eps), which lies in [0, 1], the sum is

    R_s(m, v) = m / (h + eps) S_s(z),
    S_s(z) = sum over k >= 1 of b1^k / (1 - b1^(s+k)) / (1 + z (a_k / A_s - 1)),
    a_k = sqrt(b2^k / (1 - b2^(s+k))).

S_s is a smooth function of one number. From some step on (about the hundredth for b1 = 0.9, b2 = 0.999), a
polynomial in 2z - 1 equals it up to rounding for every v and every eps. Its sum of the first 2n terms follows
from sums of n terms,

    S^2n_s(z) = S^n_s(z) + b1^n S^n_(s+n)(z') / (1 + z (r - 1)),
    z' = r z / (1 + z (r - 1)),   r = A_(s+n) b2^(n/2) / A_s,

for all s at once; about a dozen doublings reach the end. All computations are in float64.

With decoupled weight decay a step multiplies p by d = 1 - lr weight_decay before it moves it. After the steps
s + 1 to t

    p_t = d^(t-s) p_s - lr (d^(t-s) R_s(m, v) - R_t(m b1^(t-s), v b2^(t-s))),

where term k of R is divided by d^k: b1 / d replaces b1 in the powers, but not in the biases.

The tables are bit-identical on every machine. Mathematical libraries differ in the last bits of exp, log, pow
and cos, between versions and processors (NumPy's on AVX-512, glibc's with FMA). Here powers are products of
integers (`exact.py`), cosines are constants, and the rest is +, -, *, / and sqrt.
"""

import math
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..core.dispatch import array_module
from ..core.launch import numbers
from .exact import biases, exact_power, first_below, rounded, squares

(CENTRE,) = numbers("optim/missed.h", "HF_CENTRE")
DEGREE = 10
"""Degree of the polynomials."""

MAX_STEPS = 2**19
"""Number of rows of the largest table, 59 MB."""

NEVER = 2**62
"""A step that no training reaches: the polynomials are never used."""

_NODES = DEGREE + 1
_TOLERANCE = 2.0**-47  # bound of the last coefficient relative to the first; the next one would be a sixth
_SINGLE = 2.0**-27  # bound of coefficients, relative to the first, that do not change a float32 sum
_DECAYS = 1024  # numbers of missed steps with decays in a table
_ROUNDING = 2.0**-60  # relative to 1: smaller powers are left out
_BLOCK = 4096  # number of steps whose sums are computed together
_MAX_DOUBLINGS = 17  # with more (beta1 > 0.9996) missed steps are taken one by one
# cos(j pi / 22) for j = 0 to 11, the angles of _NODES nodes.
_COSINES = (
    1.0, 0.9898214418809327, 0.9594929736144974, 0.9096319953545183, 0.8412535328311812, 0.7557495743542583,
    0.6548607339452851, 0.5406408174555976, 0.41541501300188644, 0.28173255684142967, 0.14231483827328514,
    0.0,
)  # fmt: skip


class Tables(NamedTuple):
    """Tables that the backends read besides the arrays of the caller.

    powers : (3, 63) float64
        beta1, beta2 and shrink to the powers 1, 2, 4, 8, ...
    decay : (4, 1024) float64
        beta1, beta2, sqrt(beta2) and shrink to the powers 0, 1, 2, ...: bit-identical to products of
        `powers`.
    tail : (n_steps, 3 + DEGREE + 1) float64
        Row s: 1 / (1 - beta1**s), 1 / sqrt(1 - beta2**s), A_s, and the coefficients of S_s in ascending
        powers of 2z - 1. The last row holds for every later step.
    visible : (n_steps,) int64
        For each row the column of the last coefficient that changes a float32 result.
    closed : int
        Step from which all polynomials are exact up to rounding.
    shrink : float
        1 - lr weight_decay, by which a step multiplies a parameter.
    """

    powers: np.ndarray
    decay: np.ndarray
    tail: np.ndarray
    visible: np.ndarray
    closed: int
    shrink: float


def _cosine(j: int) -> float:
    """Returns cos(j pi / (2 _NODES))."""
    j %= 4 * _NODES
    j = min(j, 4 * _NODES - j)
    return _COSINES[j] if j <= _NODES else -_COSINES[2 * _NODES - j]


def _coefficients(values: np.ndarray) -> np.ndarray:
    # Returns Chebyshev coefficients from values at the nodes. The values vary little: the first is subtracted
    # before the sums and added after, which rounds less. Plain sums make a column independent of the number
    # of columns.
    result = np.zeros_like(values)
    differences = values[1:] - values[0]
    product = np.empty_like(values[0])
    for i in range(_NODES):
        for k in range(1, _NODES):
            weight = _cosine(i * (2 * k + 1)) * (1 if i == 0 else 2) / _NODES
            result[i] += np.multiply(differences[k - 1], weight, out=product)
    result[0] += values[0]
    return result


def _clenshaw(coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
    after, result, spare, twice = np.zeros_like(x), np.zeros_like(x), np.empty_like(x), 2 * x
    for c in coefficients[:0:-1]:
        np.multiply(twice, result, out=spare)
        np.add(c, spare, out=spare)
        np.subtract(spare, after, out=spare)
        after, result, spare = result, spare, after
    return coefficients[0] + x * result - after


def _sums(
    ratio1: float, beta2: float, bias1: np.ndarray, bias2: np.ndarray, middle: int, n_doublings: int
) -> tuple[np.ndarray, np.ndarray]:
    # Returns the centres of consecutive steps, and the sums at the nodes. Biases begin with the first step.
    z = (np.array([[_cosine(2 * i + 1)] for i in range(_NODES)]) + 1) / 2
    centre = np.sqrt(rounded(exact_power(beta2, middle)) / bias2[middle:])
    first = np.sqrt(beta2 / bias2[1 : len(bias1)])
    sums = ratio1 / bias1[1:] / (1 + z * (first / centre - 1))
    for i in range(n_doublings):
        n = 2**i
        ratio = centre[n:] * math.sqrt(rounded(exact_power(beta2, n))) / centre[:-n]
        spread = 1 + z * (ratio - 1)
        later = _clenshaw(_coefficients(sums[:, n:])[:, None], 2 * (ratio * z / spread) - 1)
        sums = sums[:, :-n] + rounded(exact_power(ratio1, n)) * later / spread
        centre = centre[:-n]
    return centre, sums


def _tail(
    beta1: float, beta2: float, shrink: float, n_steps: int, n_doublings: int
) -> tuple[np.ndarray, np.ndarray]:
    # Returns rows 0 to n_steps - 1 of the table, and whether the polynomial of each is exact. Blocks of steps
    # stay in cache; a block reads the biases of the 2**n_doublings - 1 steps after it. About the mean of k
    # under the weights ratio1**k.
    ratio1 = beta1 / shrink
    middle = round(min(1 / (1 - ratio1), 1 << _MAX_DOUBLINGS)) if ratio1 < 1 else 1
    more = 2**n_doublings - 1
    bias1, bias2 = biases(beta1, n_steps + more + 1), biases(beta2, n_steps + more + middle)
    table, exact = np.zeros((n_steps, CENTRE + 1 + _NODES)), np.empty(n_steps, bool)
    size = max(_BLOCK, 2**n_doublings)
    for start in range(0, n_steps, size):
        stop = min(start + size, n_steps)
        centre, sums = _sums(
            ratio1,
            beta2,
            bias1[start : stop + more + 1],
            bias2[start : stop + more + middle],
            middle,
            n_doublings,
        )
        chebyshev = _coefficients(sums)
        magnitude = np.abs(chebyshev)
        last = np.maximum(magnitude[-1], magnitude[-2] / 8)
        exact[start:stop] = last <= _TOLERANCE * magnitude[0]
        table[start:stop, CENTRE] = centre
        for degree in range(_NODES):
            for power, weight in enumerate(np.polynomial.chebyshev.cheb2poly([0] * degree + [1])):
                table[start:stop, CENTRE + 1 + power] += weight * chebyshev[degree]
    table[1:, 0] = 1 / bias1[1:n_steps]  # steps are numbered from 1
    table[1:, 1] = 1 / np.sqrt(bias2[1:n_steps])
    return table, exact


def _decay(powers: np.ndarray) -> np.ndarray:
    gap = np.arange(_DECAYS)
    result = np.ones((4, _DECAYS))
    for bit in range(_DECAYS.bit_length() - 1):
        result[[0, 1, 3]] *= np.where(gap >> bit & 1, powers[:, bit, None], 1.0)
    result[2] = np.sqrt(result[1])
    return result


def _visible(tail: np.ndarray) -> np.ndarray:
    size = np.abs(tail[:, 3:])
    tail_sum = np.cumsum(size[:, ::-1], axis=1)[:, ::-1]  # sums of a coefficient and all later ones
    return 2 + np.maximum(1, (tail_sum > _SINGLE * size[:, :1]).sum(axis=1))


@lru_cache(maxsize=8)
def _build(beta1: float, beta2: float, shrink: float, n_steps: int, last: bool) -> Tables:
    ratio1 = beta1 / shrink
    n_doublings = (first_below(ratio1, _ROUNDING) - 1).bit_length() if ratio1 < 1 else _MAX_DOUBLINGS + 1
    long = n_doublings > _MAX_DOUBLINGS
    # Betas for which a sum diverges (beta1**2 > beta2) or is not a polynomial have large last coefficients.
    with np.errstate(all="ignore"):
        tail, exact = _tail(beta1, beta2, shrink, n_steps, 0 if long else n_doublings)
    inexact = np.flatnonzero(~exact)
    closed = int(inexact[-1]) + 1 if len(inexact) else 0
    if long or (last and closed == n_steps):
        closed = NEVER
    powers = np.array([[rounded(a) for a in squares(beta, 63)] for beta in (beta1, beta2, shrink)])
    return Tables(powers, _decay(powers), tail, _visible(tail), closed, shrink)


@lru_cache(maxsize=8)
def _on(
    xp: ModuleType, device: int, beta1: float, beta2: float, shrink: float, n_steps: int, last: bool
) -> Tables:
    tables = _build(beta1, beta2, shrink, n_steps, last)
    if xp is np:
        return tables
    powers, decay, tail, visible = (xp.asarray(a) for a in tables[:4])
    copy = Tables(powers, decay, tail, visible, tables.closed, shrink)
    # Later calls may use other streams.
    xp.cuda.get_current_stream().synchronize()
    return copy


def tables(like: Any, beta1: float, beta2: float, step: int, shrink: float = 1.0) -> Tables:
    """Returns cached tables of two betas for steps up to `step`, on the device of `like`.

    shrink is 1 - lr weight_decay. If beta1 / shrink is 1 or more, missed steps are taken one by one. Cost:
    when `step` passes a power of two, about 5 microseconds (20 for beta1 = 0.999) and 112 bytes per step;
    nothing after the step (41 569 for beta2 = 0.999, 415 868 for 0.9999) at which both biases are 1. Betas
    whose biases are not 1 at step MAX_STEPS have no tables beyond it: later steps raise ValueError.
    """
    enough = first_below(max(beta1, beta2), _ROUNDING)
    n_steps = max(256, 1 << step.bit_length())
    last = n_steps > enough
    n_rows = max(256, enough + 1) if last else n_steps
    if n_rows > MAX_STEPS:
        name, beta = ("beta1", beta1) if beta1 > beta2 else ("beta2", beta2)
        raise ValueError(
            f"step: expected at most {MAX_STEPS - 1} with {name} = {beta}, got {step}; pass a {name} of at "
            "most 0.9999 from the first step on, which has no limit, or continue with hforest.optim.adam"
        )
    xp = array_module(like)
    device = 0 if xp is np else int(like.device.id)
    return _on(xp, device, beta1, beta2, shrink, n_rows, last)
