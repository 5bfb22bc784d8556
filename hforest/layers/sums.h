/* Order of sums of layers: number i is added to lane i % HF_WARP of a sample, or to part i % HF_PARTS of a mean, whose
   parts are added by HF_WARP. Cython, CUDA and Python read them. */
#define HF_WARP 32
#define HF_PARTS 1024
