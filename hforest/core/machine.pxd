from libc.stdint cimport int32_t, int64_t, uint64_t

# The number of threads of a parallel region; every region passes it. The second function returns 1 for little
# work. It takes the work in nanoseconds of one thread: a count times a measured constant ..._NS.
cdef extern from "core/cpu_features.h" nogil:
    int hf_threads()
    int hf_threads_for(double nanoseconds)

# How a long call ends early. Its parallel loops run over hf_units(...) iterations; hf_begin returns which of
# them have to run, and hf_end follows these. The calling thread checks for signals throughout (watch.h).
# Between them a thread has the floating-point state of a new process; loops without them enter and leave it.
cdef extern from "core/watch.h" nogil:
    ctypedef struct hf_watch:
        bint stopped
        bint interrupted
    bint hf_has_stopped(const hf_watch* watch)
    bint hf_stopped(hf_watch* watch)
    bint hf_stopped_after(hf_watch* watch, int64_t* n_steps, int64_t more)
    void hf_stop(hf_watch* watch)
    int64_t hf_units(hf_watch* watch, int64_t n_units, int n_threads)
    bint hf_begin(hf_watch* watch, int64_t unit)
    void hf_end(hf_watch* watch)
    uint64_t hf_enter_state()
    void hf_leave_state(uint64_t before)

cdef void start_watch(hf_watch* watch) noexcept nogil


cdef inline int raise_interrupt(const hf_watch* watch) except -1:
    # Called with the GIL after the work; the exception of the signal handler is pending.
    return -1 if watch.interrupted else 0


cdef inline int raise_stopped(const hf_watch* watch, str message, int64_t n=0) except -1:
    # The same for work that allocates: raises MemoryError if memory ran out. "{}" in the message stands for
    # n.
    raise_interrupt(watch)
    if watch.stopped:
        raise MemoryError(message.format(n))
    return 0


# Returns the vector path in use, one of HF_PATH_... in simd.h.
cdef int simd_path() noexcept nogil

# Return whether n values include a NaN or an infinity (itemsize 4 or 8), or an index outside
# 0 <= index < stop.
cdef bint some_nonfinite(const void* start, Py_ssize_t n, int itemsize) noexcept nogil
cdef bint some_outside(const int32_t* start, Py_ssize_t n, Py_ssize_t stop) noexcept nogil
