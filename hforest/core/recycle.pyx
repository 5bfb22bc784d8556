"""Large arrays whose memory is reused for later ones (recycle.h)."""

import math
import os

import numpy as np

from cpython.buffer cimport PyBuffer_FillInfo

cdef extern from "core/recycle.h" nogil:
    int HF_RECYCLES, HF_MIN_BYTES
    ctypedef struct hf_block:
        void* start
        size_t n_bytes
    hf_block hf_block_new(size_t n_bytes)
    void hf_block_free(hf_block block)
    size_t hf_kept_bytes()
    int hf_set_limit(size_t n_bytes)


cdef class Block:
    """Owns the memory of an array, whose base it is."""

    cdef hf_block block

    def __cinit__(self, size_t n_bytes):
        self.block = hf_block_new(n_bytes)
        if self.block.start == NULL:
            raise MemoryError(f"hforest: no memory for an array of {n_bytes} bytes")

    def __dealloc__(self):
        if self.block.start != NULL:
            with nogil:
                hf_block_free(self.block)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.block.start, <Py_ssize_t> self.block.n_bytes, 0, flags)


def empty(shape, dtype):
    """As numpy.empty; an array of 4 MB or more reuses the memory of an earlier one where some fits."""
    n_bytes = math.prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
    if not HF_RECYCLES or not _limit or n_bytes < HF_MIN_BYTES or n_bytes >= 1 << 62:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, Block(n_bytes))


def kept():
    """Returns the bytes that are kept for later arrays."""
    return hf_kept_bytes()


def set_limit(n_bytes):
    """Lets at most n_bytes be kept; with 0 nothing is kept, and every array is NumPy's own."""
    global _limit
    cdef int _try
    # Another thread holds the lock for microseconds. A process that was forked then finds it locked for ever,
    # and keeps nothing.
    for _try in range(1 << 20):
        if hf_set_limit(n_bytes):
            break
    _limit = n_bytes


def _from_environment():
    text = os.environ.get("HFOREST_RECYCLE") or "512"
    if not text.isdecimal() or int(text) > 1 << 30:
        raise ValueError(
            f"HFOREST_RECYCLE: expected megabytes of memory to keep, got {text!r}; 0 keeps none, unset is 512"
        )
    set_limit(int(text) << 20)


_limit = 0
_from_environment()
