"""Compilation and launch of the CUDA backends.

The `gpu.cu` of a folder is compiled after `common.cuh` once for each (folder, dtype, macros, device), when a
kernel is first launched so. Headers of the package, which the C compiler reads, too, replace their
`#include`s, because the key of a cached module is its text. A `Compiler` compiles and launches: NVRTC through
CuPy or, in the tests, a C++ compiler of the host.

Arrays are on the current device. An empty array of CuPy has a null pointer, as an absent array has. So if an
array may be empty, a number of the struct tells a kernel whether it is absent. Operations of CuPy on float32
make subnormals 0; copies are exact, and so are comparisons and sorts of integers.

Kernels take structs by value. A struct is declared in gpu.cu alone, as `struct Name { members };` of
pointers, `size` and `double`; its argument is a NamedTuple `Name` of arrays, ints and floats, with fields of
the same names in the same order, None for a null pointer. Every member has eight bytes on the host and on the
device, so there are no gaps. A static_assert at the end of the translation unit compares the size of each
struct with the size that is passed, and the number of each criterion with its record. `__restrict__` at a
member promises that no other array of a launch overlaps it.

Numbers that kernels and Python share are declared in a kernel file or header; Python reads them by `numbers`.
"""

import contextlib
import functools
import os
import re
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from . import scores
from .aliases import Array
from .dispatch import on_current_device

THREADS = 128
"""Default number of threads of a block."""

COMMON = Path(__file__).with_name("common.cuh")
PACKAGE = COMMON.parents[1]
REAL = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}

# No fused multiply-add, and subnormals: leaves, vertices and margins are bit-identical on every device.
OPTIONS = ("--std=c++20", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")


def options(dtype: np.dtype) -> tuple[str, ...]:
    """Returns the compiler options of a translation unit for `dtype`."""
    return (*OPTIONS, f"-Dreal={REAL[np.dtype(dtype)]}")


Kernel = Callable[[tuple[int], tuple[int], list[Any], int], None]
"""A function of blocks, threads per block, arguments, and bytes of a block's `block_memory`."""


class Compiler(Protocol):
    """Compiles and launches kernels."""

    def __hash__(self) -> int: ...

    def device(self) -> int:
        """Returns the number of the current device, part of the cache key."""

    def compile(self, source: str, dtype: np.dtype) -> Callable[[str], Kernel]:
        """Compiles a translation unit; returns a function from a kernel's name to its launch."""

    def block_bytes(self) -> int:
        """Returns the bytes of shared memory that a block on the current device can have."""


class Struct(NamedTuple):
    """A struct of a gpu.cu as kernels take it."""

    types: dict[str, str]
    """C types of members by name."""
    is_number: tuple[bool, ...]
    """Whether each member is a number, not a pointer."""
    layout: struct.Struct
    """Layout of its bytes; pointers are unsigned numbers."""
    dtype: np.dtype
    """Its size as a dtype without fields: NumPy lists fields whenever CuPy requests an address."""


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRUCT = re.compile(r"^struct (\w+) \{([^{}]*)\};", re.MULTILINE)
_POINTER = re.compile(r"([\w ]+\*(?: ?__restrict__)?) ?(\w+)")
_NUMBERS = re.compile(r"(size|double) (\w+(?:, \w+)*)")
_DECLARED = re.compile(r"^(?:(?:enum|constexpr)\b[^;]*;|#define .*)", re.MULTILINE)
_NUMBER = re.compile(r"(\w+)(?: =)? (0x[\da-fp-]+|\d+)\s*(?:[,;}]|$)", re.MULTILINE)
_CODE = {"size": "q", "double": "d"}
"""Codes of numbers in a struct.Struct; a pointer has N."""


def declared_numbers(path: Path) -> dict[str, str]:
    """Returns the texts of numbers that a header or kernel file declares by enum, constexpr or #define."""
    text = _COMMENT.sub("", path.read_text(encoding="utf-8"))
    return dict(_NUMBER.findall("\n".join(_DECLARED.findall(text))))


def numbers(file: str, *names: str, prefix: str = "") -> tuple[Any, ...]:
    """Returns numbers that a file of the package declares; `prefix` begins each of their names there."""
    declared = declared_numbers(PACKAGE / file)
    texts = [declared[prefix + name] for name in names]
    return tuple(float.fromhex(text) if "p" in text else int(text, 0) for text in texts)


def structs(source: str) -> dict[str, Struct]:
    """Returns the structs that the gpu.cu of a translation unit declares, by name."""
    declared = {}
    for name, body in _STRUCT.findall(_COMMENT.sub("", source)):
        types: dict[str, str] = {}
        for declaration in filter(None, (" ".join(text.split()) for text in body.split(";"))):
            match = _POINTER.fullmatch(declaration) or _NUMBERS.fullmatch(declaration)
            if match is None:
                raise TypeError(
                    f"struct {name}: expected members `type *name;` or `size names;` or `double names;`, got "
                    f"`{declaration};`; declare each pointer separately, and only members of these types"
                )
            types |= dict.fromkeys(match[2].split(", "), match[1])
        codes = [_CODE.get(kind, "N") for kind in types.values()]
        layout = struct.Struct("".join(codes))
        is_number = tuple(code != "N" for code in codes)
        declared[name] = Struct(types, is_number, layout, np.dtype(f"V{layout.size}"))
    return declared


def by_value(a: Any, declared: dict[str, Struct], address: Callable[[Array], int]) -> np.ndarray:
    """Returns the NamedTuple `a` as the struct of its name, one element with the addresses of its arrays."""
    name = type(a).__name__
    if name not in declared:
        raise TypeError(
            f"{name}: expected a struct of gpu.cu, one of {', '.join(declared)}; declare it there"
        )
    types, is_number, layout, dtype = declared[name]
    if a._fields != tuple(types):
        there, here = ", ".join(types), ", ".join(a._fields)
        raise TypeError(
            f"{name}: expected the members {there} of gpu.cu, got {here}; declare the same members in both"
        )
    values = [
        value if number else 0 if value is None else address(value)
        for value, number in zip(a, is_number, strict=True)
    ]
    return np.frombuffer(layout.pack(*values), dtype)


class CupyCompiler:
    """Compiles with NVRTC and launches on the caller's current stream, through CuPy.

    It does not use cupy.RawModule, which appends -ftz=true to the options: subnormals would be 0.
    """

    def device(self) -> int:
        import cupy

        return int(cupy.cuda.runtime.getDevice())

    def compile(self, source: str, dtype: np.dtype) -> Callable[[str], Kernel]:
        from cupy.cuda.function import Module

        module = Module()
        module.load(_image(source, options(dtype)))
        declared = structs(source)

        @functools.cache
        def kernel(name: str) -> Kernel:
            function, allowed, lock = module.get_function(name), 0, threading.Lock()

            def allow(n_bytes: int) -> None:
                nonlocal allowed
                from cupy_backends.cuda.api import driver

                attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                with lock:  # another thread may set a larger limit
                    if n_bytes > allowed:
                        driver.funcSetAttribute(function.ptr, attribute, n_bytes)
                        allowed = n_bytes

            def launch_it(grid: tuple[int], block: tuple[int], args: list[Any], n_bytes: int) -> None:
                here = self.device()
                if n_bytes > allowed:
                    allow(n_bytes)

                def address(a: Any) -> int:
                    data = a.data
                    if data.device_id != here:
                        on_current_device({f"arrays of kernel {name}": a})
                    return data.ptr

                def passed(a: Any) -> Any:
                    # CuPy passes the one element of a NumPy array by value.
                    if isinstance(a, tuple):
                        return by_value(a, declared, address)
                    if not isinstance(a, np.generic):
                        address(a)
                    return a

                function(grid, block, [passed(a) for a in args], n_bytes)

            return launch_it

        return kernel

    def block_bytes(self) -> int:
        return _block_bytes(self.device())


@functools.cache
def _block_bytes(device: int) -> int:
    from cupy.cuda import runtime

    return int(runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, device))


def _image(source: str, flags: tuple[str, ...]) -> bytes:
    """Returns a translation unit compiled for the current device, cached in CuPy's folder of kernels."""
    import hashlib
    import tempfile

    from cupy.cuda import Device, nvrtc
    from cupy.cuda.compiler import compile_using_nvrtc

    key = repr((nvrtc.getVersion(), Device().compute_capability, flags, source)).encode()
    folder = Path(os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache").expanduser()
    path = folder / f"hforest-{hashlib.sha256(key).hexdigest()}.cubin"
    with contextlib.suppress(OSError):  # owned by another user, or missing
        data = path.read_bytes()
        if hashlib.sha256(data[32:]).digest() == data[:32]:
            return data[32:]
    image, _ = compile_using_nvrtc(source, flags, cache_in_memory=True)
    with contextlib.suppress(OSError):  # a read-only folder caches nothing
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(hashlib.sha256(image).digest() + image)
        os.replace(file.name, path)
    return image


compiler: Compiler = CupyCompiler()
_kernels: dict[tuple[Compiler, int, Path, str, np.dtype, tuple[str, ...]], Kernel] = {}


_INCLUDE = re.compile(r'#include "([\w/]+\.(?:h|cuh))"')


def _lines(path: Path, seen: set[str]) -> list[str]:
    # Returns the lines of a file, with `#line` marks; headers are named by their place in the package and
    # occur once.
    name = path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else path.parents[1]).as_posix()
    lines = [f'#line 1 "{name}"']
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        include = _INCLUDE.fullmatch(line)
        if include is None:
            lines.append(line)
        elif include[1] not in seen:
            seen.add(include[1])
            lines += [*_lines(PACKAGE / include[1], seen), f'#line {number + 1} "{name}"']
        else:
            lines.append("")
    return lines


def source(folder: Path) -> str:
    """Returns the translation unit of a folder: common.cuh, the gpu.cu in it or below, and their headers."""
    seen: set[str] = set()
    (kernels,) = folder.rglob("gpu.cu")
    text = "\n".join([*_lines(COMMON, seen), *_lines(kernels, seen)]) + "\n"
    for name, declared in structs(text).items():
        text += f'static_assert(sizeof({name}) == {declared.layout.size}, "{name}: eight bytes a member");\n'
    for c in scores.CRITERIA:
        text += f'static_assert(HF_{c.name.upper()} == {c.number}, "criterion {c.name} of core/scores.py");\n'
    return text


def defined(macros: tuple[str, ...]) -> str:
    """Returns the lines before a translation unit in which macros are 1."""
    return "".join(f"#define {name} 1\n" for name in macros)


def launch(
    folder: Path,
    name: str,
    dtype: np.dtype,
    n_blocks: int,
    args: tuple[Any, ...],
    threads: int | None = None,
    n_bytes: int = 0,
    macros: tuple[str, ...] = (),
) -> None:
    """Launches kernel `name` of `folder` on `n_blocks` blocks of `threads` (default THREADS) threads.

    Each block has `n_bytes` of `block_memory`: at most `compiler.block_bytes()` less its other shared memory.
    Raises ValueError if an array is not on the current device. With 0 blocks nothing is launched. Arrays are
    passed as pointers, Python ints as long long, Python floats as double, NamedTuples as structs.
    `macros` are 1 in the translation unit.
    """
    if n_blocks == 0:
        return
    key = (compiler, compiler.device(), folder, name, dtype, macros)
    kernel = _kernels.get(key)
    if kernel is None:
        kernel = _kernels[key] = _module(compiler, key[1], folder, np.dtype(dtype), macros)(name)
    kernel((n_blocks,), (threads or THREADS,), [argument(a) for a in args], n_bytes)


@functools.cache
def _module(
    by: Compiler, device: int, folder: Path, dtype: np.dtype, macros: tuple[str, ...]
) -> Callable[[str], Kernel]:
    """Returns the kernels of a folder, compiled for the current device, which is `device`."""
    return by.compile(defined(macros) + source(folder), dtype)


def launch_each(folder: Path, name: str, dtype: np.dtype, n: int, args: tuple[Any, ...]) -> None:
    """Launches kernel `name` with a thread for each of `n` elements; the last block may have more threads."""
    launch(folder, name, dtype, -(-n // THREADS), args)


def argument(a: Any) -> Any:
    """Returns an int as np.int64, a float as np.float64, and other values unchanged."""
    if isinstance(a, int):
        return np.int64(a)
    return np.float64(a) if isinstance(a, float) else a
