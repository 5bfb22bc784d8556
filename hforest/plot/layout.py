"""Positions of the boxes of a tree."""

import numpy as np
from numpy.typing import NDArray


def tidy(
    left: NDArray[np.integer], right: NDArray[np.integer], width: NDArray[np.floating], gap: float
) -> NDArray[np.float64]:
    """Returns the centres of boxes along the horizontal axis, (n_nodes,), with the root at 0.

    Reingold and Tilford 1981, with boxes of several widths: subtrees have one shape wherever they stand, two
    subtrees stand as close as their outlines allow, and a parent is in the middle between its children.

    Parameters
    ----------
    left, right : (n_nodes,) array of int
        Children, whose numbers are above their parent's; -1 of a leaf. Node 0 is the root.
    width : (n_nodes,) array
        Widths of the boxes.
    gap : float
        Least distance of two boxes of a level.

    Notes
    -----
    Cost: n_nodes times the depth of the tree, at most.
    """
    n = len(left)
    shift = np.zeros(n)  # distance of a node from its parent
    outline: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    """Range of positions of each level, from the root, of subtrees whose parent is not yet placed."""
    for v in range(n - 1, -1, -1):
        root = np.array([-width[v] / 2]), np.array([width[v] / 2])
        if left[v] < 0:
            outline[v] = root
            continue
        of_left, of_right = outline.pop(int(left[v])), outline.pop(int(right[v]))
        shared = min(len(of_left[0]), len(of_right[0]))
        half = float((of_left[1][:shared] - of_right[0][:shared]).max() + gap) / 2
        shift[left[v]], shift[right[v]] = -half, half
        low = np.concatenate([of_left[0] - half, of_right[0][len(of_left[0]) :] + half])
        high = np.concatenate([of_right[1] + half, of_left[1][len(of_right[1]) :] - half])
        outline[v] = np.concatenate([root[0], low]), np.concatenate([root[1], high])
    centre = np.zeros(n)
    for v in range(n):
        if left[v] >= 0:
            centre[left[v]] = centre[v] + shift[left[v]]
            centre[right[v]] = centre[v] + shift[right[v]]
    return centre
