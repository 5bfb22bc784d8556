"""The handler that XLA calls. It calls a Python function with arrays over XLA's buffers.

An XLA program calls the target "hforest" with two string attributes:

    function   the name of one of `functions`
    setting    its first argument; the arrays of arguments and results follow

The arrays share the memory of XLA's buffers: those of arguments are read-only, those of results are written.
They are valid only during the call. An exception becomes an XLA error with the exception's text.

XLA calls the handler on the thread that runs the program, or on one of its own, without the GIL; the handler
acquires it. Each call runs in its own context, so `hforest.using` and `hforest.unchecked` do not apply.
"""

from contextvars import Context

from cpython.exc cimport PyErr_SetInterrupt
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t

cimport hforest.core.arrays as cnp

cdef extern from "jax/foreign.h" nogil:
    int HF_XLA_MAJOR, HF_XLA_MINOR, HF_XLA_METADATA, HF_XLA_BUFFER, HF_XLA_STRING
    int HF_XLA_S32, HF_XLA_F32, HF_XLA_F64
    int HF_XLA_CANCELLED, HF_XLA_INVALID_ARGUMENT, HF_XLA_RESOURCE_EXHAUSTED, HF_XLA_FAILED_PRECONDITION
    int HF_XLA_OUT_OF_RANGE, HF_XLA_INTERNAL

    ctypedef struct hf_xla_error:
        pass

    ctypedef struct hf_xla_extension:
        size_t struct_size
        int type

    ctypedef struct hf_xla_version:
        size_t struct_size
        hf_xla_extension* extensions
        int major, minor

    ctypedef struct hf_xla_metadata:
        size_t struct_size
        hf_xla_version version
        unsigned int traits

    ctypedef struct hf_xla_metadata_extension:
        hf_xla_extension base
        hf_xla_metadata* metadata

    ctypedef struct hf_xla_error_arguments:
        size_t struct_size
        hf_xla_extension* extensions
        const char* message
        int code

    ctypedef struct hf_xla_api:
        size_t struct_size
        hf_xla_version version
        hf_xla_error* (*create_error)(hf_xla_error_arguments*) noexcept nogil

    ctypedef struct hf_xla_buffer:
        int dtype
        void* data
        int64_t rank
        int64_t* dims

    ctypedef struct hf_xla_buffers:
        int64_t size
        int* types
        hf_xla_buffer** buffers

    ctypedef struct hf_xla_text:
        const char* start
        size_t length

    ctypedef struct hf_xla_attributes:
        int64_t size
        int* types
        hf_xla_text** names
        void** values

    ctypedef struct hf_xla_call:
        size_t struct_size
        hf_xla_extension* extensions
        const hf_xla_api* api
        hf_xla_buffers arguments, results
        hf_xla_attributes attributes

    void hf_huge_pages(void* data, size_t n_bytes)

cnp.import_array()

NAME = "hforest"
"""The name of the target."""

VERSION = (HF_XLA_MAJOR, HF_XLA_MINOR)
"""The version of the interface for which the handler is written."""

functions = {}
"""Maps the name of a function to function(setting, *arguments, *results)."""


cdef enum:
    MAX_RANK = 32

# The version in this text is HF_XLA_MAJOR.
cdef const char* OTHER_VERSION = (
    b"hforest.jax: expected version 0 of XLA's foreign functions, got another one; "
    b"install a jaxlib of that version"
)
cdef const char* SHORT_CALL = (
    b"hforest.jax: expected a whole call of XLA's foreign functions, got a shorter one; "
    b"install jaxlib 0.5 or newer"
)
cdef const char* NO_TEXT = (
    b"hforest.jax: expected a call that ends, got an exception; run the program again"
)


cdef object _array(const hf_xla_buffer* buffer, bint writable):
    """Returns an array over the memory of a buffer."""
    cdef cnp.npy_intp shape[MAX_RANK]
    cdef int kind
    cdef cnp.ndarray array
    if buffer.dtype == HF_XLA_F32:
        kind = cnp.NPY_FLOAT
    elif buffer.dtype == HF_XLA_F64:
        kind = cnp.NPY_DOUBLE
    elif buffer.dtype == HF_XLA_S32:
        kind = cnp.NPY_INT32
    else:
        raise TypeError(
            f"hforest.jax: expected buffers of float32, float64 or int32, got XLA's type {buffer.dtype}; "
            "call the functions of hforest.jax"
        )
    if buffer.rank > MAX_RANK:
        raise ValueError(
            f"hforest.jax: expected at most {MAX_RANK} axes, got {buffer.rank}; merge output axes"
        )
    for axis in range(buffer.rank):
        shape[axis] = <cnp.npy_intp> buffer.dims[axis]
    # An empty buffer may have no memory: NumPy then allocates some.
    array = cnp.PyArray_SimpleNewFromData(<int> buffer.rank, shape, kind, buffer.data)
    if writable:
        hf_huge_pages(cnp.PyArray_DATA(array), cnp.PyArray_NBYTES(array))
    else:
        cnp.PyArray_CLEARFLAGS(array, cnp.NPY_ARRAY_WRITEABLE)
    return array


cdef int _append_arrays(list arrays, const hf_xla_buffers* buffers, bint writable) except -1:
    for i in range(buffers.size):
        if buffers.types[i] != HF_XLA_BUFFER:
            raise TypeError(
                f"hforest.jax: expected buffers, got XLA's kind {buffers.types[i]}; "
                "call the functions of hforest.jax"
            )
        arrays.append(_array(buffers.buffers[i], writable))
    return 0


cdef str _attribute(const hf_xla_attributes* attributes, str name):
    """Returns the text of an attribute."""
    cdef const hf_xla_text* text
    for i in range(attributes.size):
        text = attributes.names[i]
        if text.start[:text.length] == name.encode() and attributes.types[i] == HF_XLA_STRING:
            text = <const hf_xla_text*> attributes.values[i]
            return text.start[:text.length].decode()
    raise TypeError(
        f"hforest.jax: expected the attribute {name}, got none; call the functions of hforest.jax"
    )


cdef int _run(const hf_xla_call* call) except -1:
    cdef str name = _attribute(&call.attributes, "function")
    cdef list arrays = [_attribute(&call.attributes, "setting")]
    _append_arrays(arrays, &call.arguments, False)
    _append_arrays(arrays, &call.results, True)
    function = functions.get(name)
    if function is None:
        raise ValueError(
            f"hforest.jax: expected one of {', '.join(functions)}, got {name!r}; "
            "run the program with the hforest that it was made with"
        )
    Context().run(function, *arrays)
    return 0


cdef int _code(error) except -1:
    if isinstance(error, IndexError):
        return HF_XLA_OUT_OF_RANGE
    if isinstance(error, (TypeError, ValueError)):
        return HF_XLA_INVALID_ARGUMENT
    if isinstance(error, MemoryError):
        return HF_XLA_RESOURCE_EXHAUSTED
    return HF_XLA_INTERNAL if isinstance(error, Exception) else HF_XLA_CANCELLED


cdef str _text(error):
    if isinstance(error, (IndexError, TypeError, ValueError)):
        return str(error)
    return (
        f"hforest.jax: expected a call that ends, got {type(error).__name__}: {error}; "
        "the results of this program are not to be used"
    )


cdef hf_xla_error* _error(const hf_xla_api* api, int code, const char* message) noexcept nogil:
    """Returns a new error of the runtime, which copies the message."""
    cdef hf_xla_error_arguments arguments
    arguments.struct_size = sizeof(arguments)
    arguments.extensions = NULL
    arguments.message = message
    arguments.code = code
    return api.create_error(&arguments)


cdef hf_xla_error* _handle(hf_xla_call* call) noexcept with gil:
    # C calls this function: an exception that left it would be lost, and the call would succeed.
    cdef hf_xla_metadata* metadata
    cdef hf_xla_error* made
    cdef const char* text = NO_TEXT
    cdef bytes message
    cdef bint interrupted
    cdef int code = HF_XLA_INTERNAL
    if call.extensions != NULL and call.extensions.type == HF_XLA_METADATA:
        # Queried at registration and by compilers: the runtime refuses a version that it does not support.
        metadata = (<hf_xla_metadata_extension*> call.extensions).metadata
        metadata.version.struct_size = sizeof(hf_xla_version)
        metadata.version.extensions = NULL
        metadata.version.major = HF_XLA_MAJOR
        metadata.version.minor = HF_XLA_MINOR
        metadata.traits = 0
        return NULL
    if call.api.version.major != HF_XLA_MAJOR:
        return _error(call.api, HF_XLA_FAILED_PRECONDITION, OTHER_VERSION)
    if call.struct_size < sizeof(hf_xla_call):
        return _error(call.api, HF_XLA_FAILED_PRECONDITION, SHORT_CALL)
    try:
        _run(call)
        return NULL
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        try:
            code = _code(error)
            message = _text(error).encode("utf-8", "replace").replace(b"\0", b"?")
            text = message
        except BaseException as another:  # out of memory, or a signal handler raised
            interrupted = interrupted or isinstance(another, KeyboardInterrupt)
        made = _error(call.api, code, text)
        if interrupted:
            # The main thread raises it again after XLA's error. No Python code may run here after this.
            PyErr_SetInterrupt()
        return made


def capsule():
    """Returns the handler as a capsule, which `jax.ffi.register_ffi_target` takes."""
    return PyCapsule_New(<void*> _handle, NULL, NULL)
