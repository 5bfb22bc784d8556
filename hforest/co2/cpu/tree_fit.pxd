from libc.stdint cimport int32_t, int64_t, uint64_t

from hforest.co2.cpu.rows cimport hf_rows
from hforest.co2.cpu.stump_fit cimport hf_schedule
from hforest.core.machine cimport hf_watch


# Samples of all trees, with labels or targets.
ctypedef struct hf_samples:
    hf_rows rows
    const int32_t* label      # (n,) or NULL
    const double* targets     # (n, n_outputs) or NULL
    const double* weight      # (n,)

# Some trees, as whole_trees.Trees describes them.
ctypedef struct hf_whole_trees:
    const int64_t* first_split
    const int64_t* first_leaf
    const int32_t* child
    char* w
    double* theta
    double* value
    int64_t n_outputs
    const hf_samples* samples
    const hf_samples* judge   # or NULL
    const hf_schedule* schedule
    uint64_t seed
    double* history           # (n_trees, max_rounds + 1)
    hf_watch* watch

# Fits tree m of some, whose number in the forest is `number`; returns whether there was memory.
cdef bint fit_tree(const hf_whole_trees* t, int64_t m, int64_t number, int n_threads) noexcept nogil
