/* Sum over samples and classes below which a leaf counts as not reached; Cython, CUDA and Python read it. */
#define HF_LEAST_MASS 0x1p-40

/* Levels of a subtree whose leaves are summed in the arrays' dtype before the sum is added to float64. */
#define HF_LEVELS 6

/* Likelihoods, of a tree or summed over trees, below which products lose digits: they are computed in logarithms. */
#define HF_LEAST_F32 0x1p-80
#define HF_LEAST_F64 0x1p-900

/* Likelihoods below which the leaf update computes in logarithms: hf_flush in cpu/tiles.h says why. */
#define HF_LEAST_UPDATE_F32 0x1p-40
#define HF_LEAST_UPDATE_F64 HF_LEAST_F64

/* Samples of a class whose posteriors are summed in the arrays' dtype before the sum is added to float64. */
#define HF_ROW_F32 16
#define HF_ROW_F64 8
