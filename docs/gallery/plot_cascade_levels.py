"""
Levels of a cascade
===================

Each level's forests read the samples and the class vectors of the level before (p6). Levels are added while
the estimate of the error falls.
"""

import matplotlib.pyplot as plt

from hforest import cascade, demo

digits = demo.load_digits()
forests = cascade.default_forests(20)
model = cascade.grow(digits.x_train[::3], digits.y_train[::3], forests, max_levels=4, patience=3, rng=0)
n_levels = len(model.levels)

errors = []
for last in range(1, n_levels + 1):
    part = model._replace(levels=model.levels[:last], scores=model.scores[:last])
    errors.append(100 * float((cascade.predict(part, digits.x_test).argmax(axis=1) != digits.y_test).mean()))

levels = range(1, n_levels + 1)
figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
ax.bar([level - 0.2 for level in levels], errors, 0.4, label="test")
ax.bar(
    [level + 0.2 for level in levels],
    [100 - 100 * score for score in model.scores],
    0.4,
    label="out of fold, which decides when to stop",
)
ax.set(xlabel="levels", ylabel="error, %", xticks=levels)
ax.set_title(f"{len(digits.x_train[::3])} digits, 20 trees a forest and fold")
ax.set_ylim(0, 1.3 * max(errors))
ax.legend()
plt.show()
