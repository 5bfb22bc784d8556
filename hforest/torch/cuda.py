"""Arrays that share the memory of tensors: NumPy's, and CuPy's on PyTorch's current stream."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import numpy as np
import torch
from torch.utils.dlpack import to_dlpack

from ..core.extras import missing


class _Memory:
    """Memory of a CPU tensor, for NumPy: read-only by DLPack, or by the array interface."""

    __slots__ = ("_tensor",)

    def __init__(self, t: torch.Tensor) -> None:
        self._tensor = t

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        return to_dlpack(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    @property
    def __array_interface__(self) -> dict[str, Any]:
        t = self._tensor
        size, dtype = t.element_size(), np.from_dlpack(self).dtype.str
        strides, place = tuple(size * n for n in t.stride()), (t.data_ptr(), False)
        return {"version": 3, "shape": tuple(t.shape), "typestr": dtype, "strides": strides, "data": place}


def host_array(t: torch.Tensor, *, written: bool = False) -> np.ndarray:
    """Returns a read-only array of the memory of a CPU tensor, which it keeps alive, or one to be `written`.

    `Tensor.numpy` would also mark the memory as not resizable, and FullyShardedDataParallel resizes
    parameters.
    """
    if written and t.numel():
        return np.asarray(_Memory(t))
    return np.from_dlpack(cast(Any, _Memory(t.resolve_neg())))


def import_cupy() -> Any:
    """Returns the module CuPy, which functions on CUDA tensors require."""
    try:
        import cupy
    except ImportError as error:
        raise missing("hforest.torch", "CuPy 14 for tensors on a GPU", "cuda12", "cuda13") from error
    return cupy


def call(kernel: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Returns the results of a kernel as tensors (or None). DLPack passes memory both ways without copies.

    CuPy's pool reuses memory in the order of the stream of its allocation. So a result that another stream
    reads must stay alive until then: `Tensor.record_stream` does not apply to CuPy's memory.
    """
    cupy = import_cupy()
    with _stream(next(a.device for a in arguments if isinstance(a, torch.Tensor))):
        arrays = [
            cupy.from_dlpack(a.detach().contiguous()) if isinstance(a, torch.Tensor) else a for a in arguments
        ]
        results = kernel(*arrays)
        if isinstance(results, tuple):
            return tuple(torch.from_dlpack(cupy.asarray(result)) for result in results)
        return None if results is None else torch.from_dlpack(cupy.asarray(results))


def as_array(t: torch.Tensor) -> Any:
    """Returns the memory of a tensor without gradient as a NumPy or a CuPy array that can be written."""
    return host_array(t, written=True) if t.is_cpu else import_cupy().from_dlpack(t)


def stream_of(t: torch.Tensor) -> AbstractContextManager[Any]:
    """Returns a context of PyTorch's current stream in CuPy for a GPU tensor; an empty one on the CPU."""
    return _stream(t.device) if t.is_cuda else nullcontext()


@contextmanager
def _stream(device: torch.device) -> Iterator[None]:
    cuda = import_cupy().cuda
    stream = torch.cuda.current_stream(device)
    with cuda.Device(device.index), cuda.ExternalStream(stream.cuda_stream, device.index):
        yield
