"""The class of bench/tabarena for TabArena: with AutoGluon if it is installed, else with its interface."""

import importlib.util
import json
import pickle
import sys
import types

import numpy as np
import pytest
from test_results import BENCH

pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.libraries


class Interface:
    """What the class reads of `autogluon.core.models.AbstractModel`: parameters, and forms of predictions."""

    seed_name: str | None = None

    def __init__(self, path=None, name=None, problem_type=None, eval_metric=None, hyperparameters=None):
        self.problem_type, self.params, self.model = (
            problem_type,
            {self.seed_name: 0} | (hyperparameters or {}),
            None,
        )

    def _get_model_params(self):
        return dict(self.params)

    def _get_default_auxiliary_params(self):
        return {"valid_raw_types": None, "max_memory_usage_ratio": 1.0}

    def preprocess(self, X, is_train=False, **others):
        return X

    def _convert_proba_to_unified_form(self, p):
        return p[:, 1] if self.problem_type == "binary" else p

    def fit(self, X, y, **settings):
        self.num_classes = None if self.problem_type == "regression" else int(y.max()) + 1
        self._fit(X=X, y=y, **settings)
        return self

    def predict_proba(self, X):
        return self._predict_proba(X=X)


@pytest.fixture
def model_class(monkeypatch):
    if importlib.util.find_spec("autogluon") is None:
        for name in ("autogluon", "autogluon.core", "autogluon.core.models"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        sys.modules["autogluon.core.models"].AbstractModel = Interface
    monkeypatch.syspath_prepend(str(BENCH / "tabarena"))
    monkeypatch.delitem(sys.modules, "hforest_model", raising=False)
    return importlib.import_module("hforest_model").HingeForestModel


def frame(n):
    rng = np.random.default_rng(n)
    x = pandas.DataFrame(
        {"size": rng.normal(size=n), "colour": pandas.Categorical(rng.choice(["red", "blue"], n))}
    )
    x.loc[::9, "size"] = np.nan
    return x, x["size"].fillna(0) + 2 * (x["colour"] == "red")


SMALL = {"n_members": 1, "n_trees": 10, "steps": 50, "n_projections": 0, "n_boosted": 5}


@pytest.mark.parametrize("problem", ["binary", "multiclass", "regression"])
def test_the_model_is_that_of_the_recipe(problem, model_class, tmp_path):
    from hforest import tabular

    (x, y), (new, truth) = frame(300), frame(100)
    y, truth = (
        a
        if problem == "regression"
        else pandas.Series(np.digitize(a, [1] if problem == "binary" else [0, 1]))
        for a in (y, truth)
    )
    model = model_class(path=str(tmp_path), name="HForest", problem_type=problem, hyperparameters=SMALL)
    model.fit(X=x, y=y, num_cpus=1, num_gpus=0)
    p = model.predict_proba(new)
    task = (
        {"task": "regression"} if problem == "regression" else {"n_classes": 2 if problem == "binary" else 3}
    )
    expected = tabular.predict(
        tabular.fit(x, y.to_numpy(), rng=model._get_model_params()["rng"], **task, **SMALL), new
    )
    # AutoGluon rounds predictions to float32.
    np.testing.assert_allclose(p, expected[:, 1] if problem == "binary" else expected, rtol=1e-6, atol=1e-6)
    if problem == "regression":
        assert ((p - truth) ** 2).mean() < 0.3 * truth.var()
    else:
        assert ((p > 0.5 if problem == "binary" else p.argmax(axis=1)) == truth).mean() > 0.8
    assert problem in model.supported_problem_types()
    copied = pickle.loads(pickle.dumps(model.model))
    np.testing.assert_array_equal(tabular.predict(copied, new), tabular.predict(model.model, new))
    assert set(model._get_default_auxiliary_params()["valid_raw_types"]) == {"int", "float", "category"}


def test_a_time_limit_ends_training(model_class, tmp_path, monkeypatch):
    x, y = frame(300)
    now = iter(range(1000))
    monkeypatch.setattr("hforest_model.time.monotonic", lambda: next(now))
    settings = SMALL | {"steps": 100_000, "validation": 0.0}
    model = model_class(
        path=str(tmp_path), name="HForest", problem_type="regression", hyperparameters=settings
    )
    model.fit(X=x, y=y, num_cpus=1, num_gpus=0, time_limit=20)
    assert np.isfinite(model.predict_proba(x)).all()
    assert 15 < next(now) < 40  # reports until the limit, and no more


def test_the_table_of_the_record(script, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCH / "tabarena"))
    run = script("run")
    rows = json.loads((BENCH / "results" / "tabarena.json").read_text())["rows"]
    shown = run.table_of(rows)
    assert shown in (BENCH.parent / "docs" / "results-tables.md").read_text(encoding="utf-8")
    rows[0]["error"] += 1
    assert run.table_of(rows) != shown
    for name in run.SHIPPED:
        x, regression = run.frame_of(name, None, 150)
        assert len(x) == 150
        assert regression == (name == "diabetes") == (x["target"].dtype.kind == "f")
    with pytest.raises(SystemExit):
        monkeypatch.setattr(sys, "argv", ["run.py", "--tables", "letter"])
        run.main()
    assert "pass --data DIR for tables other than" in capsys.readouterr().err
