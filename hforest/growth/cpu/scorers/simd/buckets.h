/* Included once per vector width: sums and bounds of one candidate's splits, from weights by class and bucket. The
   compiler vectorises the scalar loops. */

/* Writes the least and the greatest of n bins. */
HF_W_CODE static void HF_W(hf_find_range)(const int32_t *bin, int64_t n, int32_t *range) {
    HF_COUNT("growth", __func__);
    int32_t least = bin[0], greatest = bin[0];
    for (int64_t i = 1; i < n; ++i) {
        least = bin[i] < least ? bin[i] : least;
        greatest = bin[i] > greatest ? bin[i] : greatest;
    }
    range[0] = least, range[1] = greatest;
}

/* Writes the places of the buckets of n bins. */
HF_W_CODE static void HF_W(hf_fill_buckets)(
    const hf_buckets *s, const int32_t *restrict bin, int64_t n, uint8_t *restrict bucket
) {
    HF_COUNT("growth", __func__);
    const int whole = s->whole;
    const float least = s->least, scale = s->scale;
    const int32_t usual = s->usual, has_usual = !s->exact;
    const int log_steps = s->log_steps, mask = (1 << log_steps) - 1;
    for (int64_t i = 0; i < n; ++i) {
        const int32_t v = bin[i];
        int32_t c;
        if (whole) {
            c = (int32_t)(((float)v - least) * scale);
        } else {
            union {
                int32_t bits;
                float value;
            } a = {v ^ (v >> 31 & 0x7fffffff)};
            c = (int32_t)((a.value - least) * scale);
        }
        c += has_usual & (v >= usual);
        c += has_usual & (v > usual);
        bucket[i] = (uint8_t)((c & mask) * HF_W(HF_LANES) + (c >> log_steps));
    }
}

/* Computes the counts of the bucket at s->usual_place, replaces s->count by running sums over the buckets of each
   class, and writes the sums of the splits after each bucket and the two largest weights of a class in each bucket. */
HF_W_CODE static void HF_W(hf_sum_buckets)(hf_buckets *s) {
    HF_COUNT("growth", __func__);
    const int size = HF_W(HF_LANES) << s->log_steps;
    const HF_W(hf_i32) lane = {HF_LANE_NUMBERS};
    const HF_W(hf_u32) after_usual = (HF_W(hf_u32))(lane > s->usual_place % HF_W(HF_LANES));
    HF_W(hf_u32) left[HF_HISTOGRAM_CLASSES];
    for (int64_t k = 0; k < s->n_present; ++k) {
        HF_W(hf_u32) sum = {0}, a;
        for (int i = 0; i < size; i += HF_W(HF_LANES)) {
            memcpy(&a, s->count + k * size + i, HF_BYTES);
            sum += a;
        }
        left[k] = HF_W(hf_below)(sum);
        const uint32_t here = s->total[k] - left[k][HF_W(HF_LANES) - 1] - sum[HF_W(HF_LANES) - 1];
        s->count[k * size + s->usual_place] = here;
        left[k] += here & after_usual;
    }
    for (int i = 0; i < size; i += HF_W(HF_LANES)) {
        HF_W(hf_u32) weight = {0}, left_square = {0}, right_square = {0}, inside = {0}, second = {0}, a;
        for (int64_t k = 0; k < s->n_present; ++k) {
            uint32_t *count = s->count + k * size + i;
            memcpy(&a, count, HF_BYTES);
            const HF_W(hf_u32) sum = left[k] + a, right = s->total[k] - sum;
            left[k] = sum;
            memcpy(count, &sum, HF_BYTES);
            weight += sum;
            left_square += sum * sum;
            right_square += right * right;
            const HF_W(hf_u32) larger = (HF_W(hf_u32))((HF_W(hf_i32))a > (HF_W(hf_i32))inside);
            const HF_W(hf_u32) lesser = (a & ~larger) | (inside & larger);
            inside = (a & larger) | (inside & ~larger);
            const HF_W(hf_u32) above = (HF_W(hf_u32))((HF_W(hf_i32))lesser > (HF_W(hf_i32))second);
            second = (lesser & above) | (second & ~above);
        }
        memcpy(s->splits.left_weight + i, &weight, HF_BYTES);
        memcpy(s->splits.left_square + i, &left_square, HF_BYTES);
        memcpy(s->splits.right_square + i, &right_square, HF_BYTES);
        memcpy(s->inside + i, &inside, HF_BYTES);
        memcpy(s->second + i, &second, HF_BYTES);
    }
}

/* Returns the running sums before the buckets from i on. */
HF_W_CODE HF_INLINE HF_W(hf_u32) HF_W(hf_before)(const uint32_t *sum, int i, int size) {
    HF_W(hf_u32) a;
    memcpy(&a, sum + (i ? i : size) - HF_W(HF_LANES), HF_BYTES);
    return i ? a : HF_W(hf_up)(a, 1);
}

/* Returns a in lanes where `some` is all ones, else b. */
HF_W_CODE HF_INLINE HF_W(hf_f32) HF_W(hf_where)(HF_W(hf_i32) some, HF_W(hf_f32) a, HF_W(hf_f32) b) {
    return (HF_W(hf_f32))(((HF_W(hf_i32))a & some) | ((HF_W(hf_i32))b & ~some));
}

/* Applies the second bound of bounds.pyx to a vector of buckets from i on: returns those in which a split may score
   `limit` or more.

   apart   IN  g(L) + g(R), without the bucket */
HF_W_CODE HF_INLINE HF_W(hf_i32) HF_W(hf_bounded)(
    const hf_buckets *s, int i, int size, HF_W(hf_u32) weight, HF_W(hf_u32) before, HF_W(hf_f32) apart, float limit
) {
    const HF_W(hf_f32) zero = {0}, one = zero + 1.0f;
    HF_W(hf_u32) inside, right_square;
    memcpy(&inside, s->inside + i, HF_BYTES);
    memcpy(&right_square, s->splits.right_square + i, HF_BYTES);
    const HF_W(hf_i32) some_left = before != 0, some_right = weight != s->splits.all;
    const HF_W(hf_f32) l = HF_W(hf_real)(before), r = HF_W(hf_real)(s->splits.all - weight);
    const HF_W(hf_f32) b = HF_W(hf_real)(weight - before), largest = HF_W(hf_real)(inside);
    const HF_W(hf_f32) l_over = one / l, r_over = one / r;
    const HF_W(hf_f32) left = HF_W(hf_real)(HF_W(hf_before)(s->splits.left_square, i, size)) * l_over;
    const HF_W(hf_f32) left_share = HF_W(hf_where)(some_left, left * l_over, -one);
    const HF_W(hf_f32) right_share = HF_W(hf_where)(some_right, HF_W(hf_real)(right_square) * r_over * r_over, -one);
    const HF_W(hf_f32) left_twice = HF_W(hf_where)(some_left, l_over + l_over, zero);
    const HF_W(hf_f32) right_twice = HF_W(hf_where)(some_right, r_over + r_over, zero);
    const HF_W(hf_f32) bend = HF_W(hf_where)(some_left, b * (largest + b * left_share) / (l + b), zero) +
                              HF_W(hf_where)(some_right, b * (largest + b * right_share) / (r + b), zero);
    HF_W(hf_f32) gain = b * 1e-5f; /* covers rounding of the sum, which is proportional to the bucket's weight */
    for (int64_t k = 0; k < s->n_present; ++k) {
        const uint32_t *count = s->count + k * size;
        HF_W(hf_u32) sum;
        memcpy(&sum, count + i, HF_BYTES);
        const HF_W(hf_u32) below = HF_W(hf_before)(count, i, size);
        const HF_W(hf_f32) to_left = HF_W(hf_real)(below) * left_twice - left_share;
        const HF_W(hf_f32) to_right = HF_W(hf_real)(s->total[k] - sum) * right_twice - right_share;
        gain += HF_W(hf_real)(sum - below) * HF_W(hf_where)(to_left > to_right, to_left, to_right);
    }
    return apart + gain + bend >= limit;
}

/* Marks in s->alive the buckets in which a split may score `limit` or more; bounds.pyx derives the bounds. */
HF_W_CODE static void HF_W(hf_find_alive)(hf_buckets *s, float limit) {
    HF_COUNT("growth", __func__);
    const int size = HF_W(HF_LANES) << s->log_steps;
    const HF_W(hf_f32) zero = {0};
    for (int i = 0; i < size; i += HF_W(HF_LANES)) {
        HF_W(hf_u32) weight, right_square, inside, second;
        memcpy(&weight, s->splits.left_weight + i, HF_BYTES);
        memcpy(&right_square, s->splits.right_square + i, HF_BYTES);
        memcpy(&inside, s->inside + i, HF_BYTES);
        memcpy(&second, s->second + i, HF_BYTES);
        const HF_W(hf_u32) before = HF_W(hf_before)(s->splits.left_weight, i, size), right = s->splits.all - weight;
        const HF_W(hf_u32) left_square = HF_W(hf_before)(s->splits.left_square, i, size);
        const HF_W(hf_f32) apart =
            HF_W(hf_where)(before != 0, HF_W(hf_real)(left_square) / HF_W(hf_real)(before), zero) +
            HF_W(hf_where)(right != 0, HF_W(hf_real)(right_square) / HF_W(hf_real)(right), zero);
        HF_W(hf_i32) alive = (weight != before) & (apart + HF_W(hf_real)(inside + second) >= limit);
        int any = 0;
        for (int l = 0; l < HF_W(HF_LANES); ++l) any |= alive[l];
        if (any) alive &= HF_W(hf_bounded)(s, i, size, weight, before, apart, limit);
        alive &= 1;
        memcpy(s->alive + i, &alive, HF_BYTES);
    }
}
