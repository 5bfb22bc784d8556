"""Projections on a GPU; the kernels are in gpu.cu."""

from pathlib import Path

from ..core.aliases import FloatArray, IntArray
from ..core.launch import launch_each

PACKAGE = Path(__file__).parent


def project(x: FloatArray, indptr: IntArray, indices: IntArray, data: FloatArray, values: FloatArray) -> None:
    """Writes values[p, s] = sum over entries j of projection p, in order, of data[j] x[s, indices[j]]."""
    launch_each(
        PACKAGE, "project", x.dtype, values.size,
        (x, indptr, indices, data, x.shape[1], values.shape[1], values.shape[0], values),
    )  # fmt: skip


def project_some(
    x: FloatArray,
    samples: IntArray,
    indptr: IntArray,
    indices: IntArray,
    data: FloatArray,
    values: FloatArray,
) -> None:
    """Writes the same for some rows of x."""
    launch_each(
        PACKAGE, "project_some", x.dtype, values.size,
        (x, samples, indptr, indices, data, x.shape[1], values.shape[1], values.shape[0], values),
    )  # fmt: skip
