"""CUDA backends on the host, with arrays like CuPy's: float32 subnormals, and missing values of both signs."""

from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from hypothesis import reject

from .oracle import Case, Finding, _differs, _rounding, call, told
from .targets import SANITIZED, Target
from .trees import arrays, copied
from .values import Setting

# `host`, which compiles CUDA with this machine's compiler, is imported where it is used.

KERNELS = ("hinge.traverse", "hinge.forward*", "hinge.backward*", "neural.route", "project.project")
"""Functions of which any number may be small."""
LEARNERS = (
    "growth.grow",
    "growth.samples",
    "split.best_split",
    "tree.apply",
)
"""Functions whose samples and thresholds may be small. Not co2.grow, of which the host does a part that flushes here."""


def _any_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def applies(target: Target) -> bool:
    """Whether the CUDA backend computes the function on the host as it would on a GPU."""
    from host.compiler import have_compiler

    fits = _any_of(target.name, KERNELS + LEARNERS) and "adam_" not in target.name  # which asks for a stream
    return fits and not SANITIZED and have_compiler()


def small(s: Setting, case: Case) -> Case:
    """A good call with float32 arrays made subnormal, as it is drawn, and missing values of both signs."""
    given: dict[str, Any] = case.make()
    if given.get("sample_weight") is not None:  # whole, so that equal gains have equal bits
        given["sample_weight"] = np.ceil(given["sample_weight"])
    given |= dict.fromkeys(given.keys() & {"y_order"})  # the CUDA backend refuses it
    names = {"x", "values", "threshold"}
    found = [
        a for path, a in arrays(given)
        if a.dtype == np.float32 and a.size and path[0] != "out" and (_any_of(s.target.name, KERNELS) or names & set(path))
    ]  # fmt: skip
    if not found:
        reject()
    for a in found:
        missing = np.isnan(a)
        if s.flag():  # nothing flushes here
            a[~missing] = (a[~missing].astype(np.float64) * 2.0**-135).astype(np.float32)
        a[missing] = np.copysign(np.float32(np.nan), s.random.choice((-1, 1), int(missing.sum())))
    return case._replace(kind="cuda", arguments=given, make=lambda: copied(given))


def run(case: Case) -> None:
    """Raises Finding if the CUDA backend, on the host, has another result than the CPU backend."""
    from host.compiler import host_compiler
    from host.like_cupy import like_cupy

    expected = call(case.target.function, case.make())
    if expected.error is not None:
        return  # judged by cases "good"
    with host_compiler(), like_cupy():
        outcome = call(case.target.function, case.make())
    text = "an error" if outcome.error else _differs(outcome.value, expected.value, _rounding(case.arguments))
    if text:
        raise told(Finding(f"another result on a GPU than on the CPU: {text}"), case, outcome)
