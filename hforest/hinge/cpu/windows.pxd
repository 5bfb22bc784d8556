from libc.stdint cimport int32_t, int64_t

from hforest.core.machine cimport hf_watch
from hforest.hinge.cpu.forest cimport real


# Layout of the images that routing reads. A sample is the window of an image at one output position. A column
# is a tap: a channel at one place of the window. A tap outside of the image reads 0.
cdef struct Windows:
    Py_ssize_t n_images, n_taps
    Py_ssize_t image              # elements of an image: channels * size[0] * size[1] * size[2]
    Py_ssize_t size[3]
    Py_ssize_t out[3]             # output positions along each axis; samples are in C order of (image, *out)
    Py_ssize_t stride[3]
    Py_ssize_t padding[3]
    const int64_t* taps           # IN (n_taps, 4): index in the image from the corner, and offset per axis


# The slopes that the gradient with respect to images sums.
cdef struct Slopes:
    Py_ssize_t n_trees, n_vertices, n_samples
    const int32_t* features       # IN (n_trees, n_vertices), taps
    const int32_t* vertex         # IN (n_samples, n_trees), with the steps of a route
    Py_ssize_t sample_step, tree_step
    const void* slope             # IN (n_trees, n_samples) real

cdef Windows windows_of(windows, Py_ssize_t n_images, taps)
cdef void fill_tile(
    const Windows* w, const real* x, Py_ssize_t sample, Py_ssize_t n, Py_ssize_t first, Py_ssize_t last,
    real* tile) noexcept nogil
cdef void fill_rows(
    const Windows* w, const real* x, Py_ssize_t sample, Py_ssize_t n, real* rows) noexcept nogil
cdef void add_row(const Windows* w, Py_ssize_t sample, const real* row, double* image) noexcept nogil
cdef int image_gradients(
    const Windows* w, const Slopes* slopes, real* grad_x, int path, int threads, hf_watch* watch) except -1
