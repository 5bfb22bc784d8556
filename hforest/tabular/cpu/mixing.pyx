"""Predictions of forests, hinge trees and boosted trees as one prediction."""

cimport cython
from cython.parallel cimport prange
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

cimport hforest.core.arrays as cnp
from hforest.core.arena cimport hf_arena, release, take
from hforest.core.machine cimport (
    hf_begin, hf_end, hf_stop, hf_threads_for, hf_units, hf_watch, raise_stopped, start_watch,
)
from hforest.core.series cimport hf_exp, hf_log

cdef enum:
    ROWS = 64             # rows per unit of work
    NUMBER_NS = 15        # nanoseconds per number


cdef struct Member:
    # What a member of a model does with the predictions of its parts, and those predictions.
    const float* intercept  # (n_outputs,)
    float offset
    double share          # of the hinge trees
    double boosted_share
    const float* scores   # (n, n_outputs): sums of the hinge trees; or NULL
    const float* grown    # (n, n_outputs): predictions of the grown forest; or NULL
    const float* boosted  # (n, n_scores): those of boosted trees; or NULL
    int64_t n_scores
    const float* linear   # (n_columns, n_scores): slopes of the linear part; or NULL


cdef struct Model:
    int64_t n_outputs
    bint of_classes
    double smoothing      # added to shares of classes before logarithms
    double least          # least probability of a geometric mean; 0 for arithmetic ones
    Member* members
    int64_t n_members
    const double* center  # (n_outputs,) of the targets
    const double* scale
    const float* numbers  # (n, n_columns): encoded columns
    int64_t n_columns


cdef void _softmax(double* p, int64_t n) noexcept nogil:
    # Replaces scores by probabilities.
    cdef double high = p[0], total = 0
    cdef int64_t k
    for k in range(1, n):
        high = max(high, p[k])
    for k in range(n):
        p[k] = hf_exp(p[k] - high)
    for k in range(n):
        total += p[k]
    for k in range(n):
        p[k] /= total


cdef void _trees(const Model* m, const Member* a, int64_t i, double* p) noexcept nogil:
    # Writes the predictions of the hinge trees for row i (model.trees_outputs).
    cdef int64_t n = m.n_outputs, k
    cdef const float* scores = a.scores + i * n
    cdef float score
    cdef double before
    for k in range(n):
        score = scores[k] + a.intercept[k]
        if a.offset != 0:
            before = a.grown[i * n + k]
            if m.of_classes:
                before = hf_log((before + m.smoothing) / (1 + m.smoothing * n))
            score = score + a.offset * <float> before
        p[k] = score
    if m.of_classes:
        _softmax(p, n)


cdef void _boosted(const Model* m, const Member* a, int64_t i, double* p) noexcept nogil:
    # Writes the predictions of the boosted trees and the linear part for row i (model.boosted_outputs).
    cdef int64_t j, k, skipped = m.n_outputs - a.n_scores
    cdef double number
    if skipped:
        p[0] = 0
    for k in range(a.n_scores):
        p[skipped + k] = a.boosted[i * a.n_scores + k]
    if a.linear != NULL:
        for j in range(m.n_columns):
            number = m.numbers[i * m.n_columns + j]
            for k in range(a.n_scores):
                p[skipped + k] += number * a.linear[j * a.n_scores + k]
    if m.of_classes:
        _softmax(p, m.n_outputs)


cdef void _mix(double* p, const double* others, double share, int64_t n) noexcept nogil:
    cdef int64_t k
    for k in range(n):
        p[k] = share * p[k] + (1 - share) * others[k]


cdef void _member(const Model* m, const Member* a, int64_t i, double* work, double* p) noexcept nogil:
    # Writes the prediction of a member for row i (model.outputs). work: workspace (n_outputs,).
    cdef int64_t n = m.n_outputs, k
    if a.grown != NULL:
        for k in range(n):
            work[k] = a.grown[i * n + k]
    if a.scores == NULL:
        memcpy(p, work, n * sizeof(double))
    else:
        _trees(m, a, i, p)
        if a.share < 1:
            _mix(p, work, a.share, n)
    if a.boosted != NULL:
        memcpy(work, p, n * sizeof(double))
        _boosted(m, a, i, p)
        _mix(p, work, a.boosted_share, n)


cdef void _row(const Model* m, int64_t i, double* work, double* y) noexcept nogil:
    # Writes the mean of the members for row i. work: workspace (2 * n_outputs,).
    cdef int64_t n = m.n_outputs, member, k
    cdef double* p = work + n
    memset(y, 0, n * sizeof(double))
    for member in range(m.n_members):
        _member(m, m.members + member, i, work, p)
        for k in range(n):
            y[k] += hf_log(max(p[k], m.least)) if m.least > 0 else p[k]
    for k in range(n):
        y[k] /= m.n_members
    if m.least > 0:
        _softmax(y, n)
    if not m.of_classes:
        for k in range(n):
            y[k] = y[k] * m.scale[k] + m.center[k]


cdef void _rows(const Model* m, int64_t unit, int64_t n, double* y, hf_watch* watch) noexcept nogil:
    cdef hf_arena arena
    cdef int64_t i
    memset(&arena, 0, sizeof(hf_arena))
    cdef double* work = <double*> take(&arena, 2 * m.n_outputs * sizeof(double))
    if arena.failed:
        hf_stop(watch)
        return
    for i in range(unit * ROWS, min(n, (unit + 1) * ROWS)):
        _row(m, i, work, y + i * m.n_outputs)
    release(&arena)


cdef inline float* _rows_of(cnp.ndarray a):
    return NULL if a is None else <float*> cnp.PyArray_DATA(a)


@cython.final
cdef class Mixture:
    """The mean of the members of a checked model, whose arrays belong to the model.

    `smoothing` is added to shares of classes before logarithms are taken; geometric means are of
    probabilities of at least `least`.
    """

    cdef Model _model
    cdef hf_arena _arena
    cdef tuple _arrays

    def __init__(self, model, double smoothing, double least):
        cdef Model* m = &self._model
        cdef Member* a
        cdef cnp.ndarray center = model.target_center, scale = model.target_scale, intercept, linear
        m.n_outputs, m.n_members = len(center), len(model.members)
        m.of_classes = model.task == "classification"
        m.smoothing = smoothing
        m.least = least if model.mean == "geometric" and m.n_members > 1 else 0
        m.center, m.scale = <double*> cnp.PyArray_DATA(center), <double*> cnp.PyArray_DATA(scale)
        m.members = <Member*> take(&self._arena, m.n_members * sizeof(Member))
        if m.members == NULL:
            raise MemoryError("model: no memory for its members")
        memset(m.members, 0, m.n_members * sizeof(Member))
        for i, member in enumerate(model.members):
            a, intercept = m.members + <int64_t> i, member.intercept
            a.intercept = <float*> cnp.PyArray_DATA(intercept)
            a.offset, a.share = float(member.offset), float(member.share)
            if member.boosted is not None:
                a.boosted_share = float(member.boosted.share)
                a.n_scores = member.boosted.forest.value.shape[1]
                linear = member.boosted.linear
                a.linear = _rows_of(linear)
        self._arrays = center, scale, model.members

    def __dealloc__(self):
        release(&self._arena)

    def mix(self, parts, cnp.ndarray numbers not None, cnp.ndarray y not None):
        """Writes the predictions y (n_samples, n_outputs) of float64 for encoded columns `numbers`, float32.

        parts: for each member the sums of its hinge trees, the predictions of its forest and those of its
        boosted trees, C-contiguous matrices of float32; None for those that the prediction does not need.
        """
        cdef Model m = self._model
        cdef int64_t n = cnp.PyArray_DIM(y, 0), n_units = (n + ROWS - 1) // ROWS, unit
        cdef int threads = hf_threads_for(<double> NUMBER_NS * n * m.n_outputs * m.n_members)
        cdef double* to = <double*> cnp.PyArray_DATA(y)
        cdef hf_arena arena
        cdef hf_watch watch
        cdef Member* a
        # Several threads may use a mixture at the same time.
        memset(&arena, 0, sizeof(hf_arena))
        m.members = <Member*> take(&arena, m.n_members * sizeof(Member))
        if m.members == NULL:
            raise MemoryError("x: no memory for predictions; pass fewer samples at a time")
        m.numbers, m.n_columns = _rows_of(numbers), cnp.PyArray_DIM(numbers, 1)
        memcpy(m.members, self._model.members, m.n_members * sizeof(Member))
        for i, (scores, grown, boosted) in enumerate(parts):
            a = m.members + <int64_t> i
            a.scores, a.grown, a.boosted = _rows_of(scores), _rows_of(grown), _rows_of(boosted)
        start_watch(&watch)
        with nogil:
            for unit in prange(hf_units(&watch, n_units, threads), schedule="dynamic", num_threads=threads):
                if hf_begin(&watch, unit):
                    _rows(&m, unit, n, to, &watch)
                    hf_end(&watch)
        release(&arena)
        raise_stopped(&watch, "x: no memory for predictions; pass fewer samples at a time")
