// Precedes every kernel: CUDA on the host, and how the stub driver calls a kernel.
#ifndef STUB_KERNEL_H
#define STUB_KERNEL_H
#include "entry.h"

namespace host {
static bool flushes();  // at the end of the translation unit: whether -ftz=true was the last of its options
}
#define HOST_FLUSH host::flushes()
#include "cuda.h"

#include <utility>

// Not shared by libraries: kernels of one name may have other parameters.
namespace host {
namespace {

template <auto kernel>
struct Launch;

template <typename... A, void (*kernel)(A...)>
struct Launch<kernel> {
    static constexpr size_t sizes[] = {sizeof(A)..., 0};

    template <size_t... I>
    static int call(const unsigned *grid, const unsigned *block, void **parameters, std::index_sequence<I...>) {
        return run(grid[0], block[0], [=] { kernel(*(A *)parameters[I]...); });
    }

    // Kernels here are one-dimensional.
    static int run_kernel(const unsigned *grid, const unsigned *block, unsigned shared, void **parameters) {
        if (grid[1] * grid[2] * block[1] * block[2] != 1 || shared > sizeof block_memory) return DIVERGED;
        return call(grid, block, parameters, std::index_sequence_for<A...>{});
    }

    static constexpr Entry entry{sizeof...(A), sizes, run_kernel};
};

}  // namespace
}  // namespace host

#define STUB_ENTRY(name) extern "C" const Entry host_entry_##name = host::Launch<name>::entry;

#endif
