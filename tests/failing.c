/* malloc and realloc, preloaded: of the calls from one shared library, the one that fail_at names returns NULL. A
   compiler may make a malloc of a realloc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

void *__libc_malloc(size_t size); /* glibc's own */
void *__libc_realloc(void *memory, size_t size);

static const char *library;
static long left = -1;

/* Lets call number n from now on fail, 0 the first, of those from a library whose path holds a word. */
void fail_at(const char *word, long n) { library = word, left = n; }

/* Returns whether it has failed. */
int has_failed(void) { return left < 0; }

static int fails(const void *caller) {
    Dl_info of;
    return left >= 0 && dladdr(caller, &of) && strstr(of.dli_fname, library) && left-- == 0;
}

void *malloc(size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }

void *realloc(void *memory, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, size);
}
