"""
All forests as scikit-learn estimators
======================================

The estimators of :mod:`hforest.sklearn` work with scikit-learn's pipelines, grid searches and
cross-validation. The picture shows their errors in five folds of 765 digits. All settings but the number of
trees are defaults.
"""

import matplotlib.pyplot as plt
from sklearn.model_selection import cross_val_score

import hforest.sklearn as hf
from hforest import demo

digits = demo.load_digits()
x, y = digits.x_train[::5], digits.y_train[::5]  # samples come sorted by class
estimators = {
    "random forest": hf.RandomForestClassifier(100, random_state=0),
    "extra trees": hf.ExtraTreesClassifier(100, random_state=0),
    "SPORF": hf.ObliqueForestClassifier(100, random_state=0),
    "MORF, 8 × 8": hf.ManifoldForestClassifier(100, shape=(8, 8), random_state=0),
    "CO2": hf.CO2ForestClassifier(10, random_state=0),
    "neural": hf.NeuralForestClassifier(20, random_state=0),
    "hinge": hf.HingeForestClassifier(20, max_iter=400, random_state=0),
}
errors = {name: 100 - 100 * cross_val_score(model, x, y, cv=5) for name, model in estimators.items()}

fig, ax = plt.subplots(figsize=(8, 4.4))
for place, values in enumerate(errors.values()):
    ax.plot(values, [place] * 5, "o", color="C0", alpha=0.5)
    ax.plot(values.mean(), place, "|", color="black", markersize=22, markeredgewidth=2.5)
ax.set_yticks(range(len(errors)), errors)
ax.invert_yaxis()
ax.set(
    xlim=(0, None), xlabel="error of a fold (%); black: mean of five",
    title=f"Cross-validation on {len(x)} digits",
)  # fmt: skip
plt.show()
