"""Projections on a GPU; the kernels are in gpu.cu. Results are those of reference.py."""

from pathlib import Path

from ..core.aliases import FloatArray, IntArray
from ..core.launch import launch_each

PACKAGE = Path(__file__).parent


def project_some(
    x: FloatArray,
    samples: IntArray | None,
    indptr: IntArray,
    indices: IntArray,
    data: FloatArray,
    values: FloatArray,
) -> None:
    kernel, rows = ("project", ()) if samples is None else ("project_some", (samples,))
    sizes = x.shape[1], values.shape[1], values.shape[0]
    args = (x, *rows, indptr, indices, data, *sizes, values)
    launch_each(PACKAGE, kernel, x.dtype, values.size, args)
