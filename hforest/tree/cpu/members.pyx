"""Samples grouped by the leaves that they reach. A thread owns rows and sums over trees in order."""

from cython.parallel cimport prange, threadid
from libc.math cimport floor
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from hforest.core.arena cimport hf_arena, release, take, take_zeros
from hforest.core.machine cimport hf_begin, hf_end, hf_stop, hf_threads_for, hf_units, hf_watch

cdef extern from *:
    int __builtin_ctzll(unsigned long long word) noexcept nogil
    void __builtin_prefetch(const void* at) noexcept nogil

cdef enum:
    ROWS = 16             # rows per unit of work
    AHEAD = 6             # trees between the prefetch of their members and their use
    MOST = 64             # members prefetched per leaf: the hardware prefetches the rest of a sequential read
    PAIR_NS = 1000        # nanoseconds per pair of a row and a tree

cdef struct Sums:
    # The workspace of one thread: a sum per member, and bit j of `used`, which is set if member j has a sum.
    # Then, for the members in use in ascending order, their numbers and the running totals of their sums.
    hf_arena arena
    double* sum           # (n_members,)
    uint64_t* used        # (n_words,)
    int64_t n_words
    int32_t* member       # (n_members,)
    double* total         # (n_members,)
    int64_t* n_of         # (n_trees + 1,): number of members by the number of trees that they share


cdef bint _start(Sums* s, int64_t n_members, int64_t n_trees) noexcept nogil:
    # Allocates the workspace of a thread before its first rows; returns whether there was memory.
    cdef hf_arena* arena = &s.arena
    if arena.last == NULL:
        s.n_words = (n_members + 63) // 64
        s.sum = <double*> take_zeros(arena, n_members * sizeof(double))
        s.used = <uint64_t*> take_zeros(arena, s.n_words * sizeof(uint64_t))
        s.member = <int32_t*> take(arena, n_members * sizeof(int32_t))
        s.total = <double*> take(arena, n_members * sizeof(double))
        s.n_of = <int64_t*> take_zeros(arena, (n_trees + 1) * sizeof(int64_t))
    return not arena.failed


# Writes the results of one row, for Quantiles or Neighbors.
ctypedef void (*OfRow)(const Members* f, const void* what, int64_t row, Sums* s) noexcept nogil


cdef void _some_rows(
    const Members* f, const void* what, OfRow of_row, int64_t first, Sums* s, hf_watch* watch
) noexcept nogil:
    # Writes the results of ROWS rows.
    cdef int64_t row
    if not _start(s, f.n_members, f.n_trees):
        hf_stop(watch)
        return
    for row in range(first, min(first + ROWS, f.n_rows)):
        of_row(f, what, row, s)


cdef void _write_rows(const Members* f, const void* what, OfRow of_row, hf_watch* watch) noexcept nogil:
    # Writes the results of all rows.
    cdef int threads = hf_threads_for(<double> PAIR_NS * f.n_rows * f.n_trees), t
    cdef int64_t n_units = (f.n_rows + ROWS - 1) // ROWS, unit
    cdef hf_arena arena
    cdef Sums* sums
    memset(&arena, 0, sizeof(hf_arena))
    sums = <Sums*> take_zeros(&arena, threads * sizeof(Sums))
    if arena.failed:
        hf_stop(watch)
        return
    for unit in prange(hf_units(watch, n_units, threads), schedule="dynamic", num_threads=threads):
        if hf_begin(watch, unit):
            _some_rows(f, what, of_row, unit * ROWS, &sums[threadid()], watch)
            hf_end(watch)
    for t in range(threads):
        release(&sums[t].arena)
    release(&arena)


cdef inline void _mark(uint64_t* used, int64_t member) noexcept nogil:
    used[member >> 6] |= (<uint64_t> 1) << (member & 63)


cdef inline int64_t _node(const Members* f, const int32_t* leaf, int64_t tree) noexcept nogil:
    # Returns the leaf of a row in a tree, numbered over all trees; -1 if the row reaches none.
    return f.tree_start[tree] + leaf[tree] if leaf[tree] >= 0 else -1


cdef inline void _prefetch(const Members* f, const int32_t* leaf, int64_t tree) noexcept nogil:
    # Prefetches indptr for a tree 2 AHEAD further on, and members for a tree AHEAD further on: random
    # accesses.
    cdef int64_t node, last, j
    if tree + 2 * AHEAD < f.n_trees:
        node = _node(f, leaf, tree + 2 * AHEAD)
        if node >= 0:
            __builtin_prefetch(f.indptr + node)
    if tree + AHEAD < f.n_trees:
        node = _node(f, leaf, tree + AHEAD)
        if node >= 0:
            last = min(f.indptr[node + 1], f.indptr[node] + MOST)
            j = f.indptr[node]
            while j < last:
                __builtin_prefetch(f.member + j)
                if f.weight != NULL:
                    __builtin_prefetch(f.weight + j)
                    __builtin_prefetch(f.weight + j + 8)
                j += 16


cdef void _add_leaves(const Members* f, int64_t row, Sums* s) noexcept nogil:
    # Adds the weights of the members in the leaves that a row reaches.
    cdef const int32_t* leaf = f.leaf + row * f.n_trees
    cdef const int32_t* member = f.member
    cdef const double* weight = f.weight
    cdef double* sums = s.sum
    cdef uint64_t* used = s.used
    cdef int64_t tree, node, first, last, j
    cdef double scale, share
    for tree in range(f.n_trees):
        _prefetch(f, leaf, tree)
        node = _node(f, leaf, tree)
        if node < 0:
            continue
        first = f.indptr[node]
        last = f.indptr[node + 1]
        scale = <double> (last - first) if f.equal_trees else 1.0
        if weight != NULL and f.equal_trees:
            scale = 0.0
            for j in range(first, last):
                scale += weight[j]
        share = 1.0 / scale
        for j in range(first, last):
            sums[member[j]] += share if weight == NULL else weight[j] / scale
            _mark(used, member[j])


cdef int64_t _gather(Sums* s) noexcept nogil:
    # Writes `member` and `total`, clears the sums, and returns the number of members in use.
    cdef int64_t word, member, n = 0
    cdef uint64_t bits
    cdef double total = 0.0
    for word in range(s.n_words):
        bits = s.used[word]
        if bits == 0:
            continue
        s.used[word] = 0
        while bits:
            member = word * 64 + __builtin_ctzll(bits)
            bits &= bits - 1
            total += s.sum[member]
            s.sum[member] = 0.0
            s.member[n] = <int32_t> member
            s.total[n] = total
            n += 1
    return n


# -------------------------------------------------------------------------------------------- grouping


cdef void group_tree(
    int64_t tree, const int32_t[:, ::1] leaf, const int64_t[::1] tree_start, int64_t[::1] indptr,
    int32_t[::1] member,
) noexcept nogil:
    # indptr   IN and OUT: the position of the first member of each node; the loop changes it and restores it
    # member   OUT: the rows in each leaf, in ascending order
    cdef int64_t* at = &indptr[tree_start[tree]]
    cdef int64_t n_nodes = tree_start[tree + 1] - tree_start[tree], begin = at[0], i, v
    for i in range(leaf.shape[0]):
        v = leaf[i, tree]
        if v >= 0:
            member[at[v]] = <int32_t> i
            at[v] += 1
    # at[v] is now the end of the members of node v, which is where those of node v + 1 begin.
    for v in range(n_nodes - 1, 0, -1):
        at[v] = at[v - 1]
    at[0] = begin


# -------------------------------------------------------------------------------------------- quantiles


cdef inline int64_t _first_above(const double* total, int64_t n, double number) noexcept nogil:
    # Returns the first index whose total is greater than a number.
    cdef int64_t low = 0, high = n - 1, middle
    while low < high:
        middle = (low + high) // 2
        if total[middle] > number:
            high = middle
        else:
            low = middle + 1
    return low


cdef inline int64_t _first_share(const double* total, int64_t n, double level) noexcept nogil:
    # Returns the first index whose share of the last total is at least `level`.
    cdef int64_t low = 0, high = n - 1, middle
    while low < high:
        middle = (low + high) // 2
        if total[middle] / total[n - 1] >= level:
            high = middle
        else:
            low = middle + 1
    return low


cdef double _linear(const Sums* s, int64_t n, const double* y, double level) noexcept nogil:
    # Interpolates linearly in the ascending list of total[n - 1] values in which each value occurs as often
    # as its integer weight.
    cdef double place = (s.total[n - 1] - 1.0) * level, whole = floor(place), share = place - whole
    cdef double low = y[s.member[_first_above(s.total, n, whole)]]
    cdef double high = y[s.member[_first_above(s.total, n, whole + 1.0)]]
    if share < 0.5:
        return low + (high - low) * share
    return high - (high - low) * (1.0 - share)


cdef void _quantiles_of_row(const Members* f, const void* what, int64_t row, Sums* s) noexcept nogil:
    cdef const Quantiles* q = <const Quantiles*> what
    cdef double* quantile = q.quantile + row * q.stride
    cdef int64_t n, k
    _add_leaves(f, row, s)
    n = _gather(s)
    for k in range(q.n_levels):
        if n == 0:
            continue
        elif f.equal_trees:
            quantile[k] = q.y[s.member[_first_share(s.total, n, q.level[k])]]
        else:
            quantile[k] = _linear(s, n, q.y, q.level[k])


cdef void write_quantiles(const Members* f, const Quantiles* q, hf_watch* watch) noexcept nogil:
    # Writes the quantiles of each row; those of a row without members stay unchanged.
    _write_rows(f, q, _quantiles_of_row, watch)


# -------------------------------------------------------------------------------------------- proximity


cdef int64_t _last_count(
    const Neighbors* p, int64_t n_trees, Sums* s, int64_t n, int64_t* n_equal
) noexcept nogil:
    # Returns the least number of trees shared by the p.most nearest of n members. n_equal: OUT, the number of
    # members among them that share exactly this number. Clears n_of.
    cdef int64_t left = p.most, count, j
    for j in range(n):
        s.n_of[<int64_t> (s.total[j] - (s.total[j - 1] if j else 0.0))] += 1
    count = n_trees
    while count > p.least and s.n_of[count] < left:
        left -= s.n_of[count]
        count -= 1
    n_equal[0] = min(left, s.n_of[count])
    for j in range(n_trees + 1):
        s.n_of[j] = 0
    return count


cdef void _neighbors_of_row(const Members* f, const void* what, int64_t row, Sums* s) noexcept nogil:
    cdef const Neighbors* p = <const Neighbors*> what
    cdef int64_t n, n_equal, least, count, j, size = 0, to = 0
    _add_leaves(f, row, s)
    n = _gather(s)
    n_equal = n
    least = p.least
    if n > p.most:
        least = _last_count(p, f.n_trees, s, n, &n_equal)
    if p.size == NULL:
        to = p.row_start[row]
    for j in range(n):
        # The totals are integers, so their differences are exact.
        count = <int64_t> (s.total[j] - (s.total[j - 1] if j else 0.0))
        if count < least:
            continue
        if count == least:
            if n_equal == 0:
                continue
            n_equal -= 1
        if p.size == NULL:
            p.indices[to + size] = s.member[j]
            if p.single:
                (<float*> p.data)[to + size] = <float> (<double> count / <double> f.n_trees)
            else:
                (<double*> p.data)[to + size] = <double> count / <double> f.n_trees
        size += 1
    if p.size != NULL:
        p.size[row] = size


cdef void write_neighbors(const Members* f, const Neighbors* p, hf_watch* watch) noexcept nogil:
    # Writes the sizes, or the members and their shares, of each row.
    _write_rows(f, p, _neighbors_of_row, watch)
