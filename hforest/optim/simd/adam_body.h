/* Adam over vectors of elements. simd/adam.h includes this once per dtype and width, and defines

   BODIES            name of the table of functions at the end
   STEP, PASS        names of the functions
   REAL, BITS        an element, and the integer of its size
   BYTES             size of a vector
   CODE              the instruction set for the compiler
   ROOT(a)           the square roots of a vector
   PART(from, n)     the first n < LANES elements from an address, then zeros
   SET(to, a, n)     writes the first n < LANES elements of a
   LEAST, LARGEST    the smallest normal and the largest number

   Every operation is one rounding in REAL, in the order of adam_step.pxd, so all paths are bit-identical. Elements
   after the last whole vector are processed in a vector filled up with zeros. Their accesses are masked: a loop over
   lanes goes through memory, and costs more than the step of a short row. */

#define LANES ((ptrdiff_t)(BYTES / sizeof(REAL)))
#define ALL(a) ((REAL)(a) - (VEC){0})
#define FLUSH(a) ((VEC)((MASK)(a) & ~((MASK)((a) < ALL(LEAST)) & (MASK)((a) > ALL(-LEAST)))))
/* Read and write the first `count` lanes. */
#define READ(a, from)                              \
    if (count == LANES) memcpy(&(a), from, BYTES); \
    else (a) = (VEC)PART(from, count)
#define WRITE(a, to)                             \
    if (count == LANES) memcpy(to, &(a), BYTES); \
    else SET(to, a, count)

CODE static void STEP(void *param_, const void *grad_, void *m_, void *v_, ptrdiff_t n, const hf_adam *a) {
    HF_COUNT("optim", __func__);
    const REAL *g = grad_;
    REAL *p = param_, *m = m_, *v = v_;
    typedef REAL VEC __attribute__((vector_size(BYTES)));
    typedef BITS MASK __attribute__((vector_size(BYTES)));
    const VEC beta1 = ALL(a->beta1), rest1 = ALL(1 - a->beta1), beta2 = ALL(a->beta2), rest2 = ALL(1 - a->beta2);
    const VEC rate = ALL(a->rate), scale = ALL(a->scale), eps = ALL(a->eps);
    const VEC shrink = ALL(a->shrink);
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        const ptrdiff_t count = n - i < LANES ? n - i : LANES;
        VEC param, slope, first, second;
        READ(param, p + i);
        READ(slope, g + i);
        READ(first, m + i);
        READ(second, v + i);
        first = beta1 * first + rest1 * slope;
        second = beta2 * second + rest2 * (slope * slope);
        param = shrink * param - rate * first / (ROOT(second) * scale + eps);
        first = FLUSH(first), second = FLUSH(second);
        WRITE(param, p + i);
        WRITE(first, m + i);
        WRITE(second, v + i);
    }
}

CODE static void PASS(
    void *param_, void *m_, void *v_, ptrdiff_t n, int64_t start, int64_t stop, const hf_adam *a
) {
    HF_COUNT("optim", __func__);
    REAL *p = param_, *m = m_, *v = v_;
    typedef REAL VEC __attribute__((vector_size(BYTES)));
    typedef BITS MASK __attribute__((vector_size(BYTES)));
    const VEC eps = ALL(a->eps), lr = ALL(a->lr), one = ALL(1), largest = ALL(LARGEST);
    const int single = sizeof(REAL) == sizeof(float);
    const double m_factor = hf_decay(a, 0, stop - start), v_factor = hf_decay(a, 1, stop - start);
    const double root_factor = hf_decay(a, 2, stop - start), root_beta2 = sqrt(a->beta2);
    const int64_t middle = hf_middle(a, start, stop);
    const double shrunk = hf_decay(a, 3, stop - start), later = hf_decay(a, 3, stop - middle);
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        const ptrdiff_t count = n - i < LANES ? n - i : LANES;
        VEC first, second, param, motion = {0};
        READ(first, m + i);
        READ(second, v + i);
        const MASK moves = (MASK)(first != motion);
        BITS any = 0;
        for (int l = 0; l < LANES; ++l) any |= moves[l];
        if (any) {
            const VEC root = ROOT(second);
            double decay = 1, root_decay = 1;
            int64_t s = start;
            while (s < middle) {
                const double *row = hf_row(a, ++s);
                decay *= a->beta1;
                root_decay *= root_beta2;
                const REAL share = (REAL)(decay * row[0]);
                if (share == 0 || decay < DBL_MIN) {
                    --s;
                    break;
                }
                motion = ALL(a->shrink) * motion + ALL(share) * first / (ALL(root_decay * row[1]) * root + eps);
            }
            motion = ALL(hf_decay(a, 3, stop - s)) * motion;
            for (int last = 0; last < 2 && middle < stop; ++last) {
                const double *row = hf_row(a, last ? stop : middle);
                const ptrdiff_t top = hf_top(a, last ? stop : middle, single);
                const VEC h = ALL(row[HF_CENTRE] * (last ? root_factor : root_decay)) * root;
                const VEC inverse = one / (h + eps);
                const MASK finite = (MASK)(h < largest);
                const VEC z = (VEC)(((MASK)h & finite) | ((MASK)largest & ~finite)) * inverse, x = (z + z) - one;
                VEC total = ALL(row[top]);
                for (ptrdiff_t j = top - 1; j > HF_CENTRE; --j) total = total * x + ALL(row[j]);
                motion += ALL(last ? -m_factor : decay * later) * first * inverse * total;
            }
            READ(param, p + i);
            param = ALL(shrunk) * param - lr * motion;
            first = FLUSH(first * ALL(m_factor));
            WRITE(param, p + i);
            WRITE(first, m + i);
        } else if (shrunk != 1) {
            READ(param, p + i);
            param = ALL(shrunk) * param;
            WRITE(param, p + i);
        }
        second = FLUSH(second * ALL(v_factor));
        WRITE(second, v + i);
    }
}

static const hf_adam_bodies BODIES = {STEP, PASS};

#undef LANES
#undef ALL
#undef FLUSH
#undef READ
#undef WRITE
#undef BODIES
#undef STEP
#undef PASS
#undef BYTES
#undef CODE
#undef ROOT
#undef PART
#undef SET
