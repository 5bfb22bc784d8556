"""exp, log, log1p and cos of series.h: errors in units of the last place, special values, bits of vector paths.

`python lab/series.py` measures the same errors over all float32 numbers and 10**8 float64 ones.
"""

import numpy as np
import pytest

from hforest.core import machine, series

pytestmark = pytest.mark.kernels

EDGES = np.array([
    0.0, -0.0, 5e-324, -5e-324, 1e-310, 2.2250738585072014e-308, 1.0, -1.0, np.nextafter(1, 0), np.nextafter(1, 2),
    0.5, 2.0, np.sqrt(0.5), np.sqrt(2), np.log(2), 709.782712893384, 709.782712893385, -708.3964185322641, -745.13, -745.14,
    -746, -1e308, 1e308, 1.7976931348623157e308, np.inf, -np.inf, np.nan,
])  # fmt: skip


def exact(name, a):
    """Returns the function of float64 numbers, rounded to an extended precision."""
    a = a.astype(np.longdouble)
    if name != "cos_of_turns":
        with np.errstate(over="ignore", under="ignore"):
            return getattr(np, name)(a)
    quarters = np.rint(4 * a)
    x = (4 * a - quarters) * (2 * np.arctan(np.longdouble(1)))
    return np.choose(quarters.astype(np.int64) % 4, [np.cos(x), -np.sin(x), -np.cos(x), np.sin(x)])


def worst(name, a):
    """Returns the greatest error in units of the last place of the dtype of a."""
    want = exact(name, a)
    with np.errstate(over="ignore"):
        unit = np.spacing(abs(want).astype(a.dtype))
    inside = np.isfinite(unit)
    return float(np.max(abs(getattr(series, name)(a)[inside] - want[inside]) / unit[inside]))


def float64_numbers(name, n, rng):
    """Returns n numbers over the range of results, and n as close to where they are 0 or 1."""
    near = rng.normal(size=n) * 2.0 ** -rng.integers(0, 60, n)
    if name == "exp":
        return np.concatenate([rng.uniform(-745.2, 709.8, n), near])
    if name == "cos_of_turns":
        return np.concatenate([rng.uniform(-4, 4, n), rng.integers(-8, 8, n) / 4 + near])
    wide = rng.integers(1, 0x7FF0000000000000, n).view(np.float64)  # every exponent, and subnormal numbers
    return np.concatenate([wide, abs(1 + near) if name == "log" else np.maximum(near, -0.999)])


LIMITS = {"exp": 1.0, "log": 1.0, "log1p": 1.0, "cos_of_turns": 2.5}


@pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="this processor has no numbers more exact than float64"
)
@pytest.mark.parametrize("name", LIMITS)
def test_float64_errors(name):
    assert worst(name, float64_numbers(name, 500_000, np.random.default_rng(0))) <= LIMITS[name]


@pytest.mark.parametrize("name", ["exp", "log"])
def test_float32_errors(name):
    bits = np.arange(0, 2**32, 4093, dtype=np.uint32)  # a prime number: all exponents and ends
    a = bits.view(np.float32)
    a = a[np.isfinite(a) & ((a > 0) | (name == "exp"))]
    assert worst(name, a) <= 0.5001  # computed in float64 and rounded once


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_values(dtype):
    inf, nan = np.inf, np.nan

    def same(function, a, expected):
        got = function(np.array(a, dtype))
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, np.array(expected, dtype))

    same(series.exp, [0, -0.0, inf, -inf, nan, 1e3, -1e3], [1, 1, inf, 0, nan, inf, 0])
    same(series.log, [1, 0, -0.0, -1, -inf, inf, nan], [0, -inf, -inf, nan, nan, inf, nan])
    same(series.log1p, [0, -1, -2, inf, nan], [0, -inf, nan, inf, nan])
    same(series.cos_of_turns, [0, 0.25, 0.5, 0.75, 1, -0.5, 1e6], [1, 0, -1, 0, 1, -1, 1])
    tiny = np.finfo(dtype).smallest_subnormal
    assert series.log1p(tiny) == tiny
    assert series.log(np.array([tiny]))[0] == pytest.approx(np.log(tiny), rel=1e-6)


def test_edges_of_the_range():
    """The greatest argument of which exp is finite, and the least of which it is above 0."""
    top, bottom = 709.782712893384, -745.1332191019411
    assert worst("exp", np.array([top, bottom, -708.3964185322641])) <= 1
    assert np.isfinite(series.exp(top))
    assert series.exp(np.nextafter(top, 800)) == np.inf
    assert series.exp(bottom) == 5e-324
    assert series.exp(np.nextafter(bottom, -800)) == 0
    assert worst("log", np.array([5e-324, 1e-310, np.finfo(float).tiny, np.finfo(float).max])) <= 1


def test_shapes_and_scalars():
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert series.exp(a[:, ::2, ::-1]).shape == (2, 2, 4)
    np.testing.assert_array_equal(series.exp(a[:, ::2, ::-1]), series.exp(a)[:, ::2, ::-1])
    assert series.log(np.empty((0, 3))).shape == (0, 3)
    assert series.exp(1.0) == np.exp(1.0)
    assert series.exp(np.float32(1)).dtype == np.float32
    assert series.exp(1).dtype == np.float64
    kept = a.copy()
    series.exp(a)
    np.testing.assert_array_equal(a, kept)


@pytest.mark.parametrize("name", LIMITS)
def test_bits_on_paths(simd, name):
    """Also at every distance from the end of a vector."""
    rng = np.random.default_rng(1)
    a = np.concatenate([EDGES[: 21 if name == "cos_of_turns" else None], float64_numbers(name, 3000, rng)])
    found = set()
    for path in machine.simd_paths():
        simd(path)
        parts = [getattr(series, name)(a[:n]).tobytes() for n in (*range(1, 20), len(a))]
        found.add(b"".join(parts))
    assert len(found) == 1
