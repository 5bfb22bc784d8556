"""Regressors of grown forests: quantiles and intervals of targets."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .. import tree
from ..core.aliases import ArrayLike
from .base import check_flag
from .targets import Regressor


@dataclass(kw_only=True, eq=False, repr=False)
class ForestRegressor(Regressor):
    """Base class of regressors whose model is a `hforest.tree.Forest`."""

    leaf_targets: bool = False

    def _check_words(self) -> None:
        super()._check_words()
        check_flag("leaf_targets", self.leaf_targets)

    def _finish(self, x: np.ndarray, y: np.ndarray, settings: dict[str, Any]) -> None:
        super()._finish(x, y, settings)
        if self.leaf_targets:
            self.leaf_targets_ = tree.leaf_targets(
                self.forest_, x, y, sample_weight=settings["sample_weight"], **self._held(x)
            )
        if self.oob_score:
            targets = y.reshape(len(y), -1).astype(np.float64)
            self._errors = targets - self.oob_prediction_.reshape(targets.shape)

    def _held(self, x: np.ndarray) -> dict[str, Any]:
        """Returns the samples that leaves hold, as `hforest.tree.leaf_targets` takes them: all."""
        return {}

    def quantiles(
        self,
        X: ArrayLike,
        levels: ArrayLike,
        *,
        method: Literal["inverted_cdf", "linear"] = "inverted_cdf",
    ) -> np.ndarray:
        """Returns quantiles of the target of each sample: `hforest.tree.quantiles` (Meinshausen 2006).

        The estimator needs a fit with ``leaf_targets=True``. X: see `predict`.

        Parameters
        ----------
        levels : (n_levels,) array-like
            Levels of the quantiles, 0 to 1, in any order: 0.5 for the median.
        method : "inverted_cdf" or "linear"
            See `hforest.tree.quantiles`.

        Returns
        -------
        (n_samples, n_levels) or (n_samples, n_outputs, n_levels) array of float64
            Quantiles; NaN for a sample whose leaves hold no training sample.
        """
        check_is_fitted(self)
        if not hasattr(self, "leaf_targets_"):
            raise ValueError(
                "leaf_targets: expected True in fit, got False; pass leaf_targets=True and fit again"
            )
        x = self._samples(X)
        with self._computing():
            values = tree.quantiles(self.forest_, self.leaf_targets_, x, levels, method=method)
        return values[:, 0] if self.n_outputs_ == 1 else values

    def predict_interval(self, X: ArrayLike, *, coverage: float = 0.9) -> Any:
        """Returns intervals that contain the targets of new samples with a given probability.

        They are those of `hforest.tree.prediction_intervals`, from the out-of-bag errors of a fit with
        ``bootstrap=True`` and ``oob_score=True``. X: see `predict`.

        Parameters
        ----------
        coverage : float
            Share of new targets inside the intervals, above 0 and at most 1.

        Returns
        -------
        hforest.tree.Interval
            (low, high), arrays of float64, (n_samples,) or (n_samples, n_outputs).
        """
        check_is_fitted(self)
        if not hasattr(self, "_errors"):
            raise ValueError(
                "oob_score: expected True in fit, because intervals come from out-of-bag errors, got False; "
                "pass bootstrap=True, oob_score=True and fit again"
            )
        x = self._samples(X)
        with self._computing():
            interval = tree.prediction_intervals(self.forest_, x, self._errors, coverage=coverage)
        return tree.Interval(*map(self._answers, interval))
