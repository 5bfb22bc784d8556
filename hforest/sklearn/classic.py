"""Random forests, extra trees and completely random forests."""

from collections.abc import Callable, Mapping
from typing import Literal

from numpy.random import RandomState

from .. import classic
from ..core.aliases import ArrayLike, Criterion, MaxFeatures
from .base import keep
from .grown import GrownForest
from .targets import Classifier, Regressor

Metric = Callable[..., float]


class RandomForestClassifier(Classifier, GrownForest):
    """Random forest for classes: `hforest.classic.grow` (Breiman 2001).

    Parameters
    ----------
    n_estimators : int
        Number of trees; hforest's `n_trees`.
    criterion : "gini" or "entropy"
        Impurity.
    max_depth : int, optional
        Maximum depth of a leaf; 0 is a single leaf. By default trees grow until leaves are pure.
    min_samples_split : int
        A node with fewer samples is a leaf; a sample that is drawn twice counts once.
    min_samples_leaf : int
        Minimum number of samples on each side of a split; a sample that is drawn twice counts once.
    min_weight_fraction_leaf : float
        Minimum weight on each side of a split, as a fraction of the tree's weight, 0 to 0.5.
    max_features : "sqrt", "log2", int, float or None
        Number of features sampled at a node; "sqrt" and "log2" are functions of the number of all features, a
        float is a fraction of it, None is all.
    min_impurity_decrease : float
        Minimum decrease of the impurity by a split: its gain divided by the weight of the tree.
    max_bins : int, optional
        1 to 256: bins of a feature between which thresholds are compared. By default all are (exact).
    categorical_features : "from_dtype", or array-like of bool, int or str, optional
        A mask of columns that are categories, or their numbers or names: whole numbers 0 to 65535. With
        "from_dtype" `fit` learns by `hforest.tabular.columns` what the columns of X are: numbers, text,
        categories, dates; `columns_` keeps it.
    bootstrap : bool
        Whether each tree draws samples with replacement, as many as there are by default.
    max_samples : int or float, optional
        Number of draws of each tree, or as a float their share of the samples: 1 or more of them, above 1
        too. With weights that draw a float is a share of the sum of the weights. By default as many as there
        are samples.
    bootstrap_weights : "multiply" or "draw"
        Whether weights of samples and classes multiply how often a bootstrap draws a sample, or are what the
        probabilities of its draws are proportional to, as in scikit-learn 1.9 or newer.
    oob_score : bool or callable
        Whether to score out-of-bag predictions: by accuracy, or by ``oob_score(y, predicted)``.
    class_weight : "balanced" or mapping from labels, optional
        Factor of the sample weights of each class; "balanced" gives the classes equal weight.
    n_jobs : int, optional
        Number of threads while fitting and predicting; below 0 all processors but -1 - n_jobs. By default the
        number of `hforest.get_num_threads()`.
    random_state : int, RandomState or None
        Source of the seed; an int is the `rng` of the function.

    Attributes
    ----------
    forest_ : hforest.tree.Forest
        For the functions of `hforest.tree`.
    classes_ : (n_classes,) array
        Labels, ascending.
    n_classes_ : int
        Number of classes.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : (n_features_in_,) array of str
        Names of the columns of a DataFrame; only where all are text.
    feature_importances_ : (n_features_in_,) array of float64
        Shares of the features in the gains of the splits.
    oob_score_ : float
        Score of the samples that some tree did not draw; with `oob_score`.
    oob_decision_function_ : (n_samples, n_classes) array
        Out-of-bag probabilities, NaN for a sample that every tree drew; with `oob_score`.

    Examples
    --------
    >>> from hforest.sklearn import RandomForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = RandomForestClassifier(oob_score=True, random_state=0).fit(x, y)
    >>> model.predict_proba(x[:1]).argmax(), model.oob_score_ > 0.93
    (np.int64(0), True)
    """

    _function = staticmethod(classic.grow)

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: Criterion = "gini",
        max_depth: int | None = None,
        min_samples_split: int = 2,
        min_samples_leaf: int = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: MaxFeatures = "sqrt",
        min_impurity_decrease: float = 0.0,
        max_bins: int | None = None,
        categorical_features: ArrayLike | Literal["from_dtype"] | None = None,
        bootstrap: bool = True,
        max_samples: int | float | None = None,
        bootstrap_weights: Literal["multiply", "draw"] = "multiply",
        oob_score: bool | Metric = False,
        class_weight: Mapping | Literal["balanced"] | None = None,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        keep(locals())


class RandomForestRegressor(Regressor, GrownForest):
    """Random forest for one or several targets: `hforest.classic.grow` (Breiman 2001).

    Parameters
    ----------
    n_estimators : int
        Number of trees; hforest's `n_trees`.
    max_depth : int, optional
        Maximum depth of a leaf; 0 is a single leaf. By default trees grow until leaves are pure.
    min_samples_split : int
        A node with fewer samples is a leaf; a sample that is drawn twice counts once.
    min_samples_leaf : int
        Minimum number of samples on each side of a split; a sample that is drawn twice counts once.
    min_weight_fraction_leaf : float
        Minimum weight on each side of a split, as a fraction of the tree's weight, 0 to 0.5.
    min_impurity_decrease : float
        Minimum decrease of the impurity by a split: its gain divided by the weight of the tree.
    max_bins : int, optional
        1 to 256: bins of a feature between which thresholds are compared. By default all are (exact).
    criterion : "squared_error"
        Impurity.
    max_features : "sqrt", "log2", int, float or None
        Number of features sampled at a node; "sqrt" and "log2" are functions of the number of all features, a
        float is a fraction of it, None is all. By default all.
    categorical_features : "from_dtype", or array-like of bool, int or str, optional
        A mask of columns that are categories, or their numbers or names: whole numbers 0 to 65535. With
        "from_dtype" `fit` learns by `hforest.tabular.columns` what the columns of X are: numbers, text,
        categories, dates; `columns_` keeps it.
    bootstrap : bool
        Whether each tree draws samples with replacement, as many as there are by default.
    max_samples : int or float, optional
        Number of draws of each tree, or as a float their share of the samples: 1 or more of them, above 1
        too. With weights that draw a float is a share of the sum of the weights. By default as many as there
        are samples.
    bootstrap_weights : "multiply" or "draw"
        Whether weights of samples and classes multiply how often a bootstrap draws a sample, or are what the
        probabilities of its draws are proportional to, as in scikit-learn 1.9 or newer.
    n_jobs : int, optional
        Number of threads while fitting and predicting; below 0 all processors but -1 - n_jobs. By default the
        number of `hforest.get_num_threads()`.
    random_state : int, RandomState or None
        Source of the seed; an int is the `rng` of the function.
    oob_score : bool or callable
        Whether to score out-of-bag predictions: by R2, or by ``oob_score(y, predicted)``.

    Attributes
    ----------
    forest_ : hforest.tree.Forest
        For the functions of `hforest.tree`.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : (n_features_in_,) array of str
        Names of the columns of a DataFrame; only where all are text.
    feature_importances_ : (n_features_in_,) array of float64
        Shares of the features in the gains of the splits.
    oob_score_ : float
        Score of the samples that some tree did not draw; with `oob_score`.
    n_outputs_ : int
        Number of targets.
    oob_prediction_ : (n_samples,) or (n_samples, n_outputs) array
        Out-of-bag targets, NaN for a sample that every tree drew; with `oob_score`.

    Examples
    --------
    >>> from hforest.sklearn import RandomForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> RandomForestRegressor(oob_score=True, random_state=0).fit(x, y).oob_score_ > 0.4
    True
    """

    _function = staticmethod(classic.grow)

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: Criterion = "squared_error",
        max_depth: int | None = None,
        min_samples_split: int = 2,
        min_samples_leaf: int = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: MaxFeatures = 1.0,
        min_impurity_decrease: float = 0.0,
        max_bins: int | None = None,
        categorical_features: ArrayLike | Literal["from_dtype"] | None = None,
        bootstrap: bool = True,
        max_samples: int | float | None = None,
        bootstrap_weights: Literal["multiply", "draw"] = "multiply",
        oob_score: bool | Metric = False,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        keep(locals())


class ExtraTreesClassifier(Classifier, GrownForest):
    """Extra trees for classes: `hforest.classic.grow_extra` (Geurts, Ernst and Wehenkel 2006).

    Parameters
    ----------
    n_estimators : int
        Number of trees; hforest's `n_trees`.
    criterion : "gini" or "entropy"
        Impurity.
    max_depth : int, optional
        Maximum depth of a leaf; 0 is a single leaf. By default trees grow until leaves are pure.
    min_samples_split : int
        A node with fewer samples is a leaf; a sample that is drawn twice counts once.
    min_samples_leaf : int
        Minimum number of samples on each side of a split; a sample that is drawn twice counts once.
    min_weight_fraction_leaf : float
        Minimum weight on each side of a split, as a fraction of the tree's weight, 0 to 0.5.
    max_features : "sqrt", "log2", int, float or None
        Number of features sampled at a node; "sqrt" and "log2" are functions of the number of all features, a
        float is a fraction of it, None is all.
    min_impurity_decrease : float
        Minimum decrease of the impurity by a split: its gain divided by the weight of the tree.
    max_bins : int, optional
        1 to 256: bins of a feature between which thresholds are compared. By default all are (exact).
    categorical_features : "from_dtype", or array-like of bool, int or str, optional
        A mask of columns that are categories, or their numbers or names: whole numbers 0 to 65535. With
        "from_dtype" `fit` learns by `hforest.tabular.columns` what the columns of X are: numbers, text,
        categories, dates; `columns_` keeps it.
    oob_score : bool or callable
        Whether to score out-of-bag predictions: by accuracy, or by ``oob_score(y, predicted)``.
    class_weight : "balanced" or mapping from labels, optional
        Factor of the sample weights of each class; "balanced" gives the classes equal weight.
    n_jobs : int, optional
        Number of threads while fitting and predicting; below 0 all processors but -1 - n_jobs. By default the
        number of `hforest.get_num_threads()`.
    random_state : int, RandomState or None
        Source of the seed; an int is the `rng` of the function.
    bootstrap : bool
        Whether each tree draws samples with replacement, as many as there are by default. By default every
        tree has every sample.
    max_samples : int or float, optional
        Number of draws of each tree, or as a float their share of the samples: 1 or more of them, above 1
        too. With weights that draw a float is a share of the sum of the weights. By default as many as there
        are samples.
    bootstrap_weights : "multiply" or "draw"
        Whether weights of samples and classes multiply how often a bootstrap draws a sample, or are what the
        probabilities of its draws are proportional to, as in scikit-learn 1.9 or newer.

    Attributes
    ----------
    forest_ : hforest.tree.Forest
        For the functions of `hforest.tree`.
    classes_ : (n_classes,) array
        Labels, ascending.
    n_classes_ : int
        Number of classes.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : (n_features_in_,) array of str
        Names of the columns of a DataFrame; only where all are text.
    feature_importances_ : (n_features_in_,) array of float64
        Shares of the features in the gains of the splits.
    oob_score_ : float
        Score of the samples that some tree did not draw; with `oob_score`.
    oob_decision_function_ : (n_samples, n_classes) array
        Out-of-bag probabilities, NaN for a sample that every tree drew; with `oob_score`.

    Examples
    --------
    >>> from hforest.sklearn import ExtraTreesClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> float(ExtraTreesClassifier(random_state=0).fit(x, y).score(x, y))
    1.0
    """

    _function = staticmethod(classic.grow_extra)

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: Criterion = "gini",
        max_depth: int | None = None,
        min_samples_split: int = 2,
        min_samples_leaf: int = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: MaxFeatures = "sqrt",
        min_impurity_decrease: float = 0.0,
        max_bins: int | None = None,
        categorical_features: ArrayLike | Literal["from_dtype"] | None = None,
        bootstrap: bool = False,
        max_samples: int | float | None = None,
        bootstrap_weights: Literal["multiply", "draw"] = "multiply",
        oob_score: bool | Metric = False,
        class_weight: Mapping | Literal["balanced"] | None = None,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        keep(locals())


class ExtraTreesRegressor(Regressor, GrownForest):
    """Extra trees for one or several targets: `hforest.classic.grow_extra` (Geurts, Ernst and Wehenkel 2006).

    Parameters
    ----------
    n_estimators : int
        Number of trees; hforest's `n_trees`.
    criterion : "squared_error"
        Impurity.
    max_depth : int, optional
        Maximum depth of a leaf; 0 is a single leaf. By default trees grow until leaves are pure.
    min_samples_split : int
        A node with fewer samples is a leaf; a sample that is drawn twice counts once.
    min_samples_leaf : int
        Minimum number of samples on each side of a split; a sample that is drawn twice counts once.
    min_weight_fraction_leaf : float
        Minimum weight on each side of a split, as a fraction of the tree's weight, 0 to 0.5.
    max_features : "sqrt", "log2", int, float or None
        Number of features sampled at a node; "sqrt" and "log2" are functions of the number of all features, a
        float is a fraction of it, None is all. By default all.
    min_impurity_decrease : float
        Minimum decrease of the impurity by a split: its gain divided by the weight of the tree.
    max_bins : int, optional
        1 to 256: bins of a feature between which thresholds are compared. By default all are (exact).
    categorical_features : "from_dtype", or array-like of bool, int or str, optional
        A mask of columns that are categories, or their numbers or names: whole numbers 0 to 65535. With
        "from_dtype" `fit` learns by `hforest.tabular.columns` what the columns of X are: numbers, text,
        categories, dates; `columns_` keeps it.
    oob_score : bool or callable
        Whether to score out-of-bag predictions: by R2, or by ``oob_score(y, predicted)``.
    n_jobs : int, optional
        Number of threads while fitting and predicting; below 0 all processors but -1 - n_jobs. By default the
        number of `hforest.get_num_threads()`.
    random_state : int, RandomState or None
        Source of the seed; an int is the `rng` of the function.
    bootstrap : bool
        Whether each tree draws samples with replacement, as many as there are by default. By default every
        tree has every sample.
    max_samples : int or float, optional
        Number of draws of each tree, or as a float their share of the samples: 1 or more of them, above 1
        too. With weights that draw a float is a share of the sum of the weights. By default as many as there
        are samples.
    bootstrap_weights : "multiply" or "draw"
        Whether weights of samples and classes multiply how often a bootstrap draws a sample, or are what the
        probabilities of its draws are proportional to, as in scikit-learn 1.9 or newer.

    Attributes
    ----------
    forest_ : hforest.tree.Forest
        For the functions of `hforest.tree`.
    n_outputs_ : int
        Number of targets.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : (n_features_in_,) array of str
        Names of the columns of a DataFrame; only where all are text.
    feature_importances_ : (n_features_in_,) array of float64
        Shares of the features in the gains of the splits.
    oob_score_ : float
        Score of the samples that some tree did not draw; with `oob_score`.
    oob_prediction_ : (n_samples,) or (n_samples, n_outputs) array
        Out-of-bag targets, NaN for a sample that every tree drew; with `oob_score`.

    Examples
    --------
    >>> from hforest.sklearn import ExtraTreesRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> model = ExtraTreesRegressor(random_state=0).fit(x[:300], y[:300])
    >>> model.score(x[300:], y[300:]) > 0.4
    True
    """

    _function = staticmethod(classic.grow_extra)

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: Criterion = "squared_error",
        max_depth: int | None = None,
        min_samples_split: int = 2,
        min_samples_leaf: int = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: MaxFeatures = 1.0,
        min_impurity_decrease: float = 0.0,
        max_bins: int | None = None,
        categorical_features: ArrayLike | Literal["from_dtype"] | None = None,
        bootstrap: bool = False,
        max_samples: int | float | None = None,
        bootstrap_weights: Literal["multiply", "draw"] = "multiply",
        oob_score: bool | Metric = False,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        keep(locals())


class CompletelyRandomForestClassifier(Classifier, GrownForest):
    """Completely random forest for classes: `hforest.classic.grow_random` (Zhou and Feng 2017).

    Parameters
    ----------
    n_estimators : int
        Number of trees; hforest's `n_trees`.
    max_depth : int, optional
        Maximum depth of a leaf; 0 is a single leaf. By default trees grow until leaves are pure.
    min_samples_split : int
        A node with fewer samples is a leaf; a sample that is drawn twice counts once.
    min_samples_leaf : int
        Minimum number of samples on each side of a split; a sample that is drawn twice counts once.
    min_weight_fraction_leaf : float
        Minimum weight on each side of a split, as a fraction of the tree's weight, 0 to 0.5.
    categorical_features : "from_dtype", or array-like of bool, int or str, optional
        A mask of columns that are categories, or their numbers or names: whole numbers 0 to 65535. With
        "from_dtype" `fit` learns by `hforest.tabular.columns` what the columns of X are: numbers, text,
        categories, dates; `columns_` keeps it.
    bootstrap : bool
        Whether each tree draws samples with replacement, as many as there are by default. By default every
        tree has every sample.
    max_samples : int or float, optional
        Number of draws of each tree, or as a float their share of the samples: 1 or more of them, above 1
        too. With weights that draw a float is a share of the sum of the weights. By default as many as there
        are samples.
    bootstrap_weights : "multiply" or "draw"
        Whether weights of samples and classes multiply how often a bootstrap draws a sample, or are what the
        probabilities of its draws are proportional to, as in scikit-learn 1.9 or newer.
    oob_score : bool or callable
        Whether to score out-of-bag predictions: by accuracy, or by ``oob_score(y, predicted)``.
    class_weight : "balanced" or mapping from labels, optional
        Factor of the sample weights of each class; "balanced" gives the classes equal weight.
    n_jobs : int, optional
        Number of threads while fitting and predicting; below 0 all processors but -1 - n_jobs. By default the
        number of `hforest.get_num_threads()`.
    random_state : int, RandomState or None
        Source of the seed; an int is the `rng` of the function.

    Attributes
    ----------
    forest_ : hforest.tree.Forest
        For the functions of `hforest.tree`.
    classes_ : (n_classes,) array
        Labels, ascending.
    n_classes_ : int
        Number of classes.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : (n_features_in_,) array of str
        Names of the columns of a DataFrame; only where all are text.
    feature_importances_ : (n_features_in_,) array of float64
        Shares of the features in the gains of the splits.
    oob_score_ : float
        Score of the samples that some tree did not draw; with `oob_score`.
    oob_decision_function_ : (n_samples, n_classes) array
        Out-of-bag probabilities, NaN for a sample that every tree drew; with `oob_score`.

    Examples
    --------
    >>> from hforest.sklearn import CompletelyRandomForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> float(CompletelyRandomForestClassifier(random_state=0).fit(x, y).score(x, y))
    1.0
    """

    _function = staticmethod(classic.grow_random)

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        max_depth: int | None = None,
        min_samples_split: int = 2,
        min_samples_leaf: int = 1,
        min_weight_fraction_leaf: float = 0.0,
        categorical_features: ArrayLike | Literal["from_dtype"] | None = None,
        bootstrap: bool = False,
        max_samples: int | float | None = None,
        bootstrap_weights: Literal["multiply", "draw"] = "multiply",
        oob_score: bool | Metric = False,
        class_weight: Mapping | Literal["balanced"] | None = None,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        keep(locals())


class CompletelyRandomForestRegressor(Regressor, GrownForest):
    """Completely random forest for one or several targets: `hforest.classic.grow_random`.

    Parameters
    ----------
    n_estimators : int
        Number of trees; hforest's `n_trees`.
    max_depth : int, optional
        Maximum depth of a leaf; 0 is a single leaf. By default trees grow until leaves are pure.
    min_samples_split : int
        A node with fewer samples is a leaf; a sample that is drawn twice counts once.
    min_samples_leaf : int
        Minimum number of samples on each side of a split; a sample that is drawn twice counts once.
    min_weight_fraction_leaf : float
        Minimum weight on each side of a split, as a fraction of the tree's weight, 0 to 0.5.
    categorical_features : "from_dtype", or array-like of bool, int or str, optional
        A mask of columns that are categories, or their numbers or names: whole numbers 0 to 65535. With
        "from_dtype" `fit` learns by `hforest.tabular.columns` what the columns of X are: numbers, text,
        categories, dates; `columns_` keeps it.
    bootstrap : bool
        Whether each tree draws samples with replacement, as many as there are by default. By default every
        tree has every sample.
    max_samples : int or float, optional
        Number of draws of each tree, or as a float their share of the samples: 1 or more of them, above 1
        too. With weights that draw a float is a share of the sum of the weights. By default as many as there
        are samples.
    bootstrap_weights : "multiply" or "draw"
        Whether weights of samples and classes multiply how often a bootstrap draws a sample, or are what the
        probabilities of its draws are proportional to, as in scikit-learn 1.9 or newer.
    oob_score : bool or callable
        Whether to score out-of-bag predictions: by R2, or by ``oob_score(y, predicted)``.
    n_jobs : int, optional
        Number of threads while fitting and predicting; below 0 all processors but -1 - n_jobs. By default the
        number of `hforest.get_num_threads()`.
    random_state : int, RandomState or None
        Source of the seed; an int is the `rng` of the function.

    Attributes
    ----------
    forest_ : hforest.tree.Forest
        For the functions of `hforest.tree`.
    n_outputs_ : int
        Number of targets.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : (n_features_in_,) array of str
        Names of the columns of a DataFrame; only where all are text.
    feature_importances_ : (n_features_in_,) array of float64
        Shares of the features in the gains of the splits.
    oob_score_ : float
        Score of the samples that some tree did not draw; with `oob_score`.
    oob_prediction_ : (n_samples,) or (n_samples, n_outputs) array
        Out-of-bag targets, NaN for a sample that every tree drew; with `oob_score`.

    Examples
    --------
    >>> from hforest.sklearn import CompletelyRandomForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> model = CompletelyRandomForestRegressor(min_samples_leaf=3, random_state=0).fit(x[:300], y[:300])
    >>> model.score(x[300:], y[300:]) > 0.3
    True
    """

    _function = staticmethod(classic.grow_random)

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        max_depth: int | None = None,
        min_samples_split: int = 2,
        min_samples_leaf: int = 1,
        min_weight_fraction_leaf: float = 0.0,
        categorical_features: ArrayLike | Literal["from_dtype"] | None = None,
        bootstrap: bool = False,
        max_samples: int | float | None = None,
        bootstrap_weights: Literal["multiply", "draw"] = "multiply",
        oob_score: bool | Metric = False,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None:
        keep(locals())
