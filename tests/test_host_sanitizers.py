"""The CUDA backends under ThreadSanitizer, and under AddressSanitizer with UndefinedBehaviorSanitizer."""

import subprocess

import pytest
from host.compiler import RUNTIMES, missing_for, sanitized_command
from host.fault import IN_GROWTH, IN_SMALL

SECONDS = 600

pytestmark = pytest.mark.slow


def _run(sanitize, module, word):
    reason = missing_for(sanitize)
    if reason:
        pytest.skip(reason)
    command, environment = sanitized_command(sanitize, module, word, sanitize)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.parametrize(
    ("sanitize", "dtype"),
    [
        ("thread", "float32"),
        ("address,undefined", "float64"),
        pytest.param("thread", "float64", marks=pytest.mark.nightly),
        pytest.param("address,undefined", "float32", marks=pytest.mark.nightly),
    ],
)
def test_kernels_are_clean(sanitize, dtype):
    done = _run(sanitize, "host.exercise", dtype)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all cases passed" in done.stdout


@pytest.mark.parametrize("sanitize", RUNTIMES)
def test_a_sound_kernel_passes(sanitize):
    done = _run(sanitize, "host.fault", "sound")
    assert done.returncode == 0, done.stderr
    assert "ran to its end" in done.stdout


@pytest.mark.parametrize(
    ("sanitize", "kernel", "report"),
    [
        ("thread", "race_in_shared_memory", "ThreadSanitizer: data race"),
        ("thread", "race_behind_a_barrier", "ThreadSanitizer: data race"),
        ("thread", "race_in_global_memory", "ThreadSanitizer: data race"),
        ("address,undefined", "out_of_bounds", "AddressSanitizer: heap-buffer-overflow"),
        ("address,undefined", "overflow", "runtime error: signed integer overflow"),
    ],
)
def test_a_fault_is_reported_at_its_line(sanitize, kernel, report):
    done = _run(sanitize, "host.fault", kernel)
    assert done.returncode != 0
    assert "ran to its end" not in done.stdout
    assert report in done.stderr
    assert "faults/gpu.cu:" in done.stderr


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=[pytest.mark.nightly] * (i > 1)) for i, fault in enumerate(IN_GROWTH)],
)
def test_a_race_of_counted_bins_is_reported(fault):
    done = _run("thread", "host.fault", fault)
    assert done.returncode != 0
    assert "ran to its end" not in done.stdout
    assert "ThreadSanitizer: data race" in done.stderr
    assert "growth/counts.cuh:" in done.stderr


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=[pytest.mark.nightly] * (i > 0)) for i, fault in enumerate(IN_SMALL)],
)
def test_a_race_of_small_nodes_is_reported(fault):
    done = _run("thread", "host.fault", fault)
    assert done.returncode != 0
    assert "ran to its end" not in done.stdout
    assert "ThreadSanitizer: data race" in done.stderr
    assert "growth/small.cuh:" in done.stderr
