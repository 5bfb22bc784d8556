"""Calls on many samples, for packed trees that are kept (prepared.pyx)."""

from libc.stdint cimport int64_t

from hforest.core.arena cimport hf_arena
from hforest.tree.cpu.walk cimport Walk

cdef bint packing_pays(const Walk* w, double n_walks, int64_t n_nodes) noexcept nogil
cdef void pack(Walk* w, int64_t n_nodes, int threads, hf_arena* arena) noexcept nogil
cdef void run(Walk* w, int64_t n_nodes) noexcept nogil
