"""Cascades of forests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from typing import ClassVar, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .. import cascade, growth, tree
from ..core.aliases import ArrayLike, ClassVectors
from .base import Estimator
from .grown import weight_of
from .targets import Classifier

MAX_FORESTS = 2**16


@dataclass(kw_only=True, eq=False, repr=False)
class CascadeForestClassifier(Classifier, Estimator):
    """Cascade of random and completely random forests (gcForest), for classes: `hforest.cascade.grow`.

    Other parameters: see `RandomForestClassifier`.

    Parameters
    ----------
    n_estimators : int
        Number of trees per forest and fold; `n_trees` in hforest.
    n_forests : int
        Number of random forests per level, 1 to 2**16; a level has the same number of completely random
        forests.
    class_vectors : "out_of_fold" or "out_of_bag"
        Source of the class vectors of training samples: cross-validation, or the trees that did not draw a
        sample. The latter takes a third of the time of three folds.
    n_folds : int
        Number of folds, from 2 to the number of samples in the smallest class. Not used with "out_of_bag".
    n_iter_no_change : int
        Number of successive levels without a better validation accuracy after which growth ends; `patience`
        in hforest.
    max_levels : int
        Maximum number of levels.

    Attributes
    ----------
    cascade_ : hforest.cascade.Cascade
        The fitted model, for functions of `hforest.cascade`; ``cascade_.scores`` holds the validation
        accuracy of each level.
    feature_importances_ : (n_features_in_,) array of float64
        Share of each feature in the total gain of the first level's splits.

    Examples
    --------
    >>> from hforest.sklearn import CascadeForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = CascadeForestClassifier(20, n_forests=1, random_state=0).fit(x[::2], y[::2])
    >>> model.score(x[1::2], y[1::2]) > 0.9
    True
    """

    _function = staticmethod(cascade.grow)
    _names: ClassVar[Mapping[str, str]] = {**Estimator._names, "n_iter_no_change": "patience"}

    n_estimators: int = field(default=500, kw_only=False)
    n_forests: int = 4
    max_depth: int | None = None
    min_samples_leaf: int = 1
    min_weight_fraction_leaf: float = 0.0
    class_vectors: ClassVectors = "out_of_fold"
    n_folds: int = 3
    n_iter_no_change: int = 1
    max_levels: int = 20
    class_weight: Mapping | Literal["balanced"] | None = None

    def _forests(self) -> tuple[cascade.Grower, ...]:
        """Returns the functions that grow a level's forests: random ones, then completely random ones."""
        n = self.n_forests
        if not isinstance(n, Integral) or isinstance(n, bool) or not 1 <= n <= MAX_FORESTS:
            raise ValueError(
                f"n_forests: expected an int of 1 to {MAX_FORESTS}, got {n!r}; pass a number such as 4"
            )
        settings = self._settings(growth.grow)
        del settings["class_weight"]
        random = partial(growth.grow, **settings)
        completely = partial(random, splitter="random", max_features=1, bootstrap=False)
        return (random,) * n + (completely,) * n

    def _check_folds(self, y: np.ndarray) -> None:
        """Checks that each class that occurs has a sample in every fold; `y` holds class numbers."""
        n_folds, counts = self.n_folds, np.bincount(y)
        if not isinstance(n_folds, Integral) or self.class_vectors != "out_of_fold":
            return
        for few in np.flatnonzero((counts > 0) & (counts < int(n_folds)))[:1]:
            raise ValueError(
                f"y: expected at least n_folds = {n_folds} samples of each class, got {counts[few]} "
                f'sample(s) of class {self.classes_[few]}; lower n_folds, or pass class_vectors="out_of_bag"'
            )

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Grows the cascade and returns the estimator.

        X is an array or a DataFrame of finite numbers. Parameters: see `RandomForestClassifier.fit`.
        """
        with self._computing():
            x, labels, of_task = self._learned(X, y)
            weights = weight_of(sample_weight)
            weight: np.ndarray | None = None if weights is None else np.asarray(weights)
            if weight is None or weight.shape != labels.shape or weight.dtype.kind not in "biuf":
                self._check_folds(labels)  # such weights are refused below
            else:
                self._check_folds(labels[weight > 0])
            settings = self._settings() | {
                "class_weight": of_task["class_weight"],
                "sample_weight": weight,
            }
            self.cascade_ = cascade.grow(
                x, labels, self._forests(), n_classes=of_task["n_classes"], rng=self._seed(), **settings
            )
        return self

    @property
    def feature_importances_(self) -> np.ndarray:
        """Returns (n_features,) float64: share of each feature in the total gain of the first level's splits.

        Mean of `hforest.tree.importance` by gain over the level's forests. Later levels also read class
        vectors and are not included.
        """
        check_is_fitted(self)
        gains = [tree.importance(f, by="gain") for f in self.cascade_.levels[0]]
        return self._of_columns(np.mean(gains, axis=0))

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        return cascade.predict(self.cascade_, x)
