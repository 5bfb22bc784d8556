"""Neural decision forests."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.random import RandomState
from sklearn.model_selection import train_test_split

from .. import neural
from ..core.aliases import ArrayLike, MaxFeatures
from .base import Estimator, check_flag, keep
from .grown import weight_of
from .targets import Classifier


class _Judge:
    """Keeps the model of the least loss on held-out samples, and says when training is to end."""

    def __init__(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, patience: int) -> None:
        self._x, self._y, self._weight, self._patience = x, y, weight, patience
        self.losses: list[float] = []
        self.best: neural.Linear | None = None

    def keep(self, model: neural.Linear) -> None:
        """Judges a model: mean of -log(probability of the label), by weight."""
        p = neural.predict(model, self._x)[np.arange(len(self._y)), self._y]
        losses = -np.log(np.maximum(p.astype(np.float64), 1e-9))
        loss = float(np.average(losses, weights=self._weight))
        if self.best is None or loss < min(self.losses):
            self.best = model
        self.losses.append(loss)

    def goes_on(self, done: int, total: int) -> bool:
        """Returns whether one of the last judgements was the best."""
        return done - 1 - int(np.argmin(self.losses)) < self._patience


class NeuralForestClassifier(Classifier, Estimator):
    """Neural decision forest with linear decision functions, for classes: `hforest.neural.fit` (Zhang 2017,
    Alg. 1).

    Parameters
    ----------
    n_estimators : int
        Number of trees; hforest's `n_trees`.
    max_depth : int
        Decisions on the way to a leaf, 1 to 20; hforest's `depth`.
    max_features : int, float, "sqrt" or None
        Features that each tree reads: a number, a share, the root of their number, or all.
    max_iter : int
        Passes over the samples, at most; hforest's `epochs`.
    batch_size : int
        Samples of a step of Adam.
    learning_rate, last_learning_rate : float
        Of the first pass and of pass `max_iter`, with a cosine between them; hforest's `lr` and `last_lr`.
    leaf_iterations : int
        Iterations of the leaf update; hforest's `n_iter`.
    loss : "tree" or "forest"
        "forest": -log of the forest's mean probability. "tree": the mean over trees of each tree's own -log
        P_T, as Zhang 2017 writes it. For one tree they are the same.
    standardize : bool
        Whether training is in columns in standard deviations from their means.
    early_stopping : bool
        Whether samples are held out, training ends when the loss on them gets no better, and the model of
        the least loss is kept.
    validation_fraction : float
        Share of the samples that is held out, with `early_stopping`.
    n_iter_no_change : int
        Passes without a lower loss after which training ends, with `early_stopping`.
    class_weight : "balanced" or mapping from labels, optional
        Factor of the sample weights of each class; "balanced" gives the classes equal weight.
    n_jobs : int, optional
        Number of threads while fitting and predicting; below 0 all processors but -1 - n_jobs. By default the
        number of `hforest.get_num_threads()`.
    random_state : int, RandomState or None
        Source of the seed; an int is the `rng` of the function.

    Attributes
    ----------
    model_ : hforest.neural.Linear
        For the functions of `hforest.neural`.
    n_iter_ : int
        Passes over the samples.
    loss_curve_ : list of float
        Mean loss of each pass.
    validation_losses_ : list of float
        Loss on held-out samples after each pass; with `early_stopping`.
    t_ : int
        Steps of `partial_fit`, if it was called after `fit`.
    classes_ : (n_classes,) array
        Labels, ascending.
    n_classes_ : int
        Number of classes.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : (n_features_in_,) array of str
        Names of the columns of a DataFrame; only where all are text.

    Notes
    -----
    Samples are computed in float32. A pass of `fit` fits the leaves in closed form to all samples;
    `partial_fit` fits them by on-line expectation maximisation, in which late batches count most.

    Examples
    --------
    >>> from hforest.sklearn import NeuralForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = NeuralForestClassifier(10, max_depth=4, random_state=0).fit(x[::2], y[::2])
    >>> model.score(x[1::2], y[1::2]) > 0.9
    True
    """

    _function = staticmethod(neural.fit)
    _names: ClassVar[Mapping[str, str]] = {
        **Estimator._names,
        "max_depth": "depth",
        "max_iter": "epochs",
        "learning_rate": "lr",
        "last_learning_rate": "last_lr",
        "leaf_iterations": "n_iter",
    }

    def __init__(
        self,
        n_estimators: int = 50,
        *,
        max_depth: int = 7,
        max_features: MaxFeatures = None,
        max_iter: int = 20,
        batch_size: int = 64,
        learning_rate: float = 0.05,
        last_learning_rate: float = 0.005,
        leaf_iterations: int = 20,
        loss: Literal["tree", "forest"] = "tree",
        standardize: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        class_weight: Mapping | Literal["balanced"] | None = None,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        keep(locals())

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains the forest.

        Parameters
        ----------
        X : (n_samples, n_features) array-like of real numbers
            Samples, finite: an array, a pandas or polars DataFrame. Sparse matrices are refused.
        y : (n_samples,) array-like of labels
            Labels.
        sample_weight : (n_samples,) array-like, optional
            Weights of the samples, at least 0, not all 0; samples of weight 0 are left out.

        Returns
        -------
        self
        """
        with self._computing():
            self._forget()
            for name in ("early_stopping", "standardize"):
                check_flag(name, getattr(self, name))
            x, labels, of_task = self._learned(X, y)
            seed = self._seed()
            weight = weight_of(sample_weight)
            judge = None
            if self.early_stopping:
                x, labels, weight, judge = self._held_out(x, labels, weight, seed)
            start = neural.linear_init(
                n_features=x.shape[1], n_classes=of_task["n_classes"], rng=seed,
                x=x if self.standardize else None, **self._settings(neural.linear_init),
            )  # fmt: skip
            self.loss_curve_: list[float] = []
            self.model_ = neural.fit(
                start, x, labels, rng=seed, history=self.loss_curve_,
                checkpoint=judge.keep if judge else None, progress=judge.goes_on if judge else None,
                **(self._settings() | {"class_weight": of_task["class_weight"], "sample_weight": weight}),
            )  # fmt: skip
        self.n_iter_ = len(self.loss_curve_)
        if judge is not None:
            assert judge.best is not None
            self.model_, self.validation_losses_ = judge.best, judge.losses
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learns a batch of samples: one pass of `hforest.neural.partial_fit` over them, in their order.

        The first call begins a forest, or goes on from the one that `fit` trained, and settles the units of
        columns with `standardize`: means and deviations of its samples. `fit` begins anew.

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
        with self._computing():
            x, labels, weight = self._learned_next(X, y, classes, sample_weight)
            model = getattr(self, "model_", None)
            if model is None:
                model = neural.linear_init(
                    n_features=x.shape[1], n_classes=self.n_classes_, rng=self._seed(),
                    x=x if self.standardize else None, **self._settings(neural.linear_init),
                )  # fmt: skip
            settings = self._settings(neural.partial_fit)
            self.model_, self._state = neural.partial_fit(
                model, x, labels, state=getattr(self, "_state", None), sample_weight=weight, **settings
            )
        self.t_ = int(self._state.n_steps)
        return self

    def _held_out(
        self, x: np.ndarray, y: np.ndarray, sample_weight: Any, seed: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, _Judge]:
        """Returns samples to learn from, their weights, and who judges on the others.

        Each class is on both sides if it can be. Samples of weight 0 are on neither.
        """
        patience = self.n_iter_no_change
        if not isinstance(patience, Integral) or isinstance(patience, bool) or patience < 1:
            raise ValueError(
                f"n_iter_no_change: expected an int of at least 1, got {patience!r}; pass such as 5"
            )
        share: Any = self.validation_fraction
        if not isinstance(share, Real) or not 0 < float(share) < 1:
            raise ValueError(
                f"validation_fraction: expected a share above 0 and below 1, got {share!r}; pass such as "
                "0.1, or early_stopping=False"
            )
        weight = None
        if sample_weight is not None:
            weight = np.asarray(sample_weight)
            if weight.dtype.kind not in "biuf":
                raise TypeError(
                    f"sample_weight: expected an array of real numbers, got dtype {weight.dtype}; "
                    "pass numbers"
                )
            weight = weight.astype(np.float64)
            if weight.shape != y.shape:
                raise ValueError(
                    f"sample_weight: expected shape {y.shape}, got {weight.shape}; pass one number for each "
                    "sample"
                )
            if not (weight.min() >= 0 and 0 < weight.max() < np.inf):
                raise ValueError(
                    "sample_weight: expected finite numbers of at least 0, not all 0, got "
                    f"{weight.min():g} to {weight.max():g}; leave other samples out"
                )
            positive = weight > 0
            x, y, weight = x[positive], y[positive], weight[positive]
        counts = np.bincount(y)
        stratify = y if counts[counts > 0].min() >= 2 and share * len(y) >= y.max() + 1 else None
        rows, held = train_test_split(
            np.arange(len(x)), test_size=float(share), stratify=stratify, random_state=seed % 2**32
        )
        if weight is None:
            return x[rows], y[rows], None, _Judge(x[held], y[held], None, int(patience))
        return x[rows], y[rows], weight[rows], _Judge(x[held], y[held], weight[held], int(patience))

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        return neural.predict(self.model_, x)
