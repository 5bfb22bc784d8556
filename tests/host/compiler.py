"""Compiles CUDA kernels as C++ and runs them on NumPy arrays, in place of NVRTC and CuPy.

It is stricter than CuPy: the number of arguments, their dtypes, layout, writability and overlap are checked against each
kernel's signature, and those of the members of structs against the declarations of the structs. It can compile with a
sanitizer, whose runtime must then be preloaded into the Python process (`sanitized_command`).
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

try:
    import fcntl
except ImportError:  # Windows, where kernels are not built on the host
    fcntl = None  # type: ignore[assignment]

import hforest
from hforest.core import dispatch, launch

HERE = Path(__file__).resolve().parent
SUBPACKAGES = sorted(path.relative_to(launch.PACKAGE).parts[0] for path in launch.PACKAGE.rglob("gpu.cu"))
MODULES = [*((name, ()) for name in SUBPACKAGES), ("growth", ("MONOTONIC",))]
"""The subpackage and the macros of each module of kernels."""

FLAGS = (
    "-std=c++20", "-fPIC", "-shared", "-ffp-contract=off",
    "-Wall", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-unused-variable",
)  # fmt: skip
SANITIZE = {
    None: ("-O0",),  # compiling takes longer than the kernels
    "thread": ("-O0", "-g1", "-fsanitize=thread"),
    "address,undefined": ("-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "counter": ("-O2",),  # counts.cpp
    # Calls of it for each access and each basic block, in place of ThreadSanitizer's runtime.
    "counts": (
        "-O1", "-DHOST_COUNTS", "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0",
        "-fsanitize-coverage=trace-pc", "-fno-reorder-blocks", "-nodefaultlibs",
    ),
}  # fmt: skip
RUNTIMES = {"thread": ("libtsan.so",), "address,undefined": ("libasan.so", "libubsan.so")}

TYPES = {
    "char": np.int8,
    "signed char": np.int8,
    "unsigned char": np.uint8,
    "unsigned short": np.uint16,
    "int": np.int32,
    "unsigned": np.uint32,
    "unsigned int": np.uint32,
    "long long": np.int64,
    "size": np.int64,
    "unsigned long long": np.uint64,
    "float": np.float32,
    "double": np.float64,
}

OUTCOMES = {
    1: "__syncthreads() was not reached by every thread of a block",
    2: "no memory for the stacks of a block's threads",
}
"""What a launch may return beside 0."""


BLOCK_BYTES = 2048
"""Shared memory of a block, as kernels are told: so little that small arrays are processed in parts."""

SMALL = 20
"""Samples of a node that a block grows to its leaves in tests on the host: larger nodes grow level by level."""

SURE_BYTES = 48 << 10
"""Shared memory of a block that every GPU has, and that kernels need not ask for."""


class Parameter(NamedTuple):
    text: str
    type: str
    dtype: np.dtype
    pointer: bool
    const: bool
    restrict: bool
    members: "tuple[Parameter, ...]" = ()
    """Of a struct."""


class KernelError(TypeError):
    """A kernel was launched with arguments that do not fit its signature."""


# ----------------------------------------------------------------------------------------- signatures

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(
    r'extern\s*"C"\s*__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+'
    r"(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)"
)
_PARAMETER = re.compile(
    r"(?P<const>const\s+)?(?P<type>\w+(?:\s+(?:int|long|char|short))*)\s*(?P<pointer>\*)?\s*"
    r"(?P<restrict>__restrict__\s+)?(?P<name>\w+)"
)


def _parameter(text: str, dtype: np.dtype) -> Parameter:
    text = " ".join(text.split())
    match = _PARAMETER.fullmatch(text)
    kind = match["type"] if match else ""
    element = dtype if kind == "real" else TYPES.get(kind)
    if match is None or element is None:
        raise KernelError(
            f"cannot read the parameter {text!r}; write [const] type [*] [__restrict__] name, with a type "
            f"among real, {', '.join(TYPES)}"
        )
    pointer = match["pointer"] is not None
    return Parameter(
        text, kind, np.dtype(element), pointer, match["const"] is not None, match["restrict"] is not None
    )


def _struct(text: str, members: dict[str, tuple[Parameter, ...]]) -> Parameter | None:
    words = text.split()
    if len(words) != 2 or words[0] not in members:
        return None
    return Parameter(" ".join(words), words[0], np.dtype(np.void), False, False, False, members[words[0]])


def signatures(source: str, dtype: np.dtype) -> dict[str, tuple[Parameter, ...]]:
    """Returns the kernels of a translation unit, by name, with their parameters."""
    code = _COMMENT.sub(" ", source)
    members = {
        name: tuple(_parameter(f"{of} {member}", dtype) for member, of in struct.types.items())
        for name, struct in launch.structs(source).items()
    }
    kernels = {}
    for name, parameters in _KERNEL.findall(code):
        texts = [text for text in parameters.split(",") if text.strip()]
        kernels[name] = tuple(_struct(text, members) or _parameter(text, dtype) for text in texts)
    if len(kernels) != len(re.findall(r"\b__global__\b", code)):
        raise KernelError(
            '__global__ appears in another form than extern "C" __global__ void name(parameters) '
            f"with names of their own; kernels read: {', '.join(kernels) or 'none'}"
        )
    for name, parameters in kernels.items():
        for p in parameters:
            # launch.py passes scalars as np.int64 and np.float64 only.
            if not p.pointer and not p.members and p.dtype not in (np.int64, np.float64):
                raise KernelError(f"kernel {name}, {p.text}: a number must be long long or double")
    return kernels


def flushes(options: Sequence[str]) -> bool:
    """Returns whether NVRTC, of which the last option of a kind holds, makes float32 subnormals 0."""
    return [o.lstrip("-") for o in options if "ftz=" in o][-1:] == ["ftz=true"]


def _trampoline(name: str, parameters: Sequence[Parameter]) -> str:
    types = [f"{'const ' * p.const}{p.type}{' *' * p.pointer}" for p in parameters]
    arguments = ", ".join(f"host::argument<{t}>(words + {i})" for i, t in enumerate(types))
    return (
        f'extern "C" int host_launch_{name}(long long n_blocks, long long n_threads, '
        f"const unsigned long long *words) {{\n"
        f"    return host::run(n_blocks, n_threads, [=] {{ {name}({arguments}); }});\n}}\n"
    )


# ----------------------------------------------------------------------------------------- compilation


@functools.cache
def compiler() -> str | None:
    """Returns the path of this machine's C++ compiler, or None."""
    return next((path for path in map(shutil.which, ("g++", "clang++")) if path), None)


def have_compiler() -> bool:
    """Returns whether kernels can be compiled here."""
    return fcntl is not None and compiler() is not None


@functools.cache
def _compiler_version() -> str:
    return subprocess.run([str(compiler()), "--version"], check=True, capture_output=True, text=True).stdout


@functools.cache
def folder() -> Path:
    """Returns the folder that libraries are loaded from; no other user may write to it."""
    place = Path(tempfile.gettempdir(), f"hforest-host-{os.getuid()}")
    place.mkdir(mode=0o700, exist_ok=True)
    status = place.lstat()
    if place.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        return Path(tempfile.mkdtemp(prefix="hforest-host-"))
    return place


def build(
    source: str,
    sanitize: str | None = None,
    flags: Sequence[str] = (*FLAGS, f"-I{HERE}"),
    headers: Sequence[Path] = (HERE,),
) -> Path:
    """Compiles C++ text into a shared library, or finds the one compiled before, and returns its path.

    `headers`: folders whose headers it may include.
    """
    flags = (*flags, *SANITIZE[sanitize])
    texts = [path.read_text(encoding="utf-8") for place in headers for path in sorted(place.glob("*.h"))]
    key = hashlib.sha256("\0".join((_compiler_version(), *flags, *texts, source)).encode()).hexdigest()[:32]
    library = folder() / f"{key}.so"
    if library.exists():
        return library
    with open(library.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be compiling the same text
        if library.exists():
            return library
        with tempfile.TemporaryDirectory(dir=folder()) as scratch:
            text, made = Path(scratch, "kernels.cpp"), Path(scratch, "kernels.so")
            text.write_text(source, encoding="utf-8")
            command = [str(compiler()), *flags, str(text), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
            made.replace(library)
    return library


def _address(a: Any) -> int:
    # An empty array of CuPy has none.
    array = np.asarray(a)
    return array.ctypes.data if array.size else 0


class HostKernel:
    """A kernel that can be launched on NumPy arrays."""

    _running = threading.Lock()  # shared memory is static, so a library runs one launch at a time

    def __init__(
        self, name: str, parameters: tuple[Parameter, ...], structs: dict[str, launch.Struct], call: Any
    ) -> None:
        self.name, self.parameters, self.structs, self.call = name, parameters, structs, call
        call.argtypes = (ctypes.c_longlong, ctypes.c_longlong, ctypes.c_void_p)
        call.restype = ctypes.c_int

    def __call__(self, grid: tuple[int], block: tuple[int], args: list[Any], n_bytes: int) -> None:
        if len(args) != len(self.parameters):
            raise KernelError(f"kernel {self.name}: takes {len(self.parameters)} arguments, got {len(args)}")
        if not (1 <= grid[0] < 2**31 and 1 <= block[0] <= 1024):
            raise KernelError(f"kernel {self.name}: no GPU has a grid of {grid} blocks of {block} threads")
        if not 0 <= n_bytes <= (most := max(BLOCK_BYTES, SURE_BYTES)):
            raise KernelError(f"kernel {self.name}: a block here has {most} bytes, not {n_bytes}")
        words, structs, flat = [], [], []
        for p, a in zip(self.parameters, args, strict=True):
            if p.members:
                structs.append(self._by_value(p, a))
                words.append(structs[-1].ctypes.data)
                flat += [(q, b) for q, b in zip(p.members, a, strict=True) if b is not None]
            else:
                words.append(self._word(p, a))
                flat.append((p, a))
        self._check_overlap(flat)
        data = (ctypes.c_ulonglong * max(1, len(words)))(*words)
        with self._running:
            outcome = self.call(grid[0], block[0], data)
        if outcome:
            raise RuntimeError(f"kernel {self.name}: {OUTCOMES[outcome]}")

    def _by_value(self, p: Parameter, a: Any) -> np.ndarray:
        if not isinstance(a, tuple) or type(a).__name__ != p.type:
            raise KernelError(
                f"kernel {self.name}, {p.text}: expected a NamedTuple {p.type}, got {type(a).__name__}"
            )
        if a._fields == tuple(self.structs[p.type].types):
            for q, member in zip(p.members, a, strict=True):
                if member is not None or not q.pointer:
                    self._word(q, launch.argument(member))
        return launch.by_value(a, self.structs, _address)

    def _word(self, p: Parameter, a: Any) -> int:
        def fail(problem: str) -> KernelError:
            return KernelError(f"kernel {self.name}, {p.text}: {problem}")

        if not p.pointer:
            if not isinstance(a, np.generic) or a.dtype != p.dtype:
                raise fail(f"expected a number of {p.dtype}, got {a!r} of {type(a).__name__}")
            return struct.unpack("=Q", a.tobytes())[0]
        if not isinstance(a, np.ndarray):
            raise fail(f"expected an array, got {type(a).__name__}")
        if a.dtype != p.dtype:
            raise fail(f"expected an array of {p.dtype}, got {a.dtype}")
        if not (a.flags.c_contiguous and a.flags.aligned):
            raise fail(f"expected a C-contiguous, aligned array, got strides {a.strides} for {a.shape}")
        if not (p.const or a.flags.writeable):
            raise fail("expected a writable array, got a read-only one")
        return _address(a)

    def _check_overlap(self, args: list[tuple[Parameter, Any]]) -> None:
        arrays = [(p, a) for p, a in args if p.pointer and a.size]
        for i, (p, a) in enumerate(arrays):
            for q, b in arrays[i + 1 :]:
                promised = (p.restrict or q.restrict) and not (p.const and q.const)
                if promised and np.may_share_memory(a, b):
                    raise KernelError(
                        f"kernel {self.name}: {p.text} and {q.text} overlap, which __restrict__ excludes"
                    )


class HostCompiler:
    """Compiles with this machine's C++ compiler; a `hforest.core.launch.Compiler`."""

    def __init__(self, sanitize: str | None = None) -> None:
        self.sanitize = sanitize

    def device(self) -> int:
        return 0

    def compile(self, source: str, dtype: np.dtype) -> Callable[[str], HostKernel]:
        kernels, structs = signatures(source, dtype), launch.structs(source)
        trampolines = "".join(_trampoline(name, parameters) for name, parameters in kernels.items())
        flush = int(dtype == np.float32 and flushes(launch.options(dtype)))
        text = (
            f'#define HOST_FLUSH {flush}\n#include "cuda.h"\n#define real {launch.REAL[dtype]}\n{source}\n'
            f'#line 1 "trampolines"\n{trampolines}'
        )
        library = ctypes.CDLL(str(build(text, self.sanitize)))

        @functools.cache
        def kernel(name: str) -> HostKernel:
            if name not in kernels:
                raise KernelError(f"no kernel {name!r}; there are {', '.join(kernels)}")
            return HostKernel(name, kernels[name], structs, getattr(library, f"host_launch_{name}"))

        return kernel

    def block_bytes(self) -> int:
        return BLOCK_BYTES


_compiler = functools.cache(HostCompiler)


@contextlib.contextmanager
def host_compiler(sanitize: str | None = None) -> Iterator[HostCompiler]:
    """Runs the calls of a `with` block in the CUDA backends, on the host, with NumPy arrays."""
    before, launch.compiler = launch.compiler, _compiler(sanitize)
    try:
        with dispatch.forced("gpu"):
            yield launch.compiler
    finally:
        launch.compiler = before


# ------------------------------------------------------------------------------------------ sanitizers


def _runtime(name: str) -> str | None:
    # The compiler returns the bare name of a runtime that it does not have.
    command = [str(compiler()), f"-print-file-name={name}"]
    path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return str(Path(path).resolve()) if Path(path).is_absolute() and Path(path).exists() else None


def missing_for(sanitize: str) -> str:
    """Returns why this machine cannot run with a sanitizer; empty if it can."""
    if not have_compiler():
        return "no C++ compiler"
    missing = [name for name in RUNTIMES[sanitize] if _runtime(name) is None]
    return f"{compiler()} has no {missing[0]}" if missing else ""


def sanitized_command(sanitize: str, module: str, *args: str) -> tuple[list[str], dict[str, str]]:
    """Returns command and environment that run `python -m module` with a sanitizer's runtime preloaded."""
    runtimes = ":".join(str(_runtime(name)) for name in RUNTIMES[sanitize])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(HERE.parent), str(Path(hforest.__file__).parents[1]))),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        # Code outside the kernels is not instrumented: reports about it would be wrong.
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:halt_on_error=1:exitcode=66",
        "ASAN_OPTIONS": "detect_leaks=0",  # CPython does not free all memory at exit
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    # Older runtimes of ThreadSanitizer cannot place their shadow memory among randomised addresses.
    still = ["setarch", os.uname().machine, "-R"]
    if not shutil.which("setarch") or subprocess.run([*still, "true"], capture_output=True).returncode:
        still = []
    # Through env, so that the runtime is preloaded into Python only.
    return [*still, "env", f"LD_PRELOAD={runtimes}", sys.executable, "-m", module, *args], environment
