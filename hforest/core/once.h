/* Items that are made once, each by the thread that needs it first; other threads wait for it.

   The state of an item: 0 if it is not made; HF_MADE; or the number of the process whose thread makes it. */
#ifndef HFOREST_ONCE_H
#define HFOREST_ONCE_H
#include <stdint.h>

#include "core/watch.h"

#ifdef _WIN32
static int32_t hf_process(void) { return (int32_t)GetCurrentProcessId(); }
#else
#include <unistd.h>
static int32_t hf_process(void) { return (int32_t)getpid(); }
#endif

enum { HF_MADE = -1 };

HF_INLINE int hf_is_made(const int32_t *state) { return __atomic_load_n(state, __ATOMIC_ACQUIRE) == HF_MADE; }

/* Returns 1 if the caller has to make an item and to call hf_end_item; 0 if it is made. */
static int hf_begin_item(int32_t *state) {
    const int32_t process = hf_process();
    while (!hf_is_made(state)) {
        int32_t now = __atomic_load_n(state, __ATOMIC_RELAXED);
        /* A forked process has none of the threads that made items in the other one. */
        if (now != HF_MADE && now != process &&
            __atomic_compare_exchange_n(state, &now, process, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return 1;
        hf_yield();
    }
    return 0;
}

/* Ends the making of an item; another thread makes it if it is not `made`. */
static void hf_end_item(int32_t *state, int made) { __atomic_store_n(state, made ? HF_MADE : 0, __ATOMIC_RELEASE); }

#endif
