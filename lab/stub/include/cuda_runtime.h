// What CuPy's module `runtime` needs of CUDA's header of this name, without what only nvcc reads.
#ifndef STUB_CUDA_RUNTIME_H
#define STUB_CUDA_RUNTIME_H
#include <cuda_runtime_api.h>
#include <driver_functions.h>
#endif
