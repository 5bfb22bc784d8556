/* Vector extensions of the running processor, as the compiler's runtime reports them; it also checks that the operating
   system saves the wide registers. */
#ifndef HFOREST_CPU_FEATURES_H
#define HFOREST_CPU_FEATURES_H
#include <stdlib.h>

enum { HF_AVX2 = 1, HF_AVX512 = 2, HF_NEON = 4 };

/* Returns the set of flags that hold. */
static int hf_cpu_features(void) {
    int found = 0;
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) found |= HF_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        found |= HF_AVX512;
#elif defined(__aarch64__)
    found |= HF_NEON;
#endif
    return found;
}

#if defined(__clang__)
#define HF_COMPILER "Clang " __clang_version__
#elif defined(__GNUC__)
#define HF_COMPILER "GCC " __VERSION__
#elif defined(_MSC_VER)
#define HF_COMPILER "MSVC"
#else
#define HF_COMPILER "unknown"
#endif

#ifdef _OPENMP
#include <omp.h>
#define HF_OPENMP _OPENMP
#else
#define HF_OPENMP 0
static inline int omp_get_max_threads(void) { return 1; }
static inline int omp_get_num_threads(void) { return 1; }
static inline int omp_get_num_procs(void) { return 1; }
static inline int omp_get_thread_num(void) { return 0; }
static inline void omp_set_num_threads(int n) { (void)n; }
#endif

enum { HF_MAX_THREADS = 1024 /* more overflow the stack of the OpenMP runtime's calling thread */ };

/* Returns the number of threads that a parallel region of the calling thread may have. Each native thread has its own
   setting, whose initial value comes from the environment and may exceed HF_MAX_THREADS. */
static inline int hf_threads(void) {
    const int n = omp_get_max_threads();
    return n < HF_MAX_THREADS ? n : HF_MAX_THREADS;
}

/* Returns the duration in nanoseconds below which a call has one thread: a second one costs some 10 microseconds to
   start, and on a processor that does other work up to 10 milliseconds of waiting. */
static inline double hf_serial_ns(void) {
    static double found = -1;
    double ns;
    __atomic_load(&found, &ns, __ATOMIC_RELAXED);
    if (ns < 0) {
        const char *us = getenv("HFOREST_SERIAL_US");
        ns = 1000 * (us != NULL && *us != 0 ? atof(us) : 250);
        __atomic_store(&found, &ns, __ATOMIC_RELAXED);
    }
    return ns;
}

/* Returns the number of threads of a region whose work takes about so many nanoseconds on one thread. */
static inline int hf_threads_for(double nanoseconds) { return nanoseconds < hf_serial_ns() ? 1 : hf_threads(); }

#endif
