"""Hinge forests: the recipe for tables."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.random import RandomState
from sklearn.utils.validation import check_is_fitted

from .. import tabular, tree
from ..core.aliases import ArrayLike, Scaled
from .base import Estimator, keep
from .grown import weight_of
from .targets import Classifier, Regressor


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
    model_: tabular.Model

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fits the recipe of `hforest.tabular.fit`.

        Parameters
        ----------
        X : (n_samples, n_features) array-like of real numbers
            Samples, finite, or NaN for missing values, in any units: an array, a pandas or polars DataFrame.
            Sparse matrices are refused.
        y : (n_samples,) array-like of labels, or (n_samples,) or (n_samples, n_outputs) array-like of targets
            What the forest learns.
        sample_weight : (n_samples,) array-like, optional
            Weights of the samples, at least 0, not all 0.

        Returns
        -------
        self
        """
        steps: dict[int, int] = {}

        def count(done: int, total: int) -> None:
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
        """Fits the recipe to the first batch, and takes one pass of steps over each later one."""
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
        """Returns (n_features,) float64: share of each feature in the gains of the grown forests' splits.

        With g_j the share of column or inner product j in `hforest.tree.importance` of a member's forest, by
        gain, and K its inner products of columns in a common unit, feature f has
        ``g_f + sum over j of g_j |K_fj| / sum over i of |K_ij|``, averaged over the members. A column of
        categories has the sum over the columns of numbers that stand for it. It tells of the forests that
        hinge trees begin as, and not of what training changes.
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


class HingeForestClassifier(Classifier, _Hinge):
    """Hinge trees that start as a grown forest and learn on, for classes: `hforest.tabular.fit`.
    The trees are those of Lay et al. 2018, eq. 10; the start and the training are not that paper's.

    Parameters
    ----------
    n_estimators : int
        Trees of a member; hforest's `n_trees`.
    max_depth : int, optional
        Decisions of a hinge tree, by default 6; hforest's `depth`. The grown forest has no limit.
    n_members : int
        Number of models, whose predictions are averaged. Each holds out other samples.
    n_projections : int
        Number of inner products of a member, each of two random columns before training; 0 for none.
    max_iter : int, optional
        Maximum number of Adam's steps of a member; by default 15 passes over the samples, 400 to 1500 steps.
        hforest's `steps`.
    batch_size : int, optional
        Number of samples per step; by default 128.
    learning_rate : float, optional
        Learning rate of Adam; by default 0.012. hforest's `lr`.
    validation_fraction : float
        Share of the samples that a member holds out, 0 to 0.5. Training ends when states get no better on
        them, and the best is kept. With 0, or of fewer than 8 samples, the last state is kept. hforest's
        `validation`.
    scaling : "auto", "deviations" or "normal"
        How columns are scaled.
    categorical_features : "from_dtype", or array-like of bool, int or str, optional
        A mask of columns that are categories, or their numbers or names: whole numbers 0 to 65535. With
        "from_dtype" `fit` learns by `hforest.tabular.columns` what the columns of X are: numbers, text,
        categories, dates; `columns_` keeps it.
    average : bool
        Whether the states that held-out samples compare are averages over the steps before them.
    share : float, optional
        Share of the hinge trees in the prediction; the rest is the grown forest's. By default held-out
        samples choose it.
    class_weight : "balanced" or mapping from labels, optional
        Factor of the sample weights of each class; "balanced" gives the classes equal weight.
    n_jobs : int, optional
        Number of threads while fitting and predicting; below 0 all processors but -1 - n_jobs. By default the
        number of `hforest.get_num_threads()`.
    random_state : int, RandomState or None
        Source of the seed; an int is the `rng` of the function.

    Attributes
    ----------
    model_ : hforest.tabular.Model
        For `hforest.tabular.predict` and `hforest.tabular.save`.
    n_iter_ : int
        Steps of the member that was trained longest, in `fit`.
    t_ : int
        Steps of `partial_fit` after its first batch.
    feature_importances_ : (n_features_in_,) array of float64
        Shares of the features in the gains of the grown forests' splits.
    classes_ : (n_classes,) array
        Labels, ascending.
    n_classes_ : int
        Number of classes.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : (n_features_in_,) array of str
        Names of the columns of a DataFrame; only where all are text.

    Examples
    --------
    >>> from hforest.sklearn import HingeForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = HingeForestClassifier(max_iter=200, random_state=0).fit(x[::2], y[::2])
    >>> model.score(x[1::2], y[1::2]) > 0.9
    True
    """

    def __init__(
        self,
        n_estimators: int = 50,
        *,
        max_depth: int | None = None,
        n_members: int = 3,
        n_projections: int = 300,
        max_iter: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        validation_fraction: float = 0.15,
        scaling: Scaled = "auto",
        categorical_features: ArrayLike | Literal["from_dtype"] | None = None,
        average: bool = True,
        share: float | None = None,
        class_weight: Mapping | Literal["balanced"] | None = None,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        keep(locals())

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learns a batch of samples.

        The first call fits the recipe to its samples, without held-out ones and with all of the prediction
        from hinge trees (`share` 1, unless it is given): they settle the units of columns and the grown
        forests, and should tell of the table. Each later call, also one after `fit`, is one pass of
        `hforest.tabular.partial_fit` over its samples, in their order. `fit` begins anew.

        Parameters
        ----------
        X : (n_samples, n_features) array-like of real numbers
            Samples, finite; steps are of `batch_size` of them, at `learning_rate`.
        y : (n_samples,) array-like of labels
            Labels.
        classes : array-like of labels, optional
            All labels of all batches: needed in the first call, unless after `fit`.
        sample_weight : (n_samples,) array-like, optional
            Weights of the samples, at least 0, not all 0.

        Returns
        -------
        self
        """
        return self._fit_next(X, y, classes, sample_weight)


class HingeForestRegressor(Regressor, _Hinge):
    """Hinge trees that start as a grown forest and learn on, for targets: `hforest.tabular.fit`.
    The trees are those of Lay et al. 2018, eq. 10; the start and the training are not that paper's.

    Parameters
    ----------
    n_estimators : int
        Trees of a member; hforest's `n_trees`.
    n_members : int
        Number of models, whose predictions are averaged. Each holds out other samples.
    n_projections : int
        Number of inner products of a member, each of two random columns before training; 0 for none.
    max_iter : int, optional
        Maximum number of Adam's steps of a member; by default 15 passes over the samples, 400 to 1500 steps.
        hforest's `steps`.
    batch_size : int, optional
        Number of samples per step; by default 128.
    learning_rate : float, optional
        Learning rate of Adam; by default 0.012. hforest's `lr`.
    validation_fraction : float
        Share of the samples that a member holds out, 0 to 0.5. Training ends when states get no better on
        them, and the best is kept. With 0, or of fewer than 8 samples, the last state is kept. hforest's
        `validation`.
    max_depth : int, optional
        Decisions of a hinge tree, by default 4; hforest's `depth`. The grown forest has no limit.
    scaling : "auto", "deviations" or "normal"
        How columns are scaled.
    categorical_features : "from_dtype", or array-like of bool, int or str, optional
        A mask of columns that are categories, or their numbers or names: whole numbers 0 to 65535. With
        "from_dtype" `fit` learns by `hforest.tabular.columns` what the columns of X are: numbers, text,
        categories, dates; `columns_` keeps it.
    average : bool
        Whether the states that held-out samples compare are averages over the steps before them.
    share : float, optional
        Share of the hinge trees in the prediction; the rest is the grown forest's. By default held-out
        samples choose it.
    n_jobs : int, optional
        Number of threads while fitting and predicting; below 0 all processors but -1 - n_jobs. By default the
        number of `hforest.get_num_threads()`.
    random_state : int, RandomState or None
        Source of the seed; an int is the `rng` of the function.

    Attributes
    ----------
    model_ : hforest.tabular.Model
        For `hforest.tabular.predict` and `hforest.tabular.save`.
    n_iter_ : int
        Steps of the member that was trained longest, in `fit`.
    t_ : int
        Steps of `partial_fit` after its first batch.
    feature_importances_ : (n_features_in_,) array of float64
        Shares of the features in the gains of the grown forests' splits.
    n_outputs_ : int
        Number of targets.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : (n_features_in_,) array of str
        Names of the columns of a DataFrame; only where all are text.

    Examples
    --------
    >>> from hforest.sklearn import HingeForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> model = HingeForestRegressor(max_iter=200, random_state=0).fit(x[:300], y[:300])
    >>> model.score(x[300:], y[300:]) > 0.4
    True
    """

    def __init__(
        self,
        n_estimators: int = 50,
        *,
        max_depth: int | None = None,
        n_members: int = 3,
        n_projections: int = 300,
        max_iter: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        validation_fraction: float = 0.15,
        scaling: Scaled = "auto",
        categorical_features: ArrayLike | Literal["from_dtype"] | None = None,
        average: bool = True,
        share: float | None = None,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        keep(locals())

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learns a batch of samples, as `HingeForestClassifier.partial_fit`.

        The first call also settles the unit of the targets: their means and deviations.

        Parameters
        ----------
        X : (n_samples, n_features) array-like of real numbers
            Samples, finite; steps are of `batch_size` of them, at `learning_rate`.
        y : (n_samples,) or (n_samples, n_outputs) array-like of targets
            What the forest learns.
        sample_weight : (n_samples,) array-like, optional
            Weights of the samples, at least 0, not all 0.

        Returns
        -------
        self
        """
        return self._fit_next(X, y, None, sample_weight)
