"""Settings of alternating decision forests."""

from typing import TypedDict

from ..core.aliases import ArrayLike, AutoFeatures, ClassWeight, Criterion, Progress, Rng, Task
from ..core.projections import Distribution


class Settings(TypedDict, total=False):
    """Keyword arguments of `hforest.alternating.grow`: those of `hforest.growth.Settings` that it shares.

    Attributes
    ----------
    task : "classification"
        A regression is refused: its losses have no margin.
    """

    projections: Distribution | None
    n_projections: int | None
    max_features: AutoFeatures
    sample_weight: ArrayLike | None
    class_weight: ClassWeight
    criterion: Criterion | None
    max_depth: int | None
    min_samples_split: int | float
    min_samples_leaf: int | float
    min_weight_fraction_leaf: float
    min_impurity_decrease: float
    task: Task
    n_classes: int | None
    progress: Progress
    rng: Rng
