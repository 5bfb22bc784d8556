/* Walks of HF_DOWN samples at once by columns, for one element type and one kind of vectors. walk.h sets

   WORD, CROWN         the keys, and a tree's first levels
   STEP, INSIDE        a step down from a node, and whether it is no leaf
   BYTES               of a vector; 0: none, and no level goes by columns
   CODE                which instructions the compiler may take
   NAME(x)             x with a suffix of its own
   KEEP(m,x,t,left)    m without `left` where x is not below or at t

   At a tree's first levels many samples meet few nodes. There each node is compared with its column of all samples,
   none of which has to fetch a node or a feature of its own; a node that sends a sample right takes the exits on its
   left from it, and the first that remains is where it goes on. Below, each goes down alone, HF_DOWN side by side, as
   each waits for its loads: no gather instruction is used, which does the same loads, on AMD more slowly. */

#if BYTES
typedef WORD NAME(keys) __attribute__((vector_size(BYTES)));
#define KEYS NAME(keys)
#define LANES ((int)(BYTES / sizeof(WORD)))
#define VECTORS (HF_DOWN / LANES)

/* The exits left of node i of a complete tree, nodes and exits numbered from left to right, level after level. */
#define LEVEL(i) ((i) < 1 ? 0 : (i) < 3 ? 1 : (i) < 7 ? 2 : 3)
#define HALF(i) (HF_DOWN / 2 >> LEVEL(i))
#define LEFT(i) (((1u << HALF(i)) - 1) << 2 * HALF(i) * ((i) + 1 - (1 << LEVEL(i))))

CODE HF_INLINE void NAME(enter)(const CROWN *crown, const WORD *group, uint32_t *at) {
    KEYS exits[VECTORS];
    for (int u = 0; u < VECTORS; ++u) exits[u] = (KEYS){0} + 0xffff;
    _Pragma("GCC unroll 15") for (int i = 0; i < HF_TOP; ++i) {
        const KEYS *x = (const KEYS *)((const char *)group + (size_t)crown->column[i] * 8);
        const KEYS threshold = (KEYS){0} + crown->key[i];
        _Pragma("GCC unroll 8") for (int u = 0; u < VECTORS; ++u)
            exits[u] = KEEP(exits[u], x[u], threshold, (KEYS){0} + LEFT(i));
    }
#if BYTES == 64
    hf_first_exits(hf_exits(sizeof(WORD), (__m512i)exits[0], (__m512i)exits[VECTORS - 1]), crown->exit, at);
#else
    WORD left[HF_DOWN] __attribute__((aligned(BYTES)));
    for (int u = 0; u < VECTORS; ++u) *(KEYS *)(left + u * LANES) = exits[u];
    for (int u = 0; u < HF_DOWN; ++u) at[u] = crown->exit[__builtin_ctz((uint32_t)left[u])];
#endif
}
#endif

/* Leaves that n_groups groups of HF_DOWN samples reach. Most arrive within `often` levels below the first ones; if
   the tree has more, those that have not are listed, and go on together. */
CODE HF_INLINE void NAME(descend)(
    int small, const CROWN *crown, const void *node, int often, const WORD *columns, int64_t n_features,
    int64_t n_groups, int32_t *leaf
) {
    const int64_t group_words = n_features * HF_DOWN;
    const int levels = crown->depth - (BYTES ? HF_LEVELS : 0), first = levels < often + 3 ? levels : often;
    for (int64_t done = 0; done < n_groups; done += HF_LISTED / HF_DOWN) {
        const int here = n_groups - done < HF_LISTED / HF_DOWN ? (int)(n_groups - done) : HF_LISTED / HF_DOWN;
        const WORD *part = columns + done * group_words;
        int32_t *reached = leaf + done * HF_DOWN;
        uint32_t at[HF_LISTED + HF_DOWN], sample[HF_LISTED + HF_DOWN];
        int64_t place[HF_LISTED];
        int n = 0;
        for (int g = 0; g < here; ++g) {
            const WORD *x = part + g * group_words;
            uint32_t v[HF_DOWN] = {0};
#if BYTES
            NAME(enter)(crown, x, v);
#endif
            for (int level = 0; level < first; ++level)
                _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u) v[u] = STEP(small, node, v[u], x + u);
            _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u) reached[g * HF_DOWN + u] = (int32_t)v[u];
        }
        if (first >= levels) continue;
        for (int s = 0; s < here * HF_DOWN; ++s) {
            place[s] = s / HF_DOWN * group_words + s % HF_DOWN;
            at[n] = (uint32_t)reached[s];
            sample[n] = (uint32_t)s;
            n += INSIDE(small, node, at[n]);
        }
        while (n > 0) {
            const int listed = n;
            n = 0;
            for (int u = 0; u < HF_DOWN; ++u) {
                /* Lanes behind the last sample repeat it. */
                at[listed + u] = at[listed - 1];
                sample[listed + u] = sample[listed - 1];
            }
            for (int i = 0; i < listed; i += HF_DOWN) {
                const WORD *x[HF_DOWN];
                uint32_t v[HF_DOWN];
                _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u) {
                    v[u] = at[i + u];
                    x[u] = part + place[sample[i + u]];
                }
                _Pragma("GCC unroll 4") for (int level = 0; level < HF_LEVELS; ++level)
                    _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u)
                        v[u] = STEP(small, node, v[u], x[u]);
                _Pragma("GCC unroll 16") for (int u = 0; u < HF_DOWN; ++u) {
                    const uint32_t s = sample[i + u];
                    reached[s] = (int32_t)v[u];
                    at[n] = v[u];
                    sample[n] = s;
                    n += INSIDE(small, node, v[u]) & (i + u < listed);
                }
            }
        }
    }
}

CODE static void NAME(walk)(
    int small, const CROWN *crown, const void *node, int often, const WORD *columns, int64_t n_features,
    int64_t n_groups, int32_t *leaf
) {
    if (small) NAME(descend)(1, crown, node, often, columns, n_features, n_groups, leaf);
    else NAME(descend)(0, crown, node, often, columns, n_features, n_groups, leaf);
}

#if BYTES
#undef KEYS
#undef LANES
#undef VECTORS
#undef LEVEL
#undef HALF
#undef LEFT
#endif
#undef CODE
#undef BYTES
#undef NAME
#undef KEEP
