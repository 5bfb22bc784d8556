"""Powers and biases of decay rates, correctly rounded, so bit-identical on every machine.

A power is a pair (mantissa, exponent) for mantissa * 2**exponent, with a mantissa of at most 160 bits.
Products drop lower bits. A power up to beta**(2**62) has more than 90 correct bits, so it rounds to the
nearest float64, except with a probability below 2**-30.
"""

import math
from functools import lru_cache

import numpy as np

_BITS = 160
_BELOW = -60  # for powers p up to this exponent, 1 - p is 1 in float64

Power = tuple[int, int]


def _times(a: Power, b: Power) -> Power:
    mantissa = a[0] * b[0]
    surplus = max(0, mantissa.bit_length() - _BITS)
    return mantissa >> surplus, a[1] + b[1] + surplus


def _exactly(beta: float) -> Power:
    numerator, denominator = float(beta).as_integer_ratio()
    return numerator, 1 - denominator.bit_length()


def squares(beta: float, n: int) -> list[Power]:
    """Returns beta to the powers 1, 2, 4, ..., 2**(n - 1)."""
    result = [_exactly(beta)]
    while len(result) < n:
        result.append(_times(result[-1], result[-1]))
    return result


def exact_power(beta: float, n: int) -> Power:
    """Returns beta**n for 0 <= beta < 1 and an integer n >= 0."""
    result, square = (1, 0), _exactly(beta)
    while n:
        if n & 1:
            result = _times(result, square)
        n >>= 1
        if n:
            square = _times(square, square)
    return result


def rounded(a: Power) -> float:
    """Returns the nearest float64."""
    return math.ldexp(a[0], a[1])


def _complement(a: Power) -> float:
    # Returns 1 - a, rounded once.
    if a[0].bit_length() + a[1] < _BELOW:
        return 1.0
    one = 1 << -a[1]
    return (one - a[0]) / one


_cached_power = lru_cache(maxsize=1024)(exact_power)


@lru_cache(maxsize=64)
def bias(beta: float, step: int) -> float:
    """Returns 1 - beta**step, without cancellation."""
    # Two factors, which earlier steps have cached: one product per step.
    low = step % 256
    return _complement(_times(_cached_power(beta, step - low), _cached_power(beta, low)))


def biases(beta: float, n: int) -> np.ndarray:
    """Returns 1 - beta**step for the steps 0 to n - 1."""
    result = np.ones(n)
    factor, power = _exactly(beta), (1, 0)
    for step in range(n):
        result[step] = _complement(power)
        if result[step] == 1:
            break
        power = _times(power, factor)
    return result


def rate_and_scale(step: int, lr: float, beta1: float, beta2: float) -> tuple[float, float]:
    """Returns lr / (1 - beta1**step) and 1 / sqrt(1 - beta2**step)."""
    return lr / bias(beta1, step), 1 / math.sqrt(bias(beta2, step))


@lru_cache(maxsize=64)
def first_below(beta: float, bound: float) -> int:
    """Returns the least n >= 1 with beta**n <= bound, for a bound that is a power of 2."""
    numerator, exponent = _exactly(bound)

    def below(a: Power) -> bool:
        # Whether a[0] * 2**a[1] <= numerator * 2**exponent, in integers.
        shift = a[1] - exponent
        return a[0] << shift <= numerator if shift >= 0 else a[0] <= numerator << -shift

    steps = squares(beta, 1)
    while not below(steps[-1]):
        steps.append(_times(steps[-1], steps[-1]))
    # beta**(2**i) is at most bound only for the last i. Finds the largest n above bound, highest bit first.
    n, power = 0, (1, 0)
    for i in range(len(steps) - 2, -1, -1):
        more = _times(power, steps[i])
        if not below(more):
            n, power = n + 2**i, more
    return n + 1
