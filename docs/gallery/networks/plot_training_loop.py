"""
A training loop of your own: dense, by rows, fused
==================================================

Three training loops take the same steps of Adam for a hinge forest. The dense loop computes a gradient for
every weight. But a batch reaches few leaves, so the other two update only the weights of those leaves.
Before a weight is read again, it gets the steps that it missed. The losses agree up to rounding, and the
times differ.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import hforest
from hforest import demo, hinge, layers, optim

digits = demo.load_digits()
mean, deviation = digits.x_train.mean(axis=0), digits.x_train.std(axis=0) + 0.5
x, y = ((digits.x_train - mean) / deviation).astype(np.float32), digits.y_train
n_trees, depth, n_steps, lr = 500, 10, 120, 0.003
start = hinge.init(n_trees, depth, 64, outputs=10, rng=0)
batches = np.random.default_rng(0).integers(0, len(x), (n_steps, 53))


def dense(t, f, w):
    moments = [(np.zeros_like(a), np.zeros_like(a)) for a in (t, w)]
    for step, batch in enumerate(batches, 1):
        scores, route = hinge.forward_with_route(x[batch], t, f, w, aggregate="sum")
        loss, grad = layers.softmax_loss(scores, y[batch])
        grads = hinge.backward(grad, route, x[batch], t, f, w, aggregate="sum")
        for p, g, (m, v) in zip((t, w), (grads.thresholds, grads.weights), moments, strict=True):
            optim.adam(p, g, m, v, step, lr)
        yield loss


def rows(t, f, w):
    flat = w.reshape(-1, 10)  # a row for each leaf of each tree
    moments = np.zeros_like(flat), np.zeros_like(flat), np.zeros(len(flat), np.int64)
    t_moments = np.zeros_like(t), np.zeros_like(t)
    for step, batch in enumerate(batches, 1):
        route = hinge.traverse(x[batch], t, f)
        touched = hinge.leaf_rows(route.leaf, 2**depth)
        optim.adam_catch_up(flat, *moments, step - 1, lr, rows=touched)
        scores = hinge.leaf_outputs(route.leaf, route.margin, w, aggregate="sum")
        loss, grad = layers.softmax_loss(scores, y[batch])
        grads = hinge.backward_sparse(grad, route, x[batch], t, f, w, aggregate="sum")
        dense_t = np.zeros_like(t)
        dense_t.reshape(-1)[grads.thresholds.rows] = grads.thresholds.values
        optim.adam(t, dense_t, *t_moments, step, lr)
        optim.adam_rows(flat, *grads.weights, *moments, step, lr)
        yield loss


def fused(t, f, w):
    state = hinge.adam_state(t, w)
    for step, batch in enumerate(batches, 1):
        scores, route = hinge.adam_forward(x[batch], t, f, w, state, step, lr)
        loss, grad = layers.softmax_loss(scores, y[batch])
        hinge.adam_backward(grad, route, x[batch], t, f, w, state, step, lr)
        yield loss


# %%
# Each loop starts from a copy of the same arrays.

losses, seconds = {}, {}
hforest.set_num_threads(1)
for way in (dense, rows, fused):
    begin = time.perf_counter()
    losses[way.__name__] = np.array(list(way(*(a.copy() for a in start))))
    seconds[way.__name__] = (time.perf_counter() - begin) / n_steps
np.testing.assert_allclose(losses["fused"], losses["dense"], rtol=2e-2)
np.testing.assert_allclose(losses["rows"], losses["dense"], rtol=2e-2)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), width_ratios=[1.5, 1])
for (name, values), style in zip(losses.items(), ("-", "--", ":"), strict=True):
    left.plot(range(1, n_steps + 1), values, style, lw=2.5, label=name)
left.set(xlabel="step", ylabel="loss of the batch (nats)", title="the same losses")
left.legend()
bars = right.barh(list(seconds), [1000 * s for s in seconds.values()], color=("C0", "C1", "C2"))
right.bar_label(bars, fmt="%.1f ms", padding=3)
right.set(xlabel="milliseconds a step, one thread", title="measured once, when this page was built")
right.margins(x=0.2)
right.invert_yaxis()
fig.suptitle(f"{n_trees} hinge trees of depth {depth}, 10 outputs, batches of 53 digits")
plt.show()
