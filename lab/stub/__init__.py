"""CuPy on a device that is the host: `install` makes `import cupy` of this process compute here.

CuPy itself runs, but for what nothing but a GPU can do. Its module `runtime`, which is linked with CUDA's runtime
library, is built from its source over device.cpp, which is also the driver library. NVRTC is the host compiler. NumPy
sorts in place of Thrust, as Thrust does. `-ftz=true`, which CuPy gives to its own kernels, flushes float32 subnormals.

Needs cupy-cuda12x, nvidia-cuda-runtime-cu12 for its headers, Cython, a C++ compiler, and in HFOREST_STUB the unpacked
source distribution of the same release of CuPy.
"""

import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from host.compiler import build, compiler, flushes, folder
from host.like_cupy import by_bits

HERE = Path(__file__).resolve().parent
HOST = HERE.parents[1] / "tests" / "host"
RUNTIME = "cupy_backends.cuda.api.runtime"
CUDA = 12090
"""The version of CUDA that the modules of CuPy's wheel are built for."""


def _run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(str(part) for part in command)}\n{done.stdout}{done.stderr}")


@functools.cache
def _cuda_headers() -> Path:
    spec = importlib.util.find_spec("nvidia.cuda_runtime")
    for place in (spec and spec.submodule_search_locations) or ():
        return Path(place, "include")
    raise RuntimeError("the stub device needs CUDA's headers: pip install nvidia-cuda-runtime-cu12")


def _source() -> Path:
    source, release = Path(os.environ["HFOREST_STUB"]), importlib.metadata.version("cupy-cuda12x")
    if f"\nVersion: {release}\n" not in (source / "PKG-INFO").read_text(encoding="utf-8"):
        raise RuntimeError(f"HFOREST_STUB: expected the source of CuPy {release}, got another in {source}")
    return source


def _libraries() -> tuple[Path, Path]:
    """Returns the device's library and CuPy's module `runtime`, built once for each text of what they are made of."""
    source = _source() / "cupy_backends" / "cuda" / "api" / "runtime.pyx"
    parts = (
        HERE / "device.cpp",
        HERE / "entry.h",
        HERE / "rest.cpp",
        *sorted((HERE / "include").rglob("*.h")),
        source,
    )
    texts = [path.read_bytes() for path in parts]
    key = hashlib.sha256(b"\0".join([sys.version.encode(), *texts])).hexdigest()[:32]
    place = folder() / f"stub-{key}"
    device, runtime = place / "libcuda.so.1", place / "runtime.so"
    if runtime.exists():
        return device, runtime
    with tempfile.TemporaryDirectory(dir=folder()) as scratch:
        made = Path(scratch, "made")
        made.mkdir()
        headers = (f"-I{HERE / 'include'}", f"-I{_cuda_headers()}")
        flags = (str(compiler()), "-std=c++17", "-O1", "-fPIC", "-w", *headers)
        _run(
            *flags, "-shared", HERE / "device.cpp", HERE / "rest.cpp", "-Wl,-soname,libcuda.so.1", "-ldl",
            "-o", made / device.name,
        )  # fmt: skip
        constants = {
            "CUPY_USE_CUDA_PYTHON": False, "CUPY_CUFFT_STATIC": False, "CUPY_CUDA_VERSION": CUDA, "CUPY_HIP_VERSION": 0,
        }  # fmt: skip
        env = ",".join(f"{name}={value}" for name, value in constants.items())
        _run(
            sys.executable, "-m", "cython", "-3", "--cplus", "-X", "freethreading_compatible=True", "-E", env,
            "--working", _source(), source.relative_to(_source()), "-o", Path(scratch, "runtime.cpp"),
        )  # fmt: skip
        _run(
            *flags, "-shared", f"-I{source.parent}", f"-I{sysconfig.get_path('include')}", Path(scratch, "runtime.cpp"),
            f"-L{made}", f"-l:{device.name}", "-Wl,-rpath,$ORIGIN", "-o", made / runtime.name,
        )  # fmt: skip
        with contextlib.suppress(OSError):  # another process was first
            made.rename(place)
    return device, runtime


# --------------------------------------------------------------------------------------------------- NVRTC

_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")
_FLOAT = re.compile(r"\b(float|float16|half)\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-w", "-ffp-contract=off")


@functools.cache
def _precompiled(includes: tuple[str, ...]) -> Path:
    """Returns a folder with kernels.h and what it includes, compiled."""
    texts = [path.read_bytes() for path in sorted([*HERE.glob("*.h"), *HOST.glob("*.h")])]
    key = hashlib.sha256("\0".join([*FLAGS, *includes]).encode() + b"".join(texts)).hexdigest()[:32]
    place = folder() / f"kernels-{key}"
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=folder()) as scratch:
            made = Path(scratch, "made")
            made.mkdir()
            (made / "kernels.h").write_text(f'#include "{HERE / "kernels.h"}"\n', encoding="utf-8")
            out = made / "kernels.h.gch"
            _run(str(compiler()), *FLAGS, *includes, "-x", "c++-header", made / "kernels.h", "-o", out)
            with contextlib.suppress(OSError):
                made.rename(place)
    return place


class _Program:
    """What NVRTC compiles, and what comes of it."""

    def __init__(self, source: str) -> None:
        self.source, self.image, self.log = source, b"", ""

    def compile(self, options: Sequence[str]) -> None:
        if not self.source:  # CuPy asks for NVRTC's version so
            return
        includes = (*(o for o in options if o.startswith("-I") and "/cuda" not in o), f"-I{_cuda_headers()}")
        includes = (f"-I{HERE}", f"-I{HOST}", f"-I{HERE / 'include'}", *includes)
        names = _KERNEL.findall(_COMMENT.sub(" ", self.source))
        if "#include <cupy/" in self.source:
            # Operations on float64 alone do not flush.
            flush, first = flushes(options) and bool(_FLOAT.search(self.source)), "kernels.h"
            includes = (f"-I{_precompiled(includes)}", *includes)
        else:
            flush, first = flushes(options), "kernel.h"
        macros = [f"#define {o[2:].replace('=', ' ')}\n" for o in options if o.startswith("-D")]
        text = (
            f'#include "{first}"\n{"".join(macros)}#line 1 "{names[:1]}"\n{self.source}\n'
            f"namespace host {{ static bool flushes() {{ return {str(flush).lower()}; }} }}\n"
            + "".join(f"STUB_ENTRY({name})\n" for name in names)
        )
        library = build(text, flags=(*FLAGS, "-shared", *includes), headers=(HERE, HOST))
        self.image = f"HOST:{library}".encode()


class Nvrtc:
    """The functions of CuPy's module `nvrtc`, and its error."""

    NVRTCError = RuntimeError

    def __init__(self) -> None:
        self.programs: dict[int, _Program] = {}

    def getVersion(self) -> tuple[int, int]:
        return CUDA // 1000, CUDA // 10 % 100

    def createProgram(self, source: str, name: str, headers: Any, names: Any) -> int:
        number = len(self.programs) + 1
        self.programs[number] = _Program(source)
        return number

    def compileProgram(self, number: int, options: Sequence[str]) -> None:
        try:
            self.programs[number].compile(options)
        except RuntimeError as error:
            self.programs[number].log = str(error)
            raise

    def getPTX(self, number: int) -> bytes:
        return self.programs[number].image

    getCUBIN = getPTX

    def getProgramLog(self, number: int) -> str:
        return self.programs[number].log

    def destroyProgram(self, number: int) -> None:
        self.programs[number].source = ""


# -------------------------------------------------------------------------------------------------- Thrust


def _memory(address: int, dtype: Any, shape: Sequence[int]) -> np.ndarray:
    dtype = np.dtype(dtype)
    n = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer((ctypes.c_char * (n * dtype.itemsize)).from_address(address), dtype).reshape(shape)


def _keys(a: np.ndarray) -> np.ndarray:
    return by_bits(a) if a.ndim == 1 else a


def _sort(dtype: Any, data: int, keys: int, shape: Sequence[int]) -> None:
    a = _memory(data, dtype, shape)
    a[...] = np.take_along_axis(a, np.argsort(_keys(a), axis=-1, kind="stable"), axis=-1)


def _argsort(dtype: Any, index: int, data: int, keys: int, shape: Sequence[int]) -> None:
    _memory(index, np.uint64, shape)[...] = np.argsort(
        _keys(_memory(data, dtype, shape)), axis=-1, kind="stable"
    )


def _lexsort(dtype: Any, index: int, keys: int, k: int, n: int) -> None:
    _memory(index, np.uint64, (n,))[...] = np.lexsort(_memory(keys, dtype, (k, n)))


# ------------------------------------------------------------------------------------------------- install


@functools.cache
def install() -> Any:
    """Imports CuPy on the stub device, once, and returns the device's library."""
    if "cupy" in sys.modules:
        raise RuntimeError(
            "stub.install: expected CuPy not to be imported yet; install the stub device first"
        )
    os.environ["CUPY_ACCELERATORS"] = ""  # not CUB
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
    os.environ["CUPY_CACHE_DIR"] = tempfile.mkdtemp(prefix="hforest-stub-")
    device, runtime = _libraries()
    library = ctypes.CDLL(str(device), mode=ctypes.RTLD_GLOBAL)
    library.stub_count.restype = ctypes.c_longlong
    spec = importlib.util.spec_from_file_location(RUNTIME, runtime)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[RUNTIME] = module
    spec.loader.exec_module(module)
    import cupy
    import cupyx
    from cupy.cuda import thrust
    from cupy_backends.cuda.libs import nvrtc

    assert (
        cupyx.rsqrt
    )  # imports cupyx now: it is lazy, and does not bear that a module of it is imported first
    cupy.cuda.set_allocator(None)  # each array has fresh memory
    ours = Nvrtc()
    for name in dir(Nvrtc):
        if not name.startswith("_"):
            setattr(nvrtc, name, getattr(ours, name))
    thrust.sort, thrust.argsort, thrust.lexsort = _sort, _argsort, _lexsort
    return library


@contextlib.contextmanager
def idle() -> Iterator[None]:
    """Launches run no kernels in a `with` block: results have no values."""
    library = install()
    library.stub_idle(1)
    try:
        yield
    finally:
        library.stub_idle(0)


@contextlib.contextmanager
def counted() -> Iterator[Any]:
    """Yields a function that returns how often the device did something since the block began: "launches", "launch"
    and the name of a kernel, "waits", "allocations", "to device", "to host", "device to device"; and "bytes", the most
    that were allocated at once beside those before."""
    library = install()
    library.stub_reset()
    yield lambda name: int(library.stub_count(name.encode()))
