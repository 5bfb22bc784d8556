/* Ends a long call soon after Ctrl-C. The threads of a call share a flag. The calling thread runs pending signal
   handlers ten times per second, and sets the flag if one raises. Units of work that have not begun are then skipped,
   and long units return early; the results must not be used. */
#ifndef HFOREST_WATCH_H
#define HFOREST_WATCH_H
#include <stdint.h>
#include <time.h>

#include "core/cpu_features.h"
#include "core/simd.h"

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <sched.h>
#endif

enum {
    HF_LOOK_MS = 100,      /* milliseconds between two checks for signals */
    HF_WORK = 1 << 18,     /* steps of a few nanoseconds between two reads of the flag */
    HF_SPINS = 20000,      /* rounds of about 25 nanoseconds in which other threads wait for the calling one */
    HF_YIELDS = 200,       /* times that the calling thread yields before it sleeps */
    HF_NAP_NS = 50 * 1000, /* duration of the first sleep */
    HF_LONGEST_NAP_NS = 5 * 1000 * 1000
};

typedef struct {
    int stopped;       /* the call has to stop: a handler raised, or memory ran out */
    int interrupted;   /* a handler raised; the exception is pending in the calling thread */
    int64_t next_look; /* milliseconds of hf_milliseconds */
    int64_t n_units;
    int64_t n_done;    /* units that have ended or were skipped */
    int caller_waits;  /* the calling thread checks for signals until all units are done */
    int other_state;   /* some thread had another floating-point state than a new process */
} hf_watch;

static void hf_pause(void) {
#if HF_X86
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb");
#endif
}

static void hf_yield(void) {
#ifdef _WIN32
    Sleep(0);
#else
    sched_yield();
#endif
}

static void hf_nap(long nanoseconds) {
#ifdef _WIN32
    Sleep(1);
    (void)nanoseconds;
#else
    const struct timespec time = {0, nanoseconds};
    nanosleep(&time, NULL);
#endif
}

static int64_t hf_milliseconds(void) {
#ifdef _WIN32
    return (int64_t)GetTickCount64();
#else
    struct timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
#endif
}

/* Starts a watch. Signal handlers run only in Python's main thread: other threads do not check for signals. */
static void hf_start_watch(hf_watch *w, int is_main_thread) {
    w->stopped = w->interrupted = 0;
    w->next_look = is_main_thread ? hf_milliseconds() + HF_LOOK_MS : INT64_MAX;
    w->n_units = w->n_done = w->caller_waits = w->other_state = 0;
}

HF_INLINE int hf_has_stopped(const hf_watch *w) { return __atomic_load_n(&w->stopped, __ATOMIC_RELAXED); }

/* Stops a call for a reason other than a signal: memory ran out. */
static void hf_stop(hf_watch *w) { __atomic_store_n(&w->stopped, 1, __ATOMIC_RELAXED); }

static void hf_look_for_signals(hf_watch *w) {
#ifdef Py_PYTHON_H
#if HF_X86
    const unsigned rounding = __builtin_ia32_stmxcsr(); /* kernels may flush subnormals to 0; handlers must not */
    __builtin_ia32_ldmxcsr(0x1f80u);
#endif
    const PyGILState_STATE state = PyGILState_Ensure();
    if (PyErr_CheckSignals()) {
        w->interrupted = 1;
        hf_stop(w);
    }
    PyGILState_Release(state);
#if HF_X86
    __builtin_ia32_ldmxcsr(rounding);
#endif
#endif
    w->next_look = hf_milliseconds() + HF_LOOK_MS;
}

/* Returns whether the call has to stop. The calling thread checks for signals first, if it is time to. */
static int hf_stopped(hf_watch *w) {
    if (hf_has_stopped(w)) return 1;
    if (omp_get_thread_num() != 0 || hf_milliseconds() < w->next_look) return 0;
    hf_look_for_signals(w);
    return hf_has_stopped(w);
}

/* Does the work of the function above only after HF_WORK steps, which are counted in *n_steps. */
HF_INLINE int hf_stopped_after(hf_watch *w, int64_t *n_steps, int64_t more) {
    *n_steps += more;
    if (*n_steps < HF_WORK) return 0;
    *n_steps = 0;
    return hf_stopped(w);
}

/* A parallel loop over units of work, in Cython:

       for unit in prange(hf_units(&watch, n_units, threads), schedule="dynamic", num_threads=threads):
           if hf_begin(&watch, unit):
               ...
               hf_end(&watch)

   The units are followed by waiting units, one per thread. Without them a thread would wait at the loop's end when no
   unit is left, and the calling thread could not check for signals there. It does so in its waiting unit, until all
   units are done. The other threads wait in theirs until it has begun, so that one is left for it. A team may be
   smaller than requested: the number of threads is never used.

   Three words of the pragmas that Cython writes are redefined in every module that includes this header. Units are taken
   in order: LLVM's runtime would assign them beforehand, including waiting units, and balance the work worse. Variables
   are private and do not keep their last values after a loop, which would require a barrier of all threads before it.
   Cython 3.3 names each both firstprivate and lastprivate, Cython 3.1 most of them lastprivate alone. */
#ifdef _OPENMP
#define dynamic monotonic : dynamic
#define firstprivate(variable)
#define lastprivate(variable) private(variable)
#endif

/* Returns the number of iterations of such a loop. It is called outside of the parallel region. */
static int64_t hf_units(hf_watch *w, int64_t n_units, int n_threads) {
    w->n_units = n_units;
    w->n_done = w->caller_waits = 0;
    return n_units + (n_threads > 1 && n_units > 0 ? n_threads : 0);
}

/* Returns whether a waiting thread may leave: the calling thread waits itself, or all units are done. */
static int hf_can_leave(const hf_watch *w) {
    return __atomic_load_n(&w->caller_waits, __ATOMIC_RELAXED) ||
           __atomic_load_n(&w->n_done, __ATOMIC_RELAXED) >= w->n_units;
}

/* The waiting unit of another thread. Like a barrier, it spins first if there is a processor for each thread. */
static void hf_wait_for_caller(const hf_watch *w) {
    for (int round = omp_get_num_threads() > omp_get_num_procs() ? HF_SPINS : 0; !hf_can_leave(w); ++round) {
        if (round < HF_SPINS)
            hf_pause();
        else
            hf_nap(HF_NAP_NS);
    }
}

/* The waiting unit of the calling thread: checks for signals until all units are done. */
static void hf_wait_for_units(hf_watch *w) {
    long nap = HF_NAP_NS;
    __atomic_store_n(&w->caller_waits, 1, __ATOMIC_RELAXED);
    for (int round = 0; __atomic_load_n(&w->n_done, __ATOMIC_RELAXED) < w->n_units; ++round) {
        if (round < HF_YIELDS) {
            hf_yield();
        } else {
            hf_nap(nap);
            nap += nap < HF_LONGEST_NAP_NS ? nap / 8 : 0;
        }
        hf_stopped(w);
    }
}

/* Floating-point state. Another library may have set one in which subnormal numbers are 0, or another rounding, in some
   threads of the process. Units of work run in that of a new process, so that results are the same on any thread. In
   HF_FLUSH a kernel makes them 0, too. */
#if HF_X86
enum { HF_CONTROL = 0xffc0, HF_DEFAULT_STATE = 0x1f80, HF_FLUSH = 0x8040 };
static uint64_t hf_state(void) { return __builtin_ia32_stmxcsr(); }
static void hf_set_state(uint64_t state) { __builtin_ia32_ldmxcsr((unsigned)state); }
#elif defined(__aarch64__)
enum { HF_CONTROL = 0x1c00000, HF_DEFAULT_STATE = 0, HF_FLUSH = 0x1000000 }; /* flush to zero, rounding */
static uint64_t hf_state(void) {
    uint64_t state;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(state));
    return state;
}
static void hf_set_state(uint64_t state) { __asm__ __volatile__("msr fpcr, %0" ::"r"(state)); }
#else
enum { HF_CONTROL = 0, HF_DEFAULT_STATE = 0, HF_FLUSH = 0 };
static uint64_t hf_state(void) { return 0; }
static void hf_set_state(uint64_t state) { (void)state; }
#endif

/* Sets the state of a new process in this thread. Returns the one before, or 0 if it was no other. */
static uint64_t hf_enter_state(void) {
    const uint64_t state = hf_state();
    if ((state & HF_CONTROL) == HF_DEFAULT_STATE) return 0;
    hf_set_state((state & ~(uint64_t)HF_CONTROL) | HF_DEFAULT_STATE);
    return state;
}

/* Sets what hf_enter_state returned. */
static void hf_leave_state(uint64_t before) {
    if (before) hf_set_state(before);
}

static _Thread_local uint64_t hf_state_before; /* what hf_enter_state returned to this thread, during a unit */

/* Ends a unit for which hf_begin returned 1. */
static void hf_end(hf_watch *w) {
    if (__atomic_load_n(&w->other_state, __ATOMIC_RELAXED)) {
        hf_leave_state(hf_state_before);
        hf_state_before = 0;
    }
    __atomic_fetch_add(&w->n_done, 1, __ATOMIC_RELAXED);
}

/* Returns whether a unit has to run: it is not a waiting unit, and the call continues. */
static int hf_begin(hf_watch *w, int64_t unit) {
    if (unit < w->n_units) {
        if (!hf_stopped(w)) {
            const uint64_t before = hf_enter_state();
            if (before) {
                hf_state_before = before;
                __atomic_store_n(&w->other_state, 1, __ATOMIC_RELAXED);
            }
            return 1;
        }
        hf_end(w);
    } else if (omp_get_thread_num() == 0) {
        hf_wait_for_units(w);
    } else {
        hf_wait_for_caller(w);
    }
    return 0;
}

#endif
