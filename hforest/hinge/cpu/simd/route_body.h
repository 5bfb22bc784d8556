/* Vector bodies of Lay et al. 2018, Alg. 3, for one element type and one vector width. simd/route.h defines

   ROUTE_TILE, ROUTE_ROW, ROUTE_FERN   names of the functions
   FINISH, WALK, LEVELS                names of functions of these
   REAL, WORD                          the element, and the integer of its size
   REALS, WORDS, INTS                  vectors of BYTES / sizeof(REAL) REALs, WORDs and int32
   BYTES, CODE                         width of a vector; the instruction set for the compiler
   CHOOSE(m, a, b)                     a where the mask m is all ones, b where it is 0
   LEAST(a, b)                         a where a < b, otherwise b */

#define LANES ((int)(BYTES / sizeof(REAL)))
#define VECTORS (HF_WALKS / LANES)
#define MAGNITUDE ((WORD)(((uint64_t)1 << (8 * sizeof(REAL) - 1)) - 1))

#define ABS(r) ((REALS)((WORDS)(r) & MAGNITUDE))

/* Strict comparison: of equal margins, the one nearest the root is kept. */
#define CLOSER(r, s) ((WORDS)(ABS(r) < ABS(s)))

/* Updates the least margin of vector i, and its level. If the level is not wanted, the least absolute margin. */
#define MEET(r, number)                                                                 \
    do {                                                                                \
        if (wanted) {                                                                   \
            const WORDS closer_ = CLOSER(r, lowest[i]);                                 \
            lowest[i] = (REALS)CHOOSE(closer_, (WORDS)(r), (WORDS)lowest[i]);           \
            met[i] = CHOOSE(closer_, (WORDS){0} + (WORD)(number), met[i]);              \
        } else {                                                                        \
            lowest[i] = LEAST(ABS(r), lowest[i]);                                       \
        }                                                                               \
    } while (0)

/* Writes a vector to an address of any alignment. */
#define STORE(to, v)                            \
    do {                                        \
        const __typeof__(v) v_ = (v);           \
        __builtin_memcpy((to), &v_, sizeof v_); \
    } while (0)

/* The place of the feature of decision v in a tile, and the feature for the samples of vector i. */
#define PLACE(v) (owned ? (size_t)tree->offsets[v] : (size_t)((uint32_t)features[v] & mask) << HF_TILE_SHIFT)
#define COLUMN(v) (*(const REALS *)(x + PLACE(v) + i * LANES))

#if BYTES < 64
/* Compares the margins of HF_WALKS walks from level `start` on, and writes the results of the walks.

   margins      IN of each level and walk
   at           IN the heap indices of the leaves
   lowest, met  IN the least margin above level `start`, and its level
   wanted       whether vertices are written, too; otherwise margins are absolute */
CODE HF_INLINE void FINISH(
    const int depth, int start, const REAL (*margins)[HF_WALKS], const WORD *at, REALS *lowest, WORDS *met,
    int32_t *leaf, REAL *margin, int32_t *vertex, const int wanted) {
    int i, level;
    for (level = start; level < depth; ++level)
        for (i = 0; i < VECTORS; ++i) {
            const REALS r = *(const REALS *)(margins[level] + i * LANES);
            MEET(r, level);
        }
    for (i = 0; i < VECTORS; ++i) {
        /* With heap indices counted from 1, the ancestor k levels up is the index shifted right by k. */
        const WORDS end = *(const WORDS *)(at + i * LANES);
        const WORDS nearest = ((end + 1) >> (depth - met[i])) - 1, number = end + 1 - ((WORD)1 << depth);
        STORE(margin + i * LANES, lowest[i]);
        if (wanted) STORE(vertex + i * LANES, __builtin_convertvector(nearest, INTS));
        STORE(leaf + i * LANES, __builtin_convertvector(number, INTS));
    }
}

/* Routes the HF_TILE samples of a tile in one tree, HF_WALKS side by side to hide the latency of loads. The first two
   levels are vectors of candidates. Below, samples are at different vertices: each walks alone and stores its margins,
   which are compared as vectors afterwards. With `owned` the features are those of offsets; `wanted` as in FINISH. */
CODE HF_INLINE void WALK(
    const hf_trees *tree, const void *tile, int32_t *leaf, void *margin, int32_t *vertex, const int owned,
    const int wanted) {
    const REAL *t = (const REAL *)tree->thresholds;
    const int32_t *features = tree->features;
    const uint32_t mask = tree->mask;
    const int depth = tree->depth;
    REAL margins[HF_MAX_LEVELS][HF_WALKS] __attribute__((aligned(BYTES)));
    WORD ends[HF_WALKS] __attribute__((aligned(BYTES)));
    size_t at[HF_WALKS];
    for (int s = 0; s < HF_TILE; s += HF_WALKS) {
        const REAL *x = (const REAL *)tile + s;
        WORDS met[VECTORS];
        REALS lowest[VECTORS];
        int i, u, level;
        for (i = 0; i < VECTORS; ++i) {
            /* A true lane of a comparison is -1: subtracting it adds 1. */
            WORDS place;
            lowest[i] = COLUMN(0) - t[0];
            met[i] = (WORDS){0};
            const WORDS turn = (WORDS)(lowest[i] > (REALS){0});
            if (!wanted) lowest[i] = ABS(lowest[i]);
            place = 1 - turn;
            if (depth > 1) {
                const REALS left = COLUMN(1) - t[1], right = COLUMN(2) - t[2];
                const REALS r = (REALS)CHOOSE(turn, (WORDS)right, (WORDS)left);
                MEET(r, 1);
                place = place + place + 1 - (WORDS)(r > (REALS){0});
            }
            *(WORDS *)(ends + i * LANES) = place;
        }
        for (u = 0; u < HF_WALKS; ++u) at[u] = (size_t)ends[u];
        for (level = 2; level < depth; ++level)
            for (u = 0; u < HF_WALKS; ++u) {
                const REAL r = x[PLACE(at[u]) + u] - t[at[u]];
                margins[level][u] = r;
                at[u] = 2 * at[u] + 1 + (r > 0);
            }
        for (u = 0; u < HF_WALKS; ++u) ends[u] = (WORD)at[u];
        FINISH(depth, 2, margins, ends, lowest, met, leaf + s, (REAL *)margin + s, vertex + s, wanted);
    }
}

CODE static void ROUTE_TILE(const hf_trees *tree, const void *tile, int32_t *leaf, void *margin, int32_t *vertex) {
    HF_COUNT("hinge", __func__);
    if (vertex && tree->offsets)
        WALK(tree, tile, leaf, margin, vertex, 1, 1);
    else if (vertex)
        WALK(tree, tile, leaf, margin, vertex, 0, 1);
    else if (tree->offsets)
        WALK(tree, tile, leaf, margin, leaf, 1, 0);
    else
        WALK(tree, tile, leaf, margin, leaf, 0, 0);
}

/* Routes one sample in `count` trees side by side. Walks beyond the last tree repeat that tree; their results are not
   used. */
CODE static void ROUTE_ROW(const hf_trees *trees, const void *row, int32_t *leaf, void *margin, int32_t *vertex) {
    HF_COUNT("hinge", __func__);
    const REAL *x = (const REAL *)row, *t = (const REAL *)trees->thresholds;
    const int32_t *features = trees->features;
    const int depth = trees->depth;
    REAL margins[HF_MAX_LEVELS][HF_WALKS] __attribute__((aligned(BYTES)));
    WORD ends[HF_WALKS] __attribute__((aligned(BYTES)));
    size_t at[HF_WALKS], root[HF_WALKS];
    WORDS met[VECTORS];
    REALS lowest[VECTORS];
    int i, u, level;
    for (u = 0; u < HF_WALKS; ++u)
        at[u] = root[u] = (size_t)(u < trees->count ? u : trees->count - 1) * (size_t)trees->n_vertices;
    for (level = 0; level < depth; ++level)
        for (u = 0; u < HF_WALKS; ++u) {
            const REAL r = x[hf_feature(trees, features[at[u]])] - t[at[u]];
            margins[level][u] = r;
            at[u] = 2 * at[u] - root[u] + 1 + (r > 0);
        }
    for (u = 0; u < HF_WALKS; ++u) ends[u] = (WORD)(at[u] - root[u]);
    for (i = 0; i < VECTORS; ++i) {
        lowest[i] = *(const REALS *)(margins[0] + i * LANES);
        met[i] = (WORDS){0};
    }
    FINISH(depth, 1, margins, ends, lowest, met, leaf, (REAL *)margin, vertex, 1);
}
#endif

/* Routes the HF_TILE samples of a tile in one fern. A level has the same decision for all samples, so it reads one
   column of the tile. */
CODE HF_INLINE void LEVELS(
    const hf_trees *tree, const void *tile, int32_t *leaf, void *margin, int32_t *vertex, const int wanted) {
    const REAL *t = (const REAL *)tree->thresholds;
    const int32_t *features = tree->features;
    const uint32_t mask = tree->mask;
    const int owned = 0;
    for (int s = 0; s < HF_TILE; s += HF_WALKS) {
        const REAL *x = (const REAL *)tile + s;
        WORDS met[VECTORS], bits[VECTORS];
        REALS lowest[VECTORS];
        int i;
        for (i = 0; i < VECTORS; ++i) {
            lowest[i] = COLUMN(0) - t[0];
            met[i] = (WORDS){0};
            bits[i] = -(WORDS)(lowest[i] > (REALS){0});
            if (!wanted) lowest[i] = ABS(lowest[i]);
        }
        for (int level = 1; level < tree->depth; ++level)
            for (i = 0; i < VECTORS; ++i) {
                const REALS r = COLUMN(level) - t[level];
                MEET(r, level);
                bits[i] = bits[i] + bits[i] - (WORDS)(r > (REALS){0});
            }
        for (i = 0; i < VECTORS; ++i) {
            STORE((REAL *)margin + s + i * LANES, lowest[i]);
            if (wanted) STORE(vertex + s + i * LANES, __builtin_convertvector(met[i], INTS));
            STORE(leaf + s + i * LANES, __builtin_convertvector(bits[i], INTS));
        }
    }
}

CODE static void ROUTE_FERN(const hf_trees *tree, const void *tile, int32_t *leaf, void *margin, int32_t *vertex) {
    HF_COUNT("hinge", __func__);
    if (vertex)
        LEVELS(tree, tile, leaf, margin, vertex, 1);
    else
        LEVELS(tree, tile, leaf, margin, leaf, 0);
}

#undef LANES
#undef VECTORS
#undef MAGNITUDE
#undef CLOSER
#undef ABS
#undef MEET
#undef STORE
#undef COLUMN
#undef PLACE
#undef ROUTE_TILE
#undef ROUTE_ROW
#undef ROUTE_FERN
#undef LEVELS
#undef FINISH
#undef WALK
#undef REALS
#undef WORDS
#undef INTS
#undef REAL
#undef WORD
#undef BYTES
#undef CODE
#undef CHOOSE
#undef LEAST
