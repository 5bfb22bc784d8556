// How the stub driver calls a kernel of a module.
#ifndef STUB_ENTRY_H
#define STUB_ENTRY_H
#include <stddef.h>

struct Entry {
    int n;                // parameters
    const size_t *sizes;  // (n,): their bytes
    // Runs the kernel; parameters (n,): addresses of copies. Returns an outcome of host::run.
    int (*run)(const unsigned *grid, const unsigned *block, unsigned shared, void **parameters);
};

#endif
