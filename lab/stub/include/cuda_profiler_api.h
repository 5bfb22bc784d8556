#ifndef STUB_CUDA_PROFILER_API_H
#define STUB_CUDA_PROFILER_API_H
#include <cuda_runtime_api.h>
extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();
#endif
