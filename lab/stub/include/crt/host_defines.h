// The words of CUDA's headers for functions and types of the device, to a C++ compiler of the host.
#ifndef STUB_HOST_DEFINES_H
#define STUB_HOST_DEFINES_H
#define __host__
#define __device__
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __specialization_static static
#endif
