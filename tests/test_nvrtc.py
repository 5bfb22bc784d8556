"""Every gpu.cu compiles with NVRTC, which needs no GPU: oldest and newest architecture, float and double."""

import json
import re
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from host import nvrtc as nvrtc_of_host
from host import ptx
from host.compiler import MODULES, signatures
from host.nvrtc import architectures, compiled, options, resources

from hforest.co2 import gpu as co2
from hforest.core import launch


@pytest.fixture(scope="module")
def nvrtc():
    library = nvrtc_of_host.library()
    if library is None:
        pytest.skip("no NVRTC: install nvidia-cuda-nvrtc-cu12")
    return library


def _warnings(log):
    # NVRTC announces that it will drop an old architecture.
    return [line for line in log.splitlines() if "warning" in line and not line.startswith("nvrtc:")]


def _sections(image):
    """Yields (name, bytes) of the sections of a 64-bit ELF file."""
    (start,) = struct.unpack_from("<Q", image, 40)
    size, n, names = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQ", image, start + i * size) for i in range(n)]
    texts = headers[names][4]
    for name, _, _, _, offset, length in headers:
        first = texts + name
        yield image[first : image.index(b"\0", first)].decode(), image[offset : offset + length]


def _parameters(image):
    """Returns (offset, size) of each kernel's parameters, as its cubin describes them to the driver."""
    found = {}
    for name, data in _sections(image):
        if not name.startswith(".nv.info."):
            continue
        parameters, at = {}, 0
        while at < len(data):
            form, attribute, length = struct.unpack_from("<BBH", data, at)
            if attribute == 0x17:  # EIATTR_KPARAM_INFO
                _, number, offset, word = struct.unpack_from("<IHHI", data, at + 4)
                parameters[number] = offset, word >> 18
            at += 4 + (length if form == 4 else 0)
        found[name.removeprefix(".nv.info.")] = [parameters[i] for i in range(len(parameters))]
    return found


def _passed(source, dtype):
    """Returns (offset, size) of the parameters that launch.py passes to each kernel."""
    declared, passed = launch.structs(source), {}
    for name, parameters in signatures(source, np.dtype(dtype)).items():
        sizes = [declared[p.type].layout.size if p.members else 8 for p in parameters]
        passed[name] = list(zip(np.cumsum([0, *sizes]).tolist(), sizes, strict=False))
    return passed


def test_subpackages_with_kernels_are_found():
    assert "hinge" in [subpackage for subpackage, _ in MODULES]


@pytest.mark.parametrize(
    ("age", "dtype"),
    [
        (max, np.float64),  # all kernels of float32 are made to PTX below
        *(
            pytest.param(*pair, marks=pytest.mark.nightly)
            for pair in ((min, np.float32), (min, np.float64), (max, np.float32))
        ),
    ],
    ids=["newest-float64", "oldest-float32", "oldest-float64", "newest-float32"],
)
@pytest.mark.parametrize(("subpackage", "macros"), MODULES)
def test_compiles_without_a_warning_with_the_parameters_that_are_passed(
    nvrtc, subpackage, macros, age, dtype
):
    source, cubin = launch.defined(macros) + launch.source(launch.PACKAGE / subpackage), []
    worked, log = compiled(nvrtc, source, options(f"sm_{age(architectures(nvrtc))}", dtype), cubin)
    assert worked, log
    assert not _warnings(log), log
    assert _parameters(cubin[0]) == _passed(source, dtype)


def test_a_parameter_of_another_size_is_seen(nvrtc, tmp_path):
    kernel = 'extern "C" __global__ void two(real *a, int n, double h) { a[n] = h; }\n'
    (tmp_path / "gpu.cu").write_text(kernel)
    words, cubin = options(f"sm_{min(architectures(nvrtc))}", np.float32), []
    assert compiled(nvrtc, launch.source(tmp_path), words, cubin)[0]
    assert _parameters(cubin[0]) == {"two": [(0, 8), (8, 4), (16, 8)]}


def test_spills_and_registers_are_read(nvrtc, tmp_path):
    many = "".join(f"    real a{i} = x[{i} * n];\n" for i in range(200))
    last = "".join(f"    x[{i} * n + 1] = a{i} * a{(i + 7) % 200};\n" for i in range(200))
    (tmp_path / "gpu.cu").write_text(
        f'extern "C" __global__ void __launch_bounds__(1024) much(real *x, long long n) {{\n{many}'
        f"    __syncthreads();\n{last}}}\n"
        'extern "C" __global__ void little(real *x) {\n    __shared__ real a[64];\n    a[threadIdx.x] = x[0];\n'
        "    __syncthreads();\n    x[threadIdx.x] = a[63 - threadIdx.x];\n}\n"
    )
    found = resources(launch.source(tmp_path), 80, np.float32)
    assert found["much"]["spill_stores"] > 0
    assert found["much"]["registers"] == 64
    assert found["little"].pop("registers") < 20
    assert found["little"] == {"stack": 0, "spill_stores": 0, "spill_loads": 0, "shared": 256}


def test_a_header_comes_once_and_with_its_own_lines(tmp_path):
    # common.cuh includes core/philox.h too.
    (tmp_path / "gpu.cu").write_text('#include "core/philox.h"\n#include "core/projections.h"\nint last;\n')
    lines = launch.source(tmp_path).splitlines()
    for header in ("both", "philox", "projections"):
        assert lines.count(f'#line 1 "core/{header}.h"') == 1
    assert lines[lines.index("int last;") - 1] == f'#line 3 "{tmp_path.name}/gpu.cu"'
    assert not any("#include" in line and "core/" in line for line in lines)


def test_a_broken_kernel_fails_at_its_line(nvrtc, tmp_path):
    (tmp_path / "gpu.cu").write_text('extern "C" __global__ void broken(real *a) {\n    a[0] = nothing;\n}\n')
    number = min(architectures(nvrtc))
    worked, log = compiled(nvrtc, launch.source(tmp_path), options(f"compute_{number}", np.float32))
    assert not worked
    assert "nothing" in log
    assert "gpu.cu(2)" in log


def test_a_struct_of_another_size_does_not_compile(nvrtc, tmp_path):
    (tmp_path / "gpu.cu").write_text("#define size int\nstruct Odd {\n    size n, m;\n};\n")
    number = min(architectures(nvrtc))
    worked, log = compiled(nvrtc, launch.source(tmp_path), options(f"compute_{number}", np.float32))
    assert not worked
    assert "Odd: eight bytes a member" in log


def test_a_warning_is_seen(nvrtc, tmp_path):
    (tmp_path / "gpu.cu").write_text('extern "C" __global__ void loose(real *a) {\n    int unused;\n}\n')
    number = min(architectures(nvrtc))
    worked, log = compiled(nvrtc, launch.source(tmp_path), options(f"compute_{number}", np.float32))
    assert worked, log
    assert _warnings(log)


# ------------------------------------------------------------------------------------------------ PTX


@pytest.mark.parametrize(("subpackage", "macros"), MODULES)
def test_kernels_read_what_they_wrote_and_round_each_operation(nvrtc, subpackage, macros):
    kernels = ptx.kernels(launch.defined(macros) + launch.source(launch.PACKAGE / subpackage), np.float32)
    assert kernels
    for name, text in kernels.items():
        assert "ld.param" in text, name
        assert not ptx.stale_reads(text), name
        assert not ptx.changes_of_rounding(text), name


@pytest.mark.parametrize(
    ("body", "stale", "rounding"),
    [
        ("a[i] = __ldg(a + i + 1) + b[i];", {"tried_param_0"}, set()),
        ("const real *p = n > 3 ? a : b; real *q = n > 5 ? a : b; q[i] = __ldg(p + i);", {"tried_param_0", "tried_param_1"}, set()),
        ("const real *p = a; for (int j = 0; j < n; ++j) p += n; a[i] = __ldg(p);", {"tried_param_0"}, set()),
        ("atomicAdd(a + i, __ldg(a));", {"tried_param_0"}, set()),
        ("a[i] = __ldg(b + i) + a[i + 1];", set(), set()),
        ("a[i] = fmaf(a[i], b[i], 1.0f);", set(), {"fma.rn.f32"}),
        ("real r; asm(\"add.ftz.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a[i]), \"f\"(b[i])); a[i] = r;", set(), {"add.ftz.f32"}),
    ],
    ids=["same", "chosen", "moved", "atomic", "other", "fma", "ftz"],
)  # fmt: skip
def test_stale_reads_and_other_roundings_are_seen(nvrtc, tmp_path, body, stale, rounding):
    kernel = f'extern "C" __global__ void tried(real *a, real *b, int n) {{ int i = threadIdx.x; {body} }}\n'
    (tmp_path / "gpu.cu").write_text(kernel)
    text = ptx.kernels(launch.source(tmp_path), np.float32)["tried"]
    assert ptx.stale_reads(text) == stale
    assert ptx.changes_of_rounding(text) == rounding


@pytest.mark.parametrize("ahead", [4, 1])
def test_samples_are_read_before_they_are_added(nvrtc, ahead):
    # With `ahead` samples read together, all sums but the first wait for the one before alone.
    source, line = launch.source(launch.PACKAGE / "hinge"), "constexpr int AHEAD = {};"
    assert line.format(4) in source
    kernels = ptx.kernels(source.replace(line.format(4), line.format(ahead)), np.float32)
    loops = {
        "backward_parameters": 2,
        "adam_parameters": 2,
        "backward_images": 1,
        "pull_features_projection": 1,
    }
    # A block of adam_parameters computes a mean, too, as the kernel `mean` of layers does.
    of_mean = ptx.chains(ptx.kernels(launch.source(launch.PACKAGE / "layers"), np.float32)["mean"])
    for name, n in loops.items():
        found = ptx.chains(kernels[name])
        assert len(found) == n * (ahead - 1) + len(of_mean) * (name == "adam_parameters"), name
        assert max(found, default=0) <= 16, name


SUMS = {
    "co2": {
        "fit_stumps": 9, "chunk_slopes": 1, "chunk_terms": 1, "chunk_sides": 2, "sum_leaves": 1, "tree_bounds": 1,
    },
    "hinge": {"leaf_outputs_sum": 1, "loss_slopes": 1},
}  # fmt: skip
"""Loops of kernels that add numbers of samples or of trees by `sum_ahead`."""


@pytest.mark.parametrize(
    ("package", "old", "new", "worse"),
    [
        *((package, "int AHEAD = 8,", "int AHEAD = 8,", set()) for package in SUMS),
        *((package, "int AHEAD = 8,", "int AHEAD = 1,", {*sums}) for package, sums in SUMS.items()),
        ("co2", "row_here[at + a] * n_features;", "r.order[row_here[at + a]] * n_features;", {"fit_stumps"}),
    ],
)
def test_numbers_are_read_before_they_are_added(nvrtc, package, old, new, worse):
    # A turn of a loop adds at least eight, whose addresses take at most one load.
    source, sums = launch.source(launch.PACKAGE / package), SUMS[package]
    assert old in source
    kernels = ptx.kernels(source.replace(old, new), np.float32)
    found = {name: [of for of in ptx.turns(kernels[name]) if of[0] >= 8] for name in sums}
    assert {
        name for name in sums if len(found[name]) < sums[name] or any(n > 2 for _, n in found[name])
    } == worse


@pytest.mark.parametrize(
    ("dtype", "n_features", "kilobytes", "n_stumps", "stride"),
    [
        (np.float32, 256, 227, 1, 260), (np.float32, 261, 227, 1, 0), (np.float32, 256, 227, co2.FEW + 1, 0),
        (np.float64, 124, 227, 1, 124), (np.float64, 256, 227, 1, 0), (np.float32, 180, 163, 1, 180),
        (np.float32, 256, 163, 1, 0),
    ],
)  # fmt: skip
def test_stumps_have_buffers_that_fit_a_block(
    nvrtc, monkeypatch, dtype, n_features, kilobytes, n_stumps, stride
):
    room, itemsize, source = kilobytes << 10, np.dtype(dtype).itemsize, launch.source(launch.PACKAGE / "co2")
    monkeypatch.setattr(launch, "compiler", SimpleNamespace(block_bytes=lambda: room))
    state = 8 * (n_features + 83) + 2 * n_features * itemsize
    samples = SimpleNamespace(n_features=n_features, n=20_000)
    front, found = co2._buffers(samples, 100, n_stumps, itemsize, state)
    assert found == stride
    assert front >= 200 * (8 + stride * itemsize) if stride else front == 8192
    assert front + state + resources(source, 90, dtype)["fit_stumps"]["shared"] <= room


def test_rows_are_copied_while_a_kernel_runs(nvrtc):
    # GPUs before sm_80 have no such copies; test_compiles_... has the oldest.
    text = ptx.kernels(launch.source(launch.PACKAGE / "co2"), np.float32)["fit_stumps"]
    assert "cp.async.ca.shared.global" in text
    # The barrier after which rows are read is next to the wait: one of an epoch's first chunk, one of the others.
    assert len(re.findall(r"cp\.async\.wait_all;[^@]{0,200}?bar\.sync", text)) == 2


def test_digests_see_a_changed_kernel_alone(nvrtc, tmp_path):
    def digests(text):
        (tmp_path / "gpu.cu").write_text(text)
        return {name: ptx.digest(t) for name, t in ptx.kernels(launch.source(tmp_path), np.float32).items()}

    kernel = (
        'extern "C" __global__ void {}(real *a, int n) {{ for (int i = 0; i < n; ++i) a[i * n] {} a[i]; }}\n'
    )
    one, two = (
        digests(kernel.format("one", "+=")),
        digests(kernel.format("two", "-=") + kernel.format("one", "+=")),
    )
    assert one["one"] == two["one"]
    assert two["one"] != two["two"]


def test_pages_name_the_kernels_that_have_never_run_on_a_gpu(nvrtc, script):
    bench = script("gpu")
    known, found = json.loads((bench.RESULTS / "gpu.json").read_text())["kernels"], bench.kernels()
    if known["nvrtc"] != found["nvrtc"]:
        pytest.skip(f"the digests on record are of NVRTC {known['nvrtc']}, this is {found['nvrtc']}")
    table = bench.untimed(known, found)
    assert f"\n{table}\n" in (bench.ROOT / "docs" / "performance-tables.md").read_text()
    changed, total = table.count("`, `") + table.count("| `") // 2, len(found["digests"])
    assert f"the {changed} of {total} kernels" in (bench.ROOT / "README.md").read_text()
    for name in ("hinge/forward_missing", "tree/pack"):
        other = {**found["digests"], name: ""}
        assert f"`{name.split('/')[1]}`" in bench.untimed(known, {**found, "digests": other})
