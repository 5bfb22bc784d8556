"""Projections on a GPU; the kernels are in gpu.cu."""

from pathlib import Path

from ..core.dispatch import Array
from ..core.launch import launch_each

ROOM = Path(__file__).parent


def project(x: Array, start: Array, index: Array, weight: Array, values: Array) -> None:
    """values[p, s] = sum over the entries j of projection p, in their order, of weight[j] x[s, index[j]]."""
    launch_each(
        ROOM, "project", x.dtype, values.size,
        (x, start, index, weight, x.shape[1], values.shape[1], values.shape[0], values),
    )  # fmt: skip


def project_some(x: Array, samples: Array, start: Array, index: Array, weight: Array, values: Array) -> None:
    """The same for some rows of x."""
    launch_each(
        ROOM, "project_some", x.dtype, values.size,
        (x, samples, start, index, weight, x.shape[1], values.shape[1], values.shape[0], values),
    )  # fmt: skip
