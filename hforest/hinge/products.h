/* Inner products and sums of rows for vertices with a projection, as vector bodies have them (simd/products.h). */
#ifndef HFOREST_HINGE_PRODUCTS_H
#define HFOREST_HINGE_PRODUCTS_H
#include <stddef.h>

/* Rows are float or double; `count` of them, of n elements each. */
typedef struct {
    /* Writes product (count,): the inner products of rows a[i] and b[i], in double. */
    void (*multiply)(int count, const void *const *a, const void *const *b, ptrdiff_t n, double *product);
    /* Adds scale[i] times row i to total (n,), in double, in the order of the rows. */
    void (*add_wide)(int count, const void *const *rows, const double *scale, ptrdiff_t n, double *total);
    /* The same in the type of the rows. */
    void (*add_rows)(int count, const void *const *rows, const double *scale, ptrdiff_t n, void *total);
} hf_products;

#endif
