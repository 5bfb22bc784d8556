/* Rows of a node's samples once more, features first, for it and the nodes below it: what they look at then lies
   together, and near. There are several at a time, smaller ones for nodes deeper down. */
#ifndef HFOREST_GROWTH_BLOCKS_H
#define HFOREST_GROWTH_BLOCKS_H
#include "growth/task.h"

enum {
    HF_BLOCK_BYTES = 1 << 22, /* at most, */
    HF_MOST_IN_BLOCK = 2048,  /* and samples */
    HF_LEAST_IN_BLOCK = 8,    /* samples from which a block pays */
    HF_BYTES_AHEAD = 192      /* that are asked for of a row */
};

/* Numbers that a node's candidates look at for each number of a row, from which one block pays, and all do. */
#define HF_BLOCK_SHARE 0.02
#define HF_BLOCKS_SHARE 0.12

#if HF_X86

/* Samples of a block, a multiple of 64 or 0. */
static int64_t hf_block_room(const hf_task *t, int level) {
    const int64_t wanted[HF_BLOCKS] = {HF_MOST_IN_BLOCK, 512, 128};
    const int64_t size = t->atoms->n_features * (t->small ? 1 : 4);
    const double share = (double)t->n_drawn * hf_mean_entries(t->atoms) / (double)t->atoms->n_features;
    if (!t->columns || share < (level == 1 ? HF_BLOCK_SHARE : HF_BLOCKS_SHARE)) return 0;
    return wanted[level] * size > HF_BLOCK_BYTES ? HF_BLOCK_BYTES / size / 64 * 64 : wanted[level];
}

static int hf_make_blocks(const hf_task *t, hf_workspace *r) {
    for (int level = 0; level < HF_BLOCKS; ++level) {
        hf_block *b = &r->block[level];
        b->room = hf_block_room(t, level);
        if (!b->room) continue;
        /* A vector reads up to 64 numbers behind each. */
        b->columns = malloc((b->room * t->atoms->n_features + 64) * (t->small ? 1 : 4));
        b->place = malloc(t->n * 4);
        if (!b->columns || !b->place) return 0;
    }
    return 1;
}

/* Turns 16 numbers of each of 16 rows of bytes. */
HF_INLINE void hf_turn_bytes(const uint8_t *const *row, int64_t from, uint8_t *to, int64_t step) {
    __m128i a[16], b[16];
    for (int i = 0; i < 16; ++i) a[i] = _mm_loadu_si128((const __m128i *)(row[i] + from));
    /* Four rounds of a perfect shuffle of 16 rows of 16. */
    for (int round = 0; round < 4; ++round) {
        for (int i = 0; i < 8; ++i) {
            b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
            b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
        }
        memcpy(a, b, sizeof a);
    }
    for (int i = 0; i < 16; ++i) _mm_storeu_si128((__m128i *)(to + i * step), a[i]);
}

/* Turns 4 numbers of each of 4 rows of floats. */
HF_INLINE void hf_turn_floats(const float *const *row, int64_t from, float *to, int64_t step) {
    __m128 a = _mm_loadu_ps(row[0] + from), b = _mm_loadu_ps(row[1] + from);
    __m128 c = _mm_loadu_ps(row[2] + from), d = _mm_loadu_ps(row[3] + from);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + step, b);
    _mm_storeu_ps(to + 2 * step, c);
    _mm_storeu_ps(to + 3 * step, d);
}

/* Rows of n samples; the last stands for those that fill up a tile. */
#define HF_FILL_BLOCK(NAME, NUMBER, TURN, TILE)                                                                 \
    static void NAME(                                                                                           \
        const NUMBER *x, int64_t n_features, const uint32_t *sample, int64_t n, NUMBER *columns, int64_t step   \
    ) {                                                                                                         \
        const int64_t whole = n_features / TILE * TILE;                                                         \
        for (int64_t i = 0; i < n; i += 64) {                                                                   \
            const NUMBER *row[64];                                                                              \
            for (int64_t j = 0; j < 64; ++j) {                                                                  \
                row[j] = x + (int64_t)sample[i + j < n ? i + j : n - 1] * n_features;                           \
                for (int64_t k = 0; k < HF_BYTES_AHEAD; k += 64) HF_PREFETCH((const char *)row[j] + k);         \
            }                                                                                                   \
            const int64_t n_rows = n - i < 64 ? (n - i + TILE - 1) / TILE * TILE : 64;                          \
            for (int64_t f = 0; f < whole; f += TILE) {                                                         \
                for (int64_t j = 0; j < n_rows && f * sizeof(NUMBER) % 64 == 0; ++j)                            \
                    HF_PREFETCH((const char *)(row[j] + f) + HF_BYTES_AHEAD);                                   \
                for (int64_t j = 0; j < n_rows; j += TILE) TURN(row + j, f, columns + f * step + i + j, step);  \
            }                                                                                                   \
            for (int64_t f = whole; f < n_features; ++f)                                                        \
                for (int64_t j = 0; j < n_rows; ++j) columns[f * step + i + j] = row[j][f];                     \
        }                                                                                                       \
    }
HF_FILL_BLOCK(hf_fill_block_bytes, uint8_t, hf_turn_bytes, 16)
HF_FILL_BLOCK(hf_fill_block_floats, float, hf_turn_floats, 4)
#undef HF_FILL_BLOCK

static void hf_fill_block(const hf_task *t, const hf_workspace *r, const hf_pending *node, hf_block *b) {
    const uint32_t *sample = r->sample + node->first;
    const int64_t n = node->last - node->first, n_features = t->atoms->n_features;
    b->first = node->first, b->last = node->last;
    for (int64_t i = 0; i < n; ++i) b->place[sample[i]] = (uint32_t)i;
    if (t->small) hf_fill_block_bytes(t->small, n_features, sample, n, b->columns, b->room);
    else hf_fill_block_floats(t->x, n_features, sample, n, b->columns, b->room);
}

/* Where the columns of a node's samples are. */
static void hf_find_columns(const hf_task *t, hf_workspace *r, const hf_pending *node) {
    const int64_t n = node->last - node->first;
    hf_columns *c = &r->columns;
    const uint32_t *sample = r->sample + node->first;
    c->numbers = t->columns, c->step = t->n, c->place = sample, c->is_block = c->are_marked = 0;
    for (int level = HF_BLOCKS - 1; level >= 0; --level) {
        hf_block *b = &r->block[level];
        if (n > b->room) continue;
        if (node->first < b->first || node->last > b->last) {
            if (n < HF_LEAST_IN_BLOCK) continue;
            hf_fill_block(t, r, node, b);
        }
        c->numbers = b->columns, c->step = b->room, c->place = r->place_in_block, c->is_block = 1;
        for (int64_t i = 0; i < n; ++i) r->place_in_block[i] = b->place[sample[i]];
        return;
    }
}
#endif

#endif
