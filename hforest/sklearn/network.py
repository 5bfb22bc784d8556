"""The network of Lay et al. 2018: learned inner products, their normalisation, and a hinge forest."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from ..demo import Config, predict, start, train
from .base import Estimator, check_flag, standardised, units
from .targets import Classifier, Regressor


@dataclass(kw_only=True, eq=False, repr=False)
class _Network(Estimator):
    """Estimators whose model is a `hforest.demo.Config` and a state."""

    _function = staticmethod(Config)
    _names: ClassVar[Mapping[str, str]] = {
        **Estimator._names,
        "max_depth": "depth",
        "n_inner_products": "n_features",
        "max_iter": "steps",
        "learning_rate": "lr",
    }

    max_depth: int = 10
    kind: Literal["tree", "fern"] = "tree"
    n_inner_products: int = 100
    leaves: Literal["vector", "scalar"] = "vector"
    optimizer: Literal["adam", "adagrad"] = "adam"
    learning_rate: float = 0.005
    lr_half_life: int = 0
    max_iter: int = 40_000
    batch_size: int = 53
    validation_fraction: float = 0.0
    eval_every: int = 500
    standardize: bool = True

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Trains the network from random parameters and returns the estimator.

        X is an array or a DataFrame of finite numbers. Parameters: see `RandomForestClassifier.fit`.
        """
        with self._computing():
            check_flag("standardize", self.standardize)
            share: Any = self.validation_fraction
            if not isinstance(share, Real) or isinstance(share, bool) or not 0 <= float(share) <= 0.5:
                raise ValueError(
                    f"validation_fraction: expected a share of 0 to 0.5, got {share!r}; pass a number such "
                    "as 0.1"
                )
            x, target, of_task = self._learned(X, y)
            seed, settings = self._seed(), self._settings()
            plain = np.zeros(x.shape[1]), np.ones(x.shape[1])
            self.units_ = units(x) if self.standardize else plain
            x = standardised(x, self.units_)
            if of_task["task"] == "regression":
                target = target.reshape(len(x), -1)
                self.target_units_ = units(target)
                target = (target - self.target_units_[0]) / self.target_units_[1]
            order = np.random.default_rng([seed, 1]).permutation(len(x))
            held, rows = np.split(order, [int(float(share) * len(x))])
            if not len(held):
                settings["eval_every"] = settings["steps"]
            self.config_ = Config(**settings, task=of_task["task"], seed=seed)
            n_outputs = of_task.get("n_classes") or target.shape[1]
            state = start(self.config_, x.shape[1], n_outputs)
            best: dict[str, Any] = {}

            def judge(now: dict[str, Any]) -> None:
                error = now["history_error"][-1]
                if not best or error < best["history_error"][-1]:
                    best.update({name: a.copy() if hasattr(a, "copy") else a for name, a in now.items()})

            judged = held if len(held) else rows[:1]
            history = train(
                self.config_, state, x[rows], target[rows], x[judged], target[judged], checkpoint=judge
            )
        self.state_, self.n_iter_ = best if len(held) else state, int(state["step"])
        self.loss_curve_ = history["loss"].tolist()
        self.validation_errors_ = history["error"].tolist() if len(held) else []
        return self

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        # Arrays that joblib maps into memory are read-only, and `predict` may write.
        state = {
            name: np.require(a, requirements="W") if isinstance(a, np.ndarray) else a
            for name, a in self.state_.items()
        }
        scores = predict(self.config_, state, standardised(x, self.units_))
        if self.config_.task == "classification":
            return softmax(scores, axis=1)
        mean, deviation = self.target_units_
        return scores.astype(np.float64) * deviation + mean


@dataclass(kw_only=True, eq=False, repr=False)
class HingeNetworkClassifier(Classifier, _Network):
    """Classifier with the network of Lay et al. 2018, Fig. 2: `hforest.demo.train`.

    Other parameters: see `hforest.demo.Config` and `RandomForestClassifier`.

    Parameters
    ----------
    n_estimators, max_depth, n_inner_products, max_iter, learning_rate : ints and a float
        `n_trees`, `depth`, `n_features`, `steps` and `lr` in `hforest.demo.Config`. The default of max_iter
        takes about a minute, for any number of samples.
    validation_fraction : float
        Share of the samples that is held out, 0 to 0.5. The model is the state with the least error on them,
        or the last state if no sample is held out.
    standardize : bool
        Whether columns are standardised before training.

    Attributes
    ----------
    config_ : hforest.demo.Config
        Settings of the network, for the functions of `hforest.demo`.
    state_ : dict
        Arrays of the network, for `hforest.demo.predict` on standardised columns.
    n_iter_ : int
        Steps.
    loss_curve_ : list of float
        Mean loss of the batches up to each evaluation.
    validation_errors_ : list of float
        Error on held-out samples at each evaluation: share of wrong labels, or 1 - R**2.

    Notes
    -----
    As in the paper, all parameters are initialised at random and trained by gradients: N(0, 1) inner
    products, batch normalisation, features assigned to vertices at random, N(0, 1) leaves, softmax loss.
    Defaults are those of `hforest.demo.Config`: 40 000 steps, as in the paper for MNIST. The paper does not
    say whether columns were standardised. `HingeForestClassifier` starts from a grown forest instead.

    Examples
    --------
    >>> from hforest.sklearn import HingeNetworkClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = HingeNetworkClassifier(10, max_depth=4, max_iter=300, random_state=0).fit(x[::2], y[::2])
    >>> model.score(x[1::2], y[1::2]) > 0.9
    True
    """


@dataclass(kw_only=True, eq=False, repr=False)
class HingeNetworkRegressor(Regressor, _Network):
    """Regressor with the network of Lay et al. 2018, Fig. 2: `hforest.demo.train`.

    Parameters and attributes: see `HingeNetworkClassifier`.

    Notes
    -----
    As for `HingeNetworkClassifier`, with a squared loss of standardised targets.

    Examples
    --------
    >>> from hforest.sklearn import HingeNetworkRegressor
    >>> from sklearn.datasets import load_iris
    >>> x, _ = load_iris(return_X_y=True)
    >>> model = HingeNetworkRegressor(10, max_depth=4, max_iter=300, random_state=0)
    >>> model.fit(x[::2, :3], x[::2, 3]).score(x[1::2, :3], x[1::2, 3]) > 0.8
    True
    """
