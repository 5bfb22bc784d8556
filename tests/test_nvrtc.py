"""Every gpu.cu compiles with NVRTC, which needs no GPU: oldest and newest architecture, float and double."""

import ctypes
import functools
import importlib.util
import struct
from pathlib import Path

import numpy as np
import pytest
from host.compiler import signatures

import hforest
from hforest.core import launch

SUBPACKAGES = sorted(path.parent for path in Path(hforest.__file__).parent.glob("*/gpu.cu"))


def _candidates():
    # First the wheel nvidia-cuda-nvrtc-cu12 (or -cu13), a namespace package; then the path of the loader.
    for package in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (spec and spec.submodule_search_locations) or ():
            yield from (str(path) for path in sorted(Path(folder, "lib").glob("libnvrtc.so.*")))
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


@functools.cache
def _nvrtc():
    for name in _candidates():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


@pytest.fixture(scope="module")
def nvrtc():
    library = _nvrtc()
    if library is None:
        pytest.skip("no NVRTC: install nvidia-cuda-nvrtc-cu12")
    return library


def _checked(library, status):
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {library.nvrtcGetErrorString(status).decode()}")


def _architectures(library):
    count = ctypes.c_int()
    _checked(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _checked(library, library.nvrtcGetSupportedArchs(numbers))
    return list(numbers)


def _compile(library, source, options, cubin=None):
    """Returns whether it compiled, and the log; appends to `cubin`, a list, what came of it."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    _checked(
        library,
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None),
    )
    try:
        words = [option.encode() for option in options]
        status = library.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
        _checked(library, library.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        _checked(library, library.nvrtcGetProgramLog(program, log))
        if cubin is not None:
            _checked(library, library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
            image = ctypes.create_string_buffer(size.value)
            _checked(library, library.nvrtcGetCUBIN(program, image))
            cubin.append(image.raw)
        return status == 0, log.value.decode()
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _warnings(log):
    # NVRTC's own lines announce that an old architecture will be dropped.
    return [line for line in log.splitlines() if "warning" in line and not line.startswith("nvrtc:")]


def _options(architecture, dtype):
    return (*launch.options(dtype), f"--gpu-architecture={architecture}")


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
    """Returns (offset, size) of what launch.py passes to each kernel."""
    declared, passed = launch.structs(source), {}
    for name, parameters in signatures(source, np.dtype(dtype)).items():
        sizes = [declared[p.type].layout.size if p.members else 8 for p in parameters]
        passed[name] = list(zip(np.cumsum([0, *sizes]).tolist(), sizes, strict=False))
    return passed


def test_subpackages_with_kernels_are_found():
    assert "hinge" in [subpackage.name for subpackage in SUBPACKAGES]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("age", ["oldest", "newest"])
@pytest.mark.parametrize("subpackage", SUBPACKAGES, ids=[subpackage.name for subpackage in SUBPACKAGES])
def test_compiles_without_a_warning(nvrtc, subpackage, age, dtype):
    architectures = _architectures(nvrtc)
    number = min(architectures) if age == "oldest" else max(architectures)
    worked, log = _compile(nvrtc, launch.source(subpackage), _options(f"compute_{number}", dtype))
    assert worked, log
    assert not _warnings(log), log


@pytest.mark.parametrize("subpackage", SUBPACKAGES, ids=[subpackage.name for subpackage in SUBPACKAGES])
def test_parameters_have_the_sizes_that_are_passed(nvrtc, subpackage):
    source, cubin = launch.source(subpackage), []
    number = min(_architectures(nvrtc))
    assert _compile(nvrtc, source, _options(f"sm_{number}", np.float32), cubin)[0]
    assert _parameters(cubin[0]) == _passed(source, np.float32)


def test_a_parameter_of_another_size_is_seen(nvrtc, tmp_path):
    kernel = 'extern "C" __global__ void two(real *a, int n, double h) { a[n] = h; }\n'
    (tmp_path / "gpu.cu").write_text(kernel)
    options, cubin = _options(f"sm_{min(_architectures(nvrtc))}", np.float32), []
    assert _compile(nvrtc, launch.source(tmp_path), options, cubin)[0]
    assert _parameters(cubin[0]) == {"two": [(0, 8), (8, 4), (16, 8)]}


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
    number = min(_architectures(nvrtc))
    worked, log = _compile(nvrtc, launch.source(tmp_path), _options(f"compute_{number}", np.float32))
    assert not worked
    assert "nothing" in log
    assert "gpu.cu(2)" in log


def test_a_struct_of_another_size_does_not_compile(nvrtc, tmp_path):
    (tmp_path / "gpu.cu").write_text("#define size int\nstruct Odd {\n    size n, m;\n};\n")
    number = min(_architectures(nvrtc))
    worked, log = _compile(nvrtc, launch.source(tmp_path), _options(f"compute_{number}", np.float32))
    assert not worked
    assert "Odd: eight bytes a member" in log


def test_a_warning_is_seen(nvrtc, tmp_path):
    (tmp_path / "gpu.cu").write_text('extern "C" __global__ void loose(real *a) {\n    int unused;\n}\n')
    number = min(_architectures(nvrtc))
    worked, log = _compile(nvrtc, launch.source(tmp_path), _options(f"compute_{number}", np.float32))
    assert worked, log
    assert _warnings(log)
