"""
A training loop of your own
===========================

Forward, gradient, backward, Adam: the loop is yours. Only rows of leaves that a batch reaches have a
gradient.
"""

import matplotlib.pyplot as plt
import numpy as np

from hforest import demo, hinge, layers, optim

digits = demo.load_digits()
x, x_test = (a / np.float32(16) for a in (digits.x_train, digits.x_test))
rng = np.random.default_rng(0)
thresholds, features, weights = hinge.tree_init(100, 6, 64, outputs=10, rng=0)
thresholds[:] = hinge.tree_median_thresholds(x, features)
moments = [(np.zeros_like(a), np.zeros_like(a)) for a in (thresholds, weights)]

steps, losses, errors = 600, [], []
for step in range(1, steps + 1):
    batch = rng.integers(0, len(x), 64)
    y, route = hinge.tree_forward(x[batch], thresholds, features, weights, aggregate="sum", return_route=True)
    loss, grad_y = layers.softmax_loss(y, digits.y_train[batch])
    _, *grads = hinge.tree_backward(grad_y, *route, features, weights, 64, aggregate="sum")
    for a, grad, (m, v) in zip((thresholds, weights), grads, moments, strict=True):
        optim.adam(a, grad, m, v, step, 0.01)
    losses.append(float(loss))
    if step % 50 == 0:
        p = hinge.tree_forward(x_test, thresholds, features, weights, aggregate="sum")
        errors.append(100 * float((p.argmax(axis=1) != digits.y_test).mean()))

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
axes[0].semilogy(np.convolve(losses, np.ones(20) / 20, "valid"))
axes[0].set(xlabel="step", ylabel="loss of a batch, mean of 20", title="1797 digits to test, 3823 to train")
axes[1].plot(np.arange(50, steps + 1, 50), errors, marker=".")
axes[1].set(xlabel="step", ylabel="test error, %", title=f"after {steps} steps: {errors[-1]:.1f} %")
plt.show()
