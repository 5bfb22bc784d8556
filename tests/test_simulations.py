"""Simulations of Perry et al. 2019, section 5."""

import numpy as np
import pytest

from hforest import demo


def test_circle():
    x, y = demo.simulate_circle(4000, rng=0)
    assert x.shape == (4000, 100)
    assert set(np.unique(x)) == {0, 1}
    assert (x.sum(axis=1) == 10).all()
    assert abs(y.mean() - 0.5) < 0.03
    for row, label in zip(x, y, strict=True):
        # Lengths of the runs of ones around the circle: two that do not touch.
        start = int(np.argmin(row))
        rolled = np.roll(row, -start)
        runs = np.diff(np.flatnonzero(np.diff(np.concatenate([[0], rolled, [0]]))))[::2]
        assert sorted(runs.tolist()) == ([5, 5] if label == 0 else [4, 6])
    assert (x.mean(axis=0) > 0.07).all()
    assert (x.mean(axis=0) < 0.13).all()


def test_bars():
    x, y = demo.simulate_bars(3000, rng=0)
    images = x.reshape(-1, 28, 28)
    assert set(np.unique(x)) == {0, 1}
    rows = np.where((y == 0)[:, None], images[:, :, 0], images[:, 0, :])
    np.testing.assert_array_equal(
        images[y == 0], np.broadcast_to(rows[y == 0][:, :, None], images[y == 0].shape)
    )
    np.testing.assert_array_equal(
        images[y == 1], np.broadcast_to(rows[y == 1][:, None, :], images[y == 1].shape)
    )
    # Poisson(10) bars with replacement over 28 places leave each empty with probability exp(-10 / 28).
    assert abs((rows == 0).mean() - np.exp(-10 / 28)) < 0.01


def test_impulse():
    x, y = demo.simulate_impulse(20_000, dtype=np.float64, rng=0)
    difference = x[y == 1].mean(axis=0) - x[y == 0].mean(axis=0)
    j = np.arange(100)
    np.testing.assert_allclose(difference, np.where(j < 20, 0, np.exp(-0.1 * (j - 20.0))), atol=0.07)
    np.testing.assert_allclose(x.std(axis=0)[:20], 1, atol=0.03)


@pytest.mark.parametrize("simulate", [demo.simulate_circle, demo.simulate_bars, demo.simulate_impulse])
def test_simulations_are_seeded(simulate):
    for a, b in zip(simulate(20, rng=5), simulate(20, rng=5), strict=True):
        np.testing.assert_array_equal(a, b)
    assert simulate(20, rng=5)[0].tobytes() != simulate(20, rng=6)[0].tobytes()
    assert simulate(0, rng=0)[0].shape[0] == 0
    assert simulate(3, dtype=np.float64, rng=0)[0].dtype == np.float64
    with pytest.raises(ValueError, match="n: expected"):
        simulate(-1)
    with pytest.raises(TypeError, match="dtype: expected float32"):
        simulate(3, dtype=int)
