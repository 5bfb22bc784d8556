"""What NVRTC makes of kernels before its assembler: PTX, read without a GPU."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from hforest.core import launch

from . import nvrtc
from .compiler import MODULES

ARCHITECTURE = "compute_90"

_KERNEL = re.compile(r"\.entry (\w+)\((.*?)\)[^{]*\{(.*?)^\}", re.DOTALL | re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.]*)\s+([^;]*);", re.MULTILINE)
_SUMS = ("add", "sub", "mad", "mov", "cvta", "selp", "min", "max", "and", "or")
"""Instructions whose result is an address of the array of an operand."""


def kernels(source: str, dtype: Any) -> dict[str, str]:
    """Returns the PTX of each kernel of a translation unit."""
    image: list[bytes] = []
    worked, log = nvrtc.compiled(nvrtc.library(), source, nvrtc.options(ARCHITECTURE, dtype), image)
    if not worked:
        raise RuntimeError(log)
    return {name: text for name, _, text in _KERNEL.findall(image[0].decode())}


def digest(text: str) -> str:
    """Returns a hash of a kernel's PTX, which does not depend on the kernels before it."""
    return hashlib.sha256(re.sub(r"\$L__BB\d+", "$L__BB", text).encode()).hexdigest()[:16]


def digests(dtype: Any) -> dict[str, str]:
    """Returns the digest of every kernel of the package, by names such as "hinge/backward_x"."""
    return {
        f"{subpackage}/{name}": digest(text)
        for subpackage, macros in MODULES
        if not macros
        for name, text in kernels(launch.source(launch.PACKAGE / subpackage), dtype).items()
    }


def _instructions(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yields (opcode, operands)."""
    for opcode, operands in _INSTRUCTION.findall(text):
        yield opcode, re.findall(r"\[[^\]]*\]|\{[^}]*\}|[^,\s]+", operands)


def stale_reads(text: str) -> set[str]:
    """Returns the parameters whose arrays a kernel writes and reads by ld.global.nc, which may not see what it wrote.

    An address belongs to the parameters from which it is computed.
    """
    arrays: dict[str, set[str]] = {}
    read: set[str] = set()
    written: set[str] = set()
    known = -1
    while known != (known := sum(map(len, arrays.values()))):  # until a round of a loop adds nothing
        for opcode, operands in _instructions(text):
            name, *more = opcode.split(".")
            if name == "ld" and more[0] == "param":
                arrays.setdefault(operands[0], set()).add(operands[1].strip("[]"))
                continue
            if name in _SUMS:
                of = arrays.setdefault(operands[0], set())
                of.update(*(arrays.get(operand, ()) for operand in operands[1:]))
                continue
            place = next((a for a in operands if a.startswith("[")), "").strip("[]").split("+")[0]
            if name == "ld" and "nc" in more:
                read |= arrays.get(place, set())
            elif name in ("st", "atom", "red"):
                written |= arrays.get(place, set())
    return read & written


def changes_of_rounding(text: str) -> set[str]:
    """Returns the opcodes that contract a product and a sum or make subnormals 0."""
    return {op for op, _ in _instructions(text) if op.startswith("fma.") or ".ftz" in op}


def chains(text: str) -> list[int]:
    """Returns how many instructions part each two float64 sums, where these need no other number in between.

    Between them, a sum may be stored and another one loaded; nothing is multiplied or read elsewhere.
    """
    found: list[list[str]] = []
    for opcode, _ in _instructions(text):
        if opcode in ("add.rn.f64", "sub.rn.f64", "add.f64", "sub.f64"):
            found.append([])
        elif found:
            found[-1].append(opcode)
    own = ("ld.shared.f64", "st.shared.f64")
    other = ("ld.", "st.", "bar.", "mul.rn.", "mul.f", "vote.")
    return [len(gap) for gap in found[:-1] if not any(op.startswith(other) and op not in own for op in gap)]
