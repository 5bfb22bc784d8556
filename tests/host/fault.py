"""Launches one kernel of faults/gpu.cu: `python -m host.fault KERNEL SANITIZER`."""

import sys

import numpy as np

from hforest.core.launch import launch

from .compiler import HERE, host_compiler


def main(kernel: str, sanitize: str) -> None:
    a = np.zeros(8192, np.float32)
    with host_compiler(sanitize):
        launch(HERE / "faults", kernel, a.dtype, a.size // 128 + 1, (a, a.size))
    print(f"{kernel} ran to its end")


if __name__ == "__main__":
    main(*sys.argv[1:])
