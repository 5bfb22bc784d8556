/* Numbers of the fit of a stump, which Cython, CUDA and, by core/launch.py, Python read. */
#ifndef HFOREST_CO2_FIT_H
#define HFOREST_CO2_FIT_H

enum {
    HF_LANES = 16,   /* partial sums of a product w.x */
    HF_CHUNK = 1024, /* samples whose sums are added to those of other samples, in float64 */
    HF_HALVINGS = 3  /* number of times that eta is lowered before the fit ends */
};

/* Share of `smooth` that is added to a class without samples in the node, so that its logarithm is finite. */
#define HF_ABSENT 0x1p-20

#endif
