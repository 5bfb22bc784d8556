/* The pairwise and the histogram scorer of one candidate's values: projections, whole weights.

   Values are codes of 32 bits whose order as signed integers is theirs. Pairwise, of few samples: the splits behind all
   samples. Histogram, of more: the range is divided into buckets of equal width, weights are counted by class and
   bucket, and only buckets in which a split may be better than the best so far are sorted and scanned.

   With g(a) = sum a_k**2 / sum a_k, a split scores g(left) + g(right). In a bucket behind samples L and before R it
   divides the bucket's weights b into d and e. g is convex and homogeneous, so g(L + d) <= g(L) + g(d), and
   g(d) <= max d_k: no split there scores more than g(L) + g(R) and the two largest of b. Closer, with p = L / W the
   shares in L,

       g(L + d) = g(L) + sum d_k (2 p_k - |p|**2) + |d - w p|**2 / (W + w),   w = sum d_k,

   and the last term is at most w (max b_k + w |p|**2) / (W + w), largest where w is all of b; the same for R and e.
   The sum over classes is largest where each goes to the side that it adds more to. */
#ifndef HFOREST_GROWTH_VALUES_H
#define HFOREST_GROWTH_VALUES_H
#include "growth/histogram.h"
#include "growth/buckets.h"

#if HF_VECTORS

/* What float32's rounding may hide of a score, and more. */
#define HF_ROUNDED 0.999999f

static int hf_is_valued(const hf_task *t, const hf_workspace *r, int64_t n, double weight) {
    return hf_bodies_of(t->path) && r->kind == HF_INT64_KEYS && (t->single || t->whole) && t->min_leaf == 1 && n > 2 &&
           weight < HF_HISTOGRAM_WEIGHT;
}

/* log2 of the buckets that pay for n samples. */
HF_INLINE int hf_log_buckets(int64_t n) { return n < 64 ? 5 : n < 320 ? 6 : n < 2048 ? 7 : 8; }

/* Numbers the classes of a node; 0 if they are too many, or too many for its samples. */
static int hf_start_values(const hf_task *t, hf_workspace *r, const hf_pending *node, double weight, hf_values *s) {
    const uint32_t *payload = r->payload + node->first;
    uint32_t *number = r->count_left;
    s->n = node->last - node->first, s->n_present = 0, s->all = (uint32_t)weight, s->square = 0, s->whole = t->whole;
    s->bodies = hf_bodies_of(t->path);
    for (int64_t k = 0; k < t->n_outputs; ++k) {
        if (!r->count[k]) continue;
        if (s->n_present == HF_VALUES_CLASSES) return 0;
        s->total[s->n_present] = r->count[k];
        s->square += r->count[k] * r->count[k];
        number[k] = (uint32_t)s->n_present++;
    }
    if (s->n > HF_VALUES_PAIRWISE) {
        /* Counts are added up for all buckets; samples are sorted, a dozen steps each. */
        if (HF_SORTED_STEPS * s->n < s->n_present << hf_log_buckets(s->n)) return 0;
        for (int64_t i = 0; i < s->n; ++i) r->slot[i] = number[payload[i] >> 16] << 16 | (payload[i] & 0xffff);
        return 1;
    }
    int32_t first[HF_VALUES_CLASSES] = {0};
    for (int64_t i = 0; i < s->n; ++i) ++first[number[payload[i] >> 16]];
    for (int64_t k = 0, at = 0; k < s->n_present; ++k) {
        const int32_t count = first[k];
        first[k] = (int32_t)at;
        at += count;
        s->last[k] = (int32_t)at;
    }
    for (int64_t i = 0; i < s->n; ++i) {
        const int32_t at = first[number[payload[i] >> 16]]++;
        s->place[i] = (uint8_t)at;
        s->weight[at] = payload[i] & 0xffff;
    }
    return 1;
}

/* The score of split i. */
HF_INLINE double hf_score_at(const hf_values *s, int i) {
    return (double)s->left_square[i] / (double)s->left_weight[i] +
           (double)s->right_square[i] / (double)(s->all - s->left_weight[i]);
}

/* The least code above `low`. */
static int32_t hf_next_value(const int32_t *code, int64_t n, int32_t low) {
    int32_t next = INT32_MAX;
    for (int64_t i = 0; i < n; ++i) next = code[i] > low && code[i] < next ? code[i] : next;
    return next;
}

/* Takes the best split of the samples' codes where it scores more than `best`; returns whether it does. */
static int hf_score_pairwise(hf_values *s, const int32_t *code, double *best, int32_t *low) {
    int32_t differ = 0;
    for (int64_t i = 0; i < s->n; ++i) {
        s->code[s->place[i]] = code[i];
        differ |= code[i] ^ code[0];
    }
    if (!differ) return 0;
    HF_TAKE(HF_BY_PAIRS_OF_VALUES);
    s->bodies->sum_values(s);
    const float most = s->bodies->rate_values((int)s->n, s);
    const float least = *best > most ? (float)*best : most;
    const float limit = least * HF_ROUNDED;
    int found = -1;
    if (!(most >= limit && most > 0)) return 0;
    for (int i = 0; i < (int)s->n; ++i) {
        if (!(s->rate.value[i] >= limit)) continue;
        const double score = hf_score_at(s, i);
        if (score < *best || (score == *best && (found < 0 || s->code[i] >= *low))) continue;
        *best = score;
        *low = s->code[i];
        found = i;
    }
    return found >= 0;
}

/* One of four values that equals another of them, or `otherwise`: pixels have a background. */
static int32_t hf_seen_often(const int32_t *v, int64_t n, int32_t otherwise) {
    const int32_t a = v[0], b = v[n / 4], c = v[n / 2], d = v[3 * n / 4];
    if (a == b || a == c || a == d) return a;
    return b == c || b == d ? b : c == d ? c : otherwise;
}

HF_INLINE float hf_real_of(const hf_values *s, int32_t code) {
    union {
        int32_t bits;
        float value;
    } a = {code ^ (code >> 31 & 0x7fffffff)};
    return s->whole ? (float)code : a.value;
}

/* The bucket of a code; as hf_fill_buckets has it. */
HF_INLINE int hf_bucket_of_code(const hf_values *s, int32_t code) {
    const int c = (int)((hf_real_of(s, code) - s->least) * s->scale);
    return s->exact ? c : c + (code >= s->usual) + (code > s->usual);
}

HF_INLINE int hf_place_of(const hf_values *s, int c) {
    return (c & ((1 << s->log_steps) - 1)) << s->bodies->log_lanes | c >> s->log_steps;
}

/* Divides the range of the codes into buckets; 0 if all are equal, -1 if no width divides them. */
static int hf_divide(hf_values *s, const int32_t *code) {
    int32_t lowest = code[0], highest = code[0];
    for (int64_t i = 0; i < s->n; ++i) {
        lowest = code[i] < lowest ? code[i] : lowest;
        highest = code[i] > highest ? code[i] : highest;
    }
    if (lowest == highest) return 0;
    const int log_buckets = hf_log_buckets(s->n);
    s->log_steps = log_buckets - s->bodies->log_lanes;
    s->lowest = lowest;
    s->least = hf_real_of(s, lowest);
    const float range = hf_real_of(s, highest) - s->least;
    s->exact = s->whole && range < (float)(1 << log_buckets);
    if (s->exact)
        while (s->log_steps > 0 && range < (float)(1 << (s->log_steps - 1 + s->bodies->log_lanes))) --s->log_steps;
    s->scale = s->exact ? 1.0f : (float)((1 << log_buckets) - 2) * HF_ROUNDED / range;
    if (!(s->scale > 0 && s->scale < INFINITY && range < INFINITY)) return -1;
    s->usual = hf_seen_often(code, s->n, lowest);
    return 1;
}

HF_APART static void hf_count_buckets_of(
    const uint8_t *bucket, const uint32_t *slot, int64_t n, int size, uint32_t *count
) {
    for (int64_t i = 0; i < n; ++i) count[(slot[i] >> 16) * size + bucket[i]] += slot[i] & 0xffff;
}

/* The best split within the buckets that are alive: their codes are sorted and scanned. */
static int hf_scan_alive(hf_values *s, hf_workspace *r, const int32_t *code, double *best, int32_t *low) {
    const int own = s->exact ? -1 : hf_bucket_of_code(s, s->usual), size = 1 << (s->log_steps + s->bodies->log_lanes);
    const int own_place = hf_place_of(s, own), has_own = s->alive[own_place];
    uint64_t *key = r->key;
    uint32_t left[HF_VALUES_CLASSES], lowest = UINT32_MAX, highest = 0, left_square = 0, right_square = 0, left_weight = 0;
    int64_t n_keys = 0;
    s->alive[own_place] = 0;
    for (int64_t i = 0; i < s->n; ++i) {
        const uint32_t ordered = (uint32_t)code[i] ^ 1u << 31;
        const int taken = s->alive[r->bucket[i]];
        key[n_keys] = (uint64_t)ordered << 32 | r->slot[i];
        n_keys += taken;
        lowest = taken && ordered < lowest ? ordered : lowest;
        highest = taken && ordered > highest ? ordered : highest;
    }
    if (has_own) {
        const uint32_t ordered = (uint32_t)s->usual ^ 1u << 31;
        lowest = ordered < lowest ? ordered : lowest;
        highest = ordered > highest ? ordered : highest;
        key[n_keys++] = (uint64_t)ordered << 32;
    }
    key = hf_sort_codes_64(key, r->key2, n_keys, lowest, highest);
    int bucket = -2, found = 0, next = hf_bucket_of_code(s, (int32_t)((uint32_t)(key[0] >> 32) ^ 1u << 31));
    for (int64_t i = 0; i < n_keys; ++i) {
        if (next != bucket) {
            /* Sums of what lies before the bucket, of the bucket of one value with it. */
            const int known = next == own ? next + 1 : next;
            const int at = known ? hf_place_of(s, known - 1) : 0;
            for (int64_t k = 0; k < s->n_present; ++k) left[k] = known ? s->count[k * size + at] : 0;
            left_square = known ? s->left_square[at] : 0;
            left_weight = known ? s->left_weight[at] : 0;
            right_square = known ? s->right_square[at] : s->square;
            bucket = next;
        }
        if (bucket != own) {
            const uint32_t k = (uint32_t)key[i] >> 16, w = (uint32_t)key[i] & 0xffff, had = left[k];
            left_square += w * (2 * had + w);
            right_square -= w * (2 * (s->total[k] - had) - w);
            left[k] = had + w;
            left_weight += w;
        }
        if (i + 1 < n_keys) {
            if (key[i] >> 32 == key[i + 1] >> 32) continue;
            next = hf_bucket_of_code(s, (int32_t)((uint32_t)(key[i + 1] >> 32) ^ 1u << 31));
        }
        if (left_weight == s->all) continue;
        const double score =
            (double)left_square / (double)left_weight + (double)right_square / (double)(s->all - left_weight);
        if (!(score > *best)) continue;
        *best = score;
        *low = (int32_t)((uint32_t)(key[i] >> 32) ^ 1u << 31);
        found = 1;
    }
    return found;
}

/* As hf_score_pairwise; -1 if no buckets divide the values. */
static int hf_score_buckets(hf_values *s, hf_workspace *r, const int32_t *code, double *best, int32_t *low) {
    const int divided = hf_divide(s, code);
    if (divided <= 0) return divided;
    HF_TAKE(s->exact ? HF_BY_HISTOGRAM_OF_VALUES : HF_BY_BOUNDS);
    const int size = 1 << (s->log_steps + s->bodies->log_lanes);
    s->bodies->fill_buckets(s, code, s->n, r->bucket);
    memset(s->count, 0, s->n_present * size * sizeof *s->count);
    hf_count_buckets_of(r->bucket, r->slot, s->n, size, s->count);
    s->bodies->sum_buckets(s);
    const float most = s->bodies->rate_values(size, s);
    float limit = *best > most ? (float)*best : most;
    limit *= HF_ROUNDED;
    if (!s->exact) {
        /* In the bucket of one value there is one split, behind it. */
        const int own = hf_place_of(s, hf_bucket_of_code(s, s->usual));
        int any = 0;
        s->bodies->find_alive(s, limit);
        s->alive[own] = s->rate.value[own] > 0 && s->rate.value[own] >= limit;
        for (int i = 0; i < size; ++i) any |= s->alive[i];
        if (!any) return 0;
        return hf_scan_alive(s, r, code, best, low);
    }
    int found = 0;
    for (int c = 0; c < size; ++c) {
        const int i = hf_place_of(s, c);
        if (!(s->rate.value[i] >= limit && s->rate.value[i] > 0)) continue;
        const double score = hf_score_at(s, i);
        if (!(score > *best)) continue;
        *best = score;
        *low = s->lowest + c;
        found = 1;
    }
    return found;
}

/* Takes the best split of the values in r->projected where it is better than `best`; 0 if no buckets divide them. */
static int hf_score_values(const hf_task *t, hf_workspace *r, hf_values *s, hf_cut *best) {
    const int32_t *code = r->projected;
    if (!t->whole) {
        const float *value = r->projected;
        for (int64_t i = 0; i < s->n; ++i) {
            union {
                float value;
                int32_t bits;
            } a = {value[i] + 0.0f};
            r->code[i] = a.bits ^ (a.bits >> 31 & 0x7fffffff);
        }
        code = r->code;
    }
    int32_t low = 0;
    double score = best->score > 0 ? best->score : 0;
    const int found = s->n <= HF_VALUES_PAIRWISE ? hf_score_pairwise(s, code, &score, &low)
                                                 : hf_score_buckets(s, r, code, &score, &low);
    if (found <= 0) return found == 0;
    best->score = score;
    best->below = t->whole ? (double)low : (double)hf_real_of(s, low);
    const int32_t high = hf_next_value(code, s->n, low);
    best->above = t->whole ? (double)high : (double)hf_real_of(s, high);
    return 1;
}
#endif

#endif
