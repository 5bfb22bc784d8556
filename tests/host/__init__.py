"""CUDA on the host: kernels compiled as C++ and run with a thread for each CUDA thread."""
