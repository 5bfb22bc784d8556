/* Routing of a tile for one element type and one vector width (p1 Alg. 3). vectors.h sets

   REAL, WORD     the element, and the integer of its size
   BYTES          of a vector
   CODE           which instructions the compiler may take
   NAME(x)        x with a suffix of its own
   CHOOSE(m,a,b)  a where the mask m is all ones, b where it is 0

   Integers of a vector are as wide as its elements; results are int32 whatever the element. */

typedef REAL NAME(reals) __attribute__((vector_size(BYTES)));
typedef WORD NAME(words) __attribute__((vector_size(BYTES)));
typedef int32_t NAME(ints) __attribute__((vector_size(BYTES / sizeof(REAL) * 4)));
#define REALS NAME(reals)
#define WORDS NAME(words)
#define INTS NAME(ints)
#define LANES ((int)(BYTES / sizeof(REAL)))
#define VECTORS (HF_FLYING / LANES)
#define MAGNITUDE ((WORD)(((uint64_t)1 << (8 * sizeof(REAL) - 1)) - 1))

/* Strictly less, as the plain loop has it: on equal margins the vertex nearest the root stays. */
#define CLOSER(r, s) ((WORDS)((REALS)((WORDS)(r) & MAGNITUDE) < (REALS)((WORDS)(s) & MAGNITUDE)))

/* What a vector's lanes have of their path so far: the margin of least magnitude and the level it was met at. */
#define MEET(r, number)                                                                 \
    do {                                                                                \
        const WORDS closer_ = CLOSER(r, lowest[i]);                                     \
        lowest[i] = (REALS)CHOOSE(closer_, (WORDS)(r), (WORDS)lowest[i]);               \
        met[i] = CHOOSE(closer_, (WORDS){0} + (WORD)(number), met[i]);                  \
    } while (0)

#define COLUMN(v) (*(const REALS *)(x + ((ptrdiff_t)features[v] << HF_TILE_SHIFT) + i * LANES))

#if BYTES < 64
/* The first two levels are vectors of candidates. Below, no two samples need be at one vertex: each goes down
   alone, HF_FLYING of them side by side, as each waits for its loads. It leaves its margins behind, which are
   compared as vectors afterwards. */
CODE HF_INLINE void NAME(route_trees)(
    const hf_tree *tree, const int packed, const REAL *tile, int32_t *leaf_out, REAL *margin_out, int32_t *vertex_out) {
    const REAL *t = (const REAL *)tree->thresholds;
    const int32_t *features = tree->features;
    const int depth = tree->depth;
    REAL margins[HF_MOST_LEVELS][HF_FLYING] __attribute__((aligned(BYTES)));
    WORD places[HF_FLYING] __attribute__((aligned(BYTES)));
    size_t at[HF_FLYING];
    for (int s = 0; s < HF_TILE; s += HF_FLYING) {
        const REAL *x = tile + s;
        WORDS met[VECTORS];
        REALS lowest[VECTORS];
        int i, u, level;
        for (i = 0; i < VECTORS; ++i) {
            /* A mask is -1: subtracting it adds 1. */
            WORDS place;
            lowest[i] = COLUMN(0) - t[0];
            met[i] = (WORDS){0};
            place = 1 - (WORDS)(lowest[i] > (REALS){0});
            if (depth > 1) {
                const REALS left = COLUMN(1) - t[1], right = COLUMN(2) - t[2];
                const REALS r = (REALS)CHOOSE(lowest[i] > (REALS){0}, (WORDS)right, (WORDS)left);
                MEET(r, 1);
                place = place + place + 1 - (WORDS)(r > (REALS){0});
            }
            *(WORDS *)(places + i * LANES) = place;
        }
        for (u = 0; u < HF_FLYING; ++u) at[u] = (size_t)places[u];
        for (level = 2; level < depth; ++level) {
            const char *start = (const char *)x;
            const int32_t *f = packed ? tree->packed : features;
            for (u = 0; u < HF_FLYING; ++u) {
                const size_t row = (size_t)(uint32_t)f[at[u]] << (packed ? 0 : HF_TILE_SHIFT + sizeof(REAL) / 4 + 1);
                const REAL r = *(const REAL *)(start + row + u * sizeof(REAL)) - t[at[u]];
                margins[level][u] = r;
                at[u] = 2 * at[u] + 1 + (r > 0);
            }
        }
        for (u = 0; u < HF_FLYING; ++u) places[u] = (WORD)at[u];
        for (level = 2; level < depth; ++level)
            for (i = 0; i < VECTORS; ++i) {
                const REALS r = *(const REALS *)(margins[level] + i * LANES);
                MEET(r, level);
            }
        for (i = 0; i < VECTORS; ++i) {
            /* A vertex of the path is its end, some levels up: half of it each, counted from 1. */
            const WORDS place = *(const WORDS *)(places + i * LANES);
            const WORDS vertex = ((place + 1) >> (depth - met[i])) - 1, leaf = place + 1 - ((WORD)1 << depth);
            *(REALS *)(margin_out + s + i * LANES) = lowest[i];
            *(INTS *)(vertex_out + s + i * LANES) = __builtin_convertvector(vertex, INTS);
            *(INTS *)(leaf_out + s + i * LANES) = __builtin_convertvector(leaf, INTS);
        }
    }
}

CODE static void NAME(trees)(
    const hf_tree *tree, const REAL *tile, int32_t *leaf, REAL *margin, int32_t *vertex) {
    if (tree->packed) NAME(route_trees)(tree, 1, tile, leaf, margin, vertex);
    else NAME(route_trees)(tree, 0, tile, leaf, margin, vertex);
}

#endif

/* A fern asks every sample the same at a level: columns of the tile, and nothing else. */
CODE static void NAME(fern)(
    const hf_tree *fern, const REAL *tile, int32_t *leaf_out, REAL *margin_out, int32_t *vertex_out) {
    const REAL *t = (const REAL *)fern->thresholds;
    const int32_t *features = fern->features;
    for (int s = 0; s < HF_TILE; s += HF_FLYING) {
        const REAL *x = tile + s;
        WORDS met[VECTORS], leaf[VECTORS];
        REALS lowest[VECTORS];
        int i;
        for (i = 0; i < VECTORS; ++i) {
            lowest[i] = COLUMN(0) - t[0];
            met[i] = (WORDS){0};
            leaf[i] = -(WORDS)(lowest[i] > (REALS){0});
        }
        for (int level = 1; level < fern->depth; ++level)
            for (i = 0; i < VECTORS; ++i) {
                const REALS r = COLUMN(level) - t[level];
                MEET(r, level);
                leaf[i] = leaf[i] + leaf[i] - (WORDS)(r > (REALS){0});
            }
        for (i = 0; i < VECTORS; ++i) {
            *(REALS *)(margin_out + s + i * LANES) = lowest[i];
            *(INTS *)(vertex_out + s + i * LANES) = __builtin_convertvector(met[i], INTS);
            *(INTS *)(leaf_out + s + i * LANES) = __builtin_convertvector(leaf[i], INTS);
        }
    }
}

#undef REALS
#undef WORDS
#undef INTS
#undef LANES
#undef VECTORS
#undef MAGNITUDE
#undef CLOSER
#undef MEET
#undef COLUMN
#undef REAL
#undef WORD
#undef BYTES
#undef CODE
#undef NAME
#undef CHOOSE
