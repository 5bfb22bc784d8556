"""Threads, compiler and processor; values of context variables; the scans that validate every array of a
call; two loops with which benches measure the highest rates of memory and of loads; and random words."""

import math
import os
import sys

import numpy as np

cimport cython
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

cimport hforest.core.arrays as cnp

cnp.import_array()

cdef dict _modules = sys.modules

cdef extern from "core/cpu_features.h" nogil:
    int HF_AVX2, HF_AVX512, HF_NEON
    int HF_OPENMP
    const char* HF_COMPILER
    int HF_MAX_THREADS
    int hf_cpu_features()
    int hf_threads()
    double hf_serial_ns()
    void omp_set_num_threads(int n)

cdef extern from "core/philox.h" nogil:
    ctypedef struct hf_draw:
        pass
    hf_draw hf_philox(uint64_t key, uint64_t counter, uint64_t stream)
    uint64_t hf_draw_key(hf_draw draw, int which)

cdef extern from "core/watch.h" nogil:
    void hf_start_watch(hf_watch* watch, int is_main_thread)

cdef extern from "pythread.h" nogil:
    unsigned long PyThread_get_thread_ident()

cdef extern from *:
    """
    /* Ends the threads that wait between parallel regions: a forked child has none of them, but would
       wait for them. The next parallel region starts new ones. */
    #if defined(_OPENMP) && (defined(__clang__) ? __clang_major__ >= 9 : defined(__GNUC__) && __GNUC__ >= 9)
    static void hf_end_threads(void) { omp_pause_resource_all(omp_pause_soft); }
    #else
    static void hf_end_threads(void) {}
    #endif
    """
    void hf_end_threads() nogil

cdef extern from *:
    """
    #define HF_OWNS_COUNTERS
    #include "core/counting.h"
    """
    const char* HF_COUNTERS
    bint HF_COUNTING
    ctypedef struct hf_counter:
        const char* package
        const char* body
        int64_t calls
        hf_counter* next

cdef enum:
    BLOCK = 1 << 14  # elements per unit of work of a scan
    ELEMENTS = 4     # of a scan per nanosecond
    SCANNED = 24     # elements of a table that are scanned in the time in which one is looked up
    NAMED = 16       # rows of a table that a thread takes at a time: a cache line of names


MAX_THREADS = HF_MAX_THREADS
cdef unsigned long _main_thread = 0


def set_main_thread(unsigned long ident):
    """Sets the thread that runs signal handlers: the one with this `threading.Thread.ident`."""
    global _main_thread
    _main_thread = ident


cdef void start_watch(hf_watch* watch) noexcept nogil:
    hf_start_watch(watch, PyThread_get_thread_ident() == _main_thread)


cdef class Within:
    """Sets a context variable for the duration of a `with` block.

    It is compiled because a signal handler may raise between any two steps of Python code, and the value
    would then stay set.
    """

    cdef object _variable, _value, _token

    def __init__(self, variable, value):
        self._variable, self._value = variable, value

    def __enter__(self):
        self._token = self._variable.set(self._value)

    def __exit__(self, *error):
        self._variable.reset(self._token)


@cython.final
@cython.auto_pickle(False)
cdef class Memory:
    """The memory of an array, to which this gives no access."""

    cdef cnp.ndarray _array


def read_only(cnp.ndarray a not None):
    """Returns an array on the memory of a C-contiguous, native one; it cannot be set writeable."""
    cdef Memory memory = Memory()
    cdef cnp.ndarray view = cnp.PyArray_SimpleNewFromData(
        cnp.PyArray_NDIM(a), cnp.PyArray_DIMS(a), cnp.PyArray_TYPE(a), cnp.PyArray_DATA(a)
    )
    memory._array = a
    Py_INCREF(memory)  # which the next call takes
    cnp.PyArray_SetBaseObject(view, memory)
    cnp.PyArray_CLEARFLAGS(view, cnp.NPY_ARRAY_WRITEABLE)
    return view


def owned(cnp.ndarray a not None):
    """Returns a read-only copy of an array, in C order."""
    cdef cnp.ndarray copy = cnp.PyArray_NewCopy(a, cnp.NPY_CORDER)
    cnp.PyArray_CLEARFLAGS(copy, cnp.NPY_ARRAY_WRITEABLE)
    return copy


def compiler():
    """Returns name and version of the compiler that built the extension modules."""
    return HF_COMPILER.decode()


def openmp():
    """Returns the date of the OpenMP specification as yyyymm, or 0 in a build without OpenMP."""
    return HF_OPENMP


def cpu_features():
    """Returns the names of this processor's vector extensions for which hforest has kernels."""
    cdef int found = hf_cpu_features()
    return tuple(
        name for name, bit in (("avx2", HF_AVX2), ("avx512", HF_AVX512), ("neon", HF_NEON)) if found & bit
    )


cdef extern from "core/simd.h" nogil:
    int HF_PATH_PLAIN, HF_PATH_VECTOR, HF_PATH_AVX2, HF_PATH_AVX512, HF_VECTORS

_PATHS = {"plain": HF_PATH_PLAIN, "vector": HF_PATH_VECTOR, "avx2": HF_PATH_AVX2, "avx512": HF_PATH_AVX512}
cdef int _path = HF_PATH_PLAIN


cdef int simd_path() noexcept nogil:
    return _path


def simd_paths():
    """Returns the vector paths that this build and processor can run, from the simplest to the fastest.

    "vector" is the compiler's vector types in instructions that every processor of the architecture has: SSE2
    on x86-64, NEON on ARM. A kernel that lacks a path uses its plain one.
    """
    portable = ("vector",) if HF_VECTORS else ()
    return ("plain", *portable, *(name for name in cpu_features() if name in _PATHS))


def simd():
    """Returns the name of the vector path in use."""
    return next(name for name, path in _PATHS.items() if path == _path)


def set_simd(name):
    """Sets the vector path of this process; all paths are bit-identical."""
    global _path
    if name not in simd_paths():
        raise ValueError(
            f"HFOREST_SIMD: expected one of {', '.join(simd_paths())} on this processor, got {name!r}; "
            "leave it unset for the best one"
        )
    _path = _PATHS[name]


# The last path is the fastest one.
set_simd(os.environ.get("HFOREST_SIMD") or (simd_paths())[len(simd_paths()) - 1])


def serial_us():
    """Returns the microseconds of work below which a call has one thread."""
    return hf_serial_ns() / 1000


def _check_serial(text):
    # C reads what precedes the first character that is no part of a number.
    try:
        if not text or 1000 * float(text) == hf_serial_ns() >= 0:
            return
    except ValueError:
        pass
    raise ValueError(
        f"HFOREST_SERIAL_US: expected a number of microseconds, at least 0, got {text!r}; leave it unset for "
        "250"
    )


_check_serial(os.environ.get("HFOREST_SERIAL_US"))


def get_num_threads():
    """Returns the number of threads that the next call from this Python thread may use."""
    return hf_threads()


def end_threads():
    """Ends the OpenMP threads that wait for the next call of this Python thread; called before a fork."""
    with nogil:
        hf_end_threads()


def set_num_threads(n):
    """Sets the number of threads for calls from this Python thread; a build without OpenMP always has one."""
    omp_set_num_threads(n)


# The list of counters; core/counting.h adds those of each module.
cdef hf_counter* _first_counter = NULL
_counters = PyCapsule_New(&_first_counter, HF_COUNTERS, NULL)


def _bodies_taken():
    """Returns the number of calls of each scorer and vector body in this process, by a name such as
    "hinge.route_tile_f32_avx2"; None except in bounds-checked builds.
    """
    cdef hf_counter* counter = _first_counter
    taken = {}
    while counter != NULL:
        name = f"{counter.package.decode()}.{counter.body.decode().removeprefix('hf_')}"
        taken[name] = taken.get(name, 0) + counter.calls
        counter = counter.next
    return taken if HF_COUNTING else None


ctypedef fused element:
    uint32_t
    uint64_t
    int32_t


cdef inline element _sign(element value, int32_t stop) noexcept nogil:
    # Returns a number with a bit that is set if the value is bad. Only infinities and NaNs have all exponent
    # bits set: adding one carries into the bit above. An integer sets the highest bit.
    if element is uint32_t:
        return (value << 1 >> 24) + 1
    elif element is uint64_t:
        return (value << 1 >> 53) + 1
    else:
        return <int32_t> (<uint32_t> value | (<uint32_t> stop - 1 - <uint32_t> value))


cdef inline bint _bad(element signs) noexcept nogil:
    if element is uint32_t:
        return signs >> 8
    elif element is uint64_t:
        return signs >> 11
    else:
        return signs < 0


cdef bint _any_bad(const element* a, Py_ssize_t n, int32_t stop) noexcept nogil:
    cdef Py_ssize_t i
    cdef element signs = 0
    for i in range(n):
        signs |= _sign(a[i], stop)
    return _bad(signs)


cdef Py_ssize_t _first_bad(const element* a, Py_ssize_t n, int32_t stop, hf_watch* watch) noexcept nogil:
    # After a block with a bad element, the remaining blocks are skipped.
    cdef Py_ssize_t n_blocks = (n + BLOCK - 1) // BLOCK
    cdef int64_t b, i
    cdef int threads = hf_threads_for(<double> n / ELEMENTS)
    cdef bint bad
    watch.interrupted = False
    if n_blocks < 16:
        bad = _any_bad(a, n, stop)
    else:
        start_watch(watch)
        for b in prange(hf_units(watch, n_blocks, threads), schedule="dynamic", num_threads=threads):
            if hf_begin(watch, b):
                if _any_bad(a + b * BLOCK, min(<Py_ssize_t> BLOCK, n - b * BLOCK), stop):
                    hf_stop(watch)
                hf_end(watch)
        bad = hf_has_stopped(watch)
    if bad and not watch.interrupted:
        for i in range(n):
            if _bad(_sign(a[i], stop)):
                return i
    return -1


cdef bint some_nonfinite(const void* start, Py_ssize_t n, int itemsize) noexcept nogil:
    if itemsize == 4:
        return _any_bad[uint32_t](<const uint32_t*> start, n, 0)
    return _any_bad[uint64_t](<const uint64_t*> start, n, 0)


cdef bint some_outside(const int32_t* start, Py_ssize_t n, Py_ssize_t stop) noexcept nogil:
    return _any_bad[int32_t](start, n, <int32_t> min(stop, <Py_ssize_t> 0x7FFFFFFF))


def first_nonfinite(cnp.ndarray a):
    """Returns the flat index of the first NaN or infinity in a C-contiguous float32 or float64 array, or -1.

    Cost: one read of the array.
    """
    cdef const void* start = cnp.PyArray_DATA(a)
    cdef Py_ssize_t n = cnp.PyArray_SIZE(a), first
    cdef hf_watch watch
    if cnp.PyArray_ITEMSIZE(a) == 4:
        first = _first_bad[uint32_t](<const uint32_t*> start, n, 0, &watch)
    else:
        first = _first_bad[uint64_t](<const uint64_t*> start, n, 0, &watch)
    raise_interrupt(&watch)
    return first


def first_outside(cnp.ndarray a, int32_t stop):
    """Returns the flat index of the first element outside 0 <= a < stop in a C-contiguous int32 array, or -1.

    Cost: one read of the array.
    """
    cdef Py_ssize_t first
    cdef hf_watch watch
    first = _first_bad[int32_t](<const int32_t*> cnp.PyArray_DATA(a), cnp.PyArray_SIZE(a), stop, &watch)
    raise_interrupt(&watch)
    return first


cdef Py_ssize_t _first_named(
    const int32_t* table, Py_ssize_t width, const int32_t* name, Py_ssize_t row, Py_ssize_t step,
    Py_ssize_t n, Py_ssize_t first, Py_ssize_t last, int32_t stop,
) noexcept nogil:
    # Returns the least flat index of a bad number that rows first to last - 1 of a table have, or -1.
    cdef Py_ssize_t i, j, at, least = -1
    for i in range(n):
        for j in range(first, last):
            at = name[i * row + j * step]
            # Another thread may have written a name out of range since the check.
            if <size_t> at < <size_t> width and <uint32_t> table[j * width + at] >= <uint32_t> stop:
                if least < 0 or j * width + at < least:
                    least = j * width + at
    return least


def first_named_outside(cnp.ndarray table, cnp.ndarray name, int32_t stop):
    """Returns the least flat index of a table[j, name[i, j]] outside 0 <= number < stop, or -1.

    table (n_rows, width) int32, C-contiguous; name (n, n_rows) int32. Cost: a read of each name, or before of
    a table that is small beside them.
    """
    cdef Py_ssize_t n_rows = cnp.PyArray_DIM(table, 0), width = cnp.PyArray_DIM(table, 1), group
    cdef Py_ssize_t n = cnp.PyArray_DIM(name, 0), n_groups = (n_rows + NAMED - 1) // NAMED
    cdef Py_ssize_t row = cnp.PyArray_STRIDE(name, 0) // 4, step = cnp.PyArray_STRIDE(name, 1) // 4
    cdef const int32_t* start = <const int32_t*> cnp.PyArray_DATA(table)
    cdef const int32_t* names = <const int32_t*> cnp.PyArray_DATA(name)
    cdef int threads = hf_threads_for(<double> n * n_rows)
    cdef hf_watch watch
    if width <= SCANNED * n and _first_bad[int32_t](start, n_rows * width, stop, &watch) < 0:
        raise_interrupt(&watch)
        return -1
    start_watch(&watch)
    for group in prange(
        hf_units(&watch, n_groups, threads), schedule="dynamic", num_threads=threads, nogil=True
    ):
        if hf_begin(&watch, group):
            if _first_named(
                start, width, names, row, step, n, group * NAMED, min((group + 1) * NAMED, n_rows), stop
            ) >= 0:
                hf_stop(&watch)
            hf_end(&watch)
    raise_interrupt(&watch)
    if hf_has_stopped(&watch):
        return _first_named(start, width, names, row, step, n, 0, n_rows, stop)
    return -1


def is_cupy(a):
    """Returns whether `a` is a cupy.ndarray, without importing CuPy."""
    cupy = _modules.get("cupy")
    return cupy is not None and isinstance(a, cupy.ndarray)


def fits(a, dtype, tuple axes, dict sizes):
    """Returns whether a NumPy or CuPy array has this dtype, C order, alignment and these axes.

    An axis is a number, or a name whose size is looked up in `sizes`; a new name's size is stored there. If
    the last axis is Ellipsis, any number of axes may follow.
    """
    cdef Py_ssize_t i, n_axes = len(axes), n_sizes, size
    cdef bint on_host = isinstance(a, cnp.ndarray)
    cdef tuple shape = () if on_host else a.shape
    if a.dtype is not dtype:
        return False
    if on_host:
        n_sizes = cnp.PyArray_NDIM(<cnp.ndarray> a)
        if not cnp.PyArray_IS_C_CONTIGUOUS(<cnp.ndarray> a) or not cnp.PyArray_ISALIGNED(<cnp.ndarray> a):
            return False
    else:
        n_sizes = len(shape)
        if not a.flags.c_contiguous:
            return False
    if n_axes and axes[n_axes - 1] is ...:
        n_axes -= 1
        if n_sizes < n_axes:
            return False
    elif n_sizes != n_axes:
        return False
    for i in range(n_axes):
        size = cnp.PyArray_DIM(<cnp.ndarray> a, i) if on_host else shape[i]
        axis = axes[i]
        if type(axis) is str:
            axis = sizes.setdefault(axis, size)
        if axis != size:
            return False
    return True


cdef (size_t, size_t) _bounds(cnp.ndarray a):
    # Returns the addresses of the first byte of an array and of the end; equal if it has no bytes.
    cdef size_t first = <size_t> cnp.PyArray_DATA(a), last = first + cnp.PyArray_ITEMSIZE(a)
    cdef Py_ssize_t reach
    cdef int i
    for i in range(cnp.PyArray_NDIM(a)):
        if cnp.PyArray_DIM(a, i) == 0:
            return first, first
        reach = (cnp.PyArray_DIM(a, i) - 1) * cnp.PyArray_STRIDE(a, i)
        if reach < 0:
            first += reach
        else:
            last += reach
    return first, last


def apart(list written, list read):
    """Returns whether all are NumPy arrays, or CuPy arrays in C order, those in `written` are writable, and
    none of these overlaps another.

    The bounds of arrays are compared. Cost: some nanoseconds per pair.
    """
    cdef Py_ssize_t i, j, n_written = len(written), n = n_written + len(read)
    cdef size_t[2 * MAX_APART] bounds
    if n > MAX_APART:
        return False
    for i in range(n):
        a = written[i] if i < n_written else read[i - n_written]
        if type(a) is cnp.ndarray:
            if i < n_written and not cnp.PyArray_ISWRITEABLE(a):
                return False
            bounds[2 * i], bounds[2 * i + 1] = _bounds(a)
        elif is_cupy(a) and a.flags.c_contiguous:
            bounds[2 * i] = a.data.ptr
            bounds[2 * i + 1] = bounds[2 * i] + <size_t> a.nbytes
        else:
            return False
    for i in range(n_written):
        for j in range(i + 1, n):
            if bounds[2 * i] < bounds[2 * j + 1] and bounds[2 * j] < bounds[2 * i + 1]:
                return False
    return True


cdef enum:
    MAX_APART = 64        # arrays that are compared together, at most
    CHUNK = 1 << 20       # bytes per unit of work of a copy
    INDICES = 1 << 12     # indices per unit of work of a gather


def copy(unsigned char[::1] target, const unsigned char[::1] source):
    """Copies bytes with all threads: an upper bound on the memory bandwidth of kernels."""
    cdef Py_ssize_t n = min(target.shape[0], source.shape[0]), n_chunks = (n + CHUNK - 1) // CHUNK, i
    if n == 0:
        return
    with nogil:
        for i in prange(n_chunks, schedule="static", num_threads=hf_threads()):
            memcpy(&target[i * CHUNK], &source[i * CHUNK], min(<Py_ssize_t> CHUNK, n - i * CHUNK))


cdef int32_t _gather_some(const int32_t* table, const int32_t* index, Py_ssize_t n) noexcept nogil:
    cdef int32_t total = 0
    cdef Py_ssize_t i
    for i in range(n):
        total ^= table[index[i]]
    return total


def gather(const int32_t[::1] table, const int32_t[::1] index):
    """Returns the exclusive or of table[index], with all threads: an upper bound on the rate of random loads.

    Indices are not checked.
    """
    cdef Py_ssize_t n = index.shape[0], n_chunks = (n + INDICES - 1) // INDICES, i
    cdef int32_t total = 0
    if n == 0:
        return 0
    with nogil:
        for i in prange(n_chunks, schedule="static", num_threads=hf_threads()):
            total ^= _gather_some(&table[0], &index[i * INDICES], min(<Py_ssize_t> INDICES, n - i * INDICES))
    return total


def words(key, stream, uint64_t first, Py_ssize_t n):
    """Returns (*shape, n) uint64: random words first to first + n - 1 of each key and stream (philox.h).

    Keys and streams are uint64 of one shape, or one of them is a number. A counter of Philox makes two words.
    """
    shape = np.shape(key) or np.shape(stream)
    cdef const uint64_t[::1] keys = np.ravel(np.asarray(key, np.uint64))
    cdef const uint64_t[::1] streams = np.ravel(np.asarray(stream, np.uint64))
    cdef Py_ssize_t next_key = keys.shape[0] > 1, next_stream = streams.shape[0] > 1, i, j
    result = np.empty((*shape, n), np.uint64)
    cdef uint64_t[:, ::1] out = result.reshape(math.prod(shape), n)
    cdef hf_draw draw
    with nogil:
        for i in range(out.shape[0]):
            for j in range(-<Py_ssize_t> (first & 1), n, 2):
                draw = hf_philox(keys[i * next_key], (first + <uint64_t> j) >> 1, streams[i * next_stream])
                if j >= 0:
                    out[i, j] = hf_draw_key(draw, 0)
                if j + 1 < n:
                    out[i, j + 1] = hf_draw_key(draw, 1)
    return result
