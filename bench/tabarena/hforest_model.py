"""`hforest.tabular` as a model of AutoGluon, which TabArena runs.

TabArena fits classes of `autogluon.core.models.AbstractModel` with its folds, bagging and time limits. The
module is not a script, because AutoGluon loads models from files by the names of their modules.
"""

import time
from typing import Any

import numpy as np
from autogluon.core.models import AbstractModel

import hforest
from hforest import tabular

SHARE_OF_TIME = 0.9
"""Share of a time limit after which training stops; the rest is for predictions."""


class HingeForestModel(AbstractModel):
    """The recipe for tables, `hforest.tabular.fit`; parameters are its arguments.

    Columns are read by their dtypes: categories as such, missing values as NaN. Held-out rows of AutoGluon
    are not read; each member of the model holds out rows of its own. A time limit ends training, and the best
    state until then is the model.
    """

    ag_key = "HFOREST"
    ag_name = "HForest"
    seed_name = "rng"

    @classmethod
    def supported_problem_types(cls) -> list[str]:
        """Returns the problems that the model solves."""
        return ["binary", "multiclass", "regression"]

    def _fit(
        self,
        X: Any,
        y: Any,
        time_limit: float | None = None,
        num_cpus: int = 1,
        sample_weight: Any = None,
        **others: Any,
    ) -> None:
        end = None if time_limit is None else time.monotonic() + SHARE_OF_TIME * time_limit
        classes: dict[str, Any] = {"task": "regression"}
        if self.problem_type != "regression":
            classes = {"task": "classification", "n_classes": self.num_classes}
        hforest.set_num_threads(max(1, int(num_cpus)))
        self.model = tabular.fit(
            self.preprocess(X, is_train=True), np.asarray(y), sample_weight=sample_weight,
            progress=None if end is None else lambda done, total: time.monotonic() < end,
            **classes, **self._get_model_params(),
        )  # fmt: skip

    def _predict_proba(self, X: Any, num_cpus: int = 1, **others: Any) -> np.ndarray:
        """Returns targets, probabilities of the second of two classes, or those of all classes."""
        hforest.set_num_threads(max(1, int(num_cpus)))
        p = tabular.predict(self.model, self.preprocess(X, **others))
        return p if self.problem_type == "regression" else self._convert_proba_to_unified_form(p)

    def _get_default_auxiliary_params(self) -> dict[str, Any]:
        """Returns the dtypes that the model reads; AutoGluon leaves columns of others out."""
        return super()._get_default_auxiliary_params() | {"valid_raw_types": ["int", "float", "category"]}
