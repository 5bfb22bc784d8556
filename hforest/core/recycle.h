/* A cache of the memory of large arrays (Linux; elsewhere nothing is cached).

   The C library returns freed blocks beyond a few megabytes to the system at once, and the system clears every page
   before a later call gets it: a large part of the time of a kernel that writes 12 bytes for each sample and tree.
   Here freed blocks are kept in a short list, oldest first, and reused. While a block is in the list it is marked as
   free (MADV_FREE): the system may take its pages when memory is short, and clears only those.

   Any thread may call any function at any time. The list has a lock that nobody waits for: a thread that finds it
   locked maps or unmaps memory instead, so that a process forked while a thread holds the lock does not hang. */
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
    HF_MAX_BLOCKS = 32,     /* in the list */
    HF_MIN_BYTES = 1 << 22, /* of an array that uses the cache */
    HF_HUGE = 1 << 21       /* bytes of a huge page: blocks begin at one, and consist of whole ones */
};

typedef struct {
    void *start;
    size_t n_bytes;
} hf_block;

#if HF_RECYCLES

static struct {
    hf_block blocks[HF_MAX_BLOCKS]; /* oldest first */
    int count;
    size_t n_bytes, limit; /* of all blocks together */
    char locked;
} hf_kept = {.limit = (size_t)512 << 20};

/* Returns whether the lock was free; then it is the caller's. */
static int hf_try_lock(void) { return !__atomic_test_and_set(&hf_kept.locked, __ATOMIC_ACQUIRE); }

static void hf_unlock(void) { __atomic_clear(&hf_kept.locked, __ATOMIC_RELEASE); }

/* Removes block i from the list. The caller has the lock. */
static hf_block hf_remove(int i) {
    const hf_block block = hf_kept.blocks[i];
    hf_kept.n_bytes -= block.n_bytes;
    for (--hf_kept.count; i < hf_kept.count; ++i) hf_kept.blocks[i] = hf_kept.blocks[i + 1];
    return block;
}

/* Removes and returns the smallest block of at least n_bytes and at most a quarter more; start is NULL if there is
   none. */
static hf_block hf_find(size_t n_bytes) {
    hf_block found = {NULL, 0};
    int best = -1;
    if (!hf_try_lock()) return found;
    for (int i = 0; i < hf_kept.count; ++i) {
        const size_t size = hf_kept.blocks[i].n_bytes;
        if (size >= n_bytes && size <= n_bytes + n_bytes / 4 && (best < 0 || size < hf_kept.blocks[best].n_bytes))
            best = i;
    }
    if (best >= 0) found = hf_remove(best);
    hf_unlock();
    return found;
}

/* Maps n_bytes, whole huge pages: what was mapped to reach the boundary of a huge page is unmapped. */
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
    /* As NumPy does for its own large arrays. */
    madvise(block.start, n_bytes, MADV_HUGEPAGE);
    return block;
}

/* Returns a block of at least n_bytes with undefined contents; start is NULL where there is no memory. */
static hf_block hf_block_new(size_t n_bytes) {
    const hf_block none = {NULL, 0};
    hf_block block;
    if (n_bytes > SIZE_MAX / 4) return none;
    n_bytes = (n_bytes + HF_HUGE - 1) / HF_HUGE * HF_HUGE;
    block = hf_find(n_bytes);
    return block.start ? block : hf_map(n_bytes);
}

/* Unmaps the oldest blocks until n_bytes more stay within the limit. The caller has the lock. */
static void hf_release(size_t n_bytes) {
    while (hf_kept.count && (hf_kept.n_bytes + n_bytes > hf_kept.limit || hf_kept.count == HF_MAX_BLOCKS)) {
        const hf_block oldest = hf_remove(0);
        munmap(oldest.start, oldest.n_bytes);
    }
}

/* Puts a block into the list, or unmaps it where it does not fit. */
static void hf_block_free(hf_block block) {
    int keep = 0;
    /* Before the lock, after which another thread may own the block. */
    madvise(block.start, block.n_bytes, MADV_FREE);
    if (hf_try_lock()) {
        keep = block.n_bytes <= hf_kept.limit;
        if (keep) {
            hf_release(block.n_bytes);
            hf_kept.blocks[hf_kept.count++] = block;
            hf_kept.n_bytes += block.n_bytes;
        }
        hf_unlock();
    }
    if (!keep) munmap(block.start, block.n_bytes);
}

/* Returns the bytes in the list. */
static size_t hf_kept_bytes(void) { return __atomic_load_n(&hf_kept.n_bytes, __ATOMIC_RELAXED); }

/* Sets the limit of the bytes in the list; returns 0, and does nothing, if another thread has the lock. */
static int hf_set_limit(size_t n_bytes) {
    if (!hf_try_lock()) return 0;
    hf_kept.limit = n_bytes;
    hf_release(0);
    hf_unlock();
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

static int hf_set_limit(size_t n_bytes) {
    (void)n_bytes;
    return 1;
}

#endif
#endif
