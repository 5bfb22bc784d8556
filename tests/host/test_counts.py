"""The counts of memory: kernels whose counts are known."""

import numpy as np
import pytest

from hforest.core.launch import launch

from .compiler import HERE
from .counts import can_count, counting

pytestmark = pytest.mark.skipif(not can_count(), reason="no GCC 12 or later, to count on the host")

FLOAT = np.dtype(np.float32)


def _counts(name, *args, n_blocks=1, threads=32):
    with counting() as launches:
        launch(HERE / "counted", name, FLOAT, n_blocks, args, threads)
    (counts,) = launches
    return counts


def _has(counts, **expected):
    assert {name: counts[name] for name in expected} == expected


def test_neighbours_share_sectors():
    x, y = np.arange(200, dtype=FLOAT), np.zeros(200, FLOAT)
    counts = _counts("copies", x, y, 200, n_blocks=4, threads=64)
    assert y.tolist() == x.tolist()
    # Seven warps, the last with eight threads, read and write.
    _has(counts, threads=256, busy_threads=200, blocks=4, busy_blocks=4, steps=2)
    _has(counts, requests=14, lanes=400, sectors=50, bytes=1600, block_sectors=50, block_bytes=1600)
    _has(counts, read=800, written=800, shared=0, atomics=0)


def test_blocks_without_work_are_seen():
    _has(
        _counts("copies", np.zeros(5, FLOAT), np.zeros(5, FLOAT), 5, n_blocks=9),
        busy_threads=5,
        busy_blocks=1,
    )


def test_strides_ask_a_sector_for_each_number():
    counts = _counts("strides", np.zeros(32 * 32, FLOAT), np.zeros(32, FLOAT), 32)
    _has(counts, requests=2, sectors=32 + 4, bytes=256, read=128, written=128)


def test_bytes_that_two_warps_read_count_once_a_block():
    x = np.zeros(64, FLOAT)
    counts = _counts("meets", np.zeros(128, FLOAT), x, n_blocks=2)
    assert counts["block_bytes"] < counts["bytes"]
    # The first block reads 32 to 128 in part; blocks read x apart.
    assert counts["read"] <= 128 * 4


def test_threads_of_a_warp_meet_again():
    counts = _counts("meets", np.zeros(128, FLOAT), np.zeros(32, FLOAT))
    # Each row: three inner rounds of even or odd threads, then one number; then the write.
    odd, even = 3 + 1, 2 + 1  # threads 1 and 3 of four have up to three rounds, threads 0 and 2 up to two
    assert counts["steps"] == counts["requests"] == 2 * odd + 2 * even + 1
    assert counts["lanes"] == 2 * (8 * 1 + 8 * 3 + 16) + 2 * (8 * 2 + 16) + 32


@pytest.mark.parametrize(("width", "passes"), [(1, 1), (2, 2), (32, 32), (33, 1)])
def test_conflicts_of_banks(width, passes):
    counts = _counts("columns", np.zeros(32, FLOAT), width)
    _has(counts, shared=2, passes=passes + 1, best_passes=2, requests=1)


def test_atomics():
    _has(_counts("adds", np.zeros(64, np.int32), 64, n_blocks=4), atomics=128, addresses=64, most_atomics=2)
    _has(_counts("adds", np.zeros(1, np.int32), 1, n_blocks=4), atomics=128, addresses=1, most_atomics=128)
    least = np.full(1, 9, np.int32)
    _has(_counts("lowers", least), atomics=32, addresses=1, most_atomics=32, requests=1, sectors=1, bytes=4)
    assert least[0] == 0


def test_atomics_of_shared_memory():
    sums = np.zeros(64, np.int32)
    counts = _counts("shared_adds", sums, n_blocks=3, threads=64)
    assert sums.tolist() == [65] * 64
    _has(counts, atomics=3 * 128, addresses=3 * 65, most_atomics=64, requests=3 * 2)


@pytest.mark.parametrize(("step", "passes"), [(1, 2), (2, 4), (16, 32)])
def test_banks_of_wide_numbers(step, passes):
    _has(_counts("wide", np.zeros(32), step), shared=2, passes=passes + 2, best_passes=4)


def test_warps_wait():
    y = np.zeros(64, FLOAT)
    counts = _counts("waits", y, threads=64)
    assert y.tolist() == [1, 2] * 32
    _has(counts, requests=2 * 3, lanes=32 + 128, steps=3)
