"""The choice of the scorer of a node's candidates, by the table in table.pxd."""

from hforest.growth.cpu.scorers.bounds cimport score_buckets, start_buckets
from hforest.growth.cpu.scorers.pairwise cimport score_pairs, start_pairs
from hforest.growth.cpu.scorers.table cimport (
    HISTOGRAM, PAIRWISE, TERM_BUCKETS, WIDE_HISTOGRAM, scorer_of_bins,
)
from hforest.growth.cpu.scorers.sorted_scan cimport score_sorted
from hforest.growth.cpu.scorers.term_buckets cimport score_term_buckets, start_term_buckets


cdef void start_scorer(
    const hf_task* t, hf_workspace* r, const hf_pending* node, double weight, bint whole, bint are_bytes,
    hf_scorer* scorer
) noexcept nogil:
    # Starts a scorer for `node`, which must outlive it.
    #
    # whole      whether bins are the values, not codes of float32
    # are_bytes  whether they are 8-bit bins, for which scorer_of_bytes chose no other scorer
    cdef int kind = scorer_of_bins(t, r, node.last - node.first, weight, are_bytes)
    scorer.node, scorer.weight, scorer.score = node, weight, score_sorted
    if kind == TERM_BUCKETS:
        start_term_buckets(t, r, scorer, whole)
        scorer.score = score_term_buckets
    elif kind == PAIRWISE:
        start_pairs(t, r, scorer)
        scorer.score = score_pairs
    elif (kind == HISTOGRAM or kind == WIDE_HISTOGRAM) and start_buckets(
        t, r, scorer, whole, kind == WIDE_HISTOGRAM
    ):
        scorer.score = score_buckets
