"""Models of generated tables, with every kind of column, member and mean, for tests of exporters."""

from functools import cache

import numpy as np

from hforest import tabular

N, HELD = 500, 300
KINDS = ("plain", "missing", "categories", "three classes", "regression", "two targets", "text")


def table(kind, seed=0):
    """Returns (N + HELD, 7) samples with long tails, missing values and categories, and labels or targets."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N + HELD, 7))
    score = x[:, 0] * x[:, 1] + x[:, 2] - 0.5 * np.abs(x[:, 3])
    x[:, 3] = np.exp(3 * x[:, 3])
    x[:, 4] = np.round(x[:, 4], 1)
    if kind != "plain":
        x[:, 5:] = rng.integers(0, (4, 40), size=(len(x), 2))
        score += (x[:, 5] == 1) + 0.3 * (x[:, 6] % 5)
        x[rng.random(x.shape) < 0.15] = np.nan
    if kind == "missing":  # only where numbers were known in training, too
        x[:N, 1] = np.where(np.isnan(x[:N, 1]), 0.0, x[:N, 1])
    if kind in ("regression", "two targets"):
        y = 1000 + 50 * score + rng.normal(size=len(x))
        return x, y if kind == "regression" else np.stack([y, x[:, 4]], axis=1)
    edges = (
        [score.mean()] if kind in ("plain", "missing", "text") else [score.mean() - 0.5, score.mean() + 0.5]
    )
    return x, np.digitize(score, edges)


@cache
def fitted(kind, **settings):
    """Returns a model of a table, (HELD, 7) other samples, and numbers that training did not have."""
    x, y = table(kind)
    if kind in ("regression", "two targets"):
        y = np.where(np.isnan(y), 0.0, y)
    if kind == "text":
        y = np.array(["no", 'y"es\\'])[y]
    categorical = None if kind in ("plain", "missing") else [5, 6]
    task = "regression" if y.dtype.kind == "f" else "classification"
    settings = {"n_members": 2, "n_trees": 12, "n_projections": 20, "steps": 60, "rng": 0} | settings
    model = tabular.fit(x[:N], y[:N], task=task, categorical=categorical, n_boosted=40, **settings)
    held = x[N:].copy()
    held[:5] *= 100  # beyond the range of training; of categories unknown ones
    held[5:8, 5:] = (-1, 1e6)
    return model, held


def variants(model):
    """Returns a model with each kind of member: shares of 0, between and 1, with and without offsets."""
    single = model.members[0]
    boosted = next((m.boosted for m in model.members if m.boosted is not None), None)
    kinds = [(0.0, 0.0, 0.0), (0.4, 0.0, 0.0), (1.0, 0.0, 0.0), (0.6, 0.8, 0.0), (1.0, 1.0, 0.0)]
    if boosted is not None:
        kinds += [(share, offset, 0.3) for share, offset, _ in kinds] + [(1.0, 1.0, 1.0)]
    members = [
        single._replace(
            share=np.array(share),
            offset=np.array(offset),
            boosted=boosted._replace(share=np.array(of_boosted)) if of_boosted else None,
        )
        for share, offset, of_boosted in kinds
    ]
    return [model, *(model._replace(members=(member,)) for member in members)]
