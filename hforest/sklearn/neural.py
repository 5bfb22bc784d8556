"""Neural decision forests."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.model_selection import train_test_split

from .. import neural
from .base import Estimator, keep
from .targets import Classifier


class _Judge:
    """Keeps the model of the least loss on held-out samples, and says when training is to end."""

    def __init__(self, x: np.ndarray, y: np.ndarray, patience: int) -> None:
        self._x, self._y, self._patience = x, y, patience
        self.losses: list[float] = []
        self.best: neural.Linear | None = None

    def keep(self, model: neural.Linear) -> None:
        """Judges a model: mean of -log(probability of the label)."""
        p = neural.predict(model, self._x)[np.arange(len(self._y)), self._y]
        loss = float(-np.log(np.maximum(p.astype(np.float64), 1e-9)).mean())
        if self.best is None or loss < min(self.losses):
            self.best = model
        self.losses.append(loss)

    def goes_on(self, done: int, total: int) -> bool:
        """Returns whether one of the last judgements was the best."""
        return done - 1 - int(np.argmin(self.losses)) < self._patience


class NeuralForestClassifier(Classifier, Estimator):
    """Neural decision forest with linear decision functions, for classes: `hforest.neural.fit` (p4 Alg. 1).

    Parameters
    ----------
    n_estimators : int
        Trees; hforest's `n_trees`.
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
        As `hforest.neural.loss_backward` takes it.
    standardize : bool
        Whether training is in columns in standard deviations from their means.
    early_stopping : bool
        Whether samples are held out, training ends when the loss on them gets no better, and the model of
        the least loss is kept.
    validation_fraction : float
        Share of the samples that is held out, with `early_stopping`.
    n_iter_no_change : int
        Passes without a lower loss after which training ends, with `early_stopping`.
    n_jobs, random_state
        As for `RandomForestClassifier`.

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
    classes_, n_classes_, n_features_in_, feature_names_in_
        As for `RandomForestClassifier`.

    Notes
    -----
    Samples are computed in float32. There are no weights of samples, and no `partial_fit`: a pass fits the
    leaves in closed form to all samples, so a batch alone would forget those before it.

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
        max_features: int | float | str | None = None,
        max_iter: int = 20,
        batch_size: int = 64,
        learning_rate: float = 0.05,
        last_learning_rate: float = 0.005,
        leaf_iterations: int = 20,
        loss: str = "tree",
        standardize: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        keep(locals())

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Trains the forest.

        Parameters
        ----------
        X : (n_samples, n_features) array-like of real numbers
            Samples, finite: an array, a pandas or polars DataFrame. Sparse matrices are refused.
        y : (n_samples,) array-like of labels
            What the forest learns.

        Returns
        -------
        self
        """
        with self._computing():
            x, labels, told = self._learned(X, y)
            seed = self._seed()
            judge = None
            if self.early_stopping:
                x, labels, judge = self._held_out(x, labels, seed)
            start = neural.linear_init(
                n_features=x.shape[1], n_classes=told["n_classes"], rng=seed,
                x=x if self.standardize else None, **self._settings(neural.linear_init),
            )  # fmt: skip
            self.loss_curve_: list[float] = []
            self.model_ = neural.fit(
                start, x, labels, rng=seed, history=self.loss_curve_,
                checkpoint=judge.keep if judge else None, progress=judge.goes_on if judge else None,
                **self._settings(),
            )  # fmt: skip
        self.n_iter_ = len(self.loss_curve_)
        if judge is not None:
            assert judge.best is not None
            self.model_, self.validation_losses_ = judge.best, judge.losses
        return self

    def _held_out(self, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, _Judge]:
        """Samples to learn from, and who judges on the others; each class is on both sides if it can be."""
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
        stratify = y if np.bincount(y).min() >= 2 and share * len(y) >= y.max() + 1 else None
        x, held, y, labels = train_test_split(
            x, y, test_size=float(share), stratify=stratify, random_state=seed % 2**32
        )
        return x, y, _Judge(held, labels, int(patience))

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        return neural.predict(self.model_, x)
