"""Base classes of classifiers and regressors: labels, targets and predictions."""

import warnings
from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import r2_score
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from .. import tabular
from ..core.aliases import ArrayLike


def of_classes(class_weight: Any, classes: Any, y: np.ndarray) -> Any:
    """Returns `class_weight` for hforest: mappings from labels become arrays."""
    if isinstance(class_weight, Mapping) and isinstance(classes, np.ndarray):
        return compute_class_weight(dict(class_weight), classes=classes, y=y)
    if isinstance(class_weight, list) and isinstance(classes, list) and len(classes) == len(class_weight):
        columns = zip(class_weight, classes, np.asarray(y).T, strict=True)
        return [of_classes(*of_label) for of_label in columns]
    return class_weight


def refuse_sparse(y: Any) -> None:
    """Checks that labels or targets are no sparse matrix."""
    if issparse(y):
        raise TypeError(f"y: expected a dense array, got {type(y).__name__}; pass y.toarray()")


FEW = 20
"""Number of classes up to which each may have a single sample, and labels may be numbers that are not
whole."""


def check_labels(y: Any) -> None:
    """Checks that labels are classes, most of which have several samples."""
    a = np.asarray(y)
    few = a.ndim == 1 and a.dtype.kind == "f" and len(np.unique(a)) <= min(FEW, len(a) // 2)
    if not few:
        check_classification_targets(y)
    if a.ndim == 1 and len(a) > 2 * FEW and len(np.unique(a)) > max(FEW, len(a) // 2):
        raise ValueError(
            f"y: expected classes of several samples each, got {len(np.unique(a))} classes in {len(a)} "
            "samples (Unknown label type); use a regressor for numbers, or merge classes"
        )


class Classifier(ClassifierMixin):
    """Base class of classifiers, for labels that numpy.unique can sort: text, integers, bools."""

    _several: bool

    @staticmethod
    def _metric(y: np.ndarray, predicted: np.ndarray) -> float:
        """Returns the share of samples whose labels are right: all of them if there are several."""
        return float((y == predicted).reshape(len(y), -1).all(axis=1).mean())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._several
        tags.classifier_tags.multi_label = self._several
        return tags

    def _learned(self, X: ArrayLike, y: Any) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Returns samples, their class numbers, and the settings of hforest for classes."""
        refuse_sparse(y)
        of_label = np.asarray(y).shape[1:] if self._several else ()
        several = len(of_label) == 1 and of_label[0] > 1
        if isinstance(y, list | tuple):
            for column in zip(*y, strict=True) if several else [y]:
                tabular.labels(column)  # before NumPy makes text of labels of several kinds
        x, y = self._validated(X, y, **self._kinds, **({"multi_output": True} if several else {}))
        self.n_outputs_ = y.shape[1] if several else 1
        columns = list(y.T) if several else [y]
        for column in columns:
            check_labels(column)
        known = [np.unique(column, return_inverse=True) for column in columns]
        places = np.stack([at for _, at in known], axis=1) if several else known[0][1]
        self.classes_: Any = [classes for classes, _ in known] if several else known[0][0]
        self.n_classes_: Any = list(map(len, self.classes_)) if several else len(self.classes_)
        settings: dict[str, Any] = {"n_classes": self.n_classes_, "task": "classification"}
        if hasattr(self, "class_weight"):
            settings["class_weight"] = of_classes(self.class_weight, self.classes_, y)
        return x, places, settings

    def _learned_next(
        self, X: ArrayLike, y: Any, classes: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, Any]:
        """Returns the samples of a batch, their class numbers, and weights (None for equal weights).

        The first batch fixes the classes.
        """
        first = not hasattr(self, "classes_")
        remedy = "pass the labels of all batches, such as numpy.unique(y)"
        if first and classes is None:
            raise ValueError(f"classes: expected labels in the first call of partial_fit, got None; {remedy}")
        x, y = self._validated(X, y, **self._kinds, reset=first)
        check_labels(y)
        known = unique_labels(classes) if classes is not None else self.classes_
        if not first and not np.array_equal(known, self.classes_):
            raise ValueError(
                f"classes: expected the classes of the first call, {self.classes_.tolist()}, got "
                f"{known.tolist()}; "
                "pass None in later calls"
            )
        places = np.minimum(np.searchsorted(known, y), len(known) - 1)
        if not (known[places] == y).all():
            unknown = np.setdiff1d(y, known).tolist()
            raise ValueError(f"y: expected labels of classes = {known.tolist()}, got {unknown}; {remedy}")
        self.classes_, self.n_classes_ = known, len(known)
        weight = None if isinstance(sample_weight, Number) else sample_weight
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight: expected None or a mapping in partial_fit, got {self.class_weight!r}; pass "
                "such as {label: factor, ...} of all labels"
            )
        factor = of_classes(self.class_weight, known, y)
        if factor is not None:
            weight = factor[places] * (1 if weight is None else np.asarray(weight))
        return x, places, weight

    def _by_label(self, outputs: np.ndarray) -> list[np.ndarray]:
        """Returns the probabilities of each of several labels."""
        return np.split(outputs, np.cumsum(self.n_classes_)[:-1], axis=1)

    def _labels(self, places: np.ndarray) -> np.ndarray:
        """Returns labels from their numbers in `classes_`; (n_samples, n_outputs) of several."""
        if not isinstance(self.classes_, list):
            return self.classes_[places]
        return np.stack([known[at] for known, at in zip(self.classes_, places.T, strict=True)], axis=1)

    def _answers(self, outputs: np.ndarray) -> np.ndarray:
        if not isinstance(self.classes_, list):
            return self._labels(outputs.argmax(axis=1))
        return self._labels(np.stack([p.argmax(axis=1) for p in self._by_label(outputs)], axis=1))

    def _keep_out_of_bag(self, outputs: np.ndarray) -> None:
        if not isinstance(self.classes_, list):
            self.oob_decision_function_ = outputs
            return
        self.oob_decision_function_ = np.zeros((len(outputs), max(self.n_classes_), self.n_outputs_))
        for j, p in enumerate(self._by_label(outputs)):
            self.oob_decision_function_[:, : p.shape[1], j] = p

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Returns the most probable class of each sample; of equal probabilities the first in `classes_`.

        Of several labels a sample it is that of each label.

        Parameters
        ----------
        X : (n_samples, n_features) array-like of real numbers
            Samples with the features of the fit. Values are finite; NaN is accepted where `fit` accepts it.

        Returns
        -------
        (n_samples,) or (n_samples, n_outputs) array of labels
        """
        return self._answers(self._shares(X))

    def _shares(self, X: ArrayLike) -> np.ndarray:
        x = self._samples(X)
        with self._computing():
            return self._outputs(x)

    def predict_proba(self, X: ArrayLike) -> Any:
        """Returns the probabilities of the classes; X as in `predict`.

        Returns
        -------
        (n_samples, n_classes) array of float32 or float64
            In the order of `classes_`, as the function of hforest returns them. Of several labels a list of
            such arrays.
        """
        outputs = self._shares(X)
        return self._by_label(outputs) if isinstance(self.classes_, list) else outputs

    def predict_log_proba(self, X: ArrayLike) -> Any:
        """Returns the natural logarithms of `predict_proba`, -inf where a probability is 0.

        Returns
        -------
        As `predict_proba`
        """
        p = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return list(map(np.log, p)) if isinstance(p, list) else np.log(p)


class Regressor(RegressorMixin):
    """Base class of regressors for one or several targets."""

    _metric = staticmethod(r2_score)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _learned(self, X: ArrayLike, y: Any) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Returns samples, targets, and the settings of hforest for targets."""
        refuse_sparse(y)
        x, y = self._validated(X, y, multi_output=True, y_numeric=True, **self._kinds)
        targets = np.asarray(y)
        if targets.ndim == 2 and targets.shape[1] == 1:
            warnings.warn(
                "y: expected shape (n_samples,) for one target, got a column; pass numpy.ravel(y)",
                DataConversionWarning,
                stacklevel=3,
            )
            targets = targets[:, 0]
        self.n_outputs_ = 1 if targets.ndim == 1 else targets.shape[1]
        return x, targets, {"task": "regression"}

    def _learned_next(
        self, X: ArrayLike, y: Any, classes: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, Any]:
        """Returns the samples of a batch, targets, and weights (None if equal). `classes` is None."""
        first = not hasattr(self, "n_outputs_")
        x, y = self._validated(X, y, **self._kinds, multi_output=True, y_numeric=True, reset=first)
        targets = np.asarray(y)
        if first:
            self.n_outputs_ = 1 if targets.ndim == 1 else targets.shape[1]
        return x, targets, None if isinstance(sample_weight, Number) else sample_weight

    def _answers(self, outputs: np.ndarray) -> np.ndarray:
        return outputs.ravel() if self.n_outputs_ == 1 else outputs

    def _keep_out_of_bag(self, outputs: np.ndarray) -> None:
        self.oob_prediction_ = self._answers(outputs)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Returns the predicted targets.

        Parameters: see `RandomForestClassifier.predict`.

        Returns
        -------
        (n_samples,) or (n_samples, n_outputs) array of float32 or float64
            As the function of hforest returns them.
        """
        x = self._samples(X)
        with self._computing():
            outputs = self._outputs(x)
        return self._answers(outputs)
