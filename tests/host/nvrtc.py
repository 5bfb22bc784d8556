"""NVRTC without CuPy and without a GPU: what it compiles, and what its assembler says of each kernel."""

import ctypes
import functools
import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hforest.core import launch


def _candidates() -> Iterator[str]:
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
def library() -> Any:
    """Returns NVRTC, or None where it is not installed."""
    for name in _candidates():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _check(nvrtc: Any, status: int) -> None:
    if status:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status).decode()}")


def architectures(nvrtc: Any) -> list[int]:
    """Returns the architectures that it compiles for: 80 for sm_80."""
    count = ctypes.c_int()
    _check(nvrtc, nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(nvrtc, nvrtc.nvrtcGetSupportedArchs(numbers))
    return list(numbers)


def compiled(
    nvrtc: Any, source: str, options: Sequence[str], image: list[bytes] | None = None
) -> tuple[bool, str]:
    """Returns whether a source compiles, and the log; appends to `image`, a list, the cubin, or for compute_90 the PTX."""
    status, log, made = _compiled(nvrtc, source, tuple(options))
    if image is not None and status == 0:
        image.append(made)
    return status == 0, log


@functools.cache  # tests of the parameters of kernels and of their registers compile the same
def _compiled(nvrtc: Any, source: str, options: tuple[str, ...]) -> tuple[int, str, bytes]:
    """Returns the status, the log and the image, empty without one."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    _check(
        nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    )
    try:
        words = [option.encode() for option in options]
        status = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
        _check(nvrtc, nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        _check(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
        kind = "PTX" if any("compute_" in option for option in options) else "CUBIN"
        made = b""
        if status == 0:
            _check(nvrtc, getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
            buffer = ctypes.create_string_buffer(size.value)
            _check(nvrtc, getattr(nvrtc, f"nvrtcGet{kind}")(program, buffer))
            made = buffer.raw
        return status, log.value.decode(), made
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def version(nvrtc: Any) -> str:
    """Returns the version of NVRTC, such as "12.9"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(nvrtc, nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def options(architecture: str, dtype: Any) -> tuple[str, ...]:
    """Returns the options of launch.py and an architecture: compute_90, or sm_90 for a cubin, with a log of registers."""
    words = (*launch.options(dtype), f"--gpu-architecture={architecture}")
    return (*words, "--ptxas-options=-v") if architecture.startswith("sm_") else words


_ENTRY = re.compile(r"Compiling entry function '(\w+)'(.*?)(?=Compiling entry function|\Z)", re.DOTALL)
_NUMBERS = {
    "stack": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "registers": r"Used (\d+) registers",
    "shared": r"(\d+) bytes smem",
}


def resources(source: str, architecture: int, dtype: Any) -> dict[str, dict[str, int]]:
    """Returns of each kernel the registers of a thread, its bytes of stack and spills, and shared bytes of a block."""
    worked, log = compiled(library(), source, options(f"sm_{architecture}", np.dtype(dtype)))
    if not worked:
        raise RuntimeError(log)
    found = {}
    for name, text in _ENTRY.findall(log):
        matches = {key: re.search(pattern, text) for key, pattern in _NUMBERS.items()}
        found[name] = {key: int(match[1]) if match else 0 for key, match in matches.items()}
    return found
