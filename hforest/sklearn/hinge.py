"""Hinge forests for tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .. import tabular, tree
from ..core.aliases import ArrayLike, Scaled
from .base import Estimator
from .grown import weight_of
from .targets import Classifier, Regressor


@dataclass(kw_only=True, eq=False, repr=False)
class _Hinge(Estimator):
    """Estimators whose model is a `hforest.tabular.Model`."""

    _function = staticmethod(tabular.fit)
    _names: ClassVar[Mapping[str, str]] = {
        **Estimator._names,
        "max_depth": "depth",
        "max_iter": "steps",
        "learning_rate": "lr",
        "validation_fraction": "validation",
    }
    _finite: ClassVar[bool | str] = "allow-nan"

    n_estimators: int = field(default=50, kw_only=False)
    max_depth: int | None = None
    n_members: int = 3
    n_projections: int = 300
    n_boosted: int = 300
    max_iter: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    validation_fraction: float = 0.15
    scaling: Scaled = "auto"
    categorical_features: ArrayLike | Literal["from_dtype"] | None = None
    average: bool = True
    share: float | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fits the model of `hforest.tabular.fit` and returns the estimator.

        X is an array or a DataFrame of numbers in any units, finite or NaN. Parameters: see
        `RandomForestClassifier.fit`.
        """
        steps: dict[int, int] = {}

        def count(done: int, total: int) -> None:
            if done:
                member, step = divmod(done - 1, max(1, total // self.n_members))
                steps[member] = step + 1

        with self._computing():
            self._forget()
            x, target, settings = self._learned(X, y)
            settings |= {"sample_weight": weight_of(sample_weight), "rng": self._seed(), "progress": count}
            self.model_ = tabular.fit(x, target, **(self._settings() | settings))
        self.n_iter_ = max(steps.values(), default=0)
        return self

    def _fit_next(self, X: ArrayLike, y: ArrayLike, classes: Any, sample_weight: Any) -> Self:
        """Fits the model to the first batch, and trains for one pass over each later batch."""
        with self._computing():
            x, target, weight = self._learned_next(X, y, classes, sample_weight)
            if not hasattr(self, "model_"):
                settings = self._settings() | {"class_weight": None, "validation": 0.0}
                share = 1.0 if self.share is None else self.share
                task = "classification" if hasattr(self, "classes_") else "regression"
                settings |= {"task": task, "n_classes": getattr(self, "n_classes_", None), "share": share}
                self.model_ = tabular.fit(x, target, sample_weight=weight, rng=self._seed(), **settings)
                self.t_ = 0
            else:
                self.model_, self._state = tabular.partial_fit(
                    self.model_, x, target, state=getattr(self, "_state", None), sample_weight=weight,
                    **self._settings(tabular.partial_fit),
                )  # fmt: skip
                self.t_ = int(self._state.n_steps)
        return self

    @property
    def feature_importances_(self) -> np.ndarray:
        """Returns (n_features,) float64: share of each feature in the gain of the grown forests' splits.

        The importance of feature f is ``g_f + sum over j of g_j |K_fj| / sum over i of |K_ij|``, averaged
        over the members. g_j is the share of column or inner product j in `hforest.tree.importance` by gain
        of a member's forest. K holds the weights of the inner products of scaled columns. A categorical
        column has the sum over its encoded columns. Importances describe the initial forests; training does
        not change them.
        """
        check_is_fitted(self)
        importances = []
        for member in self.model_.members:
            shares = tree.importance(member.forest, by="gain")
            size = abs(member.grown_kernel.astype(np.float64))
            total = size.sum(axis=0)
            parts = np.divide(size, total, out=np.zeros_like(size), where=total > 0)
            importances.append(shares[: len(size)] + parts @ shares[len(size) :])
        mean: np.ndarray = np.mean(importances, axis=0)
        encoding = self.model_.encoding
        if encoding is not None and encoding.levels is not None:
            widths = encoding.levels.widths
            mean = np.bincount(np.repeat(np.arange(len(widths)), widths), mean)
        return self._of_columns(mean)

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        return tabular.predict(self.model_, x)


@dataclass(kw_only=True, eq=False, repr=False)
class HingeForestClassifier(Classifier, _Hinge):
    """Classifier of a forest, hinge trees that start from it, and boosted trees: `hforest.tabular.fit`. Hinge
    trees are those of Lay et al. 2018, eq. 10; initialisation and training differ from the paper.

    Other parameters: see `hforest.tabular.fit` and `RandomForestClassifier`.

    Parameters
    ----------
    n_estimators : int
        Number of trees per member; `n_trees` in hforest.
    max_depth : int, optional
        Decisions of a hinge tree, by default 6, in a regressor 4; `depth` in hforest. The grown forest has no
        limit.
    max_iter : int, optional
        Maximum number of Adam steps per member; `steps` in hforest.
    learning_rate : float, optional
        Learning rate of Adam; `lr` in hforest.
    validation_fraction : float
        Share of the samples that a member holds out, 0 to 0.5; `validation` in hforest.

    Attributes
    ----------
    model_ : hforest.tabular.Model
        The fitted model, for `hforest.tabular.predict` and `hforest.tabular.save`.
    n_iter_ : int
        Largest number of steps and boosted trees of a member in `fit`.
    t_ : int
        Number of steps of `partial_fit` after its first batch.
    feature_importances_ : (n_features_in_,) array of float64
        Share of each feature in the total gain of the grown forests' splits.

    Examples
    --------
    >>> from hforest.sklearn import HingeForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = HingeForestClassifier(max_iter=200, random_state=0).fit(x[::2], y[::2])
    >>> model.score(x[1::2], y[1::2]) > 0.9
    True
    """

    class_weight: Mapping | Literal["balanced"] | None = None

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Trains on a batch of samples and returns the estimator.

        The first call fits a model to its samples, without held-out samples and with `share` 1 unless it is
        given. It fixes the scaling of columns and the grown forests, so its samples should be representative.
        Each later call, also after `fit`, is one pass of `hforest.tabular.partial_fit` over its samples in
        order. `fit` starts from scratch.

        Other parameters: see `RandomForestClassifier.fit`.

        Parameters
        ----------
        X : (n_samples, n_features) array-like of real numbers
            One batch, which is divided into steps of `batch_size` samples at `learning_rate`. NaN is accepted
            where `fit` accepts it.
        classes : array-like of labels, optional
            All labels of all batches: required in the first call, unless `fit` was called before.
        """
        return self._fit_next(X, y, classes, sample_weight)


@dataclass(kw_only=True, eq=False, repr=False)
class HingeForestRegressor(Regressor, _Hinge):
    """Regressor of a forest, hinge trees that start from it, and boosted trees: `hforest.tabular.fit`.

    Parameters and attributes: see `HingeForestClassifier`.

    Examples
    --------
    >>> from hforest.sklearn import HingeForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> model = HingeForestRegressor(max_iter=200, random_state=0).fit(x[:300], y[:300])
    >>> model.score(x[300:], y[300:]) > 0.4
    True
    """

    def predict_interval(self, X: ArrayLike, *, coverage: float = 0.9) -> tree.Interval:
        """Returns the intervals of `hforest.tabular.predict_interval`."""
        check_is_fitted(self)
        x = self._samples(X)
        with self._computing():
            return tabular.predict_interval(self.model_, x, coverage=coverage)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains on a batch of targets and returns the estimator.

        The first call also fixes the scaling of the targets: their means and standard deviations. Parameters:
        see `HingeForestClassifier.partial_fit`.
        """
        return self._fit_next(X, y, None, sample_weight)
