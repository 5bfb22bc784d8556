/* Included once per vector width, with HF_BYTES, HF_W(name) and the compiler's target set: the sums of all splits of
   several candidates, with one split after the bin of each sample.

   A vector of HF_BYTES bytes holds bins. n samples of `per` candidates are interleaved: number i * per + c is sample i
   of candidate c, so that a vector has the splits after HF_BYTES / per samples:

       per = 4, HF_BYTES = 16     | s0c0 s0c1 s0c2 s0c3 | s1c0 s1c1 s1c2 s1c3 | s2c0 ... | s3c0 ... s3c3 |

   Each sample adds its weight to the lanes of its candidate whose bin is not below its own. Samples are ordered by
   class; the sum that a class adds to a lane is squared once, in 16 bits: the weights of a node sum to less than 256.
   */

/* Returns the `per` bins at `bin`, repeated. */
HF_W_CODE HF_INLINE HF_W(hf_u8) HF_W(hf_repeat)(int per, const uint8_t *bin) {
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    if (per == 1) return (HF_W(hf_u8)){0} + *bin;
    if (per == 2) return memcpy(&two, bin, 2), (HF_W(hf_u8))((HF_W(hf_u16)){0} + two);
    if (per == 4) return memcpy(&four, bin, 4), (HF_W(hf_u8))((HF_W(hf_u32)){0} + four);
    return memcpy(&eight, bin, 8), (HF_W(hf_u8))((HF_W(hf_u64)){0} + eight);
}

/* Writes the sums of the splits after the numbers from `at` on, for n_vectors vectors. */
HF_W_CODE HF_INLINE void HF_W(hf_add_pairs)(int per, int n_vectors, hf_pairwise *p, int64_t at) {
    HF_W(hf_u8) split[2], left[2], before[2];
    HF_W(hf_u16) square[2][2], product[2][2];
    for (int v = 0; v < n_vectors; ++v) {
        memcpy(&split[v], p->bin + at + v * HF_BYTES, HF_BYTES);
        left[v] = (HF_W(hf_u8)){0};
        for (int h = 0; h < 2; ++h) square[v][h] = product[v][h] = (HF_W(hf_u16)){0};
    }
    for (int64_t k = 0, j = 0; k < p->n_present; ++k) {
        for (int v = 0; v < n_vectors; ++v) before[v] = left[v];
        for (; j < p->last[k]; ++j) {
            const HF_W(hf_u8) bin = HF_W(hf_repeat)(per, p->bin + j * per);
            for (int v = 0; v < n_vectors; ++v) left[v] += (HF_W(hf_u8))(split[v] >= bin) & p->weight[j];
        }
        for (int v = 0; v < n_vectors; ++v) {
            const HF_W(hf_u16) added = (HF_W(hf_u16))(left[v] - before[v]);
            const HF_W(hf_u16) half[2] = {added & 0xff, added >> 8}; /* even lanes, odd lanes */
            for (int h = 0; h < 2; ++h) {
                square[v][h] += half[h] * half[h];
                product[v][h] += half[h] * (uint16_t)p->total[k];
            }
        }
    }
    for (int v = 0; v < n_vectors; ++v) {
        memcpy(p->left_weight + at + v * HF_BYTES, &left[v], HF_BYTES);
        for (int h = 0; h < 2; ++h) {
            /* (T - l)**2 = T**2 - 2 T l + l**2 */
            const HF_W(hf_u16) right = (uint16_t)p->square - 2 * product[v][h] + square[v][h];
            memcpy(p->left_square[h] + (at + v * HF_BYTES) / 2, &square[v][h], HF_BYTES);
            memcpy(p->right_square[h] + (at + v * HF_BYTES) / 2, &right, HF_BYTES);
        }
    }
}

/* Writes the sums of all splits of `per` candidates. */
HF_W_CODE static void HF_W(hf_sum_pairs)(int per, hf_pairwise *p) {
    HF_COUNT("growth", __func__);
    const int64_t size = p->n * per;
    int64_t at = 0;
#define HF_ADD(PER)                                                                              \
    do {                                                                                         \
        for (; at + HF_BYTES < size; at += 2 * HF_BYTES) HF_W(hf_add_pairs)(PER, 2, p, at);      \
        for (; at < size; at += HF_BYTES) HF_W(hf_add_pairs)(PER, 1, p, at);                     \
    } while (0)
    if (per == 1) HF_ADD(1);
    else if (per == 2) HF_ADD(2);
    else if (per == 4) HF_ADD(4);
    else HF_ADD(8);
#undef HF_ADD
}

/* Writes the rates of all splits: the score in float32, or 0 if nothing is on the right, as after the last number.
   Returns the largest. */
HF_W_CODE static float HF_W(hf_rate_pairs)(int per, hf_pairwise *p) {
    HF_COUNT("growth", __func__);
    HF_W(hf_i32) most = {0};
    for (int64_t i = 0; 2 * i < p->n * per; i += HF_W(HF_LANES)) {
        HF_W(hf_half) both, left, right;
        memcpy(&both, p->left_weight + 2 * i, sizeof both);
        const HF_W(hf_half) weights[2] = {both & 0xff, both >> 8}; /* even numbers, odd numbers */
        for (int h = 0; h < 2; ++h) {
            memcpy(&left, p->left_square[h] + i, sizeof left);
            memcpy(&right, p->right_square[h] + i, sizeof right);
            const HF_W(hf_u32) weight = __builtin_convertvector(weights[h], HF_W(hf_u32));
            const HF_W(hf_i32) rate = HF_W(hf_rates_of)(
                weight, p->all - weight, __builtin_convertvector(left, HF_W(hf_u32)),
                __builtin_convertvector(right, HF_W(hf_u32))
            );
            most = HF_W(hf_larger)(rate, most);
            memcpy(p->rate[h].bits + i, &rate, HF_BYTES);
        }
    }
    return HF_W(hf_most)(most);
}

/* Writes the sums of the splits after each of n samples, which are ordered by class. */
HF_W_CODE static void HF_W(hf_sum_values)(hf_value_pairs *s) {
    HF_COUNT("growth", __func__);
    for (int64_t at = 0; at < s->n; at += 2 * HF_W(HF_LANES)) {
        HF_W(hf_i32) split[2];
        HF_W(hf_u32) left[2], square[2], product[2];
        for (int v = 0; v < 2; ++v) {
            memcpy(&split[v], s->bin + at + v * HF_W(HF_LANES), HF_BYTES);
            left[v] = square[v] = product[v] = (HF_W(hf_u32)){0};
        }
        for (int64_t k = 0, j = 0; k < s->n_present; ++k) {
            HF_W(hf_u32) before[2] = {left[0], left[1]};
            for (; j < s->last[k]; ++j)
                for (int v = 0; v < 2; ++v) left[v] += (HF_W(hf_u32))(split[v] >= s->bin[j]) & s->weight[j];
            for (int v = 0; v < 2; ++v) {
                const HF_W(hf_u32) added = left[v] - before[v];
                square[v] += added * added;
                product[v] += added * s->total[k];
            }
        }
        for (int v = 0; v < 2; ++v)
            HF_W(hf_put_sums)(&s->splits, (int)at + v * HF_W(HF_LANES), left[v], square[v], product[v]);
    }
}
