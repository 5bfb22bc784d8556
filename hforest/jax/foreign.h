/* The part of XLA's foreign function interface that a handler on the CPU reads: structs, the numbers of their types,
   and pointers to functions that create errors. The declarations follow the public description of the interface
   (openxla.org/xla/custom_call and the header xla/ffi/api/c_api.h of jaxlib 0.5 to 0.10, versions 0.1 to 0.3).
   tests/test_jax_interface.py compares each size and offset with the header of the installed jaxlib.

   Every struct that the interface passes begins with its size and a list of extensions. Minor versions only append
   fields, and the size tells which exist; a handler cannot rely on anything in another major version.

       call frame --> api          (version, pointers to functions of the runtime)
                  --> arguments    types[i], buffers[i]  -->  element type, data, rank, dims
                  --> results      types[i], buffers[i]  -->  the same
                  --> attributes   types[i], names[i], values[i], sorted by name                                       */
#ifndef HFOREST_JAX_FOREIGN_H
#define HFOREST_JAX_FOREIGN_H
#include <stddef.h>
#include <stdint.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum { HF_XLA_MAJOR = 0, HF_XLA_MINOR = 1 }; /* the first version with all of these declarations */

enum { HF_XLA_METADATA = 1 };                 /* type of an extension: the runtime queries the handler's version */
enum { HF_XLA_BUFFER = 1 };                   /* type of an argument and of a result */
enum { HF_XLA_STRING = 4 };                   /* type of an attribute */
enum { HF_XLA_S32 = 4, HF_XLA_F32 = 11, HF_XLA_F64 = 12 }; /* types of elements */

/* Error codes, those of absl::Status. */
enum { HF_XLA_CANCELLED = 1, HF_XLA_INVALID_ARGUMENT = 3, HF_XLA_RESOURCE_EXHAUSTED = 8, HF_XLA_FAILED_PRECONDITION = 9,
       HF_XLA_OUT_OF_RANGE = 11, HF_XLA_INTERNAL = 13 };

typedef struct hf_xla_error hf_xla_error; /* owned by the runtime */

typedef struct hf_xla_extension {
    size_t struct_size;
    int type;
    struct hf_xla_extension *next;
} hf_xla_extension;

typedef struct {
    size_t struct_size;
    hf_xla_extension *extensions;
    int major, minor;
} hf_xla_version;

typedef struct {
    size_t struct_size;
    hf_xla_version version; /* OUT */
    uint32_t traits;        /* OUT, a set of bits; none is needed on the CPU */
} hf_xla_metadata;

typedef struct {
    hf_xla_extension base;
    hf_xla_metadata *metadata;
} hf_xla_metadata_extension;

typedef struct {
    size_t struct_size;
    hf_xla_extension *extensions;
    const char *message; /* ends with 0; the runtime copies it */
    int code;
} hf_xla_error_arguments;

/* The first fields of a longer struct. */
typedef struct {
    size_t struct_size;
    hf_xla_extension *extensions;
    hf_xla_version version;
    const void *internal;
    hf_xla_error *(*create_error)(hf_xla_error_arguments *);
} hf_xla_api;

typedef struct {
    size_t struct_size;
    hf_xla_extension *extensions;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims; /* (rank,) */
} hf_xla_buffer;

/* Arguments or results. */
typedef struct {
    size_t struct_size;
    hf_xla_extension *extensions;
    int64_t size;
    int *types;              /* (size,) */
    hf_xla_buffer **buffers; /* (size,) */
} hf_xla_buffers;

typedef struct {
    const char *start; /* without a terminating 0 */
    size_t length;
} hf_xla_text;

typedef struct {
    size_t struct_size;
    hf_xla_extension *extensions;
    int64_t size;
    int *types;          /* (size,) */
    hf_xla_text **names; /* (size,), ascending */
    void **values;       /* (size,) */
} hf_xla_attributes;

typedef struct {
    size_t struct_size;
    hf_xla_extension *extensions;
    const hf_xla_api *api;
    void *context;
    int stage;
    hf_xla_buffers arguments, results;
    hf_xla_attributes attributes;
} hf_xla_call;

enum { HF_PAGE = 4096, HF_LARGE = 1 << 22 }; /* bytes */

/* Requests huge pages for a large array before it is written. XLA's new memory has small pages, and the first write to
   each takes longer than the kernels. NumPy requests them for its own arrays. */
static void hf_huge_pages(void *data, size_t n_bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t begin = ((uintptr_t)data + HF_PAGE - 1) / HF_PAGE * HF_PAGE, end = (uintptr_t)data + n_bytes;
    if (n_bytes >= HF_LARGE) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)data;
    (void)n_bytes;
#endif
}

typedef hf_xla_error *hf_xla_handler(hf_xla_call *);

#endif
