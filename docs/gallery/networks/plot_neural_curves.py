"""
Learning curves of a neural forest
==================================

:func:`hforest.neural.fit` appends the mean loss of each epoch to ``history`` and calls ``checkpoint`` with
the model. Here ``checkpoint`` measures the test error of the model twice. With soft routing a sample goes to
both sides of a split, with probabilities. With hard routing it goes to the more probable side.
"""

import matplotlib.pyplot as plt

from hforest import demo, neural, tree

digits = demo.load_digits()
curves = {"soft": [], "hard": []}


def error(p):
    return 100 * (p.argmax(axis=1) != digits.y_test).mean()


def measure(model):
    curves["soft"].append(error(neural.predict(model, digits.x_test)))
    curves["hard"].append(error(tree.predict(neural.to_hard(model, 64), digits.x_test)))


history = []
start = neural.linear_init(20, 6, 64, 10, x=digits.x_train, rng=0)
neural.fit(
    start, digits.x_train, digits.y_train, epochs=15, lr=0.05, history=history, checkpoint=measure, rng=0
)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2))
epochs = range(1, 16)
left.plot(epochs, history, "o-")
left.set(xlabel="epoch", ylabel="mean loss of a tree (nats)", title="training loss", yscale="log")
right.plot(epochs, curves["soft"], "o-", label="soft routing")
right.plot(epochs, curves["hard"], "s--", label="hard routing")
right.set(xlabel="epoch", ylabel="test error (%)", title=f"{len(digits.x_test)} test digits", ylim=(0, None))
right.legend()
for ax in (left, right):
    ax.set_xticks(range(1, 16, 2))
fig.suptitle("Neural forest of 20 trees of depth 6 on 3823 digits")
plt.show()
