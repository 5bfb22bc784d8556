"""The CUDA backends under ThreadSanitizer, and under AddressSanitizer with UndefinedBehaviorSanitizer."""

import subprocess

import pytest
from host.compiler import RUNTIMES, SUBPACKAGES, missing_for, sanitized_command
from host.fault import IN_GROWTH, IN_REFINE, IN_SMALL, IN_STEPS, IN_STUMPS

SECONDS = 600

pytestmark = pytest.mark.slow


def _run(sanitize, module, word, *more):
    reason = missing_for(sanitize)
    if reason:
        pytest.skip(reason)
    command, environment = sanitized_command(sanitize, module, word, sanitize, *more)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)


# One process for each subpackage: together they take minutes.
@pytest.mark.parametrize("subpackage", SUBPACKAGES)
@pytest.mark.parametrize(
    ("sanitize", "dtype"),
    [
        ("thread", "float32"),
        ("address,undefined", "float64"),
        pytest.param("thread", "float64", marks=pytest.mark.nightly),
        pytest.param("address,undefined", "float32", marks=pytest.mark.nightly),
    ],
)
def test_kernels_are_clean(sanitize, dtype, subpackage):
    done = _run(sanitize, "host.exercise", dtype, subpackage)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all cases passed" in done.stdout


@pytest.mark.parametrize("sanitize", RUNTIMES)
def test_a_sound_kernel_passes(sanitize):
    done = _run(sanitize, "host.fault", "sound")
    assert done.returncode == 0, done.stderr
    assert "ran to its end" in done.stdout


RACE = "ThreadSanitizer: data race"
FAULTS = [
    ("thread", "race_in_shared_memory", RACE, "faults/gpu.cu:"),
    ("thread", "race_behind_a_barrier", RACE, "faults/gpu.cu:"),
    ("thread", "race_in_global_memory", RACE, "faults/gpu.cu:"),
    ("address,undefined", "out_of_bounds", "AddressSanitizer: heap-buffer-overflow", "faults/gpu.cu:"),
    ("address,undefined", "overflow", "runtime error: signed integer overflow", "faults/gpu.cu:"),
    # The first of these run in .ci/run, all of them in .ci/nightly.
    *(
        pytest.param("thread", fault, RACE, place, marks=[pytest.mark.nightly] * (i >= n_first))
        for faults, place, n_first in (
            (IN_GROWTH, "growth/gpu/histogram.cuh:", 2), (IN_SMALL, "growth/gpu/small_nodes.cuh:", 1),
            (IN_REFINE, "co2/gpu/trees.cuh:", 1), (IN_STUMPS, "co2/gpu/stumps.cuh:", 1),
            (IN_STEPS, "hinge/gpu/", 1),
        )
        for i, fault in enumerate(faults)
    ),
]  # fmt: skip


@pytest.mark.parametrize(("sanitize", "fault", "report", "place"), FAULTS)
def test_a_fault_is_reported_at_its_line(sanitize, fault, report, place):
    done = _run(sanitize, "host.fault", fault)
    assert done.returncode != 0
    assert "ran to its end" not in done.stdout
    assert report in done.stderr
    assert place in done.stderr
