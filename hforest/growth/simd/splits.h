/* Included once a vector width: types of vectors, and what all histograms share. */

typedef uint8_t HF_W(hf_u8) __attribute__((vector_size(HF_BYTES)));
typedef uint16_t HF_W(hf_u16) __attribute__((vector_size(HF_BYTES)));
typedef uint32_t HF_W(hf_u32) __attribute__((vector_size(HF_BYTES)));
typedef uint64_t HF_W(hf_u64) __attribute__((vector_size(HF_BYTES)));
typedef int32_t HF_W(hf_i32) __attribute__((vector_size(HF_BYTES)));
typedef uint16_t HF_W(hf_half) __attribute__((vector_size(HF_BYTES / 2)));

enum { HF_W(HF_LANES) = HF_BYTES / 4 };

/* Returns for each lane the sum over the lanes below it. */
HF_W_CODE HF_INLINE HF_W(hf_u32) HF_W(hf_below)(HF_W(hf_u32) a) {
    HF_W(hf_u32) sum;
    uint32_t total = 0;
    for (int l = 0; l < HF_W(HF_LANES); ++l) {
        sum[l] = total;
        total += a[l];
    }
    return sum;
}

/* Writes the sums of the splits at places `at` to at + HF_LANES - 1. With l the weight of a class on the left and T
   its total, (T - l)**2 = T**2 - 2 T l + l**2.

   weight   IN  sums of l over the classes; square: of l**2; product: of T l */
HF_W_CODE HF_INLINE void HF_W(hf_put_sums)(
    hf_splits *s, int at, HF_W(hf_u32) weight, HF_W(hf_u32) square, HF_W(hf_u32) product
) {
    const HF_W(hf_u32) right = s->square - 2 * product + square;
    memcpy(s->left_weight + at, &weight, HF_BYTES);
    memcpy(s->left_square + at, &square, HF_BYTES);
    memcpy(s->right_square + at, &right, HF_BYTES);
}

/* Writes the rates of n splits, 0 where a side is empty. Returns the largest. */
HF_W_CODE static float HF_W(hf_rate)(int n, hf_splits *s) {
    HF_COUNT("growth", __func__);
    for (int i = 0; i < n; ++i) {
        const int32_t left_weight = (int32_t)s->left_weight[i], right_weight = (int32_t)s->all - left_weight;
        const float rate = (float)(int32_t)s->left_square[i] / (float)left_weight +
                           (float)(int32_t)s->right_square[i] / (float)right_weight;
        s->rate.value[i] = left_weight && right_weight ? rate : 0.0f;
    }
    /* Floats that are not negative have the order of their bits. */
    union {
        int32_t bits;
        float value;
    } most = {0};
    for (int i = 0; i < n; ++i) most.bits = s->rate.bits[i] > most.bits ? s->rate.bits[i] : most.bits;
    return most.value;
}
