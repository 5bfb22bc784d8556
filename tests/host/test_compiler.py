"""The host compiler: it runs kernels correctly, and reports errors that CuPy does not."""

import dataclasses
import functools
import struct
import sys
import types
from typing import Any, NamedTuple

import numpy as np
import pytest

import hforest
from hforest.core import launch, scores
from hforest.core.launch import launch as launch_kernel

from . import exercise
from .compiler import HERE, KernelError, build, flushes, have_compiler, host_compiler, signatures

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C++ compiler to run CUDA on the host")

FAULTS = HERE / "faults"
FLOAT = np.dtype(np.float32)
LARGE = ("growth", "neural", "hinge", "co2")  # subpackages whose cases take seconds
FLOAT32_AND_NIGHTLY = [np.float32, pytest.param(np.float64, marks=pytest.mark.nightly)]


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(dtype, marks=[pytest.mark.slow] * (dtype == np.float32)) for dtype in exercise.DTYPES],
    ids=["float32", "float64"],
)
@pytest.mark.parametrize(
    "subpackage",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in exercise.SUBPACKAGES],
)
def test_kernels_agree_with_the_reference(subpackage, dtype):
    found = {case.name: exercise.problems(case) for case in exercise.cases_of(subpackage, dtype)}
    assert not {name: lines for name, lines in found.items() if lines}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOAT32_AND_NIGHTLY)
@pytest.mark.parametrize(
    "subpackage", [name for name in exercise.SUBPACKAGES if name != "optim"]
)  # asks for a stream, as steps of Adam do
def test_kernels_agree_where_arrays_are_like_those_of_cupy(subpackage, dtype):
    cases = [case for case in exercise.cases_of(subpackage, dtype) if not case.name.startswith("steps")]
    found = {case.name: exercise.problems(case, cupy=True) for case in cases}
    assert not {name: lines for name, lines in found.items() if lines}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOAT32_AND_NIGHTLY)
@pytest.mark.parametrize("subpackage", exercise.SUBPACKAGES)
def test_no_bit_depends_on_the_size_of_a_block(subpackage, dtype):
    for case in exercise.cases_of(subpackage, dtype):
        strict, expected = dataclasses.replace(case, near={}), exercise.results(case)
        for threads in (32, 96, 256):
            found = strict.differences(exercise.results(case, threads=threads), expected)
            assert not found, (case.name, threads)


def test_every_subpackage_has_cases():
    assert "hinge" in exercise.SUBPACKAGES
    for subpackage in exercise.SUBPACKAGES:
        assert list(exercise.cases_of(subpackage, np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("subpackage", ["co2", "core", "growth", "hinge", "split", "tree"])
def test_options_that_flush_are_seen(subpackage, monkeypatch):
    monkeypatch.setattr(launch, "OPTIONS", (*launch.OPTIONS, "-ftz=true"))
    monkeypatch.setattr(launch, "_kernels", {})
    monkeypatch.setattr(launch, "_module", functools.cache(launch._module.__wrapped__))
    assert any(
        exercise.problems(case)
        for case in exercise.cases_of(subpackage, np.float32)
        if "small" in case.name or "times 0" in case.name
    )


def test_a_difference_is_seen():
    (case, *_) = (c for c in exercise.cases_of("hinge", np.float64) if "n=50" in c.name)
    expected = case.call()
    changed = expected | {"column y": np.nextafter(expected["column y"], np.inf)}
    assert any("column y: " in line for line in case.differences(changed, expected))
    assert case.differences(expected | {"more": expected["column y"]}, expected)
    assert case.differences(expected | {"column leaf": expected["column leaf"].astype(np.int64)}, expected)


def _kernel(name, *args, n_blocks=1, threads=64, n_bytes=0):
    with host_compiler():
        launch_kernel(FAULTS, name, FLOAT, n_blocks, args, threads, n_bytes)


def _arguments():
    return [
        np.full(1, 1, np.int32), np.full(1, 2, np.int64), np.full(1, 4.0),
        np.zeros(10, np.float32), np.full(1, 8.0, np.float32), 10, 16.0,
    ]  # fmt: skip


def test_all_kinds_of_arguments_arrive():
    args = _arguments()
    _kernel("takes_all_kinds", *args)
    assert args[3].tolist() == [31.0] * 10


@pytest.mark.parametrize("n_blocks", [1, 3])
def test_shared_memory_and_barriers_work(n_blocks):
    a = np.zeros(n_blocks * 64, np.float32)
    _kernel("sound", a, a.size, n_blocks=n_blocks)
    assert a.tolist() == [*range(31, -1, -1)] * (2 * n_blocks)


@pytest.mark.parametrize("n_blocks", [1, 3])
def test_barriers_of_warps_work(n_blocks):
    a = np.zeros(n_blocks * 128, np.float32)
    _kernel("warps", a, a.size, n_blocks=n_blocks, threads=128)
    sums = np.arange(128).reshape(4, 32).sum(axis=1)
    assert (
        a.reshape(n_blocks, 4, 32).tolist()
        == [np.repeat(np.roll(sums, -1)[:, None], 32, axis=1).tolist()] * n_blocks
    )


@pytest.mark.parametrize("n_bytes", [512, 2048])
def test_warps_vote_and_blocks_have_memory(n_bytes):
    a = np.zeros(2 * 64, np.float32)
    _kernel("votes", a, a.size, n_blocks=2, n_bytes=n_bytes)
    assert a.reshape(2, 2, 32).tolist() == [[[8.0] * 32, [32.0] * 32]] * 2


def test_threads_of_a_warp_exchange_numbers():
    a = np.ones(64, np.float32)
    _kernel("exchanges", a, a.size)
    numbers = np.arange(64).reshape(4, 16)
    first = numbers.sum(axis=1) + 1000 * numbers[:, 2]
    assert a.reshape(4, 16).tolist() == [[float(n), *[0.0] * 15] for n in first]


def test_more_memory_than_a_block_has_is_refused():
    with pytest.raises(KernelError, match="kernel votes: a block here has 49152 bytes, not 49160"):
        _kernel("votes", np.zeros(64, np.float32), 64, n_bytes=49160)


@pytest.mark.parametrize(
    ("place", "wrong", "message"),
    [
        (0, np.zeros(1, np.int64), r"const int \*__restrict__ i: expected an array of int32, got int64"),
        (2, np.zeros(1, np.float32), "expected an array of float64, got float32"),
        (3, np.zeros(10), "expected an array of float32, got float64"),
        (3, np.zeros(20, np.float32)[::2], "expected a C-contiguous, aligned array"),
        (3, None, "expected an array, got NoneType"),
        (5, 10.0, "expected a number of int64"),
        (5, np.int32(10), "expected a number of int64"),
        (6, 16, "expected a number of float64"),
    ],
)
def test_a_wrong_argument_is_named(place, wrong, message):
    args = _arguments()
    args[place] = wrong
    with pytest.raises(KernelError, match=f"kernel takes_all_kinds, .*{message}"):
        _kernel("takes_all_kinds", *args)


def test_a_read_only_result_is_refused():
    args = _arguments()
    args[3].flags.writeable = False
    with pytest.raises(KernelError, match="expected a writable array"):
        _kernel("takes_all_kinds", *args)


def test_overlap_against_a_promise_is_refused():
    args = _arguments()
    args[4] = args[3][:1]
    with pytest.raises(KernelError, match="overlap, which __restrict__ excludes"):
        _kernel("takes_all_kinds", *args)


def test_a_missing_argument_is_refused():
    with pytest.raises(KernelError, match="takes 7 arguments, got 6"):
        _kernel("takes_all_kinds", *_arguments()[:-1])


def test_an_unknown_kernel_is_refused():
    with pytest.raises(KernelError, match="no kernel 'missing'; there are sound"):
        _kernel("missing")


@pytest.mark.parametrize("name", ["divergent_barrier", "divergent_blocks"])
def test_a_divergent_barrier_is_an_error_and_not_a_deadlock(name):
    a = np.zeros(256, np.float32)
    with pytest.raises(RuntimeError, match=r"__syncthreads\(\) was not reached by every thread"):
        _kernel(name, a, a.size, n_blocks=4)
    _kernel("sound", a, a.size, n_blocks=4)
    assert a[0] == 31


class Pointers(NamedTuple):
    i: Any
    d: Any
    a: Any


class Numbers(NamedTuple):
    n: Any
    m: Any
    h: Any


def _structs():
    pointers = Pointers(np.full(1, 1, np.int32), np.full(1, 2.0), np.zeros(10, np.float32))
    return pointers, 4, Numbers(10, 8, 16.0)


@pytest.mark.parametrize(("d", "expected"), [(np.full(1, 2.0), 31.0), (None, 29.0)], ids=["array", "null"])
def test_structs_arrive(d, expected):
    pointers, *others = _structs()
    _kernel("takes_structs", pointers._replace(d=d), *others)
    assert pointers.a.tolist() == [expected] * 10


@pytest.mark.parametrize(
    ("place", "member", "wrong", "message"),
    [
        (0, "i", np.zeros(1, np.int64), "expected an array of int32, got int64"),
        (0, "d", np.zeros(2)[::-1], "expected a C-contiguous, aligned array"),
        (0, "a", 4, "expected an array, got int64"),
        (2, "m", 8.0, "expected a number of int64"),
        (2, "h", 16, "expected a number of float64"),
    ],
)
def test_a_wrong_member_is_named(place, member, wrong, message):
    args = list(_structs())
    args[place] = args[place]._replace(**{member: wrong})
    with pytest.raises(KernelError, match=rf"kernel takes_structs, .*\b{member}: {message}"):
        _kernel("takes_structs", *args)


def test_overlap_of_members_is_refused():
    pointers, *others = _structs()
    i = pointers.a[:1].view(np.int32)
    with pytest.raises(KernelError, match="overlap, which __restrict__ excludes"):
        _kernel("takes_structs", pointers._replace(i=i), *others)


def test_another_struct_is_refused():
    pointers, k, numbers = _structs()
    with pytest.raises(KernelError, match="expected a NamedTuple Pointers, got Numbers"):
        _kernel("takes_structs", numbers, k, numbers)
    with pytest.raises(KernelError, match="expected a NamedTuple Numbers, got int64"):
        _kernel("takes_structs", pointers, k, 10)


def test_other_members_than_those_of_the_source_are_refused():
    pointers, k, numbers = _structs()
    swapped = NamedTuple("Numbers", [("m", int), ("n", int), ("h", float)])(*numbers)
    with pytest.raises(TypeError, match=r"expected the members n, m, h of gpu.cu, got m, n, h"):
        _kernel("takes_structs", pointers, k, swapped)


class Function:
    """A function of CuPy that writes down how it is called."""

    ptr = 0

    def __init__(self, launched):
        self.launched = launched

    def __call__(self, *call):
        self.launched.append(call)


class FakeCupy:
    """The parts of CuPy that `CupyCompiler` calls: what was compiled, and what was launched."""

    def __init__(self, monkeypatch, folder):
        self.compiled, self.launched, self.allowed, self.device = [], [], [], 0
        parts = {
            name: types.ModuleType(name)
            for name in (
                "cupy",
                "cupy.cuda",
                "cupy.cuda.compiler",
                "cupy.cuda.function",
                "cupy_backends",
                "cupy_backends.cuda",
                "cupy_backends.cuda.api",
            )
        }
        cuda = parts["cupy.cuda"]
        parts["cupy"].cuda = cuda
        cuda.nvrtc = types.SimpleNamespace(getVersion=lambda: (12, 9))
        cuda.Device = lambda: types.SimpleNamespace(compute_capability="90")
        parts["cupy.cuda.compiler"].compile_using_nvrtc = self._compile
        parts["cupy.cuda.function"].Module = lambda: types.SimpleNamespace(
            load=lambda image: None, get_function=lambda name: Function(self.launched)
        )
        runtime = types.SimpleNamespace(
            getDevice=lambda: self.device,
            cudaDevAttrMaxSharedMemoryPerBlockOptin=97,
            deviceGetAttribute=lambda attribute, device: {97: 4096}[attribute],
        )
        cuda.runtime = runtime
        parts["cupy_backends.cuda.api"].driver = types.SimpleNamespace(
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
            funcSetAttribute=lambda function, attribute, value: self.allowed.append(value),
        )
        for name, part in parts.items():
            monkeypatch.setitem(sys.modules, name, part)
        monkeypatch.setattr(launch, "compiler", launch.CupyCompiler())
        monkeypatch.setenv("CUPY_CACHE_DIR", str(folder))

    def _compile(self, source, options, cache_in_memory):
        self.compiled.append(options)
        return source.encode(), None

    def array(self, pointer, device=0):
        return types.SimpleNamespace(data=types.SimpleNamespace(ptr=pointer, device_id=device))


@pytest.fixture
def cupy(monkeypatch, tmp_path):
    return FakeCupy(monkeypatch, tmp_path)


def test_cupy_gets_structs_as_arrays_of_one_element(cupy):
    """CuPy passes a numpy.ndarray by value if its size is 1; a struct without gaps has the bytes of its members."""
    i, a = cupy.array(2**47 - 256), cupy.array(512)
    launch_kernel(FAULTS, "takes_structs", FLOAT, 3, (Pointers(i, None, a), 4, Numbers(10, -8, 16.0)), 64)
    ((grid, block, (pointers, k, numbers), n_bytes),) = cupy.launched
    assert (grid, block, k, n_bytes) == ((3,), (64,), 4, 0)
    assert type(k) is np.int64
    for passed, expected in [
        (pointers, struct.pack("=QQQ", 2**47 - 256, 0, 512)),
        (numbers, struct.pack("=qqd", 10, -8, 16.0)),
    ]:
        assert type(passed) is np.ndarray
        assert passed.size == 1
        assert passed.tobytes() == expected


def test_a_kernel_is_allowed_the_memory_of_its_blocks(cupy):
    assert launch.compiler.block_bytes() == 4096
    for n_bytes in (0, 80, 40, 88):
        launch_kernel(FAULTS, "sound", FLOAT, 1, (cupy.array(256), 1), 64, n_bytes)
    assert [call[-1] for call in cupy.launched] == [0, 80, 40, 88]
    assert cupy.allowed == [80, 88]


@pytest.mark.parametrize("dtype", exercise.DTYPES, ids=["float32", "float64"])
def test_nvrtc_gets_the_options_of_the_tests_and_no_others(cupy, dtype):
    launch_kernel(FAULTS, "sound", np.dtype(dtype), 1, (cupy.array(256), 1))
    assert cupy.compiled == [launch.options(dtype)]
    assert not flushes(*cupy.compiled)


def test_a_module_is_compiled_once_and_a_damaged_file_again(cupy, tmp_path):
    for n_compiled in (1, 1, 2):
        launch.compiler = launch.CupyCompiler()  # another process
        launch_kernel(FAULTS, "sound", FLOAT, 1, (cupy.array(256), 1))
        assert len(cupy.compiled) == n_compiled
        (kept,) = tmp_path.iterdir()
        if len(cupy.launched) == 2:
            kept.write_bytes(kept.read_bytes()[:-1])


@pytest.mark.parametrize("there", [0, 1])
def test_arrays_of_another_device_are_refused(cupy, there):
    cupy.device = 1 - there
    pointers = Pointers(cupy.array(256, cupy.device), None, cupy.array(512, there))
    for name, args in (
        ("sound", (cupy.array(512, there), 1)),
        ("takes_structs", (pointers, 4, Numbers(10, 8, 16.0))),
    ):
        with pytest.raises(
            ValueError,
            match=f"arrays of kernel {name}: expected device {cupy.device}, the current one, got device {there}; call",
        ):
            launch_kernel(FAULTS, name, FLOAT, 1, args)
    assert not cupy.launched


@pytest.mark.parametrize("member", ["int n", "real h", "double x, *y", "size n[2]", "Other o"])
def test_a_struct_with_another_member_is_refused(tmp_path, member):
    (tmp_path / "gpu.cu").write_text(f"struct Odd {{\n    double *a;\n    {member};\n}};\n")
    with pytest.raises(TypeError, match="struct Odd: expected members"):
        launch.source(tmp_path)


def test_a_struct_of_another_size_does_not_compile(tmp_path):
    (tmp_path / "gpu.cu").write_text("#define size int\nstruct Odd {\n    size n, m;\n};\n")
    with host_compiler(), pytest.raises(RuntimeError, match="Odd: eight bytes a member"):
        launch_kernel(tmp_path, "none", FLOAT, 1, ())


@pytest.mark.parametrize(
    ("record", "message"),
    [(("other", 99), "HF_OTHER"), (("gini", 1), "criterion gini of core/scores.py")],
)
def test_a_criterion_that_kernels_do_not_know_does_not_compile(tmp_path, monkeypatch, record, message):
    monkeypatch.setattr(scores, "CRITERIA", (scores.Criterion(*record, "classification"),))
    (tmp_path / "gpu.cu").write_text("")
    with host_compiler(), pytest.raises(RuntimeError, match=message):
        launch_kernel(tmp_path, "none", FLOAT, 1, ())


def test_errors_point_to_the_source(tmp_path):
    (tmp_path / "gpu.cu").write_text('extern "C" __global__ void broken(real *a) {\n    a[0] = nothing;\n}\n')
    with host_compiler(), pytest.raises(RuntimeError, match=r"gpu\.cu:2:.*nothing"):
        launch_kernel(tmp_path, "broken", FLOAT, 1, (np.zeros(1, np.float32),))


def test_float_atomics_do_not_compile(tmp_path):
    (tmp_path / "gpu.cu").write_text('extern "C" __global__ void add(real *a) {\n    atomicAdd(a, 1);\n}\n')
    with host_compiler(), pytest.raises(RuntimeError, match="atomicAdd"):
        launch_kernel(tmp_path, "add", FLOAT, 1, (np.zeros(1, np.float32),))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("__global__ void plain(real *a) {}", "another form"),
        ('extern "C" __global__ void kernel(int n) {}', "a number must be long long or double"),
        ('extern "C" __global__ void kernel(Thing *a) {}', "cannot read the parameter"),
    ],
)
def test_a_signature_of_another_form_is_refused(source, message):
    with pytest.raises(KernelError, match=message):
        signatures(source, FLOAT)


def test_signatures_are_read():
    source = """
    // extern "C" __global__ void comment(real *a) {}
    extern "C" __global__ void __launch_bounds__(128) two(const real *__restrict__ a, unsigned long long* b,
        /* __global__ */ size n) {}
    extern "C" __global__ void none() {}
    """
    kernels = signatures(source, FLOAT)
    assert list(kernels) == ["two", "none"]
    a, b, n = kernels["two"]
    assert (a.dtype, a.pointer, a.const, a.restrict) == (np.float32, True, True, True)
    assert (b.dtype, b.pointer, b.const, b.restrict) == (np.uint64, True, False, False)
    assert (n.dtype, n.pointer) == (np.int64, False)


def test_a_library_is_built_once():
    text = '#include "cuda.h"\nint once() { return 1; }\n'
    first = build(text)
    assert build(text) == first
    assert build(text, "thread") != first


def test_the_compiler_is_restored():
    before = launch.compiler
    with host_compiler() as inside:
        assert launch.compiler is inside is not before
    assert launch.compiler is before
    with pytest.raises(ZeroDivisionError), host_compiler():
        raise ZeroDivisionError
    assert launch.compiler is before
    x = np.zeros((1, 1), np.float32)
    route = hforest.hinge.traverse(x, x.copy(), np.zeros((1, 1), np.int32))
    assert route[0].item() == 0
