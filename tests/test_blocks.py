"""Large matrices of other dtypes and layouts: conversion in blocks is bit-identical to a converted copy."""

import re
import tracemalloc

import numpy as np
import pytest
from conftest import assert_same_bits
from growers import grow

import hforest
from hforest import growth, tree
from hforest.core import blocks, check

N, N_FEATURES = 100, 5


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "CONVERTED", 64)


def samples(missing=False):
    rng = np.random.default_rng(0)
    x = rng.integers(-40, 40, (N, N_FEATURES)) / 8.0  # float32 and float16 hold them exactly
    x[:, 4] = rng.integers(0, 6, N)
    y = (x[:, 0] > x[:, 1]) + (x[:, 2] > 2).astype(np.int32)
    if missing:
        x[rng.random(x.shape) < 0.1] = np.nan
    return x, y


def layouts(x, dtype, tmp_path):
    """Returns the same numbers in layouts and dtypes that a forest of `dtype` converts."""
    other = np.float64 if dtype == np.float32 else np.float32
    mapped = np.memmap(tmp_path / "rows", other, "w+", shape=x.shape)
    mapped[:] = x
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    unaligned[:] = x
    wide = np.zeros((N, 2 * N_FEATURES), dtype)
    wide[:, ::2] = x
    columns = np.memmap(tmp_path / "columns", dtype, "w+", shape=x.shape, order="F")
    columns[:] = x
    return {
        "mapped": np.memmap(tmp_path / "rows", other, "r", shape=x.shape),
        "half": x.astype(np.float16),
        "columns": np.asfortranarray(x, dtype),
        "mapped columns": columns,
        "strided": wide[:, ::2],
        "backwards": np.ascontiguousarray(x[::-1], dtype)[::-1],
        "unaligned": unaligned.astype(x.dtype.newbyteorder("S")) if dtype == np.float32 else unaligned,
        "swapped": x.astype(np.dtype(dtype).newbyteorder("S")),
    }


FORESTS = {
    "features": lambda x, y: hforest.grow(x, y, 5, rng=0),
    "categories": lambda x, y: hforest.grow(hforest.samples(x, categorical=[4]), y, 5, rng=0),
    "projections": lambda x, y: grow(x, y, 5, kind="sparse", rng=0),
}


@pytest.mark.parametrize("kind", list(FORESTS))
@pytest.mark.parametrize("missing", [False, True])
def test_rows_in_blocks_reach_the_same_leaves(kind, missing, dtype, backend, tmp_path):
    x, y = samples(missing)
    forest = FORESTS[kind](x.astype(dtype), y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "CONVERTED", 1 << 22)
        want = {f: f(forest, x.astype(dtype)) for f in (tree.apply, tree.predict, tree.vote_shares)}
    for name, given in layouts(x, dtype, tmp_path).items():
        assert blocks.unconverted(given, np.dtype(dtype)) is not None, name
        for f, a in want.items():
            got = f(forest, given)
            assert got.dtype == a.dtype
            np.testing.assert_array_equal(got, a, err_msg=name)
            out = np.empty_like(a)
            assert f(forest, given, out=out) is out
            np.testing.assert_array_equal(out, a, err_msg=name)


def test_integers_and_bools():
    x, y = samples()
    forest = hforest.grow(np.round(x).astype(np.int64), y, 5, rng=0)
    for kind in (np.int8, np.int16, np.int64, np.float64):
        rows = np.round(x).astype(kind)
        np.testing.assert_array_equal(tree.predict(forest, rows), tree.predict(forest, rows.tolist()))
    is_large = x > 0
    forest = hforest.grow(is_large, y, 5, rng=0)
    np.testing.assert_array_equal(tree.apply(forest, is_large), tree.apply(forest, is_large.tolist()))


def test_what_is_not_converted_in_blocks():
    x, _ = samples()
    for given in (x, x.tolist(), x.astype(object), x[:3].astype("f4"), x.astype(complex), x[0], None):
        assert blocks.unconverted(given, np.dtype(np.float64)) is None
    assert blocks.unconverted(x, np.dtype(np.float32)) is not None
    assert blocks.unconverted(x.astype(np.float32)) is None
    assert blocks.unconverted(x.astype(np.uint8)).dtype == np.float32


@pytest.mark.parametrize("f", [tree.apply, tree.predict, tree.vote_shares])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-np.inf, "x: expected finite numbers, or NaN for missing values, got -inf at index (80, 3); "),
        (1e300, "x: expected numbers in the range of float32, got larger ones in float64; scale the features"),
    ],
)  # fmt: skip
def test_errors_are_those_of_the_whole(f, value, message):
    x, y = samples()
    forest = hforest.grow(x.astype(np.float32), y, 3, rng=0)
    x[80, 3] = value
    out = np.full_like(f(forest, np.zeros((N, N_FEATURES), np.float32)), 7)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        f(forest, x, out=out)
    assert (out == 7).all()
    with hforest.unchecked():
        f(forest, x)
    shape = r"^x: expected shape \(n_samples, n_features\) = \(n_samples, 5\), got \(100, 4\)"
    with pytest.raises(ValueError, match=shape):
        f(forest, x[:, :4])
    with pytest.raises(ValueError, match=r"^out: expected shape"):
        f(forest, samples()[0], out=out[:10].copy())
    with pytest.raises(IndexError, match=r"^forest: expected nodes that lead to leaves"):
        f(forest._replace(left=forest.left * 0), samples()[0])


def test_out_may_not_overlap_x():
    x, y = samples()
    forest = hforest.grow(x.astype(np.float32), y, 3, rng=0)
    memory = np.zeros((N, 16), np.float32)
    with pytest.raises(ValueError, match=r"^out: "):
        tree.predict(forest, memory[:, :5], out=memory.reshape(-1)[: N * 3].reshape(N, 3))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "encoding", [{}, {"max_bins": 7}, {"categorical": [4, 1]}, {"max_bins": 7, "categorical": [4]}]
)
def test_columns_in_blocks_have_the_same_bins(missing, encoding, dtype, backend, tmp_path, monkeypatch):
    x, y = samples(missing)
    if encoding.get("categorical") == [4, 1]:
        x[:, 1] = np.abs(np.round(x[:, 1]))
    monkeypatch.setattr(growth.encoding, "_ENCODED_VALUES", 64)
    for given in layouts(x, dtype, tmp_path).values():
        if blocks.unconverted(given) is None:  # samples of this dtype need no conversion
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(blocks, "CONVERTED", 1 << 22)
            want = hforest.samples(given, **encoding).bins()
        got = hforest.samples(given, **encoding)
        assert_same_bits(got.bins(), want)
        copied = hforest.samples(np.array(given, got.dtype, order="C"), **encoding)
        forests = (hforest.grow(a, y, 2, max_depth=3, rng=0) for a in (got, copied))
        assert_same_bits(*forests)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.inf, "x: expected finite numbers, or NaN for missing values, got inf at index (80, 3); "),
        (65536.0, "x: expected whole numbers 0 to 65535 or NaN in columns of categories, got 65536.0 at index (80, 3); "),
        (0.5, "x: expected whole numbers 0 to 65535 or NaN in columns of categories, got 0.5 at index (80, 3); "),
    ],
)  # fmt: skip
def test_errors_of_encoding(value, message):
    x, _ = samples()
    x[:, 3] = 1
    x[80, 3] = value
    x = np.asfortranarray(x)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        hforest.samples(x, categorical=[3])
    with pytest.raises(IndexError, match=r"^categorical: "):
        hforest.samples(x, categorical=[5])


def test_missing_values_are_found_in_blocks(monkeypatch):
    monkeypatch.setattr(check, "_COMPARED", 7)
    x = np.zeros((10, 3))
    assert not check.finite_or_missing("x", x)
    x[8, 1] = np.nan
    assert check.finite_or_missing("x", x)
    x[9, 2] = np.inf
    message = r"^x: expected finite numbers, or NaN .*, got inf at index \(9, 2\); "
    with pytest.raises(ValueError, match=message):
        check.finite_or_missing("x", x)
    with hforest.unchecked():
        assert check.finite_or_missing("x", x)


def test_memory_of_an_encoding(tmp_path, monkeypatch):
    monkeypatch.setattr(growth.encoding, "_ENCODED_VALUES", 1 << 16)
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(20_000, 40), order="F")  # 3 MB
    x[:] = np.random.default_rng(0).normal(size=x.shape)
    tracemalloc.start()
    try:
        size = hforest.samples(x, max_bins=16).bins().bins.nbytes
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    columns = 2 * hforest.get_num_threads() * len(x)
    assert peak < 2 * size + 32 * max(columns, 1 << 16) < x.nbytes + 4 * size


@pytest.mark.parametrize("f", [tree.apply, tree.predict])
def test_memory_of_a_prediction(f, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "CONVERTED", 1 << 16)
    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=(200_000, 10))  # 16 MB
    x[:] = np.random.default_rng(0).normal(size=x.shape)
    forest = hforest.grow(x[:500].astype(np.float32), x[:500, 0] > 0, 2, rng=0)
    size = f(forest, x).nbytes
    tracemalloc.start()
    try:
        f(forest, x)
        assert tracemalloc.get_traced_memory()[1] < size + 4 * (1 << 16) + 200_000
    finally:
        tracemalloc.stop()
