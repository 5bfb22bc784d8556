# Functions of series.h, and the same of arrays: n numbers a (IN) and out (OUT), which may be one array. The
# caller has entered the floating-point state of a new process.

cdef extern from "core/series.h" nogil:
    double hf_exp(double a)
    double hf_log(double a)
    double hf_log1p(double a)
    double hf_cos_of_turns(double a)

cdef extern from "core/series_arrays.h" nogil:
    void hf_exps(int path, const double* a, Py_ssize_t n, double* out)
    void hf_logs(int path, const double* a, Py_ssize_t n, double* out)
