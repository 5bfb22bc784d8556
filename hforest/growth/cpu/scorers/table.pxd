# Which scorer a node's candidates have. Where several apply, they give the same splits: all compute the
# integer sums of the sorted scan, and of equal scores the first candidate and its lowest split win.
#
#   scorer        nodes                             bins      cost per candidate          in
#   sorted scan   what no other serves              all       n log n                     sorted_scan.pyx
#   pairwise      Gini, few samples, small weight   8 bits    n**2 / lanes                pairwise.pyx
#                                                   32 bits
#   histogram     Gini, more samples                8 bits    n + bins * classes / lanes  histogram.pyx
#                                                   32 bits   the same, and sorting the   bounds.pyx
#                                                             buckets that bounds do not
#                                                             rule out
#                 weight from HISTOGRAM_WEIGHT on   all       the same, sums in float64   bounds.pyx
#   histogram     terms: targets, real weights,     8 bits    n + bins, times outputs     term_histogram.pyx
#   of terms      entropy                                     or classes / lanes
#                 terms, but neither entropy        32 bits   the same, and sorting the   term_buckets.pyx
#                 nor Poisson deviance                        buckets that bounds do not
#                                                             rule out

from libc.stdint cimport int64_t

from hforest.growth.cpu.scorers.bodies cimport HF_PAIRWISE_SAMPLES, HF_PATH_PLAIN, HF_VALUE_PAIRS
from hforest.growth.cpu.scorers.sorted_scan cimport HF_FEW
from hforest.growth.cpu.task cimport HF_TERMS, HF_KEYS_32, has_bounds, hf_task, hf_workspace

cdef enum:
    SORTED_SCAN
    PAIRWISE
    HISTOGRAM
    WIDE_HISTOGRAM
    TERM_HISTOGRAM
    TERM_BUCKETS

# Tuned with `python bench/grow.py`.
cdef enum:
    HISTOGRAM_WEIGHT = 1 << 15   # squares of sums of weights below this fit in 30 bits
    WIDE_WEIGHT = 1 << 26        # squares of sums of weights below this are exact in float64
    PAIRWISE_WEIGHT = 256        # sums of weights below this fit in 8 bits, and their squares in 16
    FEW_SAMPLES = 24             # samples up to which pairwise pays for any number of bins
    PLAIN_PAIRS = 8              # samples up to which pairwise pays without vectors


cdef inline bint has_least(const hf_task* t) noexcept nogil:
    # Returns whether the sides of a split have a minimum size or weight, or monotonic constraints.
    return t.min_leaf > 1 or t.min_weight_fraction > 0 or t.monotonic != NULL


cdef inline int scorer_of_bytes(
    const hf_task* t, const hf_workspace* r, int64_t n, double weight, int64_t n_bins
) noexcept nogil:
    # Returns the scorer of a node of n samples, for columns of 8-bit bins.
    if r.kind == HF_TERMS:
        if t.monotonic != NULL:  # each column is scored alone, with its sign
            return SORTED_SCAN
        return TERM_HISTOGRAM if r.cells.n_bins >= min(n_bins + 1, 256) else SORTED_SCAN
    if r.kind != HF_KEYS_32 or has_least(t) or weight >= HISTOGRAM_WEIGHT:
        return SORTED_SCAN
    if t.path == HF_PATH_PLAIN:
        return HISTOGRAM if n > n_bins else SORTED_SCAN
    if n <= HF_PAIRWISE_SAMPLES and (n <= FEW_SAMPLES or n <= n_bins // 2) and weight < PAIRWISE_WEIGHT:
        return PAIRWISE
    return HISTOGRAM


cdef inline int scorer_of_bins(
    const hf_task* t, const hf_workspace* r, int64_t n, double weight, bint are_bytes
) noexcept nogil:
    # Returns the scorer of a node of n samples, for 32-bit bins. 8-bit bins come here if scorer_of_bytes
    # chose no other scorer, and are sorted.
    if r.kind == HF_TERMS:
        return TERM_BUCKETS if n > HF_FEW and has_bounds(t) else SORTED_SCAN
    if are_bytes and weight < HISTOGRAM_WEIGHT:
        return SORTED_SCAN
    if has_least(t) or n <= 2 or weight >= WIDE_WEIGHT:
        return SORTED_SCAN
    if weight >= HISTOGRAM_WEIGHT:
        return WIDE_HISTOGRAM if n > HF_VALUE_PAIRS else SORTED_SCAN
    if n <= (PLAIN_PAIRS if t.path == HF_PATH_PLAIN else HF_VALUE_PAIRS):
        return PAIRWISE
    if t.path == HF_PATH_PLAIN and n <= HF_VALUE_PAIRS:
        return SORTED_SCAN
    return HISTOGRAM
