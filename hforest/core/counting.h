/* Counts the calls of vector bodies and of scorers, only in bounds-checked builds: tests check that each is used.
   machine.pyx owns the list of the counters of all extension modules, and _bodies_taken returns them. */
#ifndef HFOREST_COUNTING_H
#define HFOREST_COUNTING_H
#include <stdint.h>

#ifdef HF_DEBUG
enum { HF_COUNTING = 1 };
#else
enum { HF_COUNTING = 0 };
#endif

typedef struct hf_counter {
    const char *package, *body;
    int64_t calls;
    int is_listed;
    struct hf_counter *next;
} hf_counter;

/* The name of the capsule with the head of the list. */
#define HF_COUNTERS "hforest.core.machine._counters"

#if defined(HF_DEBUG) && defined(Py_PYTHON_H) && !defined(HF_OWNS_COUNTERS)
static hf_counter **hf_counters;

/* Runs when the extension module is loaded. */
__attribute__((constructor)) static void hf_find_counters(void) {
    hf_counters = (hf_counter **)PyCapsule_Import(HF_COUNTERS, 0);
}

static void hf_count(hf_counter *c, const char *package, const char *body) {
    __atomic_fetch_add(&c->calls, 1, __ATOMIC_RELAXED);
    if (__atomic_exchange_n(&c->is_listed, 1, __ATOMIC_RELAXED)) return;
    c->package = package;
    c->body = body;
    c->next = __atomic_exchange_n(hf_counters, c, __ATOMIC_ACQ_REL);
}

/* Counts a call of a body of a subpackage. A C function passes __func__ in its first statement. */
#define HF_COUNT(package, body)             \
    do {                                    \
        static hf_counter counter_;         \
        hf_count(&counter_, package, body); \
    } while (0)
#else
#define HF_COUNT(package, body) ((void)(package), (void)(body))
#endif

#endif
