"""Arrays whose memory, when they are gone, is kept for the next ones (recycle.h)."""

import math
import os

import numpy as np

from cpython.buffer cimport PyBuffer_FillInfo

cdef extern from "recycle.h" nogil:
    int HF_RECYCLES, HF_LEAST_BYTES
    ctypedef struct hf_block:
        void* start
        size_t n_bytes
    hf_block hf_block_new(size_t n_bytes)
    void hf_block_free(hf_block block)
    size_t hf_kept_bytes()
    int hf_keep_most(size_t most)


cdef class Block:
    """Owner of an array's memory: the array's base."""

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
    """As numpy.empty; from 4 MB on, memory that an earlier one had, if there is some that fits."""
    n_bytes = math.prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
    if not HF_RECYCLES or not _most or n_bytes < HF_LEAST_BYTES or n_bytes >= 1 << 62:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, Block(n_bytes))


def kept():
    """Bytes that wait for the next array."""
    return hf_kept_bytes()


def keep_most(n_bytes):
    """Let at most so many bytes wait; 0: none, and every array is NumPy's own."""
    global _most
    cdef int _try
    # The list is held for microseconds, but in a process forked meanwhile for ever: nothing waits there.
    for _try in range(1 << 20):
        if hf_keep_most(n_bytes):
            break
    _most = n_bytes


def _from_environment():
    text = os.environ.get("HFOREST_RECYCLE") or "512"
    if not text.isdecimal() or int(text) > 1 << 30:
        raise ValueError(
            f"HFOREST_RECYCLE: expected megabytes of memory to keep, got {text!r}; 0 keeps none, unset is 512"
        )
    keep_most(int(text) << 20)


_most = 0
_from_environment()
