/* Adam over vectors of numbers; included by adam.h once for each path and dtype, which define

   NAME(f)                      this path's name of f
   REAL, VEC, MASK, LANES       element, vector, what says which lanes exist, lanes of a vector
   LANES_OF(n)                  mask of the first n lanes (n may exceed LANES)
   LOAD(k, p), STORE(k, p, a)   lanes of k; the others load 0 and are not stored
   SET1, ADD, SUB, MUL, DIV, ROOT, ANY(a), FLUSH(a)
                                FLUSH: 0 where a is subnormal; ANY: whether a lane is not 0

   Every operation is one rounding in REAL, in one order: all paths give the same bits. */

HF_CODE static void NAME(step)(REAL *p, const REAL *g, REAL *m, REAL *v, ptrdiff_t n, const hf_adam *a) {
    const VEC beta1 = SET1((REAL)a->beta1), rest1 = SET1((REAL)(1 - a->beta1));
    const VEC beta2 = SET1((REAL)a->beta2), rest2 = SET1((REAL)(1 - a->beta2));
    const VEC rate = SET1((REAL)a->rate), scale = SET1((REAL)a->scale), eps = SET1((REAL)a->eps);
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        const MASK k = LANES_OF(n - i);
        const VEC slope = LOAD(k, g + i);
        const VEC first = ADD(MUL(beta1, LOAD(k, m + i)), MUL(rest1, slope));
        const VEC second = ADD(MUL(beta2, LOAD(k, v + i)), MUL(rest2, MUL(slope, slope)));
        const VEC motion = DIV(MUL(rate, first), ADD(MUL(ROOT(second), scale), eps));
        STORE(k, p + i, SUB(LOAD(k, p + i), motion));
        STORE(k, m + i, FLUSH(first));
        STORE(k, v + i, FLUSH(second));
    }
}

/* R of tables.py for moments m_factor first and (root_factor root)**2, from the table's row of their step. */
HF_CODE HF_INLINE VEC NAME(rest)(
    VEC first, VEC root, double m_factor, double root_factor, const double *row, ptrdiff_t top, VEC eps) {
    const VEC h = MUL(SET1((REAL)(row[HF_CENTRE] * root_factor)), root);
    const VEC inverse = DIV(SET1((REAL)1), ADD(h, eps));
    /* Where the second moment is infinite, inverse is 0 and z is any finite number. */
    const VEC largest = SET1((REAL)(sizeof(REAL) == sizeof(float) ? FLT_MAX : DBL_MAX));
    const VEC z = MUL(MIN(h, largest), inverse), x = SUB(ADD(z, z), SET1((REAL)1));
    VEC total = SET1((REAL)row[top]);
    for (ptrdiff_t j = top - 1; j > HF_CENTRE; --j) total = ADD(MUL(total, x), SET1((REAL)row[j]));
    return MUL(MUL(MUL(SET1((REAL)m_factor), first), inverse), total);
}

/* Steps start + 1 to stop with zero gradient: one by one while the polynomials are not exact yet or the
   steps are few, the others at once. Of those one by one, the ones after the decay of m has underflowed to 0 are left
   out. */
HF_CODE static void NAME(pass)(
    REAL *p, REAL *m, REAL *v, ptrdiff_t n, int64_t start, int64_t stop, const hf_adam *a) {
    const VEC eps = SET1((REAL)a->eps), lr = SET1((REAL)a->lr);
    const int single = sizeof(REAL) == sizeof(float);
    const double m_factor = hf_decay(a, 0, stop - start), v_factor = hf_decay(a, 1, stop - start);
    const double root_beta2 = sqrt(a->beta2);
    int64_t middle = start > a->closed ? start : a->closed;
    if (stop - middle <= HF_FEW) middle = stop;
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        const MASK k = LANES_OF(n - i);
        const VEC first = LOAD(k, m + i), second = LOAD(k, v + i);
        if (ANY(first)) {
            const VEC root = ROOT(second);
            VEC motion = SET1((REAL)0);
            double decay = 1, root_decay = 1;
            for (int64_t s = start + 1; s <= middle; ++s) {
                const double *row = hf_row(a, s);
                decay *= a->beta1;
                root_decay *= root_beta2;
                const REAL share = (REAL)(decay * row[0]);
                /* This step and all later ones add 0. Subnormal products would round to themselves for ever. */
                if (share == 0 || decay < DBL_MIN) break;
                motion = ADD(motion, DIV(MUL(SET1(share), first),
                                         ADD(MUL(SET1((REAL)(root_decay * row[1])), root), eps)));
            }
            if (middle < stop) {
                motion = ADD(motion, NAME(rest)(first, root, decay, root_decay, hf_row(a, middle),
                                                hf_top(a, middle, single), eps));
                motion = ADD(motion, NAME(rest)(first, root, -m_factor, hf_decay(a, 2, stop - start),
                                                hf_row(a, stop), hf_top(a, stop, single), eps));
            }
            STORE(k, p + i, SUB(LOAD(k, p + i), MUL(lr, motion)));
            STORE(k, m + i, FLUSH(MUL(first, SET1((REAL)m_factor))));
        }
        STORE(k, v + i, FLUSH(MUL(second, SET1((REAL)v_factor))));
    }
}

#undef NAME
#undef HF_CODE
#undef REAL
#undef VEC
#undef MASK
#undef LANES
#undef LANES_OF
#undef LOAD
#undef STORE
#undef SET1
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef MIN
#undef ROOT
#undef ANY
#undef FLUSH
