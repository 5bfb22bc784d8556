/* Included once per vector width, as is simd/pairwise.h: sums of the splits after all bins.

   A vector has HF_BYTES / 4 lanes of 32 bits. Lane l of vector s is bin l * n_steps + s, so that the sum over lower
   bins is a sum over earlier vectors and over lower lanes:

       4 lanes, 16 bins, n_steps = 4     vector 0 | 0  4  8 12 |
                                         vector 1 | 1  5  9 13 |
                                         vector 2 | 2  6 10 14 |
                                         vector 3 | 3  7 11 15 |  */

/* Writes the sums of all splits of a candidate, whose weights are in h->count. */
HF_W_CODE static void HF_W(hf_sum_bins)(hf_histogram *h) {
    HF_COUNT("growth", __func__);
    HF_W(hf_u32) left[HF_HISTOGRAM_CLASSES];
    const int n_steps = h->n_steps;
    for (int64_t k = 0; k < h->n_present; ++k) {
        HF_W(hf_u32) sum = {0};
        for (int s = 0; s < n_steps; ++s) {
            HF_W(hf_half) some;
            memcpy(&some, h->count + (k * n_steps + s) * HF_W(HF_LANES), sizeof some);
            sum += __builtin_convertvector(some, HF_W(hf_u32));
        }
        left[k] = HF_W(hf_below)(sum);
    }
    for (int s = 0; s < n_steps; ++s) {
        HF_W(hf_u32) square = {0}, product = {0}, weight = {0};
        for (int64_t k = 0; k < h->n_present; ++k) {
            HF_W(hf_half) some;
            memcpy(&some, h->count + (k * n_steps + s) * HF_W(HF_LANES), sizeof some);
            const HF_W(hf_u32) l = left[k] + __builtin_convertvector(some, HF_W(hf_u32));
            left[k] = l;
            weight += l;
            square += l * l;
            product += l * h->total[k];
        }
        HF_W(hf_put_sums)(&h->splits, s * HF_W(HF_LANES), weight, square, product);
    }
}
