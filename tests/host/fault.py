"""Runs a fault: `python -m host.fault NAME SANITIZER`, a kernel of faults/gpu.cu, or one in growth or co2."""

import sys
from functools import partial
from unittest import mock

import numpy as np

from hforest.core import launch

from .cases_co2 import refined, stump_of_chunks
from .cases_growth import counted_bins, small_nodes
from .cases_hinge import whole_steps
from .compiler import HERE, host_compiler


def without_last_line(text: str) -> tuple[str, str]:
    """Returns a text of a kernel, and the text without its last line, which is a barrier."""
    return text, "".join(text.splitlines(keepends=True)[:-1])


ADD = "counts.add(row + sums_of_bin(y), 1);\n    }\n"
IN_GROWTH = {
    "samples_without_atomics": (ADD, "++counts.array[row + sums_of_bin(y)];\n    }\n"),
    "no_barrier_behind_counts": without_last_line(f"{ADD}    __syncthreads();\n"),
    "no_barrier_behind_sums": ("    __syncthreads();\n    Threshold best = ", "    Threshold best = "),
    "no_barrier_behind_bins": without_last_line("first + own]);\n        __syncthreads();\n"),
    "best_of_all_threads": ("if (is_top && right[group] == n_right) {", "if (threshold.n_left) {"),
}
"""A text of the kernels that count bins, and what is in its place."""
IN_SMALL = {
    "no_barrier_behind_moves": without_last_line(
        "move_tile(y, level, node.pending, node.split, after, 0);\n    __syncthreads();\n"
    ),
    "no_barrier_between_merges": without_last_line(
        "(unsigned short)e;\n            }\n        }\n        __syncthreads();\n"
    ),
}
"""Likewise of the kernel that grows small nodes."""
IN_REFINE = {
    "no_barrier_behind_largest_terms": without_last_line(
        "atomicMin(f.first_at_split + found.split, (int)r);\n    }\n    __syncthreads();\n"
    ),
    "no_barrier_behind_sums_of_a_batch": without_last_line(
        "f.changed[r] = f.first_in_leaf[f.leaf[r]] == r ? f.leaf[r] : -1;\n    }\n    __syncthreads();\n"
    ),
    "marks_without_atomics": (
        "atomicMin(f.first_in_leaf + found.leaf, (int)r);", "f.first_in_leaf[found.leaf] = (int)r;",
    ),
}  # fmt: skip
"""Likewise of the kernels that refine trees."""
IN_STUMPS = {
    "no_barrier_behind_sides": without_last_line("choose_sides(s, r, at, n, row);\n    __syncthreads();\n"),
    "no_barrier_behind_samples": without_last_line(
        "n_next = n_read_now;\n        wait_for_copies();\n        __syncthreads();\n"
    ),
    "no_barrier_behind_copies": without_last_line("stride);\n    wait_for_copies();\n    __syncthreads();\n"),
    "copies_of_the_same_chunk": ("copy_rows(s, second - at, n_next,", "copy_rows(s, at, n,"),
    "lists_without_atomics": (
        "next[i] = atomicExch(head + order[i], (int)i);", "next[i] = head[order[i]], head[order[i]] = (int)i;",
    ),
}  # fmt: skip
"""Likewise of the kernel that fits stumps."""
IN_STEPS = {
    "no_barrier_behind_outputs": without_last_line(
        "total = sum_ahead(0u, n_from(first), term, total);\n        __syncthreads();\n"
    ),
    "no_barrier_behind_scores": without_last_line(
        "(real)(total / a.divisor);\n    }\n    __syncthreads();\n"
    ),
}
"""Likewise of the kernel that computes the losses of a step of training."""

IN_CODE = {
    **{name: ("growth", counted_bins, change) for name, change in IN_GROWTH.items()},
    **{name: ("growth", small_nodes, change) for name, change in IN_SMALL.items()},
    **{name: ("co2", partial(refined, False), change) for name, change in IN_REFINE.items()},
    **{name: ("co2", partial(stump_of_chunks, False, 2), change) for name, change in IN_STUMPS.items()},
    **{
        name: ("hinge", partial(whole_steps, "tree", 3, 130, 2, 20), change)
        for name, change in IN_STEPS.items()
    },
}
"""The subpackage, a call of its kernels, the text and what is in its place."""


def main(name: str, sanitize: str) -> None:
    if name not in IN_CODE:
        a = np.zeros(8192, np.float32)
        with host_compiler(sanitize):
            launch.launch(HERE / "faults", name, a.dtype, a.size // 128 + 1, (a, a.size))
    else:
        subpackage, call, (old, new) = IN_CODE[name]
        sound = launch.source
        assert sound(launch.PACKAGE / subpackage).count(old) == 1
        changed = mock.patch.object(launch, "source", lambda folder: sound(folder).replace(old, new))
        with host_compiler(sanitize), changed:
            call(np.float32)
    print(f"{name} ran to its end")


if __name__ == "__main__":
    main(*sys.argv[1:])
