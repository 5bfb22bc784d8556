// Enough of CUDA to compile a kernel as C++20 and run it on the host. Each CUDA thread of a block is a fiber with a stack
// of its own, and all fibers run on one thread of the host: a fiber runs until it waits in __syncthreads() or ends, then
// the next one runs. ThreadSanitizer treats fibers as threads that only barriers synchronise, so it reports every race.
// `__shared__` is static, so one launch runs at a time. Atomics are relaxed, as in CUDA, so that ThreadSanitizer does
// not take them for synchronisation.
#ifndef HOST_CUDA_H
#define HOST_CUDA_H
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>

#include <cstring>
#include <type_traits>

#if defined __SSE2__
#include <immintrin.h>
#endif

#ifdef HOST_COUNTS
#define __global__ __attribute__((flatten))  // the order of instructions is that of the code, all functions inlined
#else
#define __global__
#endif
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __constant__ static const
#define __shared__ static

#ifndef __VECTOR_TYPES_H__  // CUDA's own, which CuPy's kernels include
struct dim3 {
    unsigned x, y, z;
};
#endif

// Memory of a block of which the launch chooses the bytes; as much as any GPU has.
alignas(16) static double block_memory[227 << 7];

static dim3 blockDim{1, 1, 1}, gridDim{1, 1, 1}, threadIdx{0, 0, 0}, blockIdx{0, 0, 0};

// HOST_COUNTS: accesses of memory are counted by counts.cpp, which has these functions: a launch of the library that has
// these two; the CUDA thread that runs from now on; it waits in __syncwarp(); all threads of the block wait in
// __syncthreads(), or have ended; the block has ended; an atomic operation.
#ifdef HOST_COUNTS
extern "C" {
void host_launch(const void *thread_index, const void *block_index, size_t size);
void host_thread(unsigned thread, bool starts);
void host_warp_waits(void);
void host_threads_wait(void);
void host_block_ended(void);
void host_atomic(const void *address, size_t size);
}
#else
static inline void host_thread(unsigned, bool) {}
static inline void host_warp_waits() {}
static inline void host_threads_wait() {}
static inline void host_block_ended() {}
#endif

#ifdef HOST_COUNTS
#define HOST_RACES 0
#elif defined __has_feature
#define HOST_RACES __has_feature(thread_sanitizer)
#elif defined __SANITIZE_THREAD__
#define HOST_RACES 1
#else
#define HOST_RACES 0
#endif
#if defined __GNUC__ && !defined __clang__
#define HOST_GCC 1
#else
#define HOST_GCC 0
#endif
// HOST_UNSEEN: code of the host, which is not part of the CUDA threads and not instrumented. Of GCC it is optimised, as
// kernels are not, because compiling those takes longer than they.
#if HOST_GCC
#define HOST_OPTIMISED __attribute__((optimize("O2")))
#else
#define HOST_OPTIMISED
#endif
#if HOST_RACES
#include <sanitizer/tsan_interface.h>
#define HOST_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#ifdef HOST_COUNTS
#define HOST_UNSEEN __attribute__((no_sanitize("thread"), no_sanitize_coverage, noinline))
#else
#define HOST_UNSEEN HOST_OPTIMISED __attribute__((no_sanitize("address"), noinline))
#endif
#define __tsan_acquire(where) ((void)0)
#define __tsan_release(where) ((void)0)
#define __tsan_switch_to_fiber(fiber, flags) ((void)0)
#endif
// HOST_UNCOUNTED: functions of warps, which use memory here, but none on a GPU.
#ifdef HOST_COUNTS
#define HOST_UNCOUNTED HOST_UNSEEN
#else
#define HOST_UNCOUNTED inline
#endif
// Fibers that have started are switched by jumps, which take no call of the system. GCC's own keep five words, take no
// call at all, and are unknown to sanitizers; those of the library are not, so other compilers have swapcontext for them.
#if !HOST_GCC && (HOST_RACES || defined __SANITIZE_ADDRESS__)
#define HOST_JUMPS 0
#else
#define HOST_JUMPS 1
#endif
#if HOST_GCC
typedef void *HostPlace[5];
#define host_set(place) __builtin_setjmp(place)
#define host_jump(place) __builtin_longjmp(place, 1)
#else
typedef jmp_buf HostPlace;
#define host_set(place) _setjmp(place)
#define host_jump(place) _longjmp(place, 1)
#endif

namespace host {

// HOST_FLUSH is -ftz of the options: whether float32 subnormals are 0 to the kernels. The processor cannot treat
// float64 otherwise, so it is 0 for kernels of double.
#ifndef HOST_FLUSH
#define HOST_FLUSH 0
#endif

// Sets whether this thread flushes subnormals, and returns whether it did.
static inline bool set_flushing([[maybe_unused]] bool on) {
#if defined __SSE2__
    const unsigned before = _mm_getcsr(), bits = 0x8040;  // results and operands
    _mm_setcsr(on ? before | bits : before & ~bits);
    return before & bits;
#elif defined __aarch64__
    const unsigned long before = __builtin_aarch64_get_fpcr64(), bit = 1ul << 24;
    __builtin_aarch64_set_fpcr64(on ? before | bit : before & ~bit);
    return before & bit;
#else
    return false;
#endif
}

// The mode of a launch; fibers, which are made in a launch, keep it.
struct Flushing {
    bool before = set_flushing(HOST_FLUSH);
    ~Flushing() { set_flushing(before); }
};

constexpr size_t STACK = 256 << 10;  // bytes; pages that a thread does not use take no memory
constexpr long long MAX_THREADS = 1024;

struct Fiber {
    ucontext_t context;
    HostPlace place;  // where it waits, once it has started
    bool started;
    unsigned thread;
    char waits;  // IN_BLOCK, IN_WARP, or 0
    unsigned warp_rounds;  // calls of __syncwarp()
    void *sanitizer;
};

// In __syncthreads(), in __syncwarp().
enum { IN_BLOCK = 1, IN_WARP = 2 };

static Fiber fibers[MAX_THREADS], *current;
static long long n_fibers;
static ucontext_t scheduler;
static HostPlace scheduler_place;
static void *scheduler_sanitizer;

// The launch in progress.
static void (*kernel)(const void *body);
static const void *kernel_body;
static long long n_started;          // threads of this block that have started
static bool synced, warps;           // whether a thread of this block has waited, and in __syncwarp()
static Fiber *round_end;             // of the fibers that run one after the other
static unsigned long long n_rounds;  // barriers passed
// Addresses by which ThreadSanitizer sees synchronisation: begin and end of a launch, and two barriers in turn, so that
// a thread's arrival at one barrier is not taken for an arrival at the previous one.
static char begin, end, barriers[2];

static HOST_UNSEEN void *barrier(int rounds_ago) { return barriers + (n_rounds - rounds_ago) % 2; }

// Likewise of each warp.
static char warp_barriers[MAX_THREADS / 32][2];

static HOST_UNSEEN void *next_warp_barrier() {
    return &warp_barriers[current->thread / 32][current->warp_rounds++ % 2];
}

static HOST_UNSEEN void run_as(Fiber *fiber) {
    current = fiber;
    threadIdx.x = fiber->thread;
    host_thread(fiber->thread, false);
}

// Runs the next fiber of the round, or the scheduler after the last one.
static HOST_UNSEEN void pause(int waits) {
    Fiber *const own = current;
    const bool is_last = own + 1 >= round_end;
    own->waits = (char)waits;
    synced = synced || waits;
    warps = warps || waits == IN_WARP;
    if (waits == IN_WARP) host_warp_waits();
    if (!is_last) run_as(own + 1);
    __tsan_switch_to_fiber(is_last ? scheduler_sanitizer : current->sanitizer, __tsan_switch_to_fiber_no_sync);
#if HOST_JUMPS
    if (host_set(own->place)) return;
    if (is_last) host_jump(scheduler_place);
    host_jump(current->place);
#else
    swapcontext(&own->context, is_last ? &scheduler : &current->context);
#endif
}

// Runs fibers, one after the other.
static HOST_UNSEEN void resume(Fiber *fiber, Fiber *end) {
    round_end = end;
    run_as(fiber);
    __tsan_switch_to_fiber(fiber->sanitizer, __tsan_switch_to_fiber_no_sync);
#if HOST_JUMPS
    if (host_set(scheduler_place)) return;
    if (fiber->started) host_jump(fiber->place);
    fiber->started = true;
    setcontext(&fiber->context);
#else
    swapcontext(&scheduler, &fiber->context);
#endif
}

static HOST_UNSEEN void start_thread() {
    threadIdx.x = current->thread = (unsigned)n_started++;
    current->warp_rounds = 0;
    host_thread(threadIdx.x, true);
}

// Returns whether a fiber whose thread has ended runs another one; with ThreadSanitizer each thread has its fiber.
static HOST_UNSEEN bool goes_on() { return !HOST_RACES && n_started < blockDim.x; }

static HOST_UNSEEN void run_thread() { kernel(kernel_body); }

static HOST_UNSEEN bool has_synced() { return synced; }

// What a fiber runs: the kernel, once for each of its threads.
static void live() {
    for (;;) {
        start_thread();
        __tsan_acquire(&begin);
        run_thread();
        // Shared memory is static: no thread enters the next block before all have left this one.
        const bool meets = has_synced();
        if (meets) __tsan_release(barrier(0));
        __tsan_release(&end);
        if (goes_on()) continue;
        pause(0);
        if (meets) __tsan_acquire(barrier(1));
    }
}

static HOST_UNSEEN void prepare(Fiber *fiber, void *stack) {
    fiber->started = false;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = stack;
    fiber->context.uc_stack.ss_size = STACK;
    makecontext(&fiber->context, live, 0);
#if HOST_RACES
    if (fiber->sanitizer) __tsan_destroy_fiber(fiber->sanitizer);
    fiber->sanitizer = __tsan_create_fiber(0);
#endif
}

// Makes fibers until there are as many as wanted; they exist as long as the process. Returns whether there is memory.
static HOST_UNSEEN bool hire(long long wanted) {
    for (; n_fibers < wanted; ++n_fibers) {
        void *const stack = malloc(STACK);
        if (!stack) return false;
        prepare(fibers + n_fibers, stack);
    }
    return true;
}

// Resumes the warps of which all threads wait in __syncwarp(), or have ended, until there are none.
static HOST_UNSEEN void run_warps(long long n_used) {
    constexpr unsigned WARP = 32;
    for (bool moved = true; moved;) {
        char waits[MAX_THREADS / WARP] = {};  // of the threads of each warp
        for (long long i = 0; i < n_used; ++i) waits[fibers[i].thread / WARP] |= fibers[i].waits;
        moved = false;
        for (long long i = 0, first = 0; i <= n_used; ++i) {
            if (i < n_used && fibers[i].waits == IN_WARP && waits[fibers[i].thread / WARP] == IN_WARP) continue;
            if (first < i) {
                moved = true;
                resume(fibers + first, fibers + i);
            }
            first = i + 1;
        }
    }
}

// Returns how many threads wait in __syncthreads().
static HOST_UNSEEN long long waiting_in_block(long long n_used) {
    long long n = 0;
    for (long long i = 0; i < n_used; ++i) n += fibers[i].waits == IN_BLOCK;
    return n;
}

// Runs all threads of a block, from barrier to barrier. Returns false if some wait for others that have ended.
static HOST_UNSEEN bool run_block(long long n_threads) {
    long long n_used = 0;
    n_started = 0;
    synced = warps = false;
    for (; n_started < n_threads; ++n_used) resume(fibers + n_used, fibers + n_used + 1);
    for (;;) {
        if (warps) run_warps(n_used);
        ++n_rounds;
        host_threads_wait();
        if (waiting_in_block(n_used) != n_threads) break;
        resume(fibers, fibers + n_used);
    }
    host_block_ended();
    for (long long i = 0; i < n_used; ++i)
        if (fibers[i].waits) return false;
    return true;
}

static HOST_UNSEEN bool run_blocks(long long n_blocks, long long n_threads) {
#if HOST_RACES
    scheduler_sanitizer = __tsan_get_current_fiber();
#endif
    blockDim.x = (unsigned)n_threads;
    gridDim.x = (unsigned)n_blocks;
    for (long long block = 0; block < n_blocks; ++block) {
        blockIdx.x = (unsigned)block;
        if (run_block(n_threads)) continue;
        // Threads that wait are never resumed: their fibers start anew.
        for (long long i = 0; i < n_fibers; ++i) prepare(fibers + i, fibers[i].context.uc_stack.ss_sp);
        return false;
    }
    return true;
}

enum Outcome { DONE, DIVERGED, NO_MEMORY };

// Runs body() in n_blocks blocks of n_threads threads. DIVERGED: some threads of a block waited in
// __syncthreads() for others that had left the kernel.
template <typename Body>
static inline int run(long long n_blocks, long long n_threads, const Body &body) {
    const Flushing flushing;
    if (!hire(n_threads)) return NO_MEMORY;
    kernel = [](const void *b) { (*(const Body *)b)(); };
    kernel_body = &body;
    __tsan_release(&begin);
#ifdef HOST_COUNTS
    host_launch(&threadIdx, &blockIdx, sizeof threadIdx);
#endif
    const bool whole = run_blocks(n_blocks, n_threads);
    __tsan_acquire(&end);
    return whole ? DONE : DIVERGED;
}

// Arguments come as words of 8 bytes: a pointer, a long long, a double, or the address of a struct.
template <typename T>
static T argument(const unsigned long long *word) {
    T value;
    if constexpr (std::is_class_v<T>) {
        std::memcpy(&value, (const void *)*word, sizeof value);
    } else {
        static_assert(sizeof(T) == sizeof *word);
        std::memcpy(&value, word, sizeof value);
    }
    return value;
}

}  // namespace host

static inline void __syncthreads() {
    __tsan_release(host::barrier(0));
    host::pause(host::IN_BLOCK);
    __tsan_acquire(host::barrier(1));
}

static inline void __syncwarp(unsigned = ~0u) {
    [[maybe_unused]] void *const barrier = host::next_warp_barrier();
    __tsan_release(barrier);
    host::pause(host::IN_WARP);
    __tsan_acquire(barrier);
}

// Returns which threads of the warp, which all reach this, have a value other than 0.
static HOST_UNCOUNTED unsigned __ballot_sync(unsigned, int value) {
    static int values[host::MAX_THREADS];
    values[threadIdx.x] = value;
    __syncwarp();
    const unsigned first = threadIdx.x / 32 * 32;
    unsigned bits = 0;
    for (unsigned i = first; i < first + 32 && i < blockDim.x; ++i) bits |= (unsigned)(values[i] != 0) << (i - first);
    __syncwarp();
    return bits;
}

// Returns the value of thread `lane` of each `width` neighbours of the warp, which all reach this.
template <typename T>
static HOST_UNCOUNTED T host_exchanged(T value, unsigned lane, unsigned width) {
    static T values[host::MAX_THREADS];
    values[threadIdx.x] = value;
    __syncwarp();
    const T found = values[threadIdx.x / width * width + lane];
    __syncwarp();
    return found;
}

template <typename T>
static inline T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    return host_exchanged(value, (unsigned)(lane % width), (unsigned)width);
}

// Of the thread `step` places behind this one; its own if that is beyond the `width` neighbours.
template <typename T>
static inline T __shfl_down_sync(unsigned, T value, unsigned step, int width = 32) {
    const unsigned own = threadIdx.x % (unsigned)width;
    return host_exchanged(value, own + step < (unsigned)width ? own + step : own, (unsigned)width);
}

static inline int __ffs(int a) { return __builtin_ffs(a); }
static inline int __clz(int a) { return a ? __builtin_clz((unsigned)a) : 32; }
static inline int __popc(unsigned a) { return __builtin_popcount(a); }

// Atomics of the integer types of CUDA. There are none of floats, because their sums would depend on the order of the
// threads.
#define HOST_ATOMICS(T)                                                                                     \
    static inline T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }             \
    static inline T atomicExch(T *p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }           \
    static inline T atomicAnd(T *p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }             \
    static inline T atomicOr(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }               \
    static inline T atomicCAS(T *p, T expected, T v) {                                                      \
        __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);            \
        return expected;                                                                                    \
    }                                                                                                       \
    static inline T atomicMin(T *p, T v) {                                                                  \
        T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                       \
        while (v < old && atomicCAS(p, old, v) != old) old = __atomic_load_n(p, __ATOMIC_RELAXED);          \
        return old;                                                                                         \
    }                                                                                                       \
    static inline T atomicMax(T *p, T v) {                                                                  \
        T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                       \
        while (v > old && atomicCAS(p, old, v) != old) old = __atomic_load_n(p, __ATOMIC_RELAXED);          \
        return old;                                                                                         \
    }
HOST_ATOMICS(int)
HOST_ATOMICS(unsigned)
HOST_ATOMICS(unsigned long long)

#ifdef HOST_COUNTS
namespace host {
template <typename T>
static inline T *counted(T *p) {
    host_atomic(p, sizeof *p);
    return p;
}
}  // namespace host
#define atomicAdd(p, ...) atomicAdd(host::counted(p), __VA_ARGS__)
#define atomicExch(p, ...) atomicExch(host::counted(p), __VA_ARGS__)
#define atomicAnd(p, ...) atomicAnd(host::counted(p), __VA_ARGS__)
#define atomicOr(p, ...) atomicOr(host::counted(p), __VA_ARGS__)
#define atomicCAS(p, ...) atomicCAS(host::counted(p), __VA_ARGS__)
#define atomicMin(p, ...) atomicMin(host::counted(p), __VA_ARGS__)
#define atomicMax(p, ...) atomicMax(host::counted(p), __VA_ARGS__)
#endif

template <typename T>
static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T>
static inline T max(T a, T b) { return a < b ? b : a; }
template <typename T>
static inline T __ldg(const T *p) { return *p; }

#endif
