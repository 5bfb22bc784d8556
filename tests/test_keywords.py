"""Keywords of other libraries: errors name those of hforest."""

import inspect
import pickle
import re
from pathlib import Path

import pytest

import hforest
from hforest import cascade, co2, hinge, neural, tabular


@pytest.mark.parametrize(
    ("function", "name", "remedy"),
    [
        (hforest.grow, "n_estimators", "n_trees"),
        (hforest.grow, "seed", "rng"),
        (hforest.grow, "cat_features", "hforest.samples(x, categorical=...)"),
        (hforest.grow, "min_data_in_leaf", "min_samples_leaf"),
        (hforest.grow, "eval_set", "help(grow) for a list of them"),
        (co2.grow, "random_state", "rng"),
        (tabular.fit, "n_estimators", "n_trees"),
        (tabular.fit, "cat_features", "categorical"),
        (tabular.fit, "learning_rate", "lr"),
        (tabular.fit, "eval_set", "validation"),
        (tabular.fit, "n_jobs", "hforest.set_num_threads"),
        (cascade.grow, "verbose", "progress"),
        (cascade.grow, "early_stopping_rounds", "patience"),
        (hinge.init, "n_estimators", "n_trees"),
        (hinge.init, "in_features", "n_features"),
        (neural.linear_init, "n_estimators", "n_trees"),
        (neural.fit, "n_epochs", "epochs"),
        (neural.fit, "sample_weights", "sample_weight"),
    ],
)
def test_an_unknown_keyword_of_a_function_is_answered(function, name, remedy):
    message = f"{name}: expected an argument of {function.__name__}, got another name; use {remedy}"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        function(**{name: 1})
    if re.fullmatch(r"\w+", remedy):
        assert remedy in inspect.signature(function).parameters


def test_a_missing_argument_is_named_with_the_call():
    message = "depth: expected a value, got none; call init(n_trees, depth, n_features)"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        hinge.init(n_trees=1)


@pytest.mark.parametrize(
    ("name", "keyword", "remedy"),
    [
        ("RandomForestClassifier", "n_trees", "n_estimators"),
        ("RandomForestClassifier", "num_trees", "n_estimators"),
        ("ExtraTreesRegressor", "rng", "random_state"),
        ("ExtraTreesRegressor", "seed", "random_state"),
        ("RandomForestRegressor", "categorical", "categorical_features"),
        ("RandomForestRegressor", "max_bin", "max_bins"),
        (
            "RandomForestRegressor",
            "splitter",
            "ExtraTreesClassifier or ExtraTreesRegressor for random thresholds",
        ),
        ("RandomForestRegressor", "verbose", "functions of hforest, which take progress"),
        ("HingeForestClassifier", "lr", "learning_rate"),
        ("CascadeForestClassifier", "n_trees", "n_estimators"),
        ("HonestForestClassifier", "max_dept", "max_depth"),
    ],
)
def test_an_unknown_keyword_of_an_estimator_is_answered(name, keyword, remedy):
    hs = pytest.importorskip("hforest.sklearn", exc_type=ImportError)
    message = f"{keyword}: expected an argument of {name}, got another name; use {remedy}"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        getattr(hs, name)(**{keyword: 1})


def test_estimators_keep_their_signatures_and_pickles():
    hs = pytest.importorskip("hforest.sklearn", exc_type=ImportError)
    for name in hs.__all__:
        model = getattr(hs, name)(3)
        assert (
            list(inspect.signature(type(model)).parameters)
            == list(inspect.signature(type(model).__init__).parameters)[1:]
        )
        assert model.get_params().keys() == inspect.signature(type(model)).parameters.keys()
        assert pickle.loads(pickle.dumps(model)).n_estimators == 3


def test_an_unknown_keyword_of_a_module_is_answered():
    ht = pytest.importorskip("hforest.torch", exc_type=ImportError)
    for kind in (ht.HingeForest, ht.HingeConv2d):
        message = f"n_estimators: expected an argument of {kind.__name__}, got another name; use n_trees"
        with pytest.raises(TypeError, match=f"^{message}$"):
            kind(8, n_estimators=4)


def test_the_page_names_the_same_keywords():
    """A keyword that the page translates into an argument of a function is answered with this argument."""
    page = (Path(__file__).parents[1] / "docs" / "coming-from.md").read_text(encoding="utf-8")
    table = page.partition("| keyword | of | here |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.+) \| (.+) \| `(\w+)` \|$", table, re.M)
    checked = 0
    for names, functions, here in rows:
        for function in re.findall(r"`([\w.]+)`", functions):
            called = hforest
            for part in function.removeprefix("hforest.").split("."):
                called = getattr(called, part, None)
            if called not in (hforest.grow, tabular.fit, cascade.grow, neural.fit, hinge.init):
                continue
            for name in re.findall(r"`(\w+)`", names):
                with pytest.raises(TypeError, match=f"got another name; use {here}$"):
                    called(**{name: 1})
                checked += 1
    assert checked > 15
