/* Included by task.h once a width of keys whose payload is a class above a whole weight: the best cut by Gini in
   O(1) a sample, all sums integers, so that no bit depends on the order of equal codes. */

static void HF(hf_sweep)(
    const HF_KEY *key, int64_t n, const uint32_t *total, uint32_t *left, int64_t n_classes, uint64_t total_weight,
    int64_t min_leaf, hf_cut *best
) {
    const int half = HF_CODE_SHIFT / 2;
    const HF_KEY low_half = ((HF_KEY)1 << half) - 1;
    uint64_t left_square = 0, right_square = 0, left_weight = 0;
    for (int64_t k = 0; k < n_classes; ++k) {
        left[k] = 0;
        right_square += (uint64_t)total[k] * total[k];
    }
    for (int64_t i = 0; i + 1 < n; ++i) {
        const uint32_t y = (uint32_t)(key[i] >> half & low_half);
        const uint64_t w = key[i] & low_half, before = left[y];
        left_square += w * (2 * before + w);
        right_square -= w * (2 * (total[y] - before) - w);
        left[y] = (uint32_t)(before + w);
        left_weight += w;
        const uint32_t low = (uint32_t)(key[i] >> HF_CODE_SHIFT), high = (uint32_t)(key[i + 1] >> HF_CODE_SHIFT);
        if (low == high || i + 1 < min_leaf || n - i - 1 < min_leaf) continue;
        const double score = (double)left_square / (double)left_weight +
                             (double)right_square / (double)(total_weight - left_weight);
        if (score > best->score) {
            best->score = score;
            best->low = low;
            best->high = high;
        }
    }
}
