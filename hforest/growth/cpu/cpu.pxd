# Declarations for co2, whose trees grow from a different candidate source.

from libc.stdint cimport int64_t

from hforest.growth.cpu.sources.columns cimport hf_columns
from hforest.growth.cpu.task cimport hf_task, hf_tree


cdef class _Grown:
    cdef hf_tree tree

cdef hf_task task_of(objective, int64_t n_candidates, batch, bint single)
cdef hf_columns columns_of(bins, workspace, bint random_thresholds)
cdef object grow_trees(hf_task* t, batch)
