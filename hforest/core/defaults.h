/* The sides of values that a split does not compare: missing values, and unknown categories, which its node did not have.
   The same operations as core/defaults.py. */
#ifndef HFOREST_DEFAULTS_H
#define HFOREST_DEFAULTS_H
#include "core/both.h"

enum { HF_MISSING_LEFT = 1, HF_UNKNOWN_LEFT = 2 }; /* bits of a node's default_left */

/* Returns whether a random split sends the missing values of its node left, from a random word. */
HF_BOTH int hf_draws_missing_left(uint32_t word) { return !(word & 1); }

/* Returns whether missing values go left.

   seen      the side on which the scan, or the draw, of the split had those of its node: 1 left, 0 right, -1: it has none
   n_left    samples of the node whose values are known and go left
   n_right   the same of the right side */
HF_BOTH int hf_missing_left(int seen, int64_t n_left, int64_t n_right) { return seen < 0 ? n_left >= n_right : seen; }

/* Returns default_left of a split: hf_missing_left, and the side of more samples for unknown categories. */
HF_BOTH int hf_default_left(int seen, int64_t n_left, int64_t n_right, int64_t n_missing) {
    const int left = hf_missing_left(seen, n_left, n_right);
    if (left) n_left += n_missing;
    else n_right += n_missing;
    return (left ? HF_MISSING_LEFT : 0) | (n_left >= n_right ? HF_UNKNOWN_LEFT : 0);
}

/* Return whether a node sends missing values, and unknown categories, left. */
HF_BOTH int hf_sends_missing_left(int default_left) { return (default_left & HF_MISSING_LEFT) != 0; }
HF_BOTH int hf_sends_unknown_left(int default_left) { return (default_left & HF_UNKNOWN_LEFT) != 0; }

#endif
