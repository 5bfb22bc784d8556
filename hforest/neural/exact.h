/* One sample and one tree in logarithms: exact where products of decisions leave the range of REAL, and
   slow. Included once for each dtype by paths.h, which defines REAL and X(name). */

/* log sigmoid(f). */
static double X(log_decision)(double f) { return f < 0 ? f - log1p(exp(f)) : -log1p(exp(-f)); }

static double X(function)(const REAL *row, const int32_t *index, ptrdiff_t i) {
    return (double)row[index ? index[i] : i];
}

/* logs[i] = log of the likelihood below vertex or leaf i; the root's is log P. The leaves' probabilities of
   the sample's class are `step` apart. */
static double X(log_likelihood)(
    ptrdiff_t n_vertices, const REAL *row, const int32_t *index, const REAL *leaf, ptrdiff_t step, double *logs) {
    ptrdiff_t i;
    for (i = 0; i <= n_vertices; ++i) logs[n_vertices + i] = log((double)leaf[i * step]);
    for (i = n_vertices - 1; i >= 0; --i) {
        const double f = X(function)(row, index, i);
        const double left = X(log_decision)(f) + logs[2 * i + 1], right = X(log_decision)(-f) + logs[2 * i + 2];
        const double high = left > right ? left : right, low = left > right ? right : left;
        logs[i] = high == -HUGE_VAL ? high : high + log1p(exp(low - high));
    }
    return logs[0];
}

/* a[i] = share of P that comes from below vertex or leaf i, p4's A. All 0 where P is. */
static void X(log_shares)(
    ptrdiff_t n_vertices, const REAL *row, const int32_t *index, const double *logs, double *a) {
    a[0] = logs[0] != -HUGE_VAL;
    for (ptrdiff_t i = 0; i < n_vertices; ++i) {
        const double f = X(function)(row, index, i);
        a[2 * i + 1] = a[i] > 0 ? a[i] * exp(X(log_decision)(f) + logs[2 * i + 1] - logs[i]) : 0;
        a[2 * i + 2] = a[i] > 0 ? a[i] * exp(X(log_decision)(-f) + logs[2 * i + 2] - logs[i]) : 0;
    }
}

/* grad += weight (d A_right - (1 - d) A_left). */
static void X(log_gradient)(
    ptrdiff_t n_vertices, const REAL *row, const int32_t *index, const double *a, double weight, REAL *grad) {
    for (ptrdiff_t i = 0; i < n_vertices; ++i) {
        const double f = X(function)(row, index, i), e = exp(-fabs(f));
        const double high = 1 / (1 + e), low = e / (1 + e), d = f < 0 ? low : high, c = f < 0 ? high : low;
        grad[index ? index[i] : i] += (REAL)(weight * (d * a[2 * i + 2] - c * a[2 * i + 1]));
    }
}
