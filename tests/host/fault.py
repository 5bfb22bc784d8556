"""Runs a fault: `python -m host.fault NAME SANITIZER`, a kernel of faults/gpu.cu, or one in growth."""

import sys
from unittest import mock

import numpy as np

from hforest.core import launch

from .cases_growth import counted_bins, small_nodes
from .compiler import HERE, host_compiler

ADD = "counts.add(row + sums_of_bin(y), 1);\n    }\n"
IN_GROWTH = {
    "samples_without_atomics": (ADD, "++counts.array[row + sums_of_bin(y)];\n    }\n"),
    "no_barrier_behind_counts": (f"{ADD}    __syncthreads();\n", ADD),
    "no_barrier_behind_sums": ("    __syncthreads();\n    Threshold best = ", "    Threshold best = "),
    "no_barrier_behind_bins": ("first + own]);\n        __syncthreads();\n", "first + own]);\n"),
    "best_of_all_threads": ("if (is_top && right[group] == n_right) {", "if (threshold.n_left) {"),
}
"""A text of the kernels that count bins, and what is in its place."""
MOVES = "move_tile(y, level, node.pending, node.split, after, 0);\n    __syncthreads();\n"
MERGED = "at - low] = e;\n            }\n        }\n        __syncthreads();\n"
IN_SMALL = {
    "no_barrier_behind_moves": (MOVES, MOVES.splitlines(keepends=True)[0]),
    "no_barrier_between_merges": (MERGED, MERGED.removesuffix("        __syncthreads();\n")),
}
"""Likewise of the kernel that grows small nodes."""


def main(name: str, sanitize: str) -> None:
    if name not in IN_GROWTH | IN_SMALL:
        a = np.zeros(8192, np.float32)
        with host_compiler(sanitize):
            launch.launch(HERE / "faults", name, a.dtype, a.size // 128 + 1, (a, a.size))
    else:
        old, new = (IN_GROWTH | IN_SMALL)[name]
        sound = launch.source
        assert sound(launch.PACKAGE / "growth").count(old) == 1
        changed = mock.patch.object(launch, "source", lambda folder: sound(folder).replace(old, new))
        with host_compiler(sanitize), changed:
            (counted_bins if name in IN_GROWTH else small_nodes)(np.float32)
    print(f"{name} ran to its end")


if __name__ == "__main__":
    main(*sys.argv[1:])
