"""Walks of samples through trees on the CPU.

For many samples the nodes of a tree are first packed (packed.h). Several walks are interleaved, because a
single walk waits for a chain of dependent loads.

Versions, each with its gain over the one before:

    columns of x in place of rows, for many samples     1.2 to 2.9 times as fast, unless samples have more
                                                        than four features for each tree
    single trees by rows                                depth 6, 20,000 samples of 30 features: 0.31 ms in
                                                        place of 0.49 (float32), 0.49 of 1.08 (float64)
    NaN in x: node by node where columns do not pay     the same tree: 0.8 ms in place of 7.3
    vectors of AVX-512 for top levels, float32          depths 4 to 10: 1.2 to 1.5 times as fast (Xeon,
                                                        Sapphire Rapids)

Left out: walks by SSE2 and AVX2, which were 0.95 to 1.09 times as fast as the plain one.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cimport hforest.core.arrays as cnp
from hforest.core.machine cimport simd_path

from ...core.in_place import PlacedWindows

cnp.import_array()

cdef extern from "tree/cpu/simd/columns.h" nogil:
    int hf_enter(
        int path, int single, const hf_top* top, const void* columns, int64_t group_words, int n_groups,
        uint32_t* at,
    )
    void hf_advance_group(int form, const void* node, int levels, const char* group, uint32_t* at)
    void hf_advance_each(int form, const void* node, const char* const* x, uint32_t* at)

cdef extern from "tree/cpu/simd/interleaved.h" nogil:
    void hf_walk_packed(int single, const hf_walked* w, int64_t n, int32_t* leaf)
    void hf_walk_projections(int single, int width, const hf_walked* w, int64_t n, int32_t* leaf)
    void hf_walk_trees(
        const hf_forest* f, int single, int64_t first, int n, const void* row, int32_t* leaf
    )

cdef enum:
    READS = 4             # bytes of a row per level walked up to which columns pay; with more, rows are read
    WIDEST = 1 << 22      # features of columns: places among LISTED samples of them fit in 32 bits
    LISTED = 512          # samples of columns whose unfinished walks share one list
    FEW = 16              # least number of samples for which columns pay
    KEYS = 256            # keys made together
    WALKS = 1 << 16       # walks between two checks for signals
    OBLIQUE_WALKS = 1 << 12   # and walks through projections
    MOST_ENTRIES = 1 << 30    # packed trees with projections have fewer entries and nodes


cdef int way_of(const Walk* w, int64_t n_nodes) noexcept nogil:
    # Columns are made once and read in every tree. They are faster than rows if trees are many or deep
    # compared with the number of features.
    cdef int levels = 0
    while n_nodes >> levels > w.n_trees:
        levels += 1
    cdef int64_t most = w.n_trees * levels * READS // (4 if w.single else 8)
    return BY_COLUMNS if w.n_features <= min(most, <int64_t> WIDEST) else BY_ROWS


cdef double NO_FEATURES = 0   # read as x by samples without features


cdef void _place(Walk* w, cnp.ndarray base, cnp.ndarray offset):
    # The samples are windows. Without columns, x is NO_FEATURES, because a walk reads x even at a leaf.
    w.n_samples, w.n_features = cnp.PyArray_DIM(base, 0), cnp.PyArray_DIM(offset, 0)
    if w.n_features == 0:
        w.x = &NO_FEATURES
        return
    w.base = <const int64_t*> cnp.PyArray_DATA(base)
    w.forest.offset = <const int64_t*> cnp.PyArray_DATA(offset)


cdef Walk walk_of(samples, forest):
    # Returns the struct of a call on samples: a matrix or PlacedWindows. It takes each pointer once: a
    # memoryview per array would cost more than the walks of a sample.
    cdef cnp.ndarray tree_start, feature, threshold, left, indptr, indices, data
    cdef cnp.ndarray default_left, category_indptr, category_bits, base = None, offset = None, x
    if type(samples) is PlacedWindows:
        x, base, offset = samples
    else:
        x = samples
    tree_start, feature, threshold, left = forest.tree_start, forest.feature, forest.threshold, forest.left
    indptr, indices, data, default_left = forest.indptr, forest.indices, forest.data, forest.default_left
    category_indptr, category_bits = forest.category_indptr, forest.category_bits
    cdef bint oblique = cnp.PyArray_DIM(indptr, 0) > 0
    cdef Walk w
    memset(&w, 0, sizeof(Walk))
    w.forest.tree_start = <const int64_t*> cnp.PyArray_DATA(tree_start)
    w.forest.feature = <const int32_t*> cnp.PyArray_DATA(feature)
    w.forest.threshold = cnp.PyArray_DATA(threshold)
    w.forest.left = <const int32_t*> cnp.PyArray_DATA(left)
    w.forest.indptr = <const int64_t*> cnp.PyArray_DATA(indptr) if oblique else NULL
    w.forest.indices = <const int32_t*> cnp.PyArray_DATA(indices)
    w.forest.data = cnp.PyArray_DATA(data)
    if cnp.PyArray_DIM(default_left, 0) > 0:
        w.forest.default_left = <const uint8_t*> cnp.PyArray_DATA(default_left)
        w.node_by_node = True
    if cnp.PyArray_DIM(category_indptr, 0) > 0:
        w.forest.category_indptr = <const int64_t*> cnp.PyArray_DATA(category_indptr)
        w.forest.category_bits = <const uint32_t*> cnp.PyArray_DATA(category_bits)
    w.n_entries = cnp.PyArray_DIM(indices, 0)
    w.packs = not w.node_by_node and w.n_entries + cnp.PyArray_DIM(feature, 0) < MOST_ENTRIES
    w.node_by_node |= oblique
    # A walk reads x even at a leaf.
    w.x = cnp.PyArray_DATA(x) if cnp.PyArray_DIM(x, 1) else &NO_FEATURES
    w.single = cnp.PyArray_ITEMSIZE(x) == 4
    w.n_trees = cnp.PyArray_DIM(tree_start, 0) - 1
    w.n_samples = cnp.PyArray_DIM(x, 0)
    w.n_features = cnp.PyArray_DIM(x, 1)
    if base is not None:
        _place(&w, base, offset)
    w.walks = OBLIQUE_WALKS if oblique else WALKS
    w.path = simd_path()
    w.way = BY_PROJECTIONS if oblique else way_of(&w, cnp.PyArray_DIM(feature, 0))
    return w


# ----------------------------------------------------------------------------------------- packing

cdef void _pack_rows(const Walk* w, const real* threshold, int64_t tree) noexcept nogil:
    cdef int64_t root = w.forest.tree_start[tree], n_nodes = w.forest.tree_start[tree + 1] - root, v
    cdef const int32_t* feature = w.forest.feature + root
    cdef const int32_t* left = w.forest.left + root
    cdef hf_float_node* floats = <hf_float_node*> (w.nodes + root * node_size(w))
    cdef hf_double_node* doubles = <hf_double_node*> floats
    cdef int32_t column, next
    cdef real limit
    for v in range(n_nodes):
        limit, column, next = threshold[root + v], feature[v], left[v]
        if column < 0:
            limit, column, next = <real> INFINITY, 0, <int32_t> v
        column = <int32_t> hf_place(&w.forest, column)
        if real is double:
            doubles[v].threshold, doubles[v].feature, doubles[v].next = limit, column, next
        else:
            floats[v].threshold, floats[v].feature, floats[v].next = limit, column, next


cdef int width_of(const Walk* w, int64_t n_nodes) noexcept nogil:
    # Returns the width of nodes that compare projections.
    cdef int64_t v, n, widest = 0, n_wide = 0
    for v in range(n_nodes):
        if w.forest.feature[v] == -2:
            n = w.forest.indptr[v + 1] - w.forest.indptr[v]
            widest = max(widest, n)
            n_wide += n > HF_QUAD
    if widest <= HF_PAIR:
        return HF_PAIR
    # Half of the nodes are splits.
    return HF_QUAD if n_wide * HF_RARE <= n_nodes // 2 else 0


cdef void _write_entry(
    const Walk* w, char* entries, int64_t j, int32_t feature, double weight
) noexcept nogil:
    cdef int32_t place = <int32_t> hf_place(&w.forest, feature)
    if w.single:
        (<hf_float_entry*> entries)[j].weight = <float> weight
        (<hf_float_entry*> entries)[j].place = place
    else:
        (<hf_double_entry*> entries)[j].weight = weight
        (<hf_double_entry*> entries)[j].place = place


cdef void _write_entries(const Walk* w, int64_t at, char* entry) noexcept nogil:
    # Writes the entries of a split (none for a leaf) into the node, and the position of other ones.
    cdef int32_t feature = w.forest.feature[at], a
    cdef hf_entries* of_node = <hf_entries*> (entry + w.width * entry_size(w))
    cdef int64_t first = w.n_entries + at, n = feature >= 0, inside, j
    cdef char* to = entry
    if feature == -2:
        first, n = w.forest.indptr[at], w.forest.indptr[at + 1] - w.forest.indptr[at]
    inside = min(n, <int64_t> w.width)
    if w.width != HF_PAIR:
        of_node.first, of_node.n = <uint32_t> (first + inside), <uint32_t> (n - inside)
    for j in range(n):
        if j == inside:
            to = w.entries + first * entry_size(w)
        if feature >= 0:
            _write_entry(w, to, j, feature, 1)
        elif w.single:
            _write_entry(w, to, j, w.forest.indices[first + j], (<const float*> w.forest.data)[first + j])
        else:
            _write_entry(w, to, j, w.forest.indices[first + j], (<const double*> w.forest.data)[first + j])
    # Padding entries of weight 0 read the first entry's feature again, or feature 0.
    a = feature if feature >= 0 else w.forest.indices[first] if n else 0
    for j in range(n, w.width):
        _write_entry(w, entry, j, a, 0)


cdef void _pack_projections(const Walk* w, const real* threshold, int64_t tree) noexcept nogil:
    cdef int64_t root = w.forest.tree_start[tree], n_nodes = w.forest.tree_start[tree + 1] - root, v
    cdef int64_t size = node_size(w), header = entry_size(w)
    cdef const int32_t* feature = w.forest.feature + root
    cdef const int32_t* left = w.forest.left + root
    cdef char* nodes = w.nodes + root * size
    cdef char* node
    cdef int32_t next
    cdef real limit
    for v in range(n_nodes):
        node = nodes + v * size
        limit, next = threshold[root + v], left[v]
        if feature[v] == -1:
            limit, next = <real> INFINITY, <int32_t> v
        if feature[v] != -1 or v == 0:
            _write_entries(w, root + v, node + header)
        else:
            memcpy(node + header, nodes + header, size - header)
        if real is float:
            (<hf_float_projection*> node).threshold, (<hf_float_projection*> node).next = limit, next
        else:
            (<hf_double_projection*> node).threshold, (<hf_double_projection*> node).next = limit, next


cdef void _pack_keys(const Walk* w, const real* threshold, int64_t tree) noexcept nogil:
    # The depths of nodes use the array of their classes, which are written later.
    cdef int64_t root = w.forest.tree_start[tree], n_nodes = w.forest.tree_start[tree + 1] - root, v
    cdef const int32_t* feature = w.forest.feature + root
    cdef const int32_t* left = w.forest.left + root
    cdef hf_small_key_node* small = <hf_small_key_node*> (w.nodes + root * node_size(w))
    cdef hf_float_key_node* floats = <hf_float_key_node*> small
    cdef hf_double_key_node* doubles = <hf_double_key_node*> small
    cdef bint in_8_bytes = key_form(w, n_nodes) == HF_SMALL_KEYS
    cdef int32_t* depth = w.class_of + root
    cdef int32_t deepest = 0, leaf, below, here, beside
    cdef uint32_t column
    cdef real limit
    memset(depth, 0, n_nodes * sizeof(int32_t))
    for v in range(n_nodes):
        # `leaf` is a mask of ones at a leaf. Half of the nodes are leaves: a branch would be mispredicted
        # often.
        leaf = feature[v] >> 31
        below = (left[v] & ~leaf) | (<int32_t> v & leaf)
        column = <uint32_t> (feature[v] & ~leaf) * (HF_DOWN * sizeof(real) // 8)
        limit = threshold[root + v]
        # A NaN threshold gets the key that no value exceeds.
        if real is double:
            doubles[v].key = hf_double_key(limit) | <uint64_t> <int64_t> (leaf | -(limit != limit))
            doubles[v].column, doubles[v].next = column, below
        elif in_8_bytes:
            small[v].key = hf_float_key(limit) | <uint32_t> (leaf | -(limit != limit))
            small[v].column, small[v].next = column, below
        else:
            floats[v].key = hf_float_key(limit) | <uint32_t> (leaf | -(limit != limit))
            floats[v].column, floats[v].next = column, below
        deepest = depth[v] if depth[v] > deepest else deepest
        # The maximum matters if a node of an unchecked forest has two parents (`check` refuses these). The
        # depth of a leaf is not read again.
        here = depth[below] if depth[below] > depth[v] else depth[v] + 1
        beside = depth[below + 1 + leaf] if depth[below + 1 + leaf] > depth[v] else depth[v] + 1
        depth[below] = here
        depth[below + 1 + leaf] = beside
    w.tops[tree].depth = deepest


cdef void _fill_top(const Walk* w, int64_t tree) noexcept nogil:
    # Writes the top levels of a tree of float32. Top node i has the children 2 i + 1 and 2 i + 2; both
    # children of a leaf are the leaf.
    cdef int64_t root = w.forest.tree_start[tree]
    cdef int form = key_form(w, w.forest.tree_start[tree + 1] - root)
    cdef hf_small_key_node* small = <hf_small_key_node*> (w.nodes + root * node_size(w))
    cdef hf_float_key_node* floats = <hf_float_key_node*> small
    cdef hf_top* top = &w.tops[tree]
    cdef uint32_t place[31]
    cdef uint32_t v, next
    cdef int i
    place[0] = 0
    for i in range(HF_TOP):
        v = place[i]
        if form == HF_SMALL_KEYS:
            top.key[i], top.column[i], next = small[v].key, small[v].column, small[v].next
        else:
            top.key[i], top.column[i], next = floats[v].key, floats[v].column, floats[v].next
        place[2 * i + 1] = next
        place[2 * i + 2] = next + (next != v)
    memcpy(top.exit, place + HF_TOP, sizeof(top.exit))


cdef void pack_tree(const Walk* w, const real* threshold, int64_t tree) noexcept nogil:
    # Packs a tree into its part of w.nodes, in the form that w.way requires.
    if w.way == BY_PROJECTIONS:
        _pack_projections(w, threshold, tree)
        return
    if w.way != BY_COLUMNS:
        _pack_rows(w, threshold, tree)
        return
    _pack_keys(w, threshold, tree)
    if w.single:
        _fill_top(w, tree)


cdef inline const real* _row_of(
    const Walk* w, const real* x, const int64_t* base, int64_t i, int64_t j, int64_t size, real* copy
) noexcept nogil:
    # Returns elements j to j + size - 1 of sample i; they are copied unless they are contiguous.
    cdef const int64_t* offset = w.forest.offset
    cdef int64_t k
    if base == NULL:
        return x + i * w.n_features + j
    x += base[i]
    for k in range(size):
        copy[k] = x[offset[j + k]]
    return copy


cdef void make_columns(
    const Walk* w, const real* x, const int64_t* base, int64_t n, void* columns
) noexcept nogil:
    # Writes the keys of n samples to groups of columns (packed.h). The last group repeats the last sample.
    # The key of NaN exceeds no threshold, so that NaN goes left.
    cdef uint32_t key4[KEYS]
    cdef uint64_t key8[KEYS]
    cdef uint32_t* to4
    cdef uint64_t* to8
    cdef int64_t n_features = w.n_features, i, j, k, part, size, at
    cdef const real* row
    cdef real copy[KEYS]
    for i in range((n + HF_DOWN - 1) // HF_DOWN * HF_DOWN):
        at = i // HF_DOWN * HF_DOWN * n_features + i % HF_DOWN
        for part in range((n_features + KEYS - 1) // KEYS):
            j = part * KEYS
            size = min(<int64_t> KEYS, n_features - j)
            row = _row_of(w, x, base, min(i, n - 1), j, size, copy)
            # The keys are computed in a separate loop, which compilers vectorise.
            if real is float:
                to4 = <uint32_t*> columns + at + j * HF_DOWN
                for k in range(size):
                    key4[k] = hf_float_key(row[k]) & (0 - <uint32_t> (row[k] == row[k]))
                for k in range(size):
                    to4[k * HF_DOWN] = key4[k]
            else:
                to8 = <uint64_t*> columns + at + j * HF_DOWN
                for k in range(size):
                    key8[k] = hf_double_key(row[k]) & (0 - <uint64_t> (row[k] == row[k]))
                for k in range(size):
                    to8[k * HF_DOWN] = key8[k]


# ------------------------------------------------------------------------------------------- walks

cdef inline bint _is_inside(int form, const void* node, uint32_t v) noexcept nogil:
    if form == HF_SMALL_KEYS:
        return (<const hf_small_key_node*> node)[v].next != v
    if form == HF_FLOAT_KEYS:
        return (<const hf_float_key_node*> node)[v].next != v
    return (<const hf_double_key_node*> node)[v].next != v


cdef void _finish(
    int form, const void* node, const char* columns, int64_t n_features, int n, uint32_t* at
) noexcept nogil:
    # Finishes the walks of n samples from the nodes in `at`. Unfinished walks are listed, with the node in
    # the low half and the sample in the high half of a word, and advanced together.
    cdef uint64_t listed[LISTED + 16]
    cdef const char* x[16]
    cdef uint32_t v[16]
    cdef int64_t key = 8 if form == HF_DOUBLE_KEYS else 4, place
    cdef int n_listed = 0, still, s, g, i, u
    for s in range(n):
        listed[n_listed] = <uint64_t> s << 32 | at[s]
        n_listed += _is_inside(form, node, at[s])
    while n_listed > 0:
        still = 0
        # Lanes after the last walk repeat it.
        for u in range(HF_DOWN):
            listed[n_listed + u] = listed[n_listed - 1]
        for g in range((n_listed + HF_DOWN - 1) // HF_DOWN):
            i = g * HF_DOWN
            for u in range(HF_DOWN):
                place = listed[i + u] >> 32
                x[u] = columns + (place // HF_DOWN * HF_DOWN * n_features + place % HF_DOWN) * key
                v[u] = <uint32_t> listed[i + u]
            hf_advance_each(form, node, x, v)
            for u in range(HF_DOWN):
                s = listed[i + u] >> 32
                at[s] = v[u]
                listed[still] = <uint64_t> s << 32 | v[u]
                still += _is_inside(form, node, v[u]) & (i + u < n_listed)
        n_listed = still


cdef void _walk_columns(
    const Walk* w, const char* columns, int64_t n, int64_t tree, int32_t* leaf
) noexcept nogil:
    # Writes the leaves that samples reach; the samples fill whole groups.
    cdef int64_t root = w.forest.tree_start[tree], n_nodes = w.forest.tree_start[tree + 1] - root
    cdef int64_t group = w.n_features * HF_DOWN, done = 0
    cdef int form = key_form(w, n_nodes), often = 2, n_groups, above, levels, g
    cdef const char* node = w.nodes + root * node_size(w)
    cdef const hf_top* top = &w.tops[tree]
    cdef const char* part
    cdef uint32_t* at
    # Few walks end more than three levels below the depth of a balanced tree with the same number of nodes.
    while n_nodes >> (often - 2):
        often += 1
    while done < n:
        n_groups = <int> ((min(<int64_t> LISTED, n - done) + HF_DOWN - 1) // HF_DOWN)
        part = columns + done // HF_DOWN * group * (4 if w.single else 8)
        at = <uint32_t*> leaf + done
        above = hf_enter(w.path, w.single, top, part, group, n_groups, at)
        levels = (top.depth if top.depth < often + 2 else often) - above
        for g in range(n_groups):
            hf_advance_group(form, node, levels, part + g * group * (4 if w.single else 8), at + g * HF_DOWN)
        if above + levels < top.depth:
            _finish(form, node, part, w.n_features, n_groups * HF_DOWN, at)
        done += LISTED


cdef void _walk_one(
    const Walk* w, const char* row, int64_t first, int64_t last, int32_t* leaf, int64_t tree_stride
) noexcept nogil:
    # Writes the leaves that one sample reaches in trees that are not packed. Calls pass the dtype as a
    # constant, so that the C compiler makes one body for each.
    cdef int64_t tree
    cdef int32_t reached[HF_WALKS]
    cdef int count, g
    if w.node_by_node:
        for tree in range(first, last):
            if w.single:
                leaf[(tree - first) * tree_stride] = hf_leaf_of(&w.forest, 1, tree, row)
            else:
                leaf[(tree - first) * tree_stride] = hf_leaf_of(&w.forest, 0, tree, row)
        return
    tree = first
    while tree < last:
        count = <int> min(last - tree, <int64_t> HF_WALKS)
        if w.single:
            hf_walk_trees(&w.forest, 1, tree, count, row, reached)
        else:
            hf_walk_trees(&w.forest, 0, tree, count, row, reached)
        for g in range(count):
            leaf[(tree + g - first) * tree_stride] = reached[g]
        tree += HF_WALKS


cdef void find_leaves(
    const Walk* w, const char* x, const int64_t* base, const char* columns, int64_t n, int64_t first,
    int64_t last, int32_t* scratch, int32_t* leaf, int64_t row_stride, int64_t tree_stride,
) noexcept nogil:
    # Writes the leaves of n samples in trees [first, last) to leaf[i * row_stride + (tree - first) *
    # tree_stride].
    #
    # x        IN (n, n_features), or the array into which `base` points
    # base     IN (n,), positions of the rows in x; or NULL
    # columns  IN, keys of the samples, if w.way is BY_COLUMNS
    # scratch  workspace for n elements rounded up to whole groups; if NULL, `leaf` of each tree has this size
    cdef int64_t tree, root, i, size = 4 if w.single else 8
    cdef hf_walked a
    cdef int32_t* to
    cdef int32_t* reached
    if w.nodes == NULL or (w.way != BY_ROWS and n < FEW):
        for i in range(n):
            root = i * w.n_features if base == NULL else base[i]
            _walk_one(w, x + root * size, first, last, leaf + i * row_stride, tree_stride)
        return
    a.x, a.base, a.n_features, a.entry = x, base, w.n_features, w.entries
    for tree in range(first, last):
        a.node = w.nodes + w.forest.tree_start[tree] * node_size(w)
        to = leaf + (tree - first) * tree_stride
        reached = to if scratch == NULL else scratch
        if w.way == BY_COLUMNS:
            _walk_columns(w, columns, n, tree, reached)
        elif w.way == BY_PROJECTIONS and w.single:
            hf_walk_projections(1, w.width, &a, n, reached)
        elif w.way == BY_PROJECTIONS:
            hf_walk_projections(0, w.width, &a, n, reached)
        elif w.single:
            hf_walk_packed(1, &a, n, reached)
        else:
            hf_walk_packed(0, &a, n, reached)
        if scratch != NULL:
            for i in range(n):
                to[i * row_stride] = scratch[i]


# ------------------------------------------------------------------------------------- leaf values

cdef int64_t largest(const real* row, int64_t n) noexcept nogil:
    # Returns the first index of the largest element.
    cdef int64_t best = 0, k
    for k in range(1, n):
        if row[k] > row[best]:
            best = k
    return best


cdef int64_t only_class(const real* row, int64_t n) noexcept nogil:
    # Returns the index of the single 1 in a row of zeros, else -1.
    cdef int64_t k = 0, at
    while k < n and row[k] == 0:
        k += 1
    at = k if k < n and row[k] == 1 else -1
    for k in range(k + 1, n):
        if row[k] != 0:
            return -1
    return at


cdef bint write_classes(const Walk* w, const real* value, int64_t tree) noexcept nogil:
    # Writes the class of each leaf of a tree to w.class_of: its only class, or the one that it votes for.
    # Returns whether every leaf has one, as in trees grown to purity. Counting these classes then gives the
    # same sums as adding rows of shares.
    cdef int64_t root = w.forest.tree_start[tree], v, best
    # A tree of N nodes has (N + 1) / 2 leaves.
    cdef const real* values = value + (root + tree) // 2 * w.n_outputs
    cdef const real* row
    for v in range(root, w.forest.tree_start[tree + 1]):
        if w.forest.feature[v] != -1:
            continue
        row = values + <int64_t> w.forest.left[v] * w.n_outputs
        best = largest(row, w.n_outputs) if w.vote else only_class(row, w.n_outputs)
        if best < 0:
            return False
        w.class_of[v] = <int32_t> best
    return True


cdef void add_leaves(
    const Walk* w, const real* value, int64_t first, int64_t last, int64_t n, const int32_t* leaf,
    int64_t tree_stride, double* total,
) noexcept nogil:
    # Adds the leaf values (or votes) of n samples in trees [first, last), at most HF_WALKS, to total (n,
    # n_outputs). The leaf of sample i is leaf[tree * tree_stride + i], with trees counted from `first`. The
    # sums of a sample stay in registers.
    cdef int n_trees = <int> (last - first), t
    cdef int64_t n_outputs = w.n_outputs, root, i, k
    cdef const int32_t* left[HF_WALKS]
    cdef const real* values[HF_WALKS]
    cdef const real* row[HF_WALKS]
    cdef double* to
    cdef double sum
    for t in range(n_trees):
        root = w.forest.tree_start[first + t]
        left[t] = w.forest.left + root
        values[t] = value + (root + first + t) // 2 * n_outputs
    if n_outputs == 1 and not w.vote:
        # The loop over samples is innermost, because sums of different samples are independent.
        for t in range(n_trees):
            for i in range(n):
                total[i] += <double> values[t][left[t][leaf[t * tree_stride + i]]]
        return
    for i in range(n):
        to = total + i * n_outputs
        for t in range(n_trees):
            row[t] = values[t] + <int64_t> left[t][leaf[t * tree_stride + i]] * n_outputs
        if w.vote:
            for t in range(n_trees):
                to[largest(row[t], n_outputs)] += 1
            continue
        for k in range(n_outputs):
            sum = to[k]
            for t in range(n_trees):
                sum += <double> row[t][k]
            to[k] = sum
