# The data that growing a tree works on: the task, a growing tree, and its workspace.

from libc.float cimport DBL_MAX, FLT_MAX
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from hforest.core.arena cimport hf_arena
from hforest.core.machine cimport hf_watch
from hforest.core.score cimport HF_ENTROPY, hf_is_of_ratios
from hforest.growth.cpu.scorers.bodies cimport hf_bodies

cdef extern from "core/philox.h" nogil:
    int HF_STREAM_BOOTSTRAP, HF_STREAM_CHILDREN, HF_STREAM_CANDIDATES, HF_STREAM_THRESHOLD
    int HF_STREAM_DIRECTION, HF_STREAM_ENTRY, HF_STREAM_RESTART, HF_STREAM_JUMP, HF_STREAM_POISSON
    ctypedef struct hf_draw:
        uint32_t word[4]
    hf_draw hf_philox(uint64_t key, uint64_t counter, uint64_t stream)
    uint64_t hf_draw_key(hf_draw draw, int which)
    uint32_t hf_below(uint32_t word, uint32_t stop)
    double hf_unit(hf_draw draw)

cdef extern from "core/counting.h" nogil:
    void HF_COUNT(const char* package, const char* body)  # both must be string literals

cdef extern from "core/simd.h" nogil:
    void HF_PREFETCH(const void* address)

cdef extern from "core/defaults.h" nogil:
    bint hf_draws_missing_left(uint32_t word)
    int hf_default_left(int seen, int64_t n_left, int64_t n_right, int64_t n_missing)
    bint hf_sends_missing_left(int default_left)
    bint hf_sends_unknown_left(int default_left)

# Representation of a tree's samples. Gini with small integer weights: keys of bin, class and weight (16, 8
# and 8 bits; or 32, 16 and 16). All else: terms of 64 bits in a unit (units.pyx), with keys of bin and of
# position of the sample in the tree (32 bits each).
cdef enum:
    HF_KEYS_32 = 0
    HF_KEYS_64 = 1
    HF_TERMS = 2

cdef enum:
    HF_IS_MISSING = 2   # in r.goes_right: the value of the sample is missing, and its side is not chosen yet

cdef struct hf_task
cdef struct hf_workspace


# The unit (c, k, m) in which weights and targets are integers (units.h).
cdef struct hf_units:
    double* centre     # (n_outputs,)  c; NULL for labels
    int k
    int m
    double spread      # greatest range of targets of the node from which the unit was made
    double heaviest    # greatest weight u of that node


# A sample in the unit of its node. q: its target, if there is one output; its class; with two classes u if it
# is the second, else 0, so that sums of q and u are the weights of both.
cdef struct hf_term:
    int64_t q
    int64_t u


# A term, with |q - mean u| in a coarse unit, and 1: what a bucket sums (term_buckets.pyx).
cdef struct hf_weighed:
    int64_t q
    int64_t u
    int64_t distance
    int64_t n


# The workspace of histograms of terms (term_histogram.pyx).
cdef struct hf_cells:
    int64_t* number    # (n_bins, width)  the cells; 0 between two candidates
    int64_t width
    int64_t filled     # index of a number that is positive in the cell of a bin that occurs
    int64_t n_bins
    int32_t* present   # (n_bins,)
    # Histograms of all columns that pending nodes have: MAX_KEPT buffers (n_columns, 256, width), or NULL.
    int64_t** kept
    int* free          # (MAX_KEPT,)  numbers of the buffers that no node has
    int n_free


# A pending node. It has samples `first` to last - 1 of the workspace.
cdef struct hf_pending:
    int64_t first
    int64_t last
    uint64_t key       # key of the parent; of the node itself for the root
    int32_t depth
    int32_t side
    int64_t at         # number of the node in the depth-first tree
    const hf_units* unit  # HF_TERMS
    int kept           # number of its histogram of all columns (term_histogram.pyx); -1: none


# Monotonic constraints of a node: bounds of the means, or of the shares of the second class, of its leaves.
cdef struct hf_bounds:
    double lower
    double upper


# A node of a tree with a maximum number of leaves: it has a split, and children once it is taken from r.heap.
cdef struct hf_scored:
    hf_pending node
    uint64_t key       # of the node
    int64_t middle     # the first sample of the right child


# A split of a node. Samples with bins up to `low` go left, those with bins from `high` on go right; for
# projections, those with values up to `below`, and from `above` on.
cdef struct hf_split:
    double score
    int64_t column     # -1: no split
    uint32_t low
    uint32_t high
    double below
    double above
    double threshold
    int missing        # side of the node's missing values in the scan: left (1), right (0); -1: it has none
    int default_left   # sides of values that the split does not compare (core/defaults.h)


# A growing tree, depth-first. A leaf of one class has left[v] = -1 - class, all others their row of `value`.
cdef struct hf_tree:
    hf_arena arena     # owns all arrays below
    int32_t* feature
    int32_t* left
    double* threshold
    double* gain
    void* value        # (n_rows, width): rows of leaves (leaf.h), float or double
    int64_t n_nodes
    int64_t n_leaves
    int64_t n_rows
    int64_t node_capacity
    int64_t row_capacity
    # Projections: node v has entry_count[v] entries from entry_at[v] on.
    int64_t* entry_at
    int32_t* entry_count
    uint32_t* indices
    void* data         # (n_entries,), float or double
    int64_t n_entries
    int64_t entry_capacity
    # For trees that handle missing values or categories: node v has n_words[v] words from word_at[v] on.
    uint8_t* default_left
    int64_t* word_at
    int32_t* n_words
    uint32_t* words
    int64_t n_all_words
    int64_t word_capacity
    bint has_defaults
    hf_bounds* bounds  # (n_nodes,), if the tree has monotonic constraints
    bint is_monotonic
    int32_t* row       # (n_nodes,) what leaves have in `left`, of all nodes; NULL: only leaves have rows
    int32_t* reached   # OUT (t.n,): the leaf of each sample that the tree takes; of the caller, or NULL


# Returns the best split of a node, with score and threshold, and writes the side of each of its samples to
# r.goes_right; column is -1 if there is no split. The node may get a histogram (node.kept).
ctypedef hf_split (*hf_best_split)(
    const hf_task* t, hf_workspace* r, hf_pending* node, uint64_t key, double weight
) noexcept nogil

# Makes the histograms of both children from that of their node, which they replace.
ctypedef void (*hf_keep)(
    const hf_task* t, hf_workspace* r, int kept, hf_pending* left, hf_pending* right
) noexcept nogil


# A candidate source, from which the candidates of a node come.
cdef struct hf_source:
    const void* data       # IN  the struct of the source
    bint has_short_bins   # IN  bins fit in 16 bits
    # Allocates the source's workspace, for a tree on r.n samples, from r.arena, and sets r.best_split;
    # returns whether there was memory.
    bint (*start)(const hf_task* t, hf_workspace* r) noexcept nogil
    # Writes the feature or the projection of node v; returns whether there was memory.
    bint (*write)(
        const hf_task* t, hf_workspace* r, const hf_split* split, hf_tree* tree, int64_t v
    ) noexcept nogil


# Nodes of other trees, each of which is a root here. Tree m has the samples at
# the places indptr[m] to indptr[m + 1] - 1.
cdef struct hf_roots:
    const int64_t* indptr   # (n_trees + 1,), or NULL: trees grow from their own roots
    const uint64_t* key     # (n_trees,)  the node's key
    const double* weight    # (n_trees,)  the weight of its whole tree
    const int64_t* depth    # (n_trees,)  the node's depth in its whole tree
    # The node's unit for targets, with m = 0; or NULL.
    const double* centre    # (n_trees, n_outputs)
    const int64_t* k        # (n_trees,), as are spread and heaviest
    const double* spread
    const double* heaviest
    const double* bounds    # (n_trees, 2)  the node's bounds by monotonic constraints; or NULL
    const int32_t* sample   # (indptr[n_trees],)  samples, ascending within a node; NULL: all in their order


cdef struct hf_task:
    hf_source source
    hf_roots roots
    int64_t n
    bint single             # x and thresholds are float32
    int path                # vector path
    const int32_t* labels   # (n,), or NULL
    const double* targets   # (n, n_outputs), or NULL
    const int32_t* monotonic  # (n_columns,) sign of the monotonic constraint of each column; NULL: none
    const double* weight    # (n,)  before multiplication with in-bag counts
    const int64_t* base     # (n,)  position of a sample's bins, or NULL
    int64_t n_outputs
    int criterion
    bint has_defaults       # trees handle missing values or categories
    bint in_terms           # samples are terms even where keys would do; with monotonic constraints
    int scale               # gains are multiplied by 2**scale
    int64_t n_candidates
    int64_t max_depth
    int64_t min_split
    int64_t min_leaf
    double min_decrease
    double min_weight_fraction   # least share of a tree's weight on each side of a split
    int64_t max_leaves      # 0: no limit
    uint64_t seed
    hf_watch* watch


# The workspace of one tree. Arrays over samples have r.n elements and, unless they are `by number` of the
# sample in the tree, are partitioned along with the nodes.
cdef struct hf_workspace:
    hf_arena arena          # owns all arrays below
    int kind
    int64_t n
    uint32_t* sample
    uint32_t* sample2
    uint32_t* payload       # class and weight of a sample; with HF_TERMS its number in the tree
    uint32_t* payload2
    hf_term* term           # HF_TERMS
    hf_term* term2
    int64_t* q              # several outputs: (n, n_outputs), by number
    double* weight          # HF_TERMS, by number: the product of weight and in-bag count
    uint32_t* row           # HF_TERMS, by number: the sample whose label or target it has
    bint whole              # weights are integers
    uint8_t* goes_right
    void* key               # keys of a node, to be sorted: 8 bytes per sample
    void* key2
    # Sums of a node, HF_TERMS: by class or output, and of u.
    int64_t* total
    int64_t total_u
    int64_t* sum            # (n_outputs,)  sums of the left side
    int64_t* leaf           # (n_outputs, HF_LEAF_TOTALS)  totals of the targets of a leaf
    int64_t* least          # (n_outputs,)  least q of the node
    int64_t* greatest       # (n_outputs,)  greatest q of the node
    double* mean            # (n_outputs,)  of targets, in the unit, or shares of classes
    double base             # the score of the node as a leaf; 0 for targets
    double per_weight       # a weight of 1 in units of u: 2**-m
    double* left            # (n_outputs,)  scratch: terms of the left side of a split
    double* right           # (n_outputs,)  scratch: terms of the right side
    double* xlogx           # for entropy: a table of a log2 a for integer a, or NULL
    hf_cells cells
    hf_weighed* weighed     # (n,)  weighed terms of the samples of a node
    double farthest         # the greatest |q - mean u| / u of a node
    const hf_bodies* bodies
    hf_keep keep            # or NULL: nodes keep no histograms
    uint32_t* count         # (n_outputs,)  kinds of keys: weight of each class in the node
    uint32_t* count_left    # (n_outputs,)  weight of each class on the left of a split
    uint32_t* class_number  # (n_outputs,)  number of each class among those present in the node
    hf_pending* pending
    int64_t n_pending
    int64_t pending_capacity
    int64_t max_leaves      # 0: none, or no tree on r.n samples reaches it
    int64_t n_leaves        # leaves of the tree, if its pending nodes were leaves
    hf_scored* scored       # (n_scored,), in the order in which nodes were made
    int64_t n_scored
    int64_t scored_capacity
    int32_t* heap           # (n_heap,)  a heap of nodes without children, by number in `scored`
    int64_t n_heap
    double root_weight
    double least_weight     # least weight of each side of a split
    const hf_pending* node  # with monotonic constraints: the node whose splits are scored,
    const hf_bounds* bounds  # its bounds,
    int sign                # and the sign of the column that is scored; 0: any split is allowed
    int64_t missing_u       # its missing values, where they come first: alone they would go right
    hf_best_split best_split  # function of the source
    uint32_t* slot          # integer weights, histogram: class << 16 | weight of a sample
    uint8_t* bucket         # (n,)  histograms with buckets: place of the bucket of each sample's bin
    void* columns           # workspace for columns of bins
    void* source            # workspace of other sources
    void* stored            # workspace for a sparse matrix, or NULL
    bint by_class           # samples are ordered by class first


cdef inline double hf_largest(bint single) noexcept nogil:
    # Returns the largest finite number, the threshold of a split between all values and the missing ones.
    return FLT_MAX if single else DBL_MAX


cdef inline bint is_pair(const hf_task* t) noexcept nogil:
    # Returns whether the sums of q and u are all sums of a node: one target or two classes.
    return t.n_outputs == (1 if t.labels == NULL else 2)


cdef inline bint has_bounds(const hf_task* t) noexcept nogil:
    # Returns whether the scores of splits have upper bounds (terms.pxd).
    return t.criterion != HF_ENTROPY and not hf_is_of_ratios(t.criterion)


cdef inline int64_t class_of(const hf_task* t, const hf_workspace* r, int64_t i) noexcept nogil:
    # Returns the class of sample i of the tree, HF_TERMS.
    return r.term[i].q != 0 if t.n_outputs == 2 else r.term[i].q


cdef inline int sign_of(const hf_task* t, int64_t column) noexcept nogil:
    # Returns the sign of the monotonic constraint of a column, or 0.
    return 0 if t.monotonic == NULL else t.monotonic[column]


cdef inline uint32_t payload_of(const hf_workspace* r, int64_t i) noexcept nogil:
    # Returns what a key has of sample i of the tree besides the bin.
    return <uint32_t> i if r.kind == HF_TERMS else r.payload[i]


cdef inline hf_split no_split() noexcept nogil:
    cdef hf_split split
    split.score, split.column, split.low, split.high = -INFINITY, -1, 0, 0
    split.below = split.above = split.threshold = 0
    split.missing, split.default_left = -1, 0
    return split


cdef inline int weight_bits(const hf_workspace* r) noexcept nogil:
    # Returns the number of bits of a payload that hold the weight; the class is above.
    return 8 if r.kind == HF_KEYS_32 else 16


cdef inline bint is_perfect(const hf_workspace* r, double score, double weight) noexcept nogil:
    # Returns whether no split can be better: a side of one class scores its weight. With integer weights,
    # rounding can neither reach this score too early nor lift another score above it.
    return r.kind != HF_TERMS and score >= weight
