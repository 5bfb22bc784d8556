"""
Estimators in scikit-learn's tools
==================================

The estimators of `hforest.sklearn` take part in cross-validation, grids and pipelines as any other.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

from hforest import sklearn as forests

x, y = load_wine(return_X_y=True)
models = {
    "scikit-learn's random forest": RandomForestClassifier(100, random_state=0),
    "RandomForestClassifier": forests.RandomForestClassifier(100, random_state=0),
    "ExtraTreesClassifier": forests.ExtraTreesClassifier(100, random_state=0),
    "ObliqueForestClassifier": forests.ObliqueForestClassifier(100, random_state=0),
    "CO2ForestClassifier": forests.CO2ForestClassifier(10, random_state=0),
    "HingeForestClassifier": forests.HingeForestClassifier(20, n_members=1, random_state=0),
}
scores = {name: cross_val_score(model, x, y, cv=5) for name, model in models.items()}

figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
ax.boxplot(list(scores.values()), orientation="horizontal", tick_labels=list(scores))
ax.set(xlabel="accuracy in five folds, wine (178 samples, 13 columns)")
plt.show()
