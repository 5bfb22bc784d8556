"""Alternating decision forests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from .. import alternating
from ..core.aliases import ArrayLike, Criterion, MaxFeatures
from .grown import GrownForest
from .targets import Classifier


@dataclass(kw_only=True, eq=False, repr=False)
class AlternatingForestClassifier(Classifier, GrownForest):
    """Alternating decision forest: `hforest.alternating.grow` (Schulter et al. 2013).

    Other parameters and attributes: see `RandomForestClassifier`. Every tree has all samples, and trees
    depend on each other: there is no bootstrap and no out-of-bag score, and trees cannot be added later.

    Parameters
    ----------
    loss : "exponential", "logistic", or tuple of two functions
        Convex loss of the margin, whose slope weights the samples; see `hforest.alternating.grow`.
    min_loss_decrease : float, optional
        Growth ends when a level decreases the mean loss by less.

    Examples
    --------
    >>> from hforest.sklearn import AlternatingForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = AlternatingForestClassifier(20, max_depth=3, random_state=0).fit(x[::2], y[::2])
    >>> model.score(x[1::2], y[1::2]) > 0.9
    True
    """

    _function = staticmethod(alternating.grow)

    # Trees depend on each other, and have every sample: these are no parameters.
    oob_score: ClassVar[bool] = False  # type: ignore[misc]
    warm_start: ClassVar[bool] = False  # type: ignore[misc]
    importance_type: ClassVar[Literal["gain"]] = "gain"  # type: ignore[misc]
    max_leaf_nodes: ClassVar[None] = None  # type: ignore[misc]

    n_estimators: int = field(default=100, kw_only=False)
    loss: Literal["exponential", "logistic"] | tuple[Callable[..., Any], Callable[..., Any]] = "exponential"
    min_loss_decrease: float | None = None
    criterion: Criterion = "gini"
    max_features: MaxFeatures = "sqrt"
    min_impurity_decrease: float = 0.0
    max_bins: int | None = None
    categorical_features: ArrayLike | Literal["from_dtype"] | None = None
    class_weight: Mapping | Literal["balanced"] | None = None

    def _splits_by_categories(self) -> bool:
        return True
