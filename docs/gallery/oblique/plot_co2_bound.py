"""
How CO2 fits a split
====================

The loss of a split changes only where a sample changes sides, so its gradient is zero almost everywhere. CO2
minimises an upper bound instead (Norouzi et al. 2015, eq. 10). Each round makes the bound convex around the
present hyperplane, and takes steps of stochastic gradient descent. ``nu`` limits the norm of the hyperplane:
a larger norm permits a tighter bound.
"""

import matplotlib.pyplot as plt
import numpy as np

from hforest import co2

rng = np.random.default_rng(0)
x = np.column_stack([rng.normal(size=(1000, 6)), -np.ones(1000)])  # a constant -1 for the offset
truth = np.array([1.0, -0.8, 0.6, 0.4, 0.0, 0.0])
y = (x[:, :6] @ truth + 0.3 * rng.normal(size=1000) > 0).astype(np.int32)
start = np.zeros(7)
start[0] = 1.0  # the univariate split x[0] >= 0

# %%
# ``fit_stump`` appends the value of the bound to ``history``, at the start and after each round. The right
# panel compares the fitted hyperplane with the one that made the labels, both scaled to norm 1.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), width_ratios=[1.2, 1])
for nu, mark in ((1.0, "o"), (4.0, "s"), (10.0, "^")):
    history = []
    stump = co2.fit_stump(x, y, start, nu=nu, lr=0.03, history=history, rng=0)
    left.plot(range(len(history)), np.array(history) / len(x), marker=mark, label=f"nu = {nu:g}")
    print(nu, stump.w.round(2))
left.set(xlabel="round", ylabel="bound (nats per sample)", title="the bound falls, round by round")
left.legend()

place = np.arange(6)
for shift, w, label in (
    (-0.27, start[:6], "start: the best column"),
    (0.0, stump.w[:6], "fitted, nu = 10"),
    (0.27, truth, "truth"),
):
    right.bar(place + shift, w / np.linalg.norm(w), width=0.25, label=label)
right.set(xlabel="feature", ylabel="weight in the hyperplane of norm 1", title="weights", xticks=place)
right.axhline(0, color="black", lw=0.8)
right.legend()
plt.show()
