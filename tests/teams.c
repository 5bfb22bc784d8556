/* Loops as Cython writes them for prange over hf_units (core/watch.h): whether they end, run each unit once, and look
   for signals while other threads than the calling one have units. The third look finds a signal.

       teams THREADS */
#define Py_PYTHON_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int PyGILState_STATE;
static PyGILState_STATE PyGILState_Ensure(void) { return 0; }
static void PyGILState_Release(PyGILState_STATE state) { (void)state; }
static int n_looks;
static int PyErr_CheckSignals(void) { return ++n_looks >= 3; }

#include "core/watch.h"

typedef void body(hf_watch *w, int *n_others);

static int64_t loop(hf_watch *w, int64_t n, int threads, body *run, int *n_others) {
    const int64_t n_iterations = hf_units(w, n, threads);
    int64_t n_run = 0, unit = 0, i;
#pragma omp parallel num_threads(threads) reduction(+ : n_run)
    {
#pragma omp for nowait firstprivate(unit) lastprivate(unit) schedule(dynamic)
        for (i = 0; i < n_iterations; ++i) {
            unit = i;
            if (hf_begin(w, unit)) {
                run(w, n_others);
                ++n_run;
                hf_end(w);
            }
        }
    }
    return n_run;
}

/* A unit that is short for the calling thread, once another thread has one, and endless for others. */
static void long_unit(hf_watch *w, int *n_others) {
    const int64_t end = hf_milliseconds() + 20000;
    if (omp_get_thread_num() != 0) __atomic_fetch_add(n_others, 1, __ATOMIC_RELAXED);
    while (!hf_stopped(w) && hf_milliseconds() < end) {
        hf_nap(1000 * 1000);
        if (omp_get_num_threads() == 1) return;
        if (omp_get_thread_num() == 0 && __atomic_load_n(n_others, __ATOMIC_RELAXED)) return;
    }
}

static void short_unit(hf_watch *w, int *n_others) {
    (void)w, (void)n_others;
    if (rand() % 64 == 0) hf_nap(100 * 1000);
}

/* Returns milliseconds, or -1 if the loop did not end by the signal where it had to. */
static int64_t interrupted(int64_t n, int threads) {
    const int64_t start = hf_milliseconds();
    int n_others = 0;
    hf_watch w;
    n_looks = 0;
    hf_start_watch(&w, 1);
    loop(&w, n, threads, long_unit, &n_others);
    return n_others && !w.interrupted ? -1 : hf_milliseconds() - start;
}

/* Returns the number of loops that ran another number of units than they have. */
static int faults(int n_loops, int threads) {
    const int64_t end = hf_milliseconds() + 3000;
    int n_faults = 0;
    hf_watch w;
    hf_start_watch(&w, 0);
    for (int i = 0; i < n_loops && hf_milliseconds() < end; ++i)
        n_faults += loop(&w, i % 7, threads, short_unit, NULL) != i % 7;
    return n_faults;
}

int main(int argc, char **argv) {
    const int threads = argc > 1 ? atoi(argv[1]) : 4;
    int n_faults = faults(3000, threads), outer = 0;
    for (int n = 1; n <= 2 * threads + 1; n += threads)
        printf("%d units: %d milliseconds\n", n, (int)interrupted(n, threads));
    /* Inside another region, with teams of its own or, if that is not allowed, of one thread. */
#pragma omp parallel num_threads(2) reduction(+ : outer)
    {
        outer += faults(300, threads);
#pragma omp master
        printf("nested: %d milliseconds\n", (int)interrupted(threads, threads));
    }
    printf("%d faults\n", n_faults + outer);
    return 0;
}
