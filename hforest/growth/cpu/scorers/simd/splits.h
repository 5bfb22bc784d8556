/* Included once per vector width: vector types, and functions that all histograms share. */

typedef uint8_t HF_W(hf_u8) __attribute__((vector_size(HF_BYTES)));
typedef uint16_t HF_W(hf_u16) __attribute__((vector_size(HF_BYTES)));
typedef uint32_t HF_W(hf_u32) __attribute__((vector_size(HF_BYTES)));
typedef uint64_t HF_W(hf_u64) __attribute__((vector_size(HF_BYTES)));
typedef int32_t HF_W(hf_i32) __attribute__((vector_size(HF_BYTES)));
typedef float HF_W(hf_f32) __attribute__((vector_size(HF_BYTES)));
typedef uint16_t HF_W(hf_half) __attribute__((vector_size(HF_BYTES / 2)));

enum { HF_W(HF_LANES) = HF_BYTES / 4 };

/* Returns a with all lanes moved up by `by` lanes, and zeros below. */
HF_W_CODE HF_INLINE HF_W(hf_u32) HF_W(hf_up)(HF_W(hf_u32) a, uint32_t by) {
#ifdef __clang__
    HF_W(hf_u32) up = {0};
    for (uint32_t l = by; l < HF_W(HF_LANES); ++l) up[l] = a[l - by];
    return up;
#else
    /* Lanes are numbered modulo 2 * HF_LANES: numbers below 0 select the second vector. */
    const HF_W(hf_u32) lane = {HF_LANE_NUMBERS};
    return __builtin_shuffle(a, (HF_W(hf_u32)){0}, lane - by);
#endif
}

/* Returns for each lane the sum over the lanes below it. */
HF_W_CODE HF_INLINE HF_W(hf_u32) HF_W(hf_below)(HF_W(hf_u32) a) {
    a = HF_W(hf_up)(a, 1);
    a += HF_W(hf_up)(a, 1);
    a += HF_W(hf_up)(a, 2);
#if HF_BYTES > 16
    a += HF_W(hf_up)(a, 4);
#endif
#if HF_BYTES > 32
    a += HF_W(hf_up)(a, 8);
#endif
    return a;
}

/* Returns integers below 2**31 as floats. */
HF_W_CODE HF_INLINE HF_W(hf_f32) HF_W(hf_real)(HF_W(hf_u32) a) {
    return __builtin_convertvector((HF_W(hf_i32))a, HF_W(hf_f32));
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

/* Returns the bits of the rates left / weight + right / right_weight, by one division; 0 if a side is empty.
   Nonnegative floats have the order of their bits. */
HF_W_CODE HF_INLINE HF_W(hf_i32) HF_W(hf_rates_of)(
    HF_W(hf_u32) weight, HF_W(hf_u32) right_weight, HF_W(hf_u32) left, HF_W(hf_u32) right
) {
    const HF_W(hf_f32) l = HF_W(hf_real)(weight), r = HF_W(hf_real)(right_weight);
    const HF_W(hf_f32) rate = (HF_W(hf_real)(left) * r + HF_W(hf_real)(right) * l) / (l * r);
    return (HF_W(hf_i32))rate & (weight != 0) & (right_weight != 0);
}

HF_W_CODE HF_INLINE HF_W(hf_i32) HF_W(hf_larger)(HF_W(hf_i32) a, HF_W(hf_i32) b) {
    const HF_W(hf_i32) more = a > b;
    return (a & more) | (b & ~more);
}

/* Returns the largest of the rates as a float. */
HF_W_CODE HF_INLINE float HF_W(hf_most)(HF_W(hf_i32) rates) {
    union {
        int32_t bits;
        float value;
    } most = {0};
    for (int l = 0; l < HF_W(HF_LANES); ++l) most.bits = rates[l] > most.bits ? rates[l] : most.bits;
    return most.value;
}

/* Writes the rates of n splits, 0 if a side is empty, and returns the largest. The elements after
   them, up to a whole vector, must be sums of splits too. */
HF_W_CODE static float HF_W(hf_rate)(int n, hf_splits *s) {
    HF_COUNT("growth", __func__);
    HF_W(hf_i32) most = {0};
    for (int i = 0; i < n; i += HF_W(HF_LANES)) {
        HF_W(hf_u32) weight, left, right;
        memcpy(&weight, s->left_weight + i, HF_BYTES);
        memcpy(&left, s->left_square + i, HF_BYTES);
        memcpy(&right, s->right_square + i, HF_BYTES);
        const HF_W(hf_i32) rate = HF_W(hf_rates_of)(weight, s->all - weight, left, right);
        most = HF_W(hf_larger)(rate, most);
        memcpy(s->rate.bits + i, &rate, HF_BYTES);
    }
    return HF_W(hf_most)(most);
}
