// Enough of CUDA to compile a kernel as C++20 and run it with a thread of the host for each CUDA thread.
// The threads of a launch walk through its blocks together, and wait for the next launch afterwards;
// `__shared__` is static, so one launch runs at a time. Atomics are relaxed, as in CUDA, so that ThreadSanitizer sees what they do not order.
#ifndef HOST_CUDA_H
#define HOST_CUDA_H
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __constant__ static const
#define __shared__ static

struct dim3 {
    unsigned x, y, z;
};

static dim3 blockDim{1, 1, 1}, gridDim{1, 1, 1};
static thread_local dim3 threadIdx{0, 0, 0}, blockIdx{0, 0, 0};

namespace host {

struct Diverged {};

// Every thread says where it stands before it waits; the last one to come compares.
static std::vector<long long> places;
static bool diverged;
static thread_local bool synced;
constexpr long long FINISHED = -1;

struct Compare {
    void operator()() noexcept {
        for (long long place : places) diverged = diverged || place != places[0];
    }
};

static std::barrier<Compare> *barrier;

static inline void meet(long long place) {
    places[threadIdx.x] = place;
    barrier->arrive_and_wait();
    if (diverged) throw Diverged{};
}

// The launch in progress.
static std::function<void()> kernel;
static long long n_blocks, n_threads;
static std::atomic<unsigned> n_launches;  // rises when a launch begins: the workers wait for that
static std::atomic<unsigned> n_busy;      // workers still in it: who launched waits for 0

// One thread's part of every block, in their order.
static inline void walk() {
    try {
        for (long long block = 0; block < n_blocks; ++block) {
            blockIdx.x = (unsigned)block;
            synced = false;
            kernel();
            // Shared memory is static: nobody enters the next block before all have left this one.
            if (synced) meet(2 * block + 1);
        }
    } catch (const Diverged &) {
    }
    places[threadIdx.x] = FINISHED;
    barrier->arrive_and_drop();
}

struct Worker {
    unsigned number, n_launches;
};

static void *work(void *argument) {
    Worker worker = *(Worker *)argument;
    delete (Worker *)argument;
    threadIdx.x = worker.number;
    for (;;) {
        n_launches.wait(worker.n_launches);
        worker.n_launches = n_launches;
        if (worker.number < n_threads) walk();
        if (n_busy.fetch_sub(1) == 1) n_busy.notify_one();
    }
    return nullptr;
}

// Sees to it that at least so many workers exist; they live as long as the process. A child of a fork has
// none of its parent's.
static bool hire(long long wanted, unsigned &n_workers) {
    static long long hired;
    static pid_t process;
    if (process != getpid()) hired = 0;
    process = getpid();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (; hired < wanted; ++hired) {
        pthread_t thread;
        Worker *worker = new Worker{(unsigned)hired, n_launches};
        if (pthread_create(&thread, &attributes, work, worker)) {
            delete worker;
            break;
        }
    }
    pthread_attr_destroy(&attributes);
    n_workers = (unsigned)hired;
    return hired >= wanted;
}

enum Outcome { DONE, DIVERGED, NO_THREADS };

// Runs kernel() in n_blocks blocks of n_threads threads. DIVERGED: some threads of a block waited in
// __syncthreads() for others that had left the kernel or were in another block.
static inline int run(long long blocks, long long threads, std::function<void()> body) {
    unsigned n_workers;
    if (!hire(threads, n_workers)) return NO_THREADS;
    std::barrier<Compare> meeting(threads);
    barrier = &meeting;
    places.assign(threads, 0);
    diverged = false;
    kernel = std::move(body);
    n_blocks = blocks;
    n_threads = threads;
    blockDim.x = (unsigned)threads;
    gridDim.x = (unsigned)blocks;
    n_busy = n_workers;
    ++n_launches;
    n_launches.notify_all();
    for (unsigned left; (left = n_busy);) n_busy.wait(left);
    return diverged ? DIVERGED : DONE;
}

// Arguments come as words of 8 bytes: a pointer, a long long, or a double.
template <typename T>
static T argument(const unsigned long long *word) {
    static_assert(sizeof(T) == sizeof *word);
    T value;
    std::memcpy(&value, word, sizeof value);
    return value;
}

}  // namespace host

static inline void __syncthreads() {
    host::synced = true;
    host::meet(2LL * blockIdx.x);
}

// The integer types that CUDA's atomics take; there are none for floats here, because their sums would
// depend on the order of the threads.
#define HOST_ATOMICS(T)                                                                                     \
    static inline T atomicAdd(T *p, T v) { return std::atomic_ref<T>(*p).fetch_add(v, HOST_RELAXED); }      \
    static inline T atomicExch(T *p, T v) { return std::atomic_ref<T>(*p).exchange(v, HOST_RELAXED); }      \
    static inline T atomicAnd(T *p, T v) { return std::atomic_ref<T>(*p).fetch_and(v, HOST_RELAXED); }      \
    static inline T atomicOr(T *p, T v) { return std::atomic_ref<T>(*p).fetch_or(v, HOST_RELAXED); }        \
    static inline T atomicCAS(T *p, T expected, T v) {                                                      \
        std::atomic_ref<T>(*p).compare_exchange_strong(expected, v, HOST_RELAXED);                          \
        return expected;                                                                                    \
    }                                                                                                       \
    static inline T atomicMin(T *p, T v) {                                                                  \
        T old = std::atomic_ref<T>(*p).load(HOST_RELAXED);                                                  \
        while (v < old && !std::atomic_ref<T>(*p).compare_exchange_weak(old, v, HOST_RELAXED)) {            \
        }                                                                                                   \
        return old;                                                                                         \
    }                                                                                                       \
    static inline T atomicMax(T *p, T v) {                                                                  \
        T old = std::atomic_ref<T>(*p).load(HOST_RELAXED);                                                  \
        while (v > old && !std::atomic_ref<T>(*p).compare_exchange_weak(old, v, HOST_RELAXED)) {            \
        }                                                                                                   \
        return old;                                                                                         \
    }
#define HOST_RELAXED std::memory_order_relaxed
HOST_ATOMICS(int)
HOST_ATOMICS(unsigned)
HOST_ATOMICS(unsigned long long)

template <typename T>
static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T>
static inline T max(T a, T b) { return a < b ? b : a; }
template <typename T>
static inline T __ldg(const T *p) { return *p; }

#endif
