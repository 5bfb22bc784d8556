// Counts what the warps of a launch ask of memory: the runtime of kernels compiled with HOST_COUNTS.
//
// The compiler calls __tsan_read4(address) and the like before each access and __sanitizer_cov_trace_pc() in each basic
// block; each call is an event of the CUDA thread that runs. Threads of the host build run one after the other, so the
// warp's instructions are found afterwards, at each barrier of the block: of the threads of a warp, those go on whose next
// event has the least address in the code, all together (Collange 2011). With all functions inlined and blocks in the
// order of the source, threads that went different ways meet again as on a GPU.
//
// Addresses in the arrays of a launch are global memory, those in .bss of the kernel's library shared memory; anything
// else (stacks, threadIdx) is no memory of the device. Sectors of an array are counted from its begin, because CuPy's
// arrays begin at multiples of 512 bytes.
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace {

constexpr unsigned WARP = 32, SECTOR = 32, BANKS = 32, WORD = 4, MAX_WARPS = 32;

enum Kind : uint8_t { PASSED, READ, WRITTEN, ATOMIC, WAITS };

struct Event {
    uint64_t address;
    uint32_t place;  // in the code; the greatest of threads that wait
    uint16_t size;
    Kind kind;
};

struct Sector {
    uint32_t block;               // the last one that used it, from 1
    uint32_t in_block[2], in_launch[2];  // its bytes that were read and written, as bits
};

struct Array {
    uint64_t begin, end;
    std::vector<Sector> sectors;
};

// In the order of NAMES in counts.py.
struct Counts {
    long long threads, busy_threads, blocks, busy_blocks;
    long long steps;                             // instructions on memory of the warp that has most
    long long requests, lanes, sectors, bytes;   // of warps to global memory; different sectors and bytes of each
    long long block_sectors, block_bytes;        // different ones that each block reads, and that it writes
    long long read, written;                     // different bytes of the launch
    long long shared, passes, best_passes;       // requests to shared memory, their passes, and without conflicts
    long long atomics, addresses, most_atomics;  // of global and shared memory; most on one address
};

std::vector<Event> events[MAX_WARPS * WARP];  // of each thread, since the last barrier
bool busy[MAX_WARPS * WARP];
long long steps[MAX_WARPS];
unsigned thread, n_warps;  // of the block that runs
uint64_t code, shared_begin, shared_end;  // of the kernel's library
uint64_t indices[2], index_size;          // threadIdx and blockIdx, which lie in .bss too
std::vector<Array> arrays;
Counts counts;
std::map<uint64_t, long long> atomics, shared_atomics;

void add(Kind kind, const void *address, size_t size, const void *place) {
    events[thread].push_back({(uint64_t)address, (uint32_t)((uint64_t)place - code), (uint16_t)size, kind});
}

// Writes where the code and .bss of the library with threadIdx lie.
int locate(dl_phdr_info *library, size_t, void *) {
    for (int i = 0; i < library->dlpi_phnum; ++i) {
        const auto &part = library->dlpi_phdr[i];
        const uint64_t begin = library->dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
        if (part.p_type != PT_LOAD || indices[0] < begin || indices[0] >= end) continue;
        code = library->dlpi_addr, shared_begin = begin + part.p_filesz, shared_end = end;
        return 1;
    }
    return 0;
}

bool in_shared(uint64_t address) {
    for (const uint64_t index : indices)
        if (index <= address && address < index + index_size) return false;
    return shared_begin <= address && address < shared_end;
}

Array *array_of(uint64_t address) {
    static size_t last;
    if (last < arrays.size() && arrays[last].begin <= address && address < arrays[last].end) return &arrays[last];
    for (last = 0; last < arrays.size(); ++last)
        if (arrays[last].begin <= address && address < arrays[last].end) return &arrays[last];
    return nullptr;
}

void touch(Array &array, const Event &event, std::vector<uint64_t> &sectors) {
    for (uint64_t at = event.address - array.begin, end = at + event.size; at < end;) {
        const uint64_t number = at / SECTOR, until = std::min(end, (number + 1) * SECTOR);
        const uint32_t bits = (uint32_t)(((1ull << (until - at)) - 1) << at % SECTOR);
        Sector &sector = array.sectors[number];
        if (sector.block != counts.blocks + 1) sector.in_block[0] = sector.in_block[1] = 0;
        sector.block = (uint32_t)counts.blocks + 1;
        for (const int write : {0, 1}) {
            if (event.kind == (write ? READ : WRITTEN)) continue;
            counts.block_sectors += !sector.in_block[write];
            counts.block_bytes += __builtin_popcount(bits & ~sector.in_block[write]);
            sector.in_block[write] |= bits;
            sector.in_launch[write] |= bits;
        }
        sectors.push_back((uint64_t)(&array - arrays.data()) << 48 | number);
        at = until;
    }
}

template <typename T>
long long unique(std::vector<T> &values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return (long long)values.size();
}

// Returns in how many passes shared memory serves the accesses of some threads: the most different words of a bank.
long long passes_of(const Event *const *group, unsigned from, unsigned to) {
    std::vector<uint64_t> words;
    for (unsigned lane = from; lane < to; ++lane)
        if (group[lane])
            for (uint64_t at = group[lane]->address; at < group[lane]->address + group[lane]->size; at += WORD)
                words.push_back(at / WORD);
    unique(words);
    long long n[BANKS] = {};
    for (const uint64_t word : words) ++n[word % BANKS];
    return *std::max_element(n, n + BANKS);
}

// Counts one instruction of a warp: group (WARP,) has the event of each thread that takes part, else null.
void request(unsigned warp, const Event *const *group) {
    static std::vector<uint64_t> sectors;
    static std::vector<std::pair<uint64_t, long long>> used;
    const Event *of_shared[WARP] = {};
    unsigned size = 0, n = 0;
    sectors.clear();
    used.clear();
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const Event *const event = group[lane];
        if (!event) continue;
        Array *const array = array_of(event->address);
        if (!array && !in_shared(event->address)) continue;
        busy[warp * WARP + lane] = true;
        if (event->kind == ATOMIC) ++counts.atomics, ++(array ? atomics : shared_atomics)[event->address];
        if (array) {
            ++n;
            touch(*array, *event, sectors);
            used.push_back({(long long)event->address, event->size});
        } else {
            of_shared[lane] = event;
            size = std::max<unsigned>(size, event->size);
        }
    }
    if (!n && !size) return;
    ++steps[warp];
    if (n) {
        ++counts.requests;
        counts.lanes += n;
        counts.sectors += unique(sectors);
        unique(used);
        for (const auto &part : used) counts.bytes += part.second;
    }
    if (size) {
        ++counts.shared;
        const unsigned width = size <= 4 ? WARP : size <= 8 ? WARP / 2 : WARP / 4;  // threads served together
        for (unsigned from = 0; from < WARP; from += width) {
            const long long passes = passes_of(of_shared, from, from + width);
            counts.passes += passes;
            counts.best_passes += passes > 0;
        }
    }
}

// Runs the events of a warp's threads side by side.
void replay(unsigned warp) {
    std::vector<Event> *const of = events + warp * WARP;
    size_t at[WARP] = {};
    for (;;) {
        uint64_t least = UINT64_MAX;
        for (unsigned lane = 0; lane < WARP; ++lane)
            if (at[lane] < of[lane].size()) least = std::min<uint64_t>(least, of[lane][at[lane]].place);
        if (least == UINT64_MAX) break;
        const Event *group[WARP] = {};
        bool accesses = false;
        for (unsigned lane = 0; lane < WARP; ++lane) {
            if (at[lane] == of[lane].size() || of[lane][at[lane]].place != least) continue;
            group[lane] = &of[lane][at[lane]++];
            accesses = accesses || (group[lane]->kind != PASSED && group[lane]->kind != WAITS);
        }
        if (accesses) request(warp, group);
    }
    for (unsigned lane = 0; lane < WARP; ++lane) of[lane].clear();
}

}  // namespace

extern "C" {

// ---------------------------------------------------------------------------------------- by cuda.h

void host_launch(const void *thread_index, const void *block_index, size_t size) {
    indices[0] = (uint64_t)thread_index, indices[1] = (uint64_t)block_index, index_size = size;
    dl_iterate_phdr(locate, nullptr);
    for (auto &of : events) of.clear();
}

void host_thread(unsigned number, bool starts) {
    thread = number, n_warps = std::max(n_warps, number / WARP + 1);
    if (starts) events[thread].clear();  // what it ran before was code of the host
}

void host_warp_waits(void) { events[thread].push_back({0, UINT32_MAX, 0, WAITS}); }

void host_threads_wait(void) {
    for (unsigned warp = 0; warp < n_warps; ++warp) replay(warp);
}

void host_block_ended(void) {
    const long long n = std::count(busy, busy + n_warps * WARP, true);
    std::fill(busy, busy + n_warps * WARP, false);
    counts.busy_threads += n;
    counts.busy_blocks += n > 0;
    ++counts.blocks;
    counts.steps = std::max(counts.steps, *std::max_element(steps, steps + n_warps));
    std::fill(steps, steps + n_warps, 0);
    for (const auto &one : shared_atomics) counts.most_atomics = std::max(counts.most_atomics, one.second);
    counts.addresses += (long long)shared_atomics.size();
    shared_atomics.clear();
    n_warps = 0;
}

void host_atomic(const void *address, size_t size) { add(ATOMIC, address, size, __builtin_return_address(0)); }

// -------------------------------------------------------------------------------------- by counts.py

// Begins a launch. ranges (n_arrays, 2): begin and end.
void counts_begin(const uint64_t *ranges, long long n_arrays) {
    arrays.clear();
    for (long long i = 0; i < n_arrays; ++i) {
        const uint64_t begin = ranges[2 * i], end = ranges[2 * i + 1];
        arrays.push_back({begin, end, std::vector<Sector>((end - begin + SECTOR - 1) / SECTOR)});
    }
    counts = {};
}

const Counts *counts_end(void) {
    for (const Array &array : arrays)
        for (const Sector &sector : array.sectors) {
            counts.read += __builtin_popcount(sector.in_launch[0]);
            counts.written += __builtin_popcount(sector.in_launch[1]);
        }
    for (const auto &one : atomics) counts.most_atomics = std::max(counts.most_atomics, one.second);
    counts.addresses += (long long)atomics.size();
    atomics.clear();
    return &counts;
}

// ------------------------------------------------------------------------------- by instrumented code

void __tsan_init(void) {}
void __sanitizer_cov_trace_pc(void) { add(PASSED, nullptr, 0, __builtin_return_address(0)); }
#define PLAIN(n)                                                                                        \
    void __tsan_read##n(void *p) { add(READ, p, n, __builtin_return_address(0)); }                      \
    void __tsan_write##n(void *p) { add(WRITTEN, p, n, __builtin_return_address(0)); }                  \
    void __tsan_unaligned_read##n(void *p) { add(READ, p, n, __builtin_return_address(0)); }            \
    void __tsan_unaligned_write##n(void *p) { add(WRITTEN, p, n, __builtin_return_address(0)); }
PLAIN(1) PLAIN(2) PLAIN(4) PLAIN(8) PLAIN(16)
void __tsan_read_range(void *p, size_t n) { add(READ, p, n, __builtin_return_address(0)); }
void __tsan_write_range(void *p, size_t n) { add(WRITTEN, p, n, __builtin_return_address(0)); }

// CUDA's atomics, which host_atomic has counted.
#define ATOMICS(bits)                                                                                               \
    using a##bits = uint##bits##_t;                                                                                 \
    a##bits __tsan_atomic##bits##_load(const a##bits *p, int) { return __atomic_load_n(p, __ATOMIC_RELAXED); }      \
    void __tsan_atomic##bits##_store(a##bits *p, a##bits v, int) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }      \
    a##bits __tsan_atomic##bits##_exchange(a##bits *p, a##bits v, int) { return std::exchange(*p, v); }             \
    a##bits __tsan_atomic##bits##_fetch_add(a##bits *p, a##bits v, int) { return std::exchange(*p, *p + v); }       \
    a##bits __tsan_atomic##bits##_fetch_and(a##bits *p, a##bits v, int) { return std::exchange(*p, *p & v); }       \
    a##bits __tsan_atomic##bits##_fetch_or(a##bits *p, a##bits v, int) { return std::exchange(*p, *p | v); }        \
    int __tsan_atomic##bits##_compare_exchange_strong(a##bits *p, a##bits *expected, a##bits v, int, int) {         \
        return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);              \
    }                                                                                                               \
    int __tsan_atomic##bits##_compare_exchange_weak(a##bits *p, a##bits *expected, a##bits v, int, int) {           \
        return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);              \
    }
ATOMICS(32)
ATOMICS(64)
}
