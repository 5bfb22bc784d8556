"""Reference implementation of neural decision forests in plain loops (Zhang 2017, section 2).

Functions, parameters and output arrays are those of `cpu` and `gpu`. Decision functions are flattened to
(n_samples, n_functions). `index` (n_trees, n_vertices) has the function of each vertex; without it vertex v
of tree m has function m * n_vertices + v. Everything runs in float64 and is rounded once; likelihoods are
logarithms, so that no product of decisions can underflow.
"""

import numpy as np

from ...core import series
from ...core.launch import numbers

(LEAST_MASS,) = numbers("neural/mass.h", "HF_LEAST_MASS")
"""A leaf with less posterior mass of all samples counts as not reached."""


def _functions(f, index, m, n_vertices):
    if index is None:
        return np.arange(m * n_vertices, (m + 1) * n_vertices)
    return index[m]


def _log_decisions(f):
    """Returns log sigmoid(f) and log(1 - sigmoid(f)) of each function."""
    rest = series.log1p(series.exp(-abs(f)))
    return np.where(f < 0, f - rest, -rest), np.where(f > 0, -f - rest, -rest)


def _log_sum(a, b):
    """Returns log(exp(a) + exp(b))."""
    high, low = max(a, b), min(a, b)
    return high if high == -np.inf else high + series.log1p(series.exp(low - high))


def _route_one(f):
    """Returns mu of the leaves for one sample and tree, from its decision functions in heap order."""
    mu = np.ones(2 * len(f) + 1)
    left, right = map(series.exp, _log_decisions(f))  # d_n(x) = sigmoid(f_n(x)) and 1 - d_n(x)
    for v in range(len(f)):
        mu[2 * v + 1], mu[2 * v + 2] = mu[v] * left[v], mu[v] * right[v]
    return mu[len(f) :]


def _log_likelihoods(f, leaf):
    """Returns log of sum_l pi_ly mu_l below every vertex and leaf, mu from that vertex on; [0] is log P."""
    n_vertices = len(f)
    logs = np.empty(2 * n_vertices + 1)
    logs[n_vertices:] = series.log(leaf.astype(np.float64))
    left, right = _log_decisions(f)
    for v in reversed(range(n_vertices)):
        logs[v] = _log_sum(left[v] + logs[2 * v + 1], right[v] + logs[2 * v + 2])
    return logs


def _shares(f, logs):
    """Returns A_m = sum over leaves l under m of pi_ly mu_l / P for every vertex and leaf; 0 if P is 0."""
    a = np.zeros(len(logs))
    if logs[0] == -np.inf:
        return a
    a[0] = 1
    left, right = _log_decisions(f)
    for v in range(len(f)):
        if a[v] > 0:
            a[2 * v + 1] = a[v] * series.exp(left[v] + logs[2 * v + 1] - logs[v])
            a[2 * v + 2] = a[v] * series.exp(right[v] + logs[2 * v + 2] - logs[v])
    return a


def route(f, index, mu):
    """Writes mu_l, the product over the path of d (left) and 1 - d (right) (Zhang 2017, section 2)."""
    n_samples, n_trees, n_leaves = mu.shape
    for n in range(n_samples):
        for m in range(n_trees):
            at = _functions(f, index, m, n_leaves - 1)
            mu[n, m] = _route_one(f[n, at].astype(np.float64))


def forward(f, index, leaves, p):
    """Writes p, the mean over trees of P_T[y|x] = sum_l pi_ly mu_l (Zhang 2017, section 2)."""
    n_trees, n_leaves, n_classes = leaves.shape
    for n in range(f.shape[0]):
        total = np.zeros(n_classes)
        for m in range(n_trees):
            at = _functions(f, index, m, n_leaves - 1)
            total += _route_one(f[n, at].astype(np.float64)) @ leaves[m].astype(np.float64)
        p[n] = total / n_trees


def loss_backward(f, index, leaves, y, forest, loss, grad_f, p):
    """Writes L = -log P and dL/df_v = d_v A_right - (1 - d_v) A_left, over n_samples (Zhang 2017, section 2).

    Writes p as `forward` does, unless it is None.
    """
    if p is not None:
        forward(f, index, leaves, p)
    n_samples = f.shape[0]
    n_trees, n_leaves, _ = leaves.shape
    for n in range(n_samples):
        grad = np.zeros(f.shape[1])
        rows = [f[n, _functions(f, index, m, n_leaves - 1)].astype(np.float64) for m in range(n_trees)]
        logs = [_log_likelihoods(rows[m], leaves[m, :, y[n]]) for m in range(n_trees)]
        log_p = np.array([a[0] for a in logs])
        if forest:  # L = -log of the mean of P over trees: the weight of a tree is its share of that mean
            high = log_p.max()
            share = series.exp(log_p - high) if high > -np.inf else np.zeros(n_trees)
            loss[n] = -(high + series.log(share.sum() / n_trees)) if high > -np.inf else np.inf
            weight = share / max(share.sum(), 1)
        else:  # L = mean over trees of -log P_T
            loss[n] = -log_p.sum() / n_trees
            weight = np.full(n_trees, 1 / n_trees)
        for m in range(n_trees):
            a = _shares(rows[m], logs[m])
            at = _functions(f, index, m, n_leaves - 1)
            d, not_d = map(series.exp, _log_decisions(rows[m]))
            for v in range(n_leaves - 1):
                grad[at[v]] += weight[m] * (d[v] * a[2 * v + 2] - not_d[v] * a[2 * v + 1])
        grad_f[n] = grad / n_samples


def backward(grad_p, f, index, leaves, grad_f):
    """Writes grad_f, from dp/df_v = mu_v d_v (1 - d_v) (value of left - value of right) / n_trees."""
    n_trees, n_leaves, _ = leaves.shape
    for n in range(f.shape[0]):
        grad = np.zeros(f.shape[1])
        for m in range(n_trees):
            at = _functions(f, index, m, n_leaves - 1)
            d, not_d = map(series.exp, _log_decisions(f[n, at].astype(np.float64)))
            value = np.empty(2 * n_leaves - 1)
            value[n_leaves - 1 :] = leaves[m].astype(np.float64) @ grad_p[n].astype(np.float64)
            for v in reversed(range(n_leaves - 1)):
                value[v] = d[v] * value[2 * v + 1] + not_d[v] * value[2 * v + 2]
            mu = np.ones(2 * n_leaves - 1)
            for v in range(n_leaves - 1):
                mu[2 * v + 1], mu[2 * v + 2] = mu[v] * d[v], mu[v] * not_d[v]
                grad[at[v]] += mu[v] * d[v] * not_d[v] * (value[2 * v + 1] - value[2 * v + 2]) / n_trees
        grad_f[n] = grad


def update_leaves(f, index, y, weight, n_iter, leaves):
    """Updates leaves n_iter times (Zhang 2017, section 2, last formula).

    pi_ly becomes the sum over samples of class y of pi_ly mu_l / P, divided by Z_l. A sample counts `weight`
    times, or once without weights.
    """
    n_trees, n_leaves, n_classes = leaves.shape
    for m in range(n_trees):
        at = _functions(f, index, m, n_leaves - 1)
        for _ in range(n_iter):
            total = np.zeros((n_leaves, n_classes))
            for n in range(f.shape[0]):
                row = f[n, at].astype(np.float64)
                logs = _log_likelihoods(row, leaves[m, :, y[n]])
                times = 1 if weight is None else weight[n]
                total[:, y[n]] += times * _shares(row, logs)[n_leaves - 1 :]
            mass = total.sum(axis=1)
            reached = mass >= LEAST_MASS  # other leaves keep their rows
            leaves[m, reached] = total[reached] / mass[reached, None]
