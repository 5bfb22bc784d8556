// CUDA's runtime and driver libraries for two devices that are memory and threads of the host. A kernel has run when its
// launch returns, so streams and events do nothing. Fresh and freed memory hold a pattern. A launch copies the bytes of
// each parameter first, as the driver does. What CuPy calls here and hforest's tests do not need is in
// rest.cpp.
//
// A module is a shared library of the host; its image is "HOST:" and its path. It has, for each kernel `name`, an
// `Entry host_entry_name` (kernels.h).
#include <algorithm>
#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "entry.h"

namespace {

constexpr int DEVICES = 2;
constexpr int FRESH = 0xA5, FREED = 0xDB;
// Bytes of shared memory of which a launch chooses the number: without the kernel's attribute, those that kernels are told
// of, and with the attribute. GPUs have more.
constexpr unsigned BLOCK_BYTES = 1 << 10, MAX_BLOCK_BYTES = 4 << 10, SURE_BYTES = 48 << 10;

thread_local int current;
std::mutex lock;

struct Block {
    size_t size;
    int device;
};
std::map<char *, Block> blocks;  // by address

// What the tests count, by name; stub_count reads it.
std::map<std::string, long long> counts;
bool runs = true;  // whether launches run kernels
long long in_use, in_use_before;  // bytes of allocations, now and when the counts were reset

void count(const char *name, long long n = 1) {
    const std::lock_guard<std::mutex> guard(lock);
    counts[name] += n;
}

// Returns the block that holds an address, or null.
const Block *block_of(const void *address) {
    auto next = blocks.upper_bound((char *)address);
    if (next == blocks.begin()) return nullptr;
    --next;
    return (char *)address < next->first + next->second.size ? &next->second : nullptr;
}

// Returns whether bytes at an address are memory of the device, all of one block.
bool on_device(const void *address, size_t size) {
    const std::lock_guard<std::mutex> guard(lock);
    auto next = blocks.upper_bound((char *)address);
    if (next == blocks.begin()) return false;
    --next;
    return (char *)address + size <= next->first + next->second.size;
}

cudaError_t copy(void *to, const void *from, size_t size, cudaMemcpyKind kind) {
    if (!size) return cudaSuccess;
    const bool to_there = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_there = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault && ((to_there && !on_device(to, size)) || (from_there && !on_device(from, size))))
        return cudaErrorInvalidValue;
    static const char *const names[] = {"host to host", "to device", "to host", "device to device", "default"};
    count(names[kind]);
    memmove(to, from, size);
    return cudaSuccess;
}

// Functions of a module.
struct Function {
    const Entry *entry;
    std::string name;
    unsigned block_bytes;
};

struct Module {
    void *library;
    std::map<std::string, Function> functions;
};

}  // namespace

extern "C" {

long long stub_count(const char *name) {
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = counts.find(name);
    return found == counts.end() ? 0 : found->second;
}

void stub_idle(int idle) { runs = !idle; }

void stub_reset() {
    const std::lock_guard<std::mutex> guard(lock);
    counts.clear();
    in_use_before = in_use;
}

// ------------------------------------------------------------------------------------------------- errors

const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
        case cudaErrorNotSupported: return "cudaErrorNotSupported";
        default: return "cudaErrorUnknown";
    }
}

const char *cudaGetErrorString(cudaError_t) { return "of the stub device"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == CUDA_ERROR_NOT_FOUND ? "CUDA_ERROR_NOT_FOUND"
            : error == CUDA_ERROR_INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE"
            : error == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
            : error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
                                                : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char **text) {
    *text = "of the stub device";
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------ devices

cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDA_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDA_VERSION, cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { return *device = current, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *n) { return *n = DEVICES, cudaSuccess; }

cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= DEVICES) return cudaErrorInvalidDevice;
    current = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = MAX_BLOCK_BYTES; break;
        case cudaDevAttrMultiProcessorCount: *value = 4; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
        default: *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "stub");
    properties->major = 9;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->sharedMemPerBlock = 48 << 10;
    properties->multiProcessorCount = 4;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return count("waits"), cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 0, cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device) {
    strncpy(id, device ? "0000:02:00.0" : "0000:01:00.0", size);
    return cudaSuccess;
}

// ------------------------------------------------------------------------------------------------- memory

cudaError_t cudaMalloc(void **address, size_t size) {
    count("allocations");
    void *const block = size < (1ull << 40) ? aligned_alloc(512, (size + 511) / 512 * 512) : nullptr;
    if (!block) return cudaErrorMemoryAllocation;
    memset(block, FRESH, size);
    const std::lock_guard<std::mutex> guard(lock);
    blocks[(char *)block] = {size, current};
    in_use += (long long)size;
    counts["bytes"] = std::max(counts["bytes"], in_use - in_use_before);
    *address = block;
    return cudaSuccess;
}

cudaError_t cudaFree(void *address) {
    if (!address) return cudaSuccess;
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = blocks.find((char *)address);
    if (found == blocks.end()) return cudaErrorInvalidValue;
    memset(address, FREED, found->second.size);
    in_use -= (long long)found->second.size;
    blocks.erase(found);
    free(address);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **address, size_t size, unsigned) {
    return *address = malloc(size ? size : 1), *address ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *address) { return free(address), cudaSuccess; }

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    return *available = *total = 8ull << 30, cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind kind) {
    return count("waits"), copy(to, from, size, kind);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t) {
    return copy(to, from, size, kind);
}

cudaError_t cudaMemset(void *address, int value, size_t size) {
    if (size && !on_device(address, size)) return cudaErrorInvalidValue;
    return memset(address, value, size), cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *address, int value, size_t size, cudaStream_t) {
    return cudaMemset(address, value, size);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *address) {
    const std::lock_guard<std::mutex> guard(lock);
    const Block *const block = block_of(address);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = block ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    attributes->device = block ? block->device : -1;
    attributes->devicePointer = block ? (void *)address : nullptr;
    return cudaSuccess;
}

// ------------------------------------------------------------------------------------- streams and events

static cudaError_t make_handle(void **handle) { return *handle = malloc(1), cudaSuccess; }
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return make_handle((void **)stream); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { return make_handle((void **)stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) { return make_handle((void **)stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return free(stream), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return count("waits"), cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status) {
    return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return make_handle((void **)event); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return make_handle((void **)event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return free(event), cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return count("waits"), cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) { return *ms = 1, cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

// ------------------------------------------------------------------------------------ modules and kernels

CUresult cuCtxGetCurrent(CUcontext *context) { return *context = (CUcontext)1, CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { return *device = current, CUDA_SUCCESS; }

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    const char *const text = (const char *)image;
    if (strncmp(text, "HOST:", 5)) return CUDA_ERROR_INVALID_IMAGE;
    void *const library = dlopen(text + 5, RTLD_NOW | RTLD_LOCAL);
    if (!library) return CUDA_ERROR_INVALID_IMAGE;
    *module = (CUmodule) new Module{library, {}};
    return CUDA_SUCCESS;
}

// The library stays, for kernels may be in a table of CuPy.
CUresult cuModuleUnload(CUmodule module) { return delete (Module *)module, CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    Module *const m = (Module *)module;
    const Entry *const entry = (const Entry *)dlsym(m->library, (std::string("host_entry_") + name).c_str());
    if (!entry) return CUDA_ERROR_NOT_FOUND;
    const std::lock_guard<std::mutex> guard(lock);
    *function = (CUfunction) & (m->functions[name] = {entry, name, BLOCK_BYTES});
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(
    CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
    CUstream, void **parameters, void **
) {
    static std::mutex running;  // shared memory is static
    const Function *const f = (const Function *)function;
    if (!gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > 1024 || shared > f->block_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    count("launches");
    count(("launch " + f->name).c_str());
    std::vector<void *> copies;
    for (int i = 0; i < f->entry->n; ++i) {
        void *const copied = aligned_alloc(16, (f->entry->sizes[i] + 15) / 16 * 16);
        memcpy(copied, parameters[i], f->entry->sizes[i]);
        copies.push_back(copied);
    }
    const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    int outcome;
    {
        const std::lock_guard<std::mutex> guard(running);
        outcome = runs ? f->entry->run(grid, block, shared, copies.data()) : 0;
    }
    for (void *copied : copies) free(copied);
    return outcome ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction) {
    return *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0, CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
    if (value < 0 || (unsigned)value > SURE_BYTES) return CUDA_ERROR_INVALID_VALUE;
    return ((Function *)function)->block_bytes = value, CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction, int, size_t) { return *n = 2, CUDA_SUCCESS; }

}  // extern "C"
