/* Inner products of a strip. simd/products.h includes this once per path, and defines

   CODE        the instructions of the path
   BYTES       bytes of a vector: there are 16 registers of 32 bytes, and 32 of 64
   NAME(what)  name of a function or type */

#define LANES (BYTES / 4)
#define VECTORS 4 /* vectors of products of a row whose sums stay in registers */
#define TOGETHER (BYTES / 16) /* rows that read the matrix together */
#define FLOATS NAME(floats)

typedef float FLOATS __attribute__((vector_size(BYTES), aligned(4), may_alias));

CODE HF_INLINE void NAME(some_products)(
    const int count, const float *x, int64_t n_columns, const float *matrix, float *y,
    int64_t width
) {
    FLOATS sum[TOGETHER][VECTORS];
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) sum[i][v] = (FLOATS){0};
    for (int64_t j = 0; j < n_columns; ++j, matrix += HF_STRIP)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) {
            const FLOATS column = *(const FLOATS *)(matrix + v * LANES);
#pragma GCC unroll 4
            for (int i = 0; i < count; ++i) sum[i][v] += x[i * n_columns + j] * column;
        }
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) *(FLOATS *)(y + i * width + v * LANES) = sum[i][v];
}

CODE static void NAME(strip)(
    const float *x, int64_t n, int64_t n_columns, const float *matrix, float *y,
    int64_t width
) {
    HF_COUNT("tabular", __func__);
    for (int part = 0; part < HF_STRIP; part += VECTORS * LANES) {
        int64_t i = 0;
        for (; i + TOGETHER <= n; i += TOGETHER)
            NAME(some_products)(TOGETHER, x + i * n_columns, n_columns, matrix + part, y + i * width + part, width);
        for (; i < n; ++i)
            NAME(some_products)(1, x + i * n_columns, n_columns, matrix + part, y + i * width + part, width);
    }
}

#undef CODE
#undef BYTES
#undef NAME
#undef LANES
#undef VECTORS
#undef TOGETHER
#undef FLOATS
