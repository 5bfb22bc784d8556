"""Ensembles from treelite models, and their predictions."""

from typing import NamedTuple

import numpy as np

from hforest import tree

POSTPROCESSORS = (
    "identity",
    "identity_multiclass",
    "signed_square",
    "hinge",
    "sigmoid",
    "multiclass_ova",
    "exponential",
    "exponential_standard_ratio",
    "logarithm_one_plus_exp",
    "softmax",
)
"""Names in treelite of the functions of a margin."""


class Ensemble(NamedTuple):
    """A forest, and the scales, offsets and function that convert its means to the predictions of a model.

    The margin of output k is ``scale[k] * mean[k] + base_score[k]``, where mean is what
    `hforest.tree.predict` returns. Outputs are those of the first target, then of the second, ...
    """

    forest: tree.Forest | tree.Prepared
    """n_trees trees of n_outputs values per leaf. A tree of one class has 0 in the others. For single
    samples: what `hforest.tree.prepare` makes of them."""
    scale: np.ndarray
    """(n_outputs,) float64: n_trees where trees are added; where they are averaged, n_trees / the number of
    trees of this output."""
    base_score: np.ndarray
    """(n_outputs,) float64: added to the margins."""
    n_classes: np.ndarray
    """(n_targets,) int64: number of outputs of each target; 1 for a regression and for two classes."""
    postprocessor: np.ndarray
    """() str: treelite's name of the function that converts margins to predictions, such as "sigmoid"."""
    parameter: np.ndarray
    """() float64: alpha of "sigmoid" and "multiclass_ova", c of "exponential_standard_ratio", else 1."""


def _check_sizes(ensemble: Ensemble, n_outputs: int) -> None:
    for name, a in (("scale", ensemble.scale), ("base_score", ensemble.base_score)):
        shape = np.shape(a)
        if shape != (n_outputs,):
            raise ValueError(
                f"ensemble.{name}: expected shape (n_outputs,) = ({n_outputs},), got {shape}; pass arrays of "
                "one ensemble, unchanged"
            )


def _check_transform(ensemble: Ensemble, n_outputs: int) -> None:
    if int(np.sum(ensemble.n_classes)) != n_outputs:
        raise ValueError(
            f"ensemble.n_classes: expected a sum of n_outputs = {n_outputs}, got "
            f"{int(np.sum(ensemble.n_classes))}; pass arrays of one ensemble, unchanged"
        )
    if str(ensemble.postprocessor) not in POSTPROCESSORS:
        raise ValueError(
            f"ensemble.postprocessor: expected one of {', '.join(POSTPROCESSORS)}, got "
            f"{str(ensemble.postprocessor)!r}; use predict_margin and apply the function to the margins"
        )


def predict_margin(ensemble: Ensemble, x: np.ndarray) -> np.ndarray:
    """Returns margins: sums (or means) of leaf values plus base scores, before the function of the margin.

    Parameters
    ----------
    ensemble : Ensemble
        From `from_treelite`.
    x : (n_samples, n_features) array-like
        Samples of any real dtype, converted to that of the forest. NaN is a missing value; infinity raises
        ValueError.

    Returns
    -------
    (n_samples, n_outputs) array, dtype of the forest
        Margins: what XGBoost calls output_margin and LightGBM raw_score.

    Notes
    -----
    Leaf values are added in float64 in the order of the trees. The sum divided by n_trees is rounded to the
    dtype of the forest once, and the margin once more. Cost: that of `hforest.tree.predict`. For single
    samples prepare the forest, since checking it takes longer than walking it:
    ``ensemble._replace(forest=hforest.tree.prepare(ensemble.forest))``.

    Examples
    --------
    >>> import numpy as np, hforest.treelite
    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> forest = hforest.grow(x, np.array([0, 1, 1], np.int32), 4, bootstrap=False, rng=0)
    >>> ensemble = hforest.treelite.from_treelite(hforest.treelite.to_treelite(forest))
    >>> hforest.treelite.predict_margin(ensemble, x)
    array([[1., 0.],
           [0., 1.],
           [0., 1.]])
    """
    if not isinstance(ensemble, Ensemble):
        raise TypeError(
            f"ensemble: expected a hforest.treelite.Ensemble, got {type(ensemble).__name__}; make one with "
            "from_treelite"
        )
    mean = tree.predict(ensemble.forest, x)
    _check_sizes(ensemble, mean.shape[1])
    # In float64, rounded when written. NumPy calls are few, since they take a third of the time of a single
    # row.
    margin = mean * ensemble.scale
    np.add(margin, ensemble.base_score, out=mean, casting="same_kind")
    return mean


def predict(ensemble: Ensemble, x: np.ndarray) -> np.ndarray:
    """Returns predictions of the model: its function (such as the sigmoid) of `predict_margin`.

    Parameters: see `predict_margin`.

    Returns
    -------
    (n_samples, n_outputs) array, dtype of the forest
        Probabilities, counts or targets; for two classes one column, the probability of the second class.

    Notes
    -----
    For the margin m the functions are: identity m; signed_square sign(m) m²; hinge 1 if m > 0, else 0;
    sigmoid and multiclass_ova 1 / (1 + exp(-a m)); exponential exp(m); exponential_standard_ratio 2^(-m / c);
    logarithm_one_plus_exp log(1 + exp(m)); softmax exp(m_k) / sum_j exp(m_j) over the classes of a target.
    Cost: that of `predict_margin` and of the function.

    Examples
    --------
    >>> import numpy as np, hforest.treelite
    >>> import lightgbm, treelite  # doctest: +SKIP
    >>> booster = lightgbm.train(parameters, data)  # doctest: +SKIP
    >>> model = treelite.frontend.from_lightgbm(booster)  # doctest: +SKIP
    >>> ensemble = hforest.treelite.from_treelite(model)  # doctest: +SKIP
    >>> hforest.treelite.predict(ensemble, x)  # doctest: +SKIP
    """
    margin = predict_margin(ensemble, x)
    _check_transform(ensemble, margin.shape[1])
    name = str(ensemble.postprocessor)
    if name in ("identity", "identity_multiclass"):
        return margin
    if name == "softmax":
        first = 0
        for n in ensemble.n_classes:
            part = margin[:, first : first + int(n)]
            np.exp(part - part.max(axis=1, keepdims=True), out=part)
            part /= part.sum(axis=1, keepdims=True)
            first += int(n)
        return margin
    return np.asarray(_elementwise(name, float(ensemble.parameter), margin), margin.dtype)


def _elementwise(name: str, parameter: float, m: np.ndarray) -> np.ndarray:
    if name in ("sigmoid", "multiclass_ova"):
        # exp may overflow: 1 / (1 + inf) is 0, the limit.
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-parameter * m))
    if name == "signed_square":
        return m * np.abs(m)
    if name == "hinge":
        return np.asarray(m > 0, m.dtype)
    if name == "exponential":
        return np.exp(m)
    if name == "exponential_standard_ratio":
        return np.exp2(-m / parameter)
    return np.logaddexp(m, m.dtype.type(0))
