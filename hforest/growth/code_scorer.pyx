"""The scorer of candidates with codes of 32 bits: one interface for pairwise and both histograms."""

from libc.stdint cimport int32_t, uint32_t

from hforest.growth.bounds cimport next_code, score_buckets, start_buckets
from hforest.growth.pairwise cimport score_value_pairs, start_value_pairs
from hforest.growth.scorers cimport (
    HISTOGRAM, PAIRWISE, SORTED_SCAN, WIDE_HISTOGRAM, scorer_of_codes,
)
from hforest.growth.sorted_scan cimport scan_codes
from hforest.growth.task cimport HF_COUNT
from hforest.growth.wide cimport score_wide, start_wide


cdef void start_code_scorer(
    const hf_task* t, hf_workspace* r, hf_codes* codes, const hf_pending* node, double weight, bint whole,
    hf_code_scorer* s
) noexcept nogil:
    # Begins a node. Its kind is SORTED_SCAN where the node has too many classes for another one.
    s.kind = scorer_of_codes(t, r, node.last - node.first, weight)
    if s.kind == PAIRWISE:
        start_value_pairs(t, r, node, weight, &s.pairs)
    elif s.kind == HISTOGRAM and not start_buckets(t, r, codes, node, weight, whole, &s.buckets):
        s.kind = SORTED_SCAN
    elif s.kind == WIDE_HISTOGRAM and not start_wide(t, r, codes, node, weight, whole, &s.wide):
        s.kind = SORTED_SCAN


cdef int score_codes(
    const hf_task* t, hf_workspace* r, const hf_codes* codes, const int32_t* code, hf_code_scorer* s,
    double* best, int32_t* low
) noexcept nogil:
    # Takes the best split of one candidate where it scores more than best[0]; returns whether it does, or -1
    # if it is for the sorted scan.
    #
    # code        IN (n,)  in the order of the values
    # best, low   OUT      its score, and the largest code on its left
    cdef double score = max(best[0], 0.0)
    cdef int found = -1
    if s.kind == PAIRWISE:
        found = score_value_pairs(t, &s.pairs, code, &score, low)
    elif s.kind == HISTOGRAM:
        found = score_buckets(t, r, codes, code, &s.buckets, &score, low)
    elif s.kind == WIDE_HISTOGRAM:
        found = score_wide(t, r, codes, code, &s.wide, &score, low)
    if found > 0:
        best[0] = score
    return found


cdef void take_codes(
    const hf_task* t, hf_workspace* r, const hf_codes* codes, const hf_pending* node, double weight,
    const int32_t* code, hf_code_scorer* s, hf_split* best
) noexcept nogil:
    # Writes the codes on both sides of a candidate's best split, and its score, to `best` where it scores
    # more than best.score: by the scorer, or by the sorted scan.
    #
    # code  IN (n,)  in the order of the values
    cdef int32_t low = 0
    cdef int found = -1
    if s.kind != SORTED_SCAN:
        found = score_codes(t, r, codes, code, s, &best.score, &low)
    if found > 0:
        best.low = <uint32_t> low
        best.high = <uint32_t> next_code(code, node.last - node.first, low)
    elif found < 0:
        HF_COUNT(b"growth", b"sorted_scan")
        scan_codes(t, r, node, weight, code, best)
