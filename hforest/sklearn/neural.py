"""Neural decision forests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.model_selection import train_test_split

from .. import neural
from ..core.aliases import ArrayLike, MaxFeatures
from .base import Estimator, check_flag, standardised, units
from .grown import weight_of
from .targets import Classifier

FAR, DECADES = 1000.0, 15
"""Columns whose mean is more than FAR deviations from 0, or whose deviation is not within DECADES powers of
ten, are standardised before they become float32."""


class _Judge:
    """Keeps the model with the least loss on held-out samples, and decides when training ends."""

    def __init__(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, patience: int) -> None:
        self._x, self._y, self._weight, self._patience = x, y, weight, patience
        self.losses: list[float] = []
        self.best: neural.Linear | None = None

    def keep(self, model: neural.Linear) -> None:
        """Evaluates a model by the weighted mean of -log(probability of the label), and keeps the best."""
        p = neural.predict(model, self._x)[np.arange(len(self._y)), self._y]
        losses = -np.log(np.maximum(p.astype(np.float64), 1e-9))
        loss = float(np.average(losses, weights=self._weight))
        if self.best is None or loss < min(self.losses):
            self.best = model
        self.losses.append(loss)

    def goes_on(self, done: int, total: int) -> bool:
        """Returns whether one of the last evaluations was the best so far."""
        return done - 1 - int(np.argmin(self.losses)) < self._patience


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralForestClassifier(Classifier, Estimator):
    """Neural decision forest classifier with linear decision functions: `hforest.neural.fit` (Zhang 2017,
    Alg. 1).

    Other parameters: see `hforest.neural.fit`, `hforest.neural.linear_init` and `RandomForestClassifier`.

    Parameters
    ----------
    n_estimators : int
        `n_trees` in hforest.
    max_depth : int
        Number of decisions on a path, 1 to 20; `depth` in hforest.
    max_iter : int
        Maximum number of passes over the samples; `epochs` in hforest.
    learning_rate, last_learning_rate : float
        Learning rates of the first pass and of pass `max_iter`, with a cosine schedule between them; `lr` and
        `last_lr` in hforest.
    leaf_iterations : int
        Number of iterations of the leaf update; `n_iter` in hforest.
    standardize : bool
        Whether columns are standardised before training.
    early_stopping : bool
        Whether to hold out samples, stop when the loss on them no longer improves, and keep the model with
        the least loss.
    validation_fraction : float
        Share of the samples that is held out; used with `early_stopping`.
    n_iter_no_change : int
        Number of passes without a lower loss after which training ends; used with `early_stopping`.

    Attributes
    ----------
    model_ : hforest.neural.Linear
        For the functions of `hforest.neural`. Columns far from 0, or in an extreme unit, are standardised
        before.
    n_iter_ : int
        Passes over the samples.
    loss_curve_ : list of float
        Mean loss of each pass.
    validation_losses_ : list of float
        Loss on held-out samples after each pass; with `early_stopping`.
    t_ : int
        Number of steps of `partial_fit`, if it was called after `fit`.

    Notes
    -----
    Computation is in float32. Each pass of `fit` updates the leaves in closed form from all samples.
    `partial_fit` updates them by online expectation maximisation, in which recent batches weigh most.

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

    n_estimators: int = field(default=50, kw_only=False)
    max_depth: int = 7
    max_features: MaxFeatures = None
    max_iter: int = 20
    batch_size: int = 64
    learning_rate: float = 0.05
    last_learning_rate: float = 0.005
    leaf_iterations: int = 20
    loss: Literal["tree", "forest"] = "tree"
    standardize: bool = True
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 5
    class_weight: Mapping | Literal["balanced"] | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains the forest and returns the estimator.

        X is an array or a DataFrame of finite numbers. Parameters: see `RandomForestClassifier.fit`.
        """
        with self._computing():
            self._forget()
            for name in ("early_stopping", "standardize"):
                check_flag(name, getattr(self, name))
            x, labels, of_task = self._learned(X, y)
            x = self._standardised(x, first=True)
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
        """Trains for one pass of `hforest.neural.partial_fit` over a batch, in order; returns the estimator.

        The first call initialises a forest, or continues from the one that `fit` trained. With `standardize`
        it fixes the means and deviations of columns. `fit` starts from scratch. Parameters: see
        `HingeForestClassifier.partial_fit`.
        """
        with self._computing():
            x, labels, weight = self._learned_next(X, y, classes, sample_weight)
            x = self._standardised(x, first=not hasattr(self, "model_"))
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
        """Returns training samples, their weights, and the `_Judge` of the held-out samples.

        Each class is in both parts if possible. Samples of weight 0 are in neither.
        """
        patience = self.n_iter_no_change
        if not isinstance(patience, Integral) or isinstance(patience, bool) or patience < 1:
            raise ValueError(
                f"n_iter_no_change: expected an int of at least 1, got {patience!r}; pass a number such as 5"
            )
        share: Any = self.validation_fraction
        if not isinstance(share, Real) or not 0 < float(share) < 1:
            raise ValueError(
                f"validation_fraction: expected a share above 0 and below 1, got {share!r}; pass a number "
                "such as "
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
                    f"{weight.min():g} to {weight.max():g}; leave out other samples"
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

    def _standardised(self, x: np.ndarray, first: bool) -> np.ndarray:
        """Returns samples; if float32 cannot hold some columns, these are standardised by the first
        samples."""
        if first:
            mean, deviation = units(x)
            far = (abs(mean) > FAR * deviation) | (abs(np.log10(deviation)) > DECADES)
            self.units_ = (np.where(far, mean, 0.0), np.where(far, deviation, 1.0)) if far.any() else None
        return x if self.units_ is None or not self.standardize else standardised(x, self.units_)

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        return neural.predict(self.model_, self._standardised(x, first=False))
