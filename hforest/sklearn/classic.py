"""Random forests, extra trees and completely random forests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..core.aliases import ArrayLike, Criterion, MaxFeatures
from .grown import BootstrapForest
from .intervals import ForestRegressor
from .targets import Classifier


@dataclass(kw_only=True, eq=False, repr=False)
class _ByColumns(BootstrapForest):
    """Base class of forests whose splits are scored, on single columns."""

    criterion: Criterion = "gini"
    max_features: MaxFeatures = "sqrt"
    min_impurity_decrease: float = 0.0
    max_bins: int | None = None
    monotonic_cst: ArrayLike | None = None
    categorical_features: ArrayLike | Literal["from_dtype"] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class RandomForestClassifier(Classifier, _ByColumns):
    """Random forest classifier: `hforest.grow` (Breiman 2001).

    Other parameters: see `hforest.growth.Settings`.

    Parameters
    ----------
    n_estimators : int
        Number of trees; `n_trees` in hforest.
    criterion : "gini", "entropy" or "log_loss", in a regressor "squared_error", "friedman_mse" or "poisson"
        Impurity.
    max_features : "sqrt", "log2", int, float or None
        Number of features sampled at a node: "sqrt" or "log2" of the number of features, an int, a fraction
        of all features (float), or all of them (None).
    max_bins : int, optional
        Maximum number of bins per feature, 1 to 256: thresholds lie between bins. By default all thresholds
        are compared (exact).
    monotonic_cst : (n_features,) array-like of -1, 0 and 1, optional
        Signs of features with which predictions must rise (1) or fall (-1); see `hforest.growth.Settings`.
    categorical_features : "from_dtype", or array-like of bool, int or str, optional
        Categorical columns: a mask, or their numbers or names. They hold integers from 0 to 65535. With
        "from_dtype" `fit` derives the kind of each column (numbers, text, categories, dates) from X by
        `hforest.tabular.columns` and stores it in `columns_`.
    ccp_alpha : float
        Cost of a split in cost-complexity pruning, `hforest.tree.prune`; 0 prunes nothing.
    bootstrap : bool
        Whether each tree draws samples with replacement.
    max_samples : int or float, optional
        Number of samples drawn for each tree. A float is a fraction of the number of samples, or of the sum
        of the weights with ``bootstrap_weights="draw"``; it may exceed 1. By default the number of samples.
    bootstrap_weights : "multiply" or "draw"
        "multiply": sample and class weights multiply the number of times that a sample was drawn. "draw": the
        probability of a draw is proportional to the weight, as in scikit-learn 1.9 or newer.
    oob_score : bool or callable
        Whether to score out-of-bag predictions: by accuracy (a regressor by R2), or by
        ``oob_score(y, predicted)``.
    warm_start : bool
        Whether `fit` keeps the trees of an earlier fit and grows those that `n_estimators` has beyond them.
        On the same samples the forest is that of one fit, whatever `random_state` is.
    importance_type : "gain", "mdi_oob" or "ufi"
        What `feature_importances_` are: shares of the gain, or `hforest.stats.oob_importance` by this
        measure, from out-of-bag samples, which `fit` then computes.
    class_weight : "balanced", "balanced_subsample", mapping from labels, or list of mappings, optional
        Factor of the sample weights of each class; "balanced" gives the classes equal weight,
        "balanced_subsample" among the samples that each tree draws. Of several labels a sample a list has a
        mapping for each, and factors are multiplied.
    n_jobs : int, optional
        Number of threads for fitting and predicting. -1 uses all processors, -2 all but one, and so on; the
        default is `hforest.get_num_threads()`.
    random_state : int, RandomState or None
        Source of the seed; an int is passed as `rng` to the function.

    Attributes
    ----------
    forest_ : hforest.tree.Forest
        The fitted model, for functions of `hforest.tree`.
    classes_ : (n_classes,) array
        Labels in ascending order; of several labels a sample a list of such arrays.
    n_classes_ : int
        Number of classes; of several labels a list.
    n_outputs_ : int
        Number of labels a sample.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : (n_features_in_,) array of str
        Column names of a DataFrame; set only if all names are strings.
    feature_importances_ : (n_features_in_,) array of float64
        Share of each feature in the total gain of all splits; see `importance_type`.
    estimators_ : sequence of estimators
        The trees, each as a fitted estimator of one tree, made at access. ``len(model)``, ``model[0]`` and
        loops over the estimator are those of `estimators_`.
    estimators_samples_ : list of arrays of int32
        Samples that each tree drew, ascending.
    oob_score_ : float
        Score of the out-of-bag predictions; set with `oob_score`.
    oob_decision_function_ : (n_samples, n_classes) array
        Out-of-bag probabilities, NaN for a sample that every tree drew; set with `oob_score`. Of several
        labels (n_samples, n_classes, n_outputs), with zeros for classes that a label does not have.

    Examples
    --------
    >>> from hforest.sklearn import RandomForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = RandomForestClassifier(oob_score=True, random_state=0).fit(x, y)
    >>> model.predict_proba(x[:1]).argmax(), model.oob_score_ > 0.93
    (np.int64(0), True)
    """

    class_weight: Mapping | list | Literal["balanced", "balanced_subsample"] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class RandomForestRegressor(ForestRegressor, _ByColumns):
    """Random forest regressor for one or several targets: `hforest.grow` (Breiman 2001).

    Other parameters and attributes: see `RandomForestClassifier`.

    Parameters
    ----------
    leaf_targets : bool
        Whether `fit` keeps the targets in the leaves, which `quantiles` reads: 4 bytes per sample and tree.

    Attributes
    ----------
    leaf_targets_ : hforest.tree.LeafTargets
        Targets in the leaves; set with `leaf_targets`.
    n_outputs_ : int
        Number of targets.
    oob_prediction_ : (n_samples,) or (n_samples, n_outputs) array
        Out-of-bag predictions, NaN for a sample that every tree drew; set with `oob_score`.

    Examples
    --------
    >>> from hforest.sklearn import RandomForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> RandomForestRegressor(oob_score=True, random_state=0).fit(x, y).oob_score_ > 0.4
    True
    """

    criterion: Criterion = "squared_error"
    max_features: MaxFeatures = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class ExtraTreesClassifier(Classifier, _ByColumns):
    """Extra-trees classifier: `hforest.grow(splitter="random")` (Geurts, Ernst and Wehenkel 2006).

    Parameters and attributes: see `RandomForestClassifier`.

    Examples
    --------
    >>> from hforest.sklearn import ExtraTreesClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> float(ExtraTreesClassifier(random_state=0).fit(x, y).score(x, y))
    1.0
    """

    _fixed: ClassVar[dict[str, Any]] = {"splitter": "random"}

    bootstrap: bool = False
    class_weight: Mapping | list | Literal["balanced", "balanced_subsample"] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class ExtraTreesRegressor(ForestRegressor, _ByColumns):
    """Extra trees for one or several targets (Geurts, Ernst and Wehenkel 2006).

    Parameters and attributes: see `RandomForestRegressor`.

    Examples
    --------
    >>> from hforest.sklearn import ExtraTreesRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> model = ExtraTreesRegressor(random_state=0).fit(x[:300], y[:300])
    >>> model.score(x[300:], y[300:]) > 0.4
    True
    """

    _fixed: ClassVar[dict[str, Any]] = {"splitter": "random"}

    bootstrap: bool = False
    criterion: Criterion = "squared_error"
    max_features: MaxFeatures = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class CompletelyRandomForestClassifier(Classifier, BootstrapForest):
    """Completely random forest classifier: random features and thresholds (Zhou and Feng 2017).

    Parameters and attributes: see `RandomForestClassifier`.

    Examples
    --------
    >>> from hforest.sklearn import CompletelyRandomForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> float(CompletelyRandomForestClassifier(random_state=0).fit(x, y).score(x, y))
    1.0
    """

    _fixed: ClassVar[dict[str, Any]] = {"splitter": "random", "max_features": 1}

    bootstrap: bool = False
    categorical_features: ArrayLike | Literal["from_dtype"] | None = None
    class_weight: Mapping | list | Literal["balanced", "balanced_subsample"] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class CompletelyRandomForestRegressor(ForestRegressor, BootstrapForest):
    """Completely random forest for one or several targets: `hforest.grow(splitter="random", max_features=1)`.

    Parameters and attributes: see `RandomForestRegressor`.

    Examples
    --------
    >>> from hforest.sklearn import CompletelyRandomForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> model = CompletelyRandomForestRegressor(min_samples_leaf=3, random_state=0).fit(x[:300], y[:300])
    >>> model.score(x[300:], y[300:]) > 0.3
    True
    """

    _fixed: ClassVar[dict[str, Any]] = {"splitter": "random", "max_features": 1}

    bootstrap: bool = False
    categorical_features: ArrayLike | Literal["from_dtype"] | None = None
