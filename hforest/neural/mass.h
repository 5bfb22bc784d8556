/* Sum over samples and classes below which a leaf counts as not reached; Cython, CUDA and Python read it. */
#define HF_LEAST_MASS 0x1p-40
