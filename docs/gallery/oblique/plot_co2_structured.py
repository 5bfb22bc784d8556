"""
Label vectors: CO2 with a loss of your own
==========================================

CO2's bound holds for any convex loss; Norouzi et al. 2015, section 7, name structured prediction. Here a
label is a vector: six pixels in a row of a digit, black or white. The rows above predict it, and neighbouring
pixels tend to agree. The loss of a leaf is that of a chain, a conditional random field. Its parameter theta
has a number for each pixel and for each pair of neighbours. The loss of a vector is the negative logarithm of
its probability among all 64 vectors.
"""

import matplotlib.pyplot as plt
import numpy as np

from hforest import co2
from hforest.demo import load_digits

data = load_digits()
side = int(np.sqrt(data.x_train.shape[1]))
row = side // 2 + 1
first = side // 2 - 3


def samples(images):
    """Returns the rows above, with a constant -1, and the numbers of the label vectors."""
    images = images.reshape(-1, side, side) / 16.0
    above = images[:, :row].reshape(len(images), -1)
    bits = images[:, row, first : first + 6] > 0.5
    return np.column_stack([above, -np.ones(len(above))]), bits @ (1 << np.arange(6))


x, y = samples(data.x_train)
x_test, y_test = samples(data.x_test)

# %%
# The features of a vector are its pixels, as -1 and +1, and the products of neighbours. With the first six
# features alone, pixels are independent. CO2 needs two functions of theta and y: one returns the losses of
# samples, the other their gradients with respect to theta.

vectors = 2.0 * (np.arange(64)[:, None] >> np.arange(6) & 1) - 1
chain = np.column_stack([vectors, vectors[:, 1:] * vectors[:, :-1]])


def log_probability(features, theta):
    score = features @ theta
    return score - np.logaddexp.reduce(score)


def loss_of(features):
    def value(theta, y):
        return -log_probability(features, theta)[y]

    def gradient(theta, y):
        return np.exp(log_probability(features, theta)) @ features - features[y]

    return value, gradient


# %%
# ``grow`` fits a stump, which starts at the median of a random column, and then grows its two sides. A leaf
# holds a theta: 50 steps of gradient descent on its samples, from the theta of its stump.


def leaf(theta, y, loss):
    for _ in range(50):
        theta = theta - 0.1 * (loss[1](theta, y).mean(axis=0) + 0.02 * theta)
    return theta


def grow(x, y, theta, features, rng, depth):
    loss = loss_of(features)
    if depth == 0 or len(y) < 20:
        return leaf(theta, y, loss)
    start = np.zeros(x.shape[1])
    column = rng.choice(np.flatnonzero(np.ptp(x, axis=0)))
    start[column], start[-1] = 1, np.median(x[:, column])
    w, *thetas = co2.fit_stump(
        x, y, start, loss=loss, theta=[theta, theta], nu=4.0, lr=0.1, max_rounds=5, rng=rng
    )
    right = x @ w >= 0
    if right.all() or not right.any():
        return leaf(theta, y, loss)
    return w, *(
        grow(x[rows], y[rows], thetas[i], features, rng, depth - 1) for i, rows in enumerate((~right, right))
    )


def log_probabilities(tree, x, features):
    """Returns the log-probabilities of all 64 vectors for each sample."""
    if not isinstance(tree, tuple):
        return np.tile(log_probability(features, tree), (len(x), 1))
    w, *sides = tree
    right = x @ w >= 0
    result = np.empty((len(x), 64))
    for rows, child in zip((~right, right), sides, strict=True):
        result[rows] = log_probabilities(child, x[rows], features)
    return result


# %%
# Pairs lower the negative log-likelihood at every depth. But all pixels of the most probable vector are right
# about as often with pairs as without.

depths = range(5)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
for name, features in (("pixels", chain[:, :6]), ("pixels and pairs", chain)):
    losses, errors = [], []
    for depth in depths:
        total = 0.0
        for seed in range(4):
            rng = np.random.default_rng(seed)
            tree = grow(x, y, np.zeros(features.shape[1]), features, rng, depth)
            total = total + np.exp(log_probabilities(tree, x_test, features)) / 4
        losses.append(-np.log(total[np.arange(len(y_test)), y_test]).mean())
        errors.append(100 * (total.argmax(axis=1) != y_test).mean())
    print(name, np.round(losses, 3), np.round(errors, 1))
    axes[0].plot(depths, losses, "o-", label=name)
    axes[1].plot(depths, errors, "o-", label=name)
axes[0].set(ylabel="negative log-likelihood of a test vector (nats)", xlabel="depth of the 4 trees")
axes[1].set(ylabel="test vectors with a wrong pixel (%)", xlabel="depth of the 4 trees")
axes[0].legend()
plt.tight_layout()
plt.show()
