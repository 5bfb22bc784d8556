"""The part of NumPy's C interface that the kernels use.

C code made with the declarations in NumPy compiles only with the headers of that NumPy or of a newer one.
With these it compiles with all.
"""


cdef extern from "numpy/arrayobject.h":
    ctypedef Py_ssize_t npy_intp

    ctypedef class numpy.ndarray [object PyArrayObject, check_size ignore]:
        pass

    enum:
        NPY_INT32
        NPY_FLOAT
        NPY_DOUBLE
        NPY_ARRAY_WRITEABLE

    ctypedef enum NPY_ORDER:
        NPY_CORDER

    int import_array "_import_array"() except -1

    bint PyArray_CheckExact(object)
    bint PyArray_ISALIGNED(ndarray) nogil
    bint PyArray_ISCARRAY_RO(ndarray) nogil
    bint PyArray_ISWRITEABLE(ndarray) nogil
    bint PyArray_IS_C_CONTIGUOUS(ndarray) nogil
    int PyArray_NDIM(ndarray) nogil
    int PyArray_TYPE(ndarray) nogil
    void* PyArray_DATA(ndarray) nogil
    npy_intp PyArray_DIM(ndarray, size_t) nogil
    npy_intp* PyArray_DIMS(ndarray) nogil
    npy_intp PyArray_ITEMSIZE(ndarray) nogil
    npy_intp PyArray_NBYTES(ndarray) nogil
    npy_intp PyArray_SIZE(ndarray) nogil
    npy_intp PyArray_STRIDE(ndarray, size_t) nogil
    int PyArray_SetBaseObject(ndarray, object) except -1
    void PyArray_CLEARFLAGS(ndarray, int flags) nogil
    object PyArray_NewCopy(ndarray, NPY_ORDER order)
    object PyArray_EMPTY(int n_axes, npy_intp* sizes, int type, int fortran)
    object PyArray_SimpleNewFromData(int n_axes, npy_intp* sizes, int type, void* data)
