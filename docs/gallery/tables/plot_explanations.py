"""
Which columns of a table matter
===============================

A model of a table (:func:`hforest.tabular.fit`) mixes three kinds of trees. How much its loss rises when a
column is permuted (:func:`hforest.tabular.importance`) shows which columns matter for all rows; SHAP values
(:func:`hforest.tabular.shap_values`) show what each column adds to the prediction of one row. The weekday is
one of the features of the column of dates. The answer does not depend on the noise.
"""

import matplotlib.pyplot as plt
import numpy as np

import hforest.plot
from hforest import tabular

rng = np.random.default_rng(0)
n = 900
table = {
    "size": rng.normal(size=n),
    "colour": np.array(["red", "green", "blue"])[rng.integers(0, 3, n)],
    "sold": np.datetime64("2024-01-01") + rng.integers(0, 300, n),
    "noise": rng.normal(size=n),
}
weekend = table["sold"].astype(int) % 7 < 2
price = table["size"] + 2 * (table["colour"] == "red") + weekend
first, later = ({name: a[part] for name, a in table.items()} for part in (slice(600), slice(600, n)))
model = tabular.fit(first, price[:600], task="regression", n_trees=30, rng=0)

found = tabular.importance(model, later, price[600:], rng=0)
background = {name: a[:30] for name, a in first.items()}
some = {name: a[:40] for name, a in later.items()}
shap = tabular.shap_values(model, some, background, rng=0)

fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.2))
order = np.argsort(found.mean)
left.barh(found.names[order].tolist(), found.mean[order], xerr=found.error[order])
left.set(xlabel="rise of the mean squared error", title="Permutation importance, held-out rows")
hforest.plot.importance(shap, feature_names=list(table), ax=right)
right.set_title("SHAP values, means of 40 rows")
fig.tight_layout()
plt.show()
