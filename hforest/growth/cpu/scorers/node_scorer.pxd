from libc.stdint cimport int32_t, int64_t, uint32_t

from hforest.growth.cpu.scorers.bodies cimport hf_bodies, hf_buckets, hf_value_pairs
from hforest.growth.cpu.task cimport hf_pending, hf_split, hf_task, hf_workspace

cdef struct hf_scorer

# Writes a candidate's best split to `best` if it scores more than best.score; returns whether it does. Of
# equal scores the lowest split wins.
#
# bin  IN (n,)  of the samples of scorer.node: bins, or codes in the order of the values
ctypedef bint (*hf_score)(
    const hf_task* t, hf_workspace* r, hf_scorer* scorer, const int32_t* bin, hf_split* best
) noexcept nogil


# The scorer of a node's candidates.
cdef struct hf_scorer:
    hf_score score           # NULL: not chosen yet
    const hf_pending* node
    double weight
    hf_value_pairs pairs     # workspace of score_pairs
    hf_buckets buckets       # workspace of score_buckets
    hf_bodies bodies

cdef void start_scorer(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight, bint whole, bint are_bytes,
    hf_scorer* scorer
) noexcept nogil


cdef inline void take_split(
    const hf_scorer* scorer, const int32_t* bin, double score, int32_t low, hf_split* best
) noexcept nogil:
    # Writes the split between bin `low` and the next larger bin of the node.
    cdef int32_t next = 0x7fffffff
    cdef int64_t i
    for i in range(scorer.node.last - scorer.node.first):
        next = bin[i] if low < bin[i] < next else next
    best.score, best.low, best.high = score, <uint32_t> low, <uint32_t> next
