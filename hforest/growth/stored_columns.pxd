from libc.stdint cimport uint32_t, uint64_t

from hforest.growth.bounds cimport hf_codes
from hforest.growth.code_scorer cimport hf_code_scorer
from hforest.growth.columns cimport hf_columns
from hforest.growth.feature_sampling cimport hf_features
from hforest.growth.task cimport hf_pending, hf_split, hf_task, hf_workspace

cdef bint score_stored(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, double weight,
    uint32_t column, hf_codes* codes, hf_code_scorer* scorer, bint* started, hf_split* best
) noexcept nogil
cdef hf_split best_random_stored(
    const hf_task* t, hf_workspace* r, const hf_columns* c, const hf_pending* node, uint64_t key,
    double weight, hf_features* features
) noexcept nogil
