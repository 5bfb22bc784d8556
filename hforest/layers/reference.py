"""Reference implementation: the softmax loss, sample by sample (Lay et al. 2018, Fig. 2)."""

import numpy as np


def softmax_loss(scores, labels):
    """Returns the mean loss of at least one sample, and its gradient (n_samples, n_classes)."""
    n, losses, grad = len(scores), np.empty(len(scores)), np.empty_like(scores)
    with np.errstate(over="ignore", invalid="ignore"):
        for i, label in enumerate(labels.tolist()):
            shifted = scores[i].astype(np.float64)
            shifted -= shifted.max()
            p = np.exp(shifted)
            total = p.sum()
            losses[i] = np.log(total) - shifted[label]
            p /= total
            p[label] -= 1
            grad[i] = p / n
    return float(losses.sum()) / n, grad
