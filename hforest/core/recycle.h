/* Memory of large arrays, kept for the next ones (Linux; elsewhere nothing is kept).

   The C library hands memory beyond a few megabytes back to the system at once, which clears every page of it
   before the next call gets it: a large part of the time of a kernel that writes 12 bytes a pair. Here a freed block
   waits in a short list. Meanwhile it is marked as free (MADV_FREE): the system takes its pages when memory is short,
   and only then has to clear them.

   Any thread may call at any time. Who finds the list held by another thread goes to the system instead of waiting,
   so that a process forked while a thread holds it does not hang. */
#ifndef HFOREST_RECYCLE_H
#define HFOREST_RECYCLE_H
#include <stddef.h>
#include <stdint.h>

#if defined(__linux__) && (defined(__GNUC__) || defined(__clang__))
#define HF_RECYCLES 1
#include <sys/mman.h>
#else
#define HF_RECYCLES 0
#endif

enum {
    HF_MOST_BLOCKS = 32,
    HF_LEAST_BYTES = 1 << 22, /* of a block */
    HF_HUGE = 1 << 21         /* a huge page: blocks start at one, and are whole ones */
};

typedef struct {
    void *start;
    size_t n_bytes;
} hf_block;

#if HF_RECYCLES

/* Oldest first. */
static struct {
    hf_block blocks[HF_MOST_BLOCKS];
    int count;
    size_t n_bytes, most;
    char held;
} hf_kept = {.most = (size_t)512 << 20};

static int hf_hold(void) { return !__atomic_test_and_set(&hf_kept.held, __ATOMIC_ACQUIRE); }

static void hf_let_go(void) { __atomic_clear(&hf_kept.held, __ATOMIC_RELEASE); }

static hf_block hf_take_out(int i) {
    const hf_block block = hf_kept.blocks[i];
    hf_kept.n_bytes -= block.n_bytes;
    for (--hf_kept.count; i < hf_kept.count; ++i) hf_kept.blocks[i] = hf_kept.blocks[i + 1];
    return block;
}

/* The block that fits best: none is used for much less than it holds. */
static hf_block hf_find(size_t n_bytes) {
    hf_block found = {NULL, 0};
    int best = -1;
    if (!hf_hold()) return found;
    for (int i = 0; i < hf_kept.count; ++i) {
        const size_t size = hf_kept.blocks[i].n_bytes;
        if (size >= n_bytes && size <= n_bytes + n_bytes / 4 && (best < 0 || size < hf_kept.blocks[best].n_bytes))
            best = i;
    }
    if (best >= 0) found = hf_take_out(best);
    hf_let_go();
    return found;
}

/* Whole huge pages: what is mapped beside them is given back at once. */
static hf_block hf_map(size_t n_bytes) {
    hf_block block = {NULL, 0};
    const size_t wide = n_bytes + HF_HUGE;
    size_t before;
    char *start = mmap(NULL, wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return block;
    before = (HF_HUGE - (uintptr_t)start % HF_HUGE) % HF_HUGE;
    if (before) munmap(start, before);
    munmap(start + before + n_bytes, HF_HUGE - before);
    block.start = start + before;
    block.n_bytes = n_bytes;
    /* As NumPy asks for its own large arrays. */
    madvise(block.start, n_bytes, MADV_HUGEPAGE);
    return block;
}

/* At least n_bytes, with whatever they held before; start is NULL where there is no memory. */
static hf_block hf_block_new(size_t n_bytes) {
    const hf_block none = {NULL, 0};
    hf_block block;
    if (n_bytes > SIZE_MAX / 4) return none;
    n_bytes = (n_bytes + HF_HUGE - 1) / HF_HUGE * HF_HUGE;
    block = hf_find(n_bytes);
    return block.start ? block : hf_map(n_bytes);
}

/* Gives blocks back to the system until `room` more bytes fit under the limit. The list is held. */
static void hf_make_room(size_t room) {
    while (hf_kept.count && (hf_kept.n_bytes + room > hf_kept.most || hf_kept.count == HF_MOST_BLOCKS)) {
        const hf_block oldest = hf_take_out(0);
        munmap(oldest.start, oldest.n_bytes);
    }
}

static void hf_block_free(hf_block block) {
    int keep = 0;
    /* Before anybody else may have it. */
    madvise(block.start, block.n_bytes, MADV_FREE);
    if (hf_hold()) {
        keep = block.n_bytes <= hf_kept.most;
        if (keep) {
            hf_make_room(block.n_bytes);
            hf_kept.blocks[hf_kept.count++] = block;
            hf_kept.n_bytes += block.n_bytes;
        }
        hf_let_go();
    }
    if (!keep) munmap(block.start, block.n_bytes);
}

static size_t hf_kept_bytes(void) { return __atomic_load_n(&hf_kept.n_bytes, __ATOMIC_RELAXED); }

/* 0 if another thread holds the list. */
static int hf_keep_most(size_t most) {
    if (!hf_hold()) return 0;
    hf_kept.most = most;
    hf_make_room(0);
    hf_let_go();
    return 1;
}

#else

static hf_block hf_block_new(size_t n_bytes) {
    const hf_block none = {NULL, 0};
    (void)n_bytes;
    return none;
}

static void hf_block_free(hf_block block) { (void)block; }

static size_t hf_kept_bytes(void) { return 0; }

static int hf_keep_most(size_t most) {
    (void)most;
    return 1;
}

#endif
#endif
