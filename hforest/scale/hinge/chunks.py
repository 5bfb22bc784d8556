"""Chunks of trees, and sums over chunks that are bit-identical for any assignment of chunks to workers.

Partial sums are added in a fixed binary tree. Of 5 chunks worker 0 owns two and sends one sum, worker 1 owns
three and sends two::

    level 3   0 --------------------------- .
    level 2   0 ------------- .             1
    level 1   0 ----- .       1 ----- .     2
    level 0   0       1       2       3     4      chunks
              | worker 0 |    |   worker 1   |
              sends (1, 0)    sends (1, 1), (0, 4)

A node without a right child has the sum of its left child.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ...core import check
from ...core.aliases import FloatArray
from ..rows.communicators import Communicator, as_communicator

N_CHUNKS = 16
"""Default number of chunks of a forest."""

Sums: TypeAlias = dict[tuple[int, int], FloatArray]
"""Sums of the chunks of nodes, by (level, number)."""


def number_of_chunks(n_chunks: int | None, n_trees: int) -> int:
    """Returns the number of chunks; by default 16, but at most n_trees."""
    if n_chunks is None:
        return min(N_CHUNKS, n_trees)
    return check.integer("n_chunks", n_chunks, 1, n_trees)


def first_tree(chunk: int, n_chunks: int, n_trees: int) -> int:
    """Returns the first tree of a chunk; sizes of chunks differ by at most one tree."""
    return n_trees * chunk // n_chunks


def owned(n_chunks: int, rank: int, size: int) -> range:
    """Returns the chunks of a worker."""
    return range(n_chunks * rank // size, n_chunks * (rank + 1) // size)


def own_trees(comm: Communicator | None, n_trees: int, *, n_chunks: int | None = None) -> slice:
    """Returns which trees of a forest a worker owns in `HingeShards`: whole chunks of neighbouring trees.

    Other parameters: see `HingeShards`.

    Parameters
    ----------
    n_trees : int
        Trees or ferns of all workers, 1 to 2**20.

    Returns
    -------
    slice
        Of the first axis of thresholds, features and weights; empty where there are more workers than chunks.
        No messages are sent.

    Examples
    --------
    >>> import hforest.scale
    >>> hforest.scale.own_trees(None, 100)
    slice(0, 100, None)
    """
    comm = as_communicator(comm)
    n_trees = check.integer("n_trees", n_trees, 1, check.MAX_TREES)
    n_chunks = number_of_chunks(n_chunks, n_trees)
    chunks = owned(n_chunks, comm.rank, comm.size)
    return slice(*(first_tree(chunk, n_chunks, n_trees) for chunk in (chunks.start, chunks.stop)))


def nodes(chunks: range, n_chunks: int) -> list[tuple[int, int]]:
    """Returns the largest nodes whose chunks are all in a range, from left to right."""
    largest = []
    first = chunks.start
    while first < chunks.stop:
        level = 0
        while first % (2 << level) == 0 and 1 << level < n_chunks - first:
            if min(first + (2 << level), n_chunks) > chunks.stop:
                break
            level += 1
        largest.append((level, first >> level))
        first += 1 << level
    return largest


def top(n_chunks: int) -> tuple[int, int]:
    """Returns the node of all chunks."""
    return (n_chunks - 1).bit_length(), 0


def total(sums: Sums, node: tuple[int, int], n_chunks: int) -> FloatArray:
    """Returns the sum of a node's chunks: from `sums`, or by adding the sums of its two children."""
    if node in sums:
        return sums[node]
    level, number = node[0] - 1, 2 * node[1]
    left = total(sums, (level, number), n_chunks)
    if (number + 1) << level >= n_chunks:
        return left
    return left + total(sums, (level, number + 1), n_chunks)


def node_sums(parts: Sequence[FloatArray], chunks: range, n_chunks: int) -> Sums:
    """Returns the sums that a worker sends, those of its largest nodes, from one array per chunk."""
    leaves = {(0, c): a for c, a in zip(chunks, parts, strict=True)}
    return {node: total(leaves, node, n_chunks) for node in nodes(chunks, n_chunks)}


def joined(of_workers: Sequence[Sums], n_chunks: int) -> FloatArray:
    """Returns the sum of all chunks as a new array, from the sums that all workers sent."""
    sums = {node: a for part in of_workers for node, a in part.items()}
    return np.array(total(sums, top(n_chunks), n_chunks))
