/* The top levels of a tree by columns, for one type of keys and one kind of vectors. columns.h defines

   NAME             of the function
   WORD             a key
   BYTES            size of a vector
   CODE             the instruction set for the compiler
   KEEP(m,x,t,left) m without the bits of `left` where x exceeds t

   There are many samples and few nodes. Each node is compared with its column for all samples, so that no sample loads
   a node or a feature of its own. An exit is an edge to the nodes below. A node that sends a sample right removes the
   exits on its left; the sample takes the first exit that remains. */

#define LANES ((int)(BYTES / sizeof(WORD)))
#define VECTORS (HF_DOWN / LANES)

/* The exits left of node i. Nodes and exits are numbered from left to right, level by level. */
#define LEVEL(i) ((i) < 1 ? 0 : (i) < 3 ? 1 : (i) < 7 ? 2 : 3)
#define HALF(i) (HF_DOWN / 2 >> LEVEL(i))
#define LEFT(i) (((1u << HALF(i)) - 1) << 2 * HALF(i) * ((i) + 1 - (1 << LEVEL(i))))

CODE static void NAME(
    const hf_top *top, const WORD *columns, int64_t group_words, int n_groups, uint32_t *at
) {
    HF_COUNT("tree", __func__);
    typedef WORD KEYS __attribute__((vector_size(BYTES)));
    for (int g = 0; g < n_groups; ++g, columns += group_words, at += HF_DOWN) {
        KEYS exits[VECTORS];
        for (int u = 0; u < VECTORS; ++u) exits[u] = (KEYS){0} + 0xffff;
        _Pragma("GCC unroll 15") for (int i = 0; i < HF_TOP; ++i) {
            const KEYS *x = (const KEYS *)((const char *)columns + (size_t)top->column[i] * 8);
            const KEYS threshold = (KEYS){0} + (WORD)top->key[i];
            _Pragma("GCC unroll 8") for (int u = 0; u < VECTORS; ++u)
                exits[u] = KEEP(exits[u], x[u], threshold, (KEYS){0} + LEFT(i));
        }
#if BYTES == 64
        hf_first_exits(hf_exits(sizeof(WORD), (__m512i)exits[0], (__m512i)exits[VECTORS - 1]), top->exit, at);
#else
        WORD left[HF_DOWN] __attribute__((aligned(BYTES)));
        for (int u = 0; u < VECTORS; ++u) *(KEYS *)(left + u * LANES) = exits[u];
        for (int u = 0; u < HF_DOWN; ++u) at[u] = top->exit[__builtin_ctz((uint32_t)left[u])];
#endif
    }
}

#undef LANES
#undef VECTORS
#undef LEVEL
#undef HALF
#undef LEFT
#undef CODE
#undef WORD
#undef BYTES
#undef NAME
#undef KEEP
