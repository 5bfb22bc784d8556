"""
Hinge forests in layers
=======================

A hinge forest has a gradient with respect to its input, so one forest can read the outputs of another. Lay
et al. 2018 (section 6) tried such stacks on MNIST, and found them no better than one forest of 1000 trees.
Here each leaf of the first forest has one number, and the outputs of its trees are the features of the
second. Leaves of the last forest have a vector of class scores. The input of each forest is normalised.
"""

import matplotlib.pyplot as plt
import numpy as np

from hforest import demo, hinge, layers, optim

digits = demo.load_digits()
order = np.random.default_rng(0).permutation(len(digits.x_train))
train, held_out = order[400:], order[:400]
N_FEATURES, DEPTH, LR, BATCH = 100, 4, 0.05, 53

# %%
# A network is a matrix, the kernel, and a list of forests. The first forest reads the product of the
# pixels with the kernel. ``forward`` also returns the arrays that the gradient needs.


def start(n_trees, rng):
    """Returns the kernel, and each forest's parameters and running mean and variance of its input."""
    kernel, forests, n_inputs = rng.standard_normal((64, N_FEATURES), np.float32), [], N_FEATURES
    for i, m in enumerate(n_trees):
        outputs = 10 if i + 1 == len(n_trees) else ()
        mean, var = np.zeros(n_inputs, np.float32), np.ones(n_inputs, np.float32)
        forests.append((hinge.init(m, DEPTH, n_inputs, outputs, rng=rng), mean, var))
        n_inputs = m
    return kernel, forests


def forward(kernel, forests, x):
    """Returns class scores, and for each forest its input, before and after normalisation, and its route."""
    inner, kept = x @ kernel, []
    for i, (parameters, mean, var) in enumerate(forests):
        z = layers.normalize(inner, mean, var)
        aggregate = "sum" if i + 1 == len(forests) else None
        y, route = hinge.forward_with_route(z, *parameters, aggregate=aggregate)
        kept.append((inner, z, route, aggregate))
        inner = y
    return inner, kept


def step(kernel, forests, state, x, y, number):
    """Takes a step of AdaGrad on all parameters, from the last forest to the first."""
    scores, kept = forward(kernel, forests, x)
    _, grad = layers.softmax_loss(scores, y)
    for i in reversed(range(len(forests))):
        (parameters, mean, var), (inner, z, route, aggregate) = forests[i], kept[i]
        grads = hinge.backward(grad, route, z, *parameters, aggregate=aggregate)
        grad = layers.normalize_backward(grads.x, var)
        for name in ("thresholds", "weights"):
            param = getattr(parameters, name)
            h = state.setdefault((i, name), np.zeros_like(param))
            optim.adagrad(param, getattr(grads, name), h, LR)
        layers.normalize_update(inner, mean, var, number)
    optim.adagrad(kernel, x.T @ grad, state.setdefault("kernel", np.zeros_like(kernel)), LR)


# %%
# Two stacks and a single forest with as many trees learn the digits from the same batches. Errors are on 400
# training images that are held out, and that no setting was chosen by.

networks = {
    "one forest, 100 trees": (100,),
    "two forests, 50 + 50": (50, 50),
    "three, 34 + 33 + 33": (34, 33, 33),
}
fig, ax = plt.subplots(figsize=(7, 4))
last = {}
for label, n_trees in networks.items():
    rng = np.random.default_rng(1)
    kernel, forests = start(n_trees, rng)
    state, steps, errors = {}, [], []
    for number in range(1200):
        rows = train[rng.integers(len(train), size=BATCH)]
        step(kernel, forests, state, digits.x_train[rows], digits.y_train[rows], number)
        if (number + 1) % 100 == 0:
            scores, _ = forward(kernel, forests, digits.x_train[held_out])
            steps.append(number + 1)
            errors.append(100 * (scores.argmax(axis=1) != digits.y_train[held_out]).mean())
    last[label] = errors[-1]
    ax.plot(steps, errors, marker="o", markersize=3, label=f"{label}: {errors[-1]:.1f} %")
assert max(last.values()) < 20
ax.set(xlabel="step", ylabel="held-out error, percent", yscale="log", title="Hinge forests on hinge forests")
ax.legend(title="after 1200 steps")
plt.show()
