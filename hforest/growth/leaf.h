/* The values of a leaf, from totals over its samples. The same operations as reference/leaves.py, on host and device.

   A leaf has HF_LEAF_VALUES values for each class or output: the fields of `tree.Forest` that tree.forest.LEAF_FIELDS
   lists. Its row has the first value of all classes or outputs, then the second of all, and so on. */
#ifndef HFOREST_GROWTH_LEAF_H
#define HFOREST_GROWTH_LEAF_H
#include "growth/units.h"

enum { HF_LEAF_VALUES = 1, HF_LEAF_TOTALS = 2 }; /* values and totals of a leaf for each class or output */

/* Adds a sample to the totals of an output.

   totals   IN and OUT (HF_LEAF_TOTALS,)  0 before the first sample
   q, u     target and weight of the sample, in the unit of the leaf */
HF_BOTH void hf_add_to_leaf(int64_t *totals, int64_t q, int64_t u) {
    totals[0] += q;
    totals[1] += u;
}

/* Writes the totals of a class.

   totals   OUT (HF_LEAF_TOTALS,)
   q, u     weights of the samples of the class, and of all samples of the leaf */
HF_BOTH void hf_class_totals(int64_t *totals, int64_t q, int64_t u) {
    totals[0] = q;
    totals[1] = u;
}

/* Writes the values of a class or an output.

   totals    IN (HF_LEAF_TOTALS,)
   c, k, m   the unit of the totals (units.h); 0 for a class
   values    OUT (HF_LEAF_VALUES,)  the share of the class, or the mean of the targets */
HF_BOTH void hf_leaf_values(const int64_t *totals, double c, int k, int m, double *values) {
    values[0] = hf_mean(c, k, m, totals[0], totals[1]);
}

#endif
