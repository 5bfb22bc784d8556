"""Inner products of encoded rows, each summed in float32 in the order of the columns.

A kernel is copied to strips of HF_STRIP inner products, whose rows are contiguous: a strip stays in L1 for
the rows of a unit of work. Of a sparse one only the entries are stored. Both give the same sums, apart from
the sign of 0.
"""

cimport cython
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

cimport hforest.core.arrays as cnp
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_threads_for, hf_units, hf_watch, raise_interrupt, simd_path,
    some_nonfinite, start_watch,
)

import numpy as np

cnp.import_array()

cdef extern from "tabular/cpu/simd/products.h" nogil:
    enum:
        HF_STRIP
    bint hf_strip(
        int path, const float* x, int64_t n, int64_t n_columns, const float* matrix, float* y, int64_t width
    )

cdef enum:
    ROWS = 32             # rows per unit of work
    PRODUCTS = 4          # products of two numbers per nanosecond
    DENSE = 16            # columns per entry of a product up to which strips are faster


cdef struct Matrix:
    # Products of rows with n_columns numbers.
    int64_t n_columns
    int64_t n_products
    int64_t n_entries     # entries of each product, if these are stored; else 0
    const float* data     # (n_products, n_entries); or strips (n_strips, n_columns, HF_STRIP)
    const int32_t* indices  # (n_products, n_entries), ascending; only of entries


cdef void _strip(
    const float* x, int64_t n, int64_t n_columns, const float* matrix, float* y, int64_t width
) noexcept nogil:
    # Writes the products of a strip, as hf_strip.
    cdef int64_t i, j, k
    cdef float a
    cdef float* to
    for i in range(n):
        to = y + i * width
        for k in range(HF_STRIP):
            to[k] = 0
        for j in range(n_columns):
            a = x[i * n_columns + j]
            for k in range(HF_STRIP):
                to[k] += a * matrix[j * HF_STRIP + k]


cdef void _write_strips(
    int path, const Matrix* m, const float* x, int64_t n, float* y, int64_t width
) noexcept nogil:
    cdef float[ROWS * HF_STRIP] last
    cdef int64_t first = 0, size, i, step
    cdef const float* strip = m.data
    cdef float* to
    while first < m.n_products:
        size = min(<int64_t> HF_STRIP, m.n_products - first)
        # The last strip has columns of zeros, whose products are not written.
        to, step = y + first, width
        if size < HF_STRIP:
            to, step = last, HF_STRIP
        if not hf_strip(path, x, n, m.n_columns, strip, to, step):
            _strip(x, n, m.n_columns, strip, to, step)
        if size < HF_STRIP:
            for i in range(n):
                memcpy(y + first + i * width, last + i * HF_STRIP, size * sizeof(float))
        strip += m.n_columns * HF_STRIP
        first += HF_STRIP


cdef void _write_entries(const Matrix* m, const float* x, int64_t n, float* y, int64_t width) noexcept nogil:
    cdef int64_t i, k, e, n_entries = m.n_entries
    cdef const float* data
    cdef const int32_t* indices
    cdef const float* row
    cdef float sum
    for i in range(n):
        data, indices, row = m.data, m.indices, x + i * m.n_columns
        for k in range(m.n_products):
            sum = 0
            for e in range(n_entries):
                sum += data[e] * row[indices[e]]
            y[i * width + k] = sum
            data += n_entries
            indices += n_entries


cdef bint _write_rows(
    int path, const Matrix* m, const float* numbers, const float* columns, int64_t n, float* z
) noexcept nogil:
    # Writes columns and products of n <= ROWS rows. Returns whether the products are finite.
    #
    # numbers  IN (n, n_columns): what the products are of
    # columns  IN (n, n_columns): what precedes them in z
    # z        OUT (n, n_columns + n_products)
    cdef int64_t width = m.n_columns + m.n_products, i
    cdef float* y = z + m.n_columns
    cdef bint is_finite = True
    if m.n_entries:
        _write_entries(m, numbers, n, y, width)
    else:
        _write_strips(path, m, numbers, n, y, width)
    for i in range(n):
        memcpy(z + i * width, columns + i * m.n_columns, m.n_columns * sizeof(float))
        is_finite &= not some_nonfinite(y + i * width, m.n_products, sizeof(float))
    return is_finite


@cython.final
cdef class Products:
    """Inner products of a member of a model, from its kernel (n_columns, n_products) of float32."""

    cdef Matrix _matrix
    cdef tuple _arrays

    def __init__(self, kernel):
        n_columns, n_products = kernel.shape
        used = kernel != 0
        n_entries = int(used.sum(axis=0).max(initial=0))
        self._matrix.n_columns, self._matrix.n_products, self._matrix.n_entries = n_columns, n_products, 0
        if n_entries * DENSE < n_columns and n_entries:
            # The columns of the entries, in their order; then others, of weight 0.
            order = np.argsort(~used, axis=0, kind="stable")[:n_entries]
            data = np.take_along_axis(kernel, order, axis=0).T.astype(np.float32, order="C")
            self._arrays = data, order.T.astype(np.int32, order="C")
            self._matrix.n_entries = n_entries
        else:
            n_strips = (n_products + HF_STRIP - 1) // HF_STRIP
            padded = np.zeros((n_columns, n_strips * HF_STRIP), np.float32)
            padded[:, :n_products] = kernel
            strips = padded.reshape(n_columns, n_strips, HF_STRIP).transpose(1, 0, 2)
            self._arrays = np.ascontiguousarray(strips), np.zeros(0, np.int32)
        self._matrix.data = <const float*> cnp.PyArray_DATA(<cnp.ndarray> self._arrays[0])
        self._matrix.indices = <const int32_t*> cnp.PyArray_DATA(<cnp.ndarray> self._arrays[1])

    def inputs(self, cnp.ndarray numbers not None, cnp.ndarray columns):
        """Returns columns followed by the inner products of numbers, (n_samples, n_columns + n_products), and
        whether the products are finite.

        Both are (n_samples, n_columns) float32; columns may be None for those of numbers.
        """
        cdef const Matrix* m = &self._matrix
        cdef int64_t n = cnp.PyArray_DIM(numbers, 0), n_units = (n + ROWS - 1) // ROWS, unit, n_bad = 0, first
        cdef int64_t width = m.n_columns + m.n_products
        cdef int64_t n_steps = n * m.n_products * (m.n_entries if m.n_entries else m.n_columns)
        cdef int threads = hf_threads_for(<double> n_steps / PRODUCTS), path = simd_path()
        cdef cnp.npy_intp[2] shape
        cdef hf_watch watch
        shape[0], shape[1] = n, width
        cdef cnp.ndarray z = cnp.PyArray_EMPTY(2, shape, cnp.NPY_FLOAT, 0)
        cdef float* to = <float*> cnp.PyArray_DATA(z)
        cdef const float* x = <const float*> cnp.PyArray_DATA(numbers)
        cdef const float* before = x if columns is None else <const float*> cnp.PyArray_DATA(columns)
        start_watch(&watch)
        with nogil:
            for unit in prange(hf_units(&watch, n_units, threads), schedule="dynamic", num_threads=threads):
                if hf_begin(&watch, unit):
                    first = unit * ROWS
                    n_bad += not _write_rows(
                        path, m, x + first * m.n_columns, before + first * m.n_columns,
                        min(<int64_t> ROWS, n - first), to + first * width,
                    )
                    hf_end(&watch)
        raise_interrupt(&watch)
        return z, n_bad == 0
