"""Trees that are packed for many samples, and kept: calls then cost nothing but their walks."""

cimport cython
from libc.stdint cimport int32_t, int64_t

cimport hforest.core.arrays as cnp
from hforest.core.arena cimport release
from hforest.core.machine cimport hf_threads_for, hf_watch, raise_stopped, start_watch
from hforest.tree.cpu.cpu cimport pack, run
from hforest.tree.cpu.places cimport PACK_NS
from hforest.tree.cpu.walk cimport Walk, walk_of

import numpy as np

from ..forest import NO_DEFAULTS

cnp.import_array()


@cython.final
@cython.no_gc_clear
cdef class Layout:
    """Packed trees, of which several threads may walk one."""

    def __dealloc__(self):
        release(&self._arena)


cdef Layout layout_of(forest, bint vote):
    # Returns the packed trees of a checked forest, whose arrays nobody changes; None if they have categories.
    cdef Layout layout = Layout.__new__(Layout)
    cdef hf_watch watch
    cdef cnp.ndarray value = forest.value
    layout._forest = forest._replace(default_left=NO_DEFAULTS[0])
    layout.w = walk_of(np.zeros((1, int(forest.n_features)), value.dtype), layout._forest)
    layout.n_nodes = len(forest.feature)
    layout.w.value, layout.w.n_outputs = cnp.PyArray_DATA(value), cnp.PyArray_DIM(value, 1)
    layout.w.vote, layout.w.watch = vote, &watch
    if not layout.w.packs:
        return None
    start_watch(&watch)
    with nogil:
        pack(&layout.w, layout.n_nodes, hf_threads_for(<double> PACK_NS * layout.n_nodes), &layout._arena)
    raise_stopped(&watch, "forest: no memory to pack it; free 32 bytes for each of its nodes")
    layout.w.x, layout.w.watch = NULL, NULL
    return layout


cdef int run_layout(Layout layout, const void* x, int64_t n, void* leaf, void* y) except -1:
    # Writes the leaves, or the results, of n rows without missing values; the other address is NULL.
    cdef Walk w = layout.w
    cdef hf_watch watch
    # A walk without features reads an element of x.
    cdef double zero = 0
    w.x, w.n_samples, w.leaf, w.y = x if w.n_features else &zero, n, <int32_t*> leaf, y
    start_watch(&watch)
    w.watch = &watch
    with nogil:
        run(&w, layout.n_nodes)
    return raise_stopped(&watch, "forest: no memory to walk it; pass fewer samples or trees at a time")
