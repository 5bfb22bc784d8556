"""A case of `host.exercise`: a call of a subpackage's functions, and how far the CUDA backend's results may differ."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from hforest.core import launch

from .compiler import SMALL


def small(whole: np.ndarray, dtype: type) -> np.ndarray:
    """Returns whole numbers times a number so small that float32 holds them as subnormals; no arithmetic flushes them."""
    if dtype is np.float64:
        return whole * 1e-42
    bits = (np.abs(whole) * 714).astype(np.int32)
    return (bits | np.signbit(whole).astype(np.int32) << 31).view(np.float32)


def scaled(whole: np.ndarray, scale: float, dtype: type) -> np.ndarray:
    """Returns whole numbers times `scale`, or with scale 0 as `small`."""
    return (whole * scale).astype(dtype) if scale else small(whole, dtype)


@dataclass(frozen=True)
class Case:
    """`call` returns named arrays; it runs once in the backend `beside` and once in the CUDA backend."""

    name: str
    call: Callable[[], dict[str, np.ndarray]]
    near: Mapping[str, float] = field(default_factory=dict)
    """Error allowed to some arrays, in roundings of their largest number; the others must have equal bits."""
    threads: int = launch.THREADS
    """`launch.THREADS` of the CUDA backend. With fewer than the default, fewer samples make a block loop over them."""

    small: int = SMALL
    """`small_nodes.SMALL` of the CUDA backend."""

    beside: str = "reference"

    def differences(self, got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> list[str]:
        """Returns how `got` differs from `expected`: a line for each array with too large a difference."""
        problems = [] if got.keys() == expected.keys() else [f"{sorted(got)} for {sorted(expected)}"]
        for name in got.keys() & expected.keys():
            a, b = got[name], expected[name]
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                problems.append(f"{name}: {a.dtype} {a.shape} for {b.dtype} {b.shape}")
            elif name not in self.near:
                if a.tobytes() != b.tobytes():
                    n = int((a != b).sum())
                    problems.append(f"{name}: {n} of {a.size} numbers differ, expected equal bits")
            elif a.size:
                error = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
                unit = np.finfo(b.dtype).eps * np.abs(b).max()
                if not error <= self.near[name] * unit:
                    problems.append(f"{name}: off by {error:g}, roundings are {unit:g}")
        return problems
