/* Included by task.h once a width of keys, with HF_KEY, HF_CODE_SHIFT and HF(name) set: a key is a code above
   a payload of HF_CODE_SHIFT bits, which sorting carries along. */

/* Keys of the candidate `code` at the given samples; the least and the greatest code. */
#define HF_GATHER(BITS)                                                                                     \
    static void HF(hf_gather_##BITS)(                                                                       \
        const uint##BITS##_t *code, const uint32_t *sample, const uint32_t *payload, int64_t n, HF_KEY *key, \
        uint32_t *lowest, uint32_t *highest                                                                 \
    ) {                                                                                                     \
        uint32_t low = code[sample[0]], high = low;                                                         \
        for (int64_t i = 0; i < n; ++i) {                                                                   \
            const uint32_t c = code[sample[i]];                                                             \
            low = c < low ? c : low;                                                                        \
            high = c > high ? c : high;                                                                     \
            key[i] = (HF_KEY)c << HF_CODE_SHIFT | payload[i];                                               \
        }                                                                                                   \
        *lowest = low;                                                                                      \
        *highest = high;                                                                                    \
    }
HF_GATHER(8)
HF_GATHER(16)
HF_GATHER(32)
#undef HF_GATHER

static void HF(hf_gather)(
    const void *codes, int width, int64_t at, const uint32_t *sample, const uint32_t *payload, int64_t n, HF_KEY *key,
    uint32_t *lowest, uint32_t *highest
) {
    if (width == 1) HF(hf_gather_8)((const uint8_t *)codes + at, sample, payload, n, key, lowest, highest);
    else if (width == 2) HF(hf_gather_16)((const uint16_t *)codes + at, sample, payload, n, key, lowest, highest);
    else HF(hf_gather_32)((const uint32_t *)codes + at, sample, payload, n, key, lowest, highest);
}

/* Sorts by code, stably, and returns where the result lies: in `key` or in `scratch`. */
static HF_KEY *HF(hf_sort_codes)(HF_KEY *key, HF_KEY *scratch, int64_t n, uint32_t lowest, uint32_t highest) {
    if (n <= HF_FEW) {
        for (int64_t i = 1; i < n; ++i) {
            const HF_KEY k = key[i];
            int64_t j = i;
            for (; j > 0 && key[j - 1] >> HF_CODE_SHIFT > k >> HF_CODE_SHIFT; --j) key[j] = key[j - 1];
            key[j] = k;
        }
        return key;
    }
    int64_t ordered = 1; /* keys in order so far: of a column that is sorted itself, all */
    while (ordered < n && key[ordered - 1] >> HF_CODE_SHIFT <= key[ordered] >> HF_CODE_SHIFT) ++ordered;
    if (ordered == n) return key;
    const int bits = 32 - __builtin_clz((highest - lowest) | 1);
    const int n_passes = (bits + HF_DIGIT - 1) / HF_DIGIT, digit = (bits + n_passes - 1) / n_passes;
    const uint32_t mask = (1u << digit) - 1;
    for (int pass = 0; pass < n_passes; ++pass) {
        uint32_t start[1 << HF_DIGIT], total = 0;
        const int shift = pass * digit;
        memset(start, 0, sizeof(uint32_t) << digit);
        for (int64_t i = 0; i < n; ++i) ++start[((uint32_t)(key[i] >> HF_CODE_SHIFT) - lowest) >> shift & mask];
        for (uint32_t d = 0; d <= mask; ++d) {
            const uint32_t count = start[d];
            start[d] = total;
            total += count;
        }
        for (int64_t i = 0; i < n; ++i)
            scratch[start[((uint32_t)(key[i] >> HF_CODE_SHIFT) - lowest) >> shift & mask]++] = key[i];
        HF_KEY *swap = key;
        key = scratch;
        scratch = swap;
    }
    return key;
}
