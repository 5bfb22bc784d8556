"""Projections on a GPU; the kernels are in gpu.cu. Results are those of reference.py."""

from pathlib import Path

from ..core.aliases import FloatArray, IntArray
from ..core.launch import launch_each

PACKAGE = Path(__file__).parent


def project(x: FloatArray, indptr: IntArray, indices: IntArray, data: FloatArray, values: FloatArray) -> None:
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
    launch_each(
        PACKAGE, "project_some", x.dtype, values.size,
        (x, samples, indptr, indices, data, x.shape[1], values.shape[1], values.shape[0], values),
    )  # fmt: skip
