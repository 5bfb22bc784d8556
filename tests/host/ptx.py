"""What NVRTC makes of kernels before its assembler: PTX, read without a GPU."""

import functools
import hashlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from hforest.core import launch

from . import nvrtc
from .compiler import MODULES

ARCHITECTURE = "compute_90"

_KERNEL = re.compile(r"\.entry (\w+)\((.*?)\)[^{]*\{(.*?)^\}", re.DOTALL | re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.]*)\s+([^;]*);", re.MULTILINE)
_STATEMENT = re.compile(r"^\s*(?:(\$\w+):|(?:@!?(%p\d+)\s+)?([a-z][\w.]*)\s+([^;]*);)", re.MULTILINE)
_REAL_SUM = re.compile(r"(?:add|sub)\.(?:rn\.)?f(?:32|64)")
_SUMS = ("add", "sub", "mad", "mov", "cvta", "selp", "min", "max", "and", "or")
"""Instructions whose result is an address of the array of an operand."""


@functools.cache
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


class _Step(NamedTuple):
    opcode: str
    """Of an instruction, or a label."""
    results: list[str]
    operands: list[str]
    target: str
    """The label of a branch."""


def _loops(text: str) -> list[list[_Step]]:
    """Returns the innermost loops."""
    steps = []
    for label, predicate, opcode, rest in _STATEMENT.findall(text):
        name, *more = opcode.split(".")
        n = 0 if name in ("st", "red", "bra", "bar") else 4 if "v4" in more else 2 if "v2" in more else 1
        registers = re.findall(r"%\w+", rest)
        operands = registers[n:] + [predicate] * bool(predicate)
        steps.append(_Step(label or opcode, registers[:n], operands, rest if name == "bra" else ""))
    place = {step.opcode: i for i, step in enumerate(steps)}
    spans = [(place[step.target], i) for i, step in enumerate(steps) if place.get(step.target, i) < i]
    inner = [a for a in spans if not any(a[0] <= b[0] and b[1] <= a[1] and a != b for b in spans)]
    return [steps[first : last + 1] for first, last in inner]


def turns(text: str) -> list[tuple[int, int]]:
    """Returns two lengths of chains in a turn of each innermost loop that adds real numbers, without those before it.

    The first is the number of additions to a sum, each to the one before. The second is the number of loads, of which
    each has an address or a condition from the one before.
    """
    found = []
    for loop in _loops(text):
        sums: dict[str, int] = {}
        loads: dict[str, int] = {}
        written: set[str] = set()
        later = {register for step in loop for register in step.results}
        for step in loop:
            carried = [
                sums.get(r, 0) for r in step.operands if r in sums or (r in later and r not in written)
            ]
            is_sum, is_load = _REAL_SUM.match(step.opcode) is not None, step.opcode.startswith("ld.")
            n_loads = max((loads.get(r, 0) for r in step.operands), default=0) + is_load
            for register in step.results:
                loads[register] = n_loads
                sums.pop(register, None)
                if carried and (is_sum or step.opcode.startswith(("mov.", "selp."))):
                    sums[register] = max(carried) + is_sum
            written.update(step.results)
        if max(sums.values(), default=0):
            found.append((max(sums.values()), max(loads.values())))
    return found
