/* Included once a vector width: sums and bounds of one candidate's splits, from weights counted by bucket. What is no
   loop over vectors the compiler vectorises. */

/* Writes the buckets' places of n values. */
HF_W_CODE static void HF_W(hf_fill_buckets)(const hf_buckets *s, const int32_t *code, int64_t n, uint8_t *bucket) {
    HF_COUNT("growth", __func__);
    const float least = s->least, scale = s->scale;
    const int32_t usual = s->usual, own = !s->exact;
    const int log_steps = s->log_steps, mask = (1 << log_steps) - 1;
    for (int64_t i = 0; i < n; ++i) {
        const int32_t v = code[i];
        int32_t c;
        if (s->whole) {
            c = (int32_t)(((float)v - least) * scale);
        } else {
            union {
                int32_t bits;
                float value;
            } a = {v ^ (v >> 31 & 0x7fffffff)};
            c = (int32_t)((a.value - least) * scale);
        }
        c += own & (v >= usual);
        c += own & (v > usual);
        bucket[i] = (uint8_t)((c & mask) * HF_W(HF_LANES) + (c >> log_steps));
    }
}

/* Sums over the buckets up to each, in s->count by class, and of the splits after them; the largest weights of a
   class in a bucket. */
HF_W_CODE static void HF_W(hf_sum_buckets)(hf_buckets *s) {
    HF_COUNT("growth", __func__);
    const int n_steps = 1 << s->log_steps, size = n_steps * HF_W(HF_LANES);
    for (int i = 0; i < size; ++i)
        s->splits.left_weight[i] = s->splits.left_square[i] = s->splits.right_square[i] = s->inside[i] = s->second[i] = 0;
    for (int64_t k = 0; k < s->n_present; ++k) {
        uint32_t *count = s->count + k * size;
        const uint32_t total = s->total[k];
        HF_W(hf_u32) sum = {0}, some;
        for (int i = 0; i < size; i += HF_W(HF_LANES)) {
            memcpy(&some, count + i, HF_BYTES);
            sum += some;
        }
        sum = HF_W(hf_below)(sum);
        for (int i = 0; i < size; i += HF_W(HF_LANES)) {
            HF_W(hf_u32) weight, left, right, inside, second, a;
            memcpy(&a, count + i, HF_BYTES);
            sum += a;
            memcpy(count + i, &sum, HF_BYTES);
            memcpy(&weight, s->splits.left_weight + i, HF_BYTES);
            memcpy(&left, s->splits.left_square + i, HF_BYTES);
            memcpy(&right, s->splits.right_square + i, HF_BYTES);
            memcpy(&inside, s->inside + i, HF_BYTES);
            memcpy(&second, s->second + i, HF_BYTES);
            const HF_W(hf_u32) rest = total - sum;
            weight += sum;
            left += sum * sum;
            right += rest * rest;
            const HF_W(hf_u32) larger = (HF_W(hf_u32))((HF_W(hf_i32))a > (HF_W(hf_i32))inside);
            const HF_W(hf_u32) lesser = (a & ~larger) | (inside & larger);
            inside = (a & larger) | (inside & ~larger);
            const HF_W(hf_u32) above = (HF_W(hf_u32))((HF_W(hf_i32))lesser > (HF_W(hf_i32))second);
            second = (lesser & above) | (second & ~above);
            memcpy(s->splits.left_weight + i, &weight, HF_BYTES);
            memcpy(s->splits.left_square + i, &left, HF_BYTES);
            memcpy(s->splits.right_square + i, &right, HF_BYTES);
            memcpy(s->inside + i, &inside, HF_BYTES);
            memcpy(s->second + i, &second, HF_BYTES);
        }
    }
}

/* What lies before each bucket: sums up to the bucket before it. */
HF_W_CODE HF_INLINE void HF_W(hf_shift)(const uint32_t *sum, int size, uint32_t *before) {
    before[0] = 0;
    for (int l = 1; l < HF_W(HF_LANES); ++l) before[l] = sum[size - HF_W(HF_LANES) + l - 1];
    memcpy(before + HF_W(HF_LANES), sum, (size - HF_W(HF_LANES)) * sizeof *sum);
}

/* Writes to s->alive in which buckets a split may score `limit` or more. The bounds are derived in bounds.pyx. */
HF_W_CODE static void HF_W(hf_find_alive)(hf_buckets *s, float limit) {
    HF_COUNT("growth", __func__);
    const int size = HF_W(HF_LANES) << s->log_steps;
    uint32_t weight_before[HF_BUCKETS], square_before[HF_BUCKETS], count_before[HF_BUCKETS];
    float apart[HF_BUCKETS], bend[HF_BUCKETS], gain[HF_BUCKETS];
    float left_twice[HF_BUCKETS], left_share[HF_BUCKETS], right_twice[HF_BUCKETS], right_share[HF_BUCKETS];
    HF_W(hf_shift)(s->splits.left_weight, size, weight_before);
    HF_W(hf_shift)(s->splits.left_square, size, square_before);
    for (int i = 0; i < size; ++i) {
        const int32_t l = (int32_t)weight_before[i], r = (int32_t)(s->splits.all - s->splits.left_weight[i]);
        const float left = (float)(int32_t)square_before[i] / (float)l, right = (float)(int32_t)s->splits.right_square[i] / (float)r;
        apart[i] = (l > 0 ? left : 0.0f) + (r > 0 ? right : 0.0f);
    }
    int any = 0;
    for (int i = 0; i < size; ++i) {
        const int some = s->splits.left_weight[i] != weight_before[i];
        s->alive[i] = some & (apart[i] + (float)(int32_t)(s->inside[i] + s->second[i]) >= limit);
        any |= s->alive[i];
    }
    if (!any) return;
    for (int i = 0; i < size; ++i) {
        const float b = (float)(int32_t)(s->splits.left_weight[i] - weight_before[i]), largest = (float)(int32_t)s->inside[i];
        const float l = (float)(int32_t)weight_before[i], r = (float)(int32_t)(s->splits.all - s->splits.left_weight[i]);
        const float l_over = 1 / l, r_over = 1 / r;
        const float left = (float)(int32_t)square_before[i] * l_over, right = (float)(int32_t)s->splits.right_square[i] * r_over;
        left_share[i] = l > 0 ? left * l_over : -1.0f;
        right_share[i] = r > 0 ? right * r_over : -1.0f;
        left_twice[i] = l > 0 ? 2 * l_over : 0.0f;
        right_twice[i] = r > 0 ? 2 * r_over : 0.0f;
        const float l_bend = b * (largest + b * left_share[i]) / (l + b);
        const float r_bend = b * (largest + b * right_share[i]) / (r + b);
        bend[i] = (l > 0 ? l_bend : 0.0f) + (r > 0 ? r_bend : 0.0f);
        gain[i] = b * 1e-5f; /* rounding of the sum is a share of the bucket's weight */
    }
    for (int64_t k = 0; k < s->n_present; ++k) {
        const uint32_t *count = s->count + k * size;
        HF_W(hf_shift)(count, size, count_before);
        for (int i = 0; i < size; ++i) {
            const float before = (float)(int32_t)count_before[i], after = (float)(int32_t)(s->total[k] - count[i]);
            const float to_left = before * left_twice[i] - left_share[i], to_right = after * right_twice[i] - right_share[i];
            const float here = (float)(int32_t)(count[i] - count_before[i]);
            gain[i] += here * (to_left > to_right ? to_left : to_right);
        }
    }
    for (int i = 0; i < size; ++i) s->alive[i] &= apart[i] + gain[i] + bend[i] >= limit;
}
