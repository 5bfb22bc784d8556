"""bench/gpu_counts.py: CUDA kernels need no more resources than before; a kernel that needs more is detected."""

import functools
import itertools
import os
import sys
from typing import NamedTuple

import pytest
from host import nvrtc
from host.compiler import MODULES
from host.counts import can_count

from hforest.core import launch

on_host = pytest.mark.skipif(not can_count(), reason="no GCC 12 or later, to count on the host")


class Limit(NamedTuple):
    """Resources that all kernels of a job may use together."""

    share: float
    """Minimum fraction used of the bytes in sectors that blocks read or write."""
    traffic: float
    """Maximum number of bytes in these sectors per byte of arguments and results."""
    steps: int
    """Maximum number of consecutive accesses of a warp, over all launches."""
    blocks: int
    """Minimum number of blocks with work, in the kernel with most steps."""


LIMITS = {
    "hinge.forward": Limit(0.36, 5.6, 600, 7),
    "hinge.forward, ferns": Limit(0.35, 5.8, 590, 7),
    # 2800 steps without the lists of backward_parameters, which let a warp read four samples at a time: the steps of a
    # sample are as many, but sums no longer wait for them (test_samples_are_read_before_they_are_added).
    "hinge.backward": Limit(0.83, 2.0, 3600, 200),
    "hinge.backward, ferns": Limit(0.9, 1.9, 3750, 200),
    "hinge, step of Adam": Limit(0.52, 0.26, 1750, 53),
    "layers.softmax_loss": Limit(0.99, 1.3, 130, 157),
    "grow, root": Limit(0.88, 16.5, 3050, 16),
    "grow, root, bins": Limit(0.89, 11.5, 2800, 16),
    "grow, whole tree": Limit(0.72, 46, 173_000, 10),
    "grow, whole tree, bins": Limit(0.6, 31, 210_000, 10),
    "grow, whole tree, bins, by level": Limit(0.37, 94, 53_500, 20),
    "grow, root, targets": Limit(0.48, 43.5, 4800, 16),
    "grow, root, projections": Limit(0.48, 3.9, 2550, 16),
    "split.best_split": Limit(0.97, 11, 21_000, 14),
    "tree.apply": Limit(0.71, 35, 165, 7813),
    # 190 and 165 steps with 8 and 6 times the traffic, while a warp had a part of the levels of its pairs.
    "neural.forward": Limit(0.86, 1.7, 700, 160),
    "neural.loss_backward": Limit(0.9, 1.9, 2200, 210),
    "neural.update_leaves": Limit(0.85, 3.0, 1600, 170),
    "co2.fit_stump": Limit(0.97, 1.3, 109_000, 1),
    "project.project": Limit(0.26, 0.6, 33, 2188),
    "optim.adam": Limit(0.99, 1.01, 8, 7813),
    "optim.adam_rows": Limit(0.62, 1.7, 12, 3900),
}
CALLS = {
    # Launches and waits of a call; the same without checks. A call copies the arrays that index memory, and rows that it
    # checks: a launch each.
    "hinge.forward": (3, 1, 2, 0),
    "hinge.backward": (3, 1, 2, 0),
    "hinge, step of Adam": (7, 2, 3, 0),
    "layers.softmax_loss": (3, 1, 2, 0),
    "grow, whole tree": (865, 85, 861, 83),
    "grow, whole tree, bins": (1286, 113, 1282, 111),
    "grow, root, projections": (164, 24, 160, 22),
    "split.best_split": (24, 13, 23, 12),
    "tree.apply": (20, 8, 2, 0),
    "neural.forward": (8, 3, 2, 0),
    "neural.loss_backward": (12, 5, 5, 1),
    "neural.update_leaves": (20, 4, 13, 0),
    "co2.fit_stump": (19, 9, 9, 1),
    "project.project": (4, 2, 3, 0),
    "optim.adam": (1, 0, 1, 0),
    "optim.adam_rows": (10, 4, 2, 0),
}
"""Upper limits; an optimised kernel lowers them."""
LEVEL = {"grow, a level": (18, 1), "grow, a level, bins": (14, 1)}
"""Launches and waits of a level of a tree."""


@pytest.fixture
def counts(script):
    return script("gpu_counts")


def beyond(counts, name, limit):
    """Returns the names of the limits that the kernels of a job exceed."""
    rows = counts.count_kernels(name)
    total = {key: sum(row[key] for row in rows) for key in ("block_sectors", "block_bytes", "steps")}
    longest = max(rows, key=lambda row: row["steps"])
    share = counts.share(total["block_bytes"], total["block_sectors"])
    traffic = counts.SECTOR * total["block_sectors"] / rows[0]["job_bytes"]
    blocks = longest["busy_blocks"] / longest["launches"]
    found = Limit(share, traffic, total["steps"], blocks)
    worse = (share < limit.share, traffic > limit.traffic, found.steps > limit.steps, blocks < limit.blocks)
    return {key: getattr(found, key) for key, bad in zip(Limit._fields, worse, strict=True) if bad}


@on_host
@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
def test_kernels_ask_for_no_more_memory(name, counts):
    assert not beyond(counts, name, LIMITS[name])


@on_host
@pytest.mark.slow
def test_blocks_that_count_bins_of_a_root_are_enough_for_a_gpu(counts):
    (row,) = [row for row in counts.count_kernels("grow, root, bins") if row["kernel"] == "count_bins"]
    assert row["busy_blocks"] >= 132  # multiprocessors of an H100
    assert counts.share(row["block_bytes"], row["block_sectors"]) >= 0.8


@on_host
@pytest.mark.slow
def test_threads_that_copy_rows_by_columns_use_different_banks(counts):
    (row,) = [row for row in counts.count_kernels("tree.apply") if row["kernel"] == "apply"]
    assert row["passes"] < 2.5 * row["best_passes"]  # 16 times with columns of 128 numbers


@pytest.fixture
def changed(monkeypatch):
    """Compiles kernels after replacing a part of their source."""

    def change(old, new):
        whole = launch.source

        def source(folder):
            text = whole(folder)
            assert old in text
            return text.replace(old, new)

        monkeypatch.setattr(launch, "source", source)
        monkeypatch.setattr(launch, "_kernels", {})
        monkeypatch.setattr(launch, "_module", functools.cache(launch._module.__wrapped__))

    return change


NUMBER = "(size)blockIdx.x * (size)blockDim.x + (size)threadIdx.x"
FAULTS = {
    "neighbours are 1024 elements apart": (
        f"return {NUMBER};",
        f"const size t = {NUMBER}; return t / 32768 * 32768 + t % 32 * 1024 + t / 32 % 1024;",
        {"share", "traffic"},
    ),
    "a number is written nine times": (
        "*m = moment(first);",
        "for (int i = 0; i < 9; ++i) *(volatile real *)m = moment(first);",
        {"steps"},
    ),
    "an eighth of the blocks has work": ("if (i < n) adam_one(", "if (i < n / 8) adam_one(", {"blocks"}),
}


@on_host
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_kernel_that_asks_for_more_is_seen(fault, counts, changed):
    old, new, found = FAULTS[fault]
    changed(old, new)
    assert beyond(counts, "optim.adam", LIMITS["optim.adam"]).keys() == found


# ------------------------------------------------------------------------------------- launches and waits

stub_device = pytest.mark.skipif(
    "HFOREST_STUB" not in os.environ, reason="no stub device: HFOREST_STUB is not set"
)


def more_calls(counts, name, limit):
    """Returns the names of the limits that the counts of a job's call exceed."""
    row = counts.count_calls(name)
    found = [row[checks][key] for checks in ("checked", "unchecked") for key in ("launches", "waits")]
    return [n for n, most in zip(found, limit, strict=True) if n > most]


@stub_device
@pytest.mark.parametrize("name", CALLS)
def test_calls_on_the_stub_launch_and_wait_no_oftener(name, counts):
    assert not more_calls(counts, name, CALLS[name])


@stub_device
def test_a_level_on_the_stub_launches_and_waits_no_oftener(counts):
    levels = {row["job"]: row for row in counts.a_level([counts.count_calls(name) for name in counts.LEVELS])}
    assert levels.keys() == LEVEL.keys()
    for name, (launches, waits) in LEVEL.items():
        assert levels[name]["unchecked"]["launches"] <= launches
        assert levels[name]["unchecked"]["waits"] <= waits


def test_a_level_is_a_difference(counts):
    names = ("launches", "waits")
    rows = [
        {"job": name, **{key: dict.fromkeys(names, n * n) for key in ("checked", "unchecked")}}
        for n, name in enumerate(counts.LEVELS, 5)
    ]
    five, _, other, more = rows
    assert [row["job"] for row in counts.a_level(rows)] == [*LEVEL]
    assert counts.a_level(rows)[0]["checked"] == {"launches": 11, "waits": 11}
    assert counts.a_level([other, more])[0]["checked"] == {"launches": 15, "waits": 15}
    assert counts.a_level([five, other]) == []


@stub_device
def test_a_call_on_the_stub_that_waits_is_seen(counts, monkeypatch):
    job = counts.JOBS["optim.adam"]

    def waits(xp, dtype):
        call, reads = job(xp, dtype)
        return counts.Job(lambda: call()[0].get(), reads)

    monkeypatch.setitem(counts.JOBS, "optim.adam", waits)
    assert more_calls(counts, "optim.adam", CALLS["optim.adam"]) == [1, 1]


# ------------------------------------------------------------------------------------------------- spills


@pytest.mark.parametrize(
    ("architecture", "dtype"),
    [
        (None, "float64"),  # the newest; float64 needs more registers
        *(
            pytest.param(*pair, marks=pytest.mark.nightly)
            for pair in [*itertools.product((80, 90, 100), ("float32", "float64")), (None, "float32")]
        ),
    ],
)
@pytest.mark.parametrize(("subpackage", "macros"), MODULES)
def test_nvrtc_spills_no_register(subpackage, macros, architecture, dtype):
    if nvrtc.library() is None:
        pytest.skip("no NVRTC: install nvidia-cuda-nvrtc-cu12")
    source = launch.defined(macros) + launch.source(launch.PACKAGE / subpackage)
    newest = max(nvrtc.architectures(nvrtc.library()))  # test_nvrtc.py compiles for it, too
    found = nvrtc.resources(source, architecture or newest, dtype)
    assert found
    # At most one register of 4 bytes: score_bins has logarithms for two criteria, on one architecture.
    assert not {name: of for name, of in found.items() if max(of["spill_stores"], of["spill_loads"]) > 4}
    assert all(of["shared"] <= 48 << 10 for of in found.values())


# ----------------------------------------------------------------------------------------------- the bench


def test_occupancy(counts):
    # From NVIDIA's occupancy calculator: limits by registers, warps, blocks and shared memory.
    assert counts.occupancy(90, 32, 0, 128) == 1
    assert counts.occupancy(90, 64, 0, 256) == 0.5
    assert counts.occupancy(80, 255, 0, 128) == 8 / 64
    assert counts.occupancy(90, 16, 0, 32) == 0.5
    assert counts.occupancy(80, 16, 50 << 10, 128) == 3 * 4 / 64
    assert counts.occupancy(90, 16, 200 << 10, 1024) == 0.5


@on_host
def test_the_bench_prints_and_records(counts, monkeypatch, capsys, tmp_path):
    record = tmp_path / "record.json"
    for job in ("optim.adam", "project.project"):
        words = ["gpu_counts.py", "--parts", "kernels", "--only", job, "--json", str(record)]
        monkeypatch.setattr(sys, "argv", words)
        assert counts.main() == 0
    printed = capsys.readouterr().out
    assert "`project` | 1 | 2188, 100 | 100 |" in printed
    text = record.read_text()
    assert '"kernel": "project"' in text
    monkeypatch.setattr(sys, "argv", ["gpu_counts.py", "--json", str(record), "--parts"])
    assert counts.main() == 0
    assert capsys.readouterr().out in printed
    assert record.read_text() == text
