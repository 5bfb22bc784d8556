"""Ground floor: validation, dispatch, compilation and launch of CUDA kernels, threads. Knows no trees."""
