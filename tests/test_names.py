"""Names: those of other libraries point to those of hforest; types for checkers; pages that list names."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
from test_architecture import INTEGRATIONS, LAYER, NESTED, PUBLIC, SUBPACKAGES, missing

import hforest
from hforest import hinge, stats, tabular, tree
from hforest.core.counterparts import BY_THEIR_OWN_NAME, NAMES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coming-from.md"
PACKAGES = [
    name for name in SUBPACKAGES if LAYER[name] and not (name in INTEGRATIONS and missing(name))
]  # fmt: skip
MODULES = {name: importlib.import_module(f"hforest.{name}") for name in [*PACKAGES, *NESTED]}


def rows(heading):
    """Returns the cells of the tables below a heading of the page, without header rows."""
    text = PAGE.read_text(encoding="utf-8")
    part = text.split(f"\n## {heading}\n")[1].split("\n## ")[0] if heading else text
    for table in re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE):
        for line in table.splitlines()[2:]:
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def words(cell):
    """Returns the last names of words between backquotes, without calls."""
    return [re.match(r"[\w.]*", span)[0].split(".")[-1] for span in re.findall(r"`([^`]*)`", cell)]


KEYWORDS = {name: row for row in rows("Keywords") for name in words(row[0])}
PARAMETERS = {name for function in PUBLIC for name in inspect.signature(function.values[0]).parameters}
EVERYWHERE = {name for module in MODULES.values() for name in module.__all__} | set(hforest.__all__)


def answer(owner, name):
    with pytest.raises(AttributeError) as error:
        getattr(owner, name)
    return str(error.value)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_of_another_library_is_answered_by_its_counterpart(name):
    for owner in (hforest, hinge, *([] if hasattr(tree, name) else [tree])):
        assert answer(owner, name).endswith(f"; use {NAMES[name]}")
    for package, target in re.findall(r"\b(\w+)\.(\w+)", NAMES[name]):
        assert package not in MODULES or target in MODULES[package].__all__, target


def test_a_similar_name_of_the_package_is_found():
    assert answer(stats, "confidence_interval").endswith("; write hforest.stats.confidence_intervals")
    assert answer(tabular, "loads").endswith("; write hforest.tabular.load")


def test_records_are_short():
    x, y = [[0.0], [1.0]] * 8, [0, 1] * 8
    model = tabular.fit(x, y, n_members=1, n_trees=1, steps=0, rng=0)
    assert repr(model) == "Model(task='classification', n_members=1, n_columns=1, n_outputs=2)"
    assert repr(model._replace(scaling=None)).startswith("Model('classification', None, (Member(")
    forest = hforest.grow([[0.0], [1.0]], [0, 1], 3, rng=0)
    assert (
        repr(forest)
        == f"Forest(n_trees=3, n_nodes={len(forest.feature)}, n_features=1, n_classes=2, float64)"
    )
    assert (forest.n_trees, forest.n_classes) == (3, 2)
    with pytest.raises(AttributeError):
        forest.n_trees = 4
    assert repr(forest._replace(value=None)).startswith("Forest(array(")


@pytest.mark.parametrize("heading", ["scikit-learn", "PyTorch"])
def test_names_of_the_page_are_answered(heading):
    names = {name for row in rows(heading) for name in words(row[0])}
    assert len(names) > 5
    assert names <= {"", *NAMES, *KEYWORDS, *PARAMETERS, *EVERYWHERE}


@pytest.mark.parametrize("owner", [hforest, *MODULES.values()], ids=lambda module: module.__name__)
def test_dir_shows_public_names_alone(owner):
    if owner.__name__ != "hforest.growth.by_level":
        assert dir(owner) == sorted(owner.__all__)
        assert "call dir() for a list of them" in answer(owner, "no_such_name")
        assert "no_such_name" not in answer(owner, "_private")[:20]


def test_a_public_name_is_found_in_its_subpackage():
    assert "hforest.hinge.traverse" in answer(hforest, "traverse")
    assert set(BY_THEIR_OWN_NAME) == INTEGRATIONS | {"demo"}
    for name in set(BY_THEIR_OWN_NAME) - set(vars(hforest)):
        assert f"import hforest.{name}" in answer(hforest, name)


@pytest.mark.parametrize("keyword", sorted(KEYWORDS))
def test_a_keyword_of_another_library_has_its_counterpart_in_a_signature(keyword):
    _, of, here = KEYWORDS[keyword]
    functions = re.findall(r"`([\w.]+)`", of)
    if not functions:
        assert keyword not in PARAMETERS
        for target in re.findall(r"`([a-z_.]+)`", here):
            package, _, name = target.rpartition(".")
            assert name in (hforest if package == "hforest" else MODULES[package]).__all__
    for function in functions:
        package, _, name = function.rpartition(".")
        if package.split(".")[0] in INTEGRATIONS and missing(package):
            continue
        module = hforest if package == "hforest" else MODULES[package]
        parameters = inspect.signature(getattr(module, name)).parameters
        assert keyword not in parameters
        assert set(re.findall(r"`(\w+)`", here)) <= set(parameters)


def test_keywords_that_users_try_stand_in_the_table():
    assert {"n_estimators", "random_state", "n_jobs", "in_channels", "num_leaves", "eval_set"} <= set(
        KEYWORDS
    )


TEXTS = {"device", "dtype", "name", "feature_names", "class_names", "column", "file", "path", "cmap", "settings", "state", "checkpoint"}  # fmt: skip
"""Arguments that take any text."""


def has_words(annotation):
    shown = annotation.__name__ if annotation is str else str(annotation)
    return re.search(r"\bstr\b", re.sub(r"(Sequence|dict)\[str\b", "", shown))


CLASSES = [
    pytest.param(getattr(module, name), id=f"{module.__name__}.{name}")
    for module in MODULES.values()
    for name in module.__all__
    if module.__name__.split(".")[1] in INTEGRATIONS and isinstance(getattr(module, name), type)
]  # fmt: skip


@pytest.mark.parametrize("cls", CLASSES)
def test_words_of_classes_are_typed(cls):
    parameters = inspect.signature(cls).parameters
    assert not [name for name, p in parameters.items() if name not in TEXTS and has_words(p.annotation)]


@pytest.mark.parametrize("function", PUBLIC)
def test_words_and_results_are_typed(function):
    signature = inspect.signature(function)
    for name, parameter in signature.parameters.items():
        assert name in TEXTS or not has_words(parameter.annotation), f"{name}: {parameter.annotation}"
    returned = str(signature.return_annotation).replace("dict[str, typing.Any]", "")  # nested tables
    assert signature.return_annotation is not signature.empty
    assert "Any" not in returned


def stability():
    """Returns (stable, experimental) names of each package, from the page of stability."""
    text = (PAGE.parent / "stability.md").read_text(encoding="utf-8").split("\n## Names\n")[1]
    for package, *cells in re.findall(r"^\| `(hforest[\w.]*)` \| (.*) \| (.*) \|$", text, re.MULTILINE):
        yield package, [re.findall(r"`(\w+)`", cell) for cell in cells]


def test_each_public_name_is_stable_or_experimental():
    stated = dict(stability())
    assert set(stated) == {"hforest", *(f"hforest.{name}" for name in [*set(LAYER) - {"core"}, *NESTED])}
    for package, (stable, experimental) in stated.items():
        name = package.partition(".")[2]
        if name and name not in MODULES:
            continue  # an integration without its library
        public = set(MODULES[name].__all__) if name else set(hforest.__all__) - set(PACKAGES)
        assert sorted(stable + experimental) == sorted(public), package


def test_calls_of_the_cheat_sheet_are_public():
    text = (PAGE.parent / "cheatsheet.md").read_text(encoding="utf-8")
    calls = re.findall(r"\b(\w+)\.(\w+)\b", " ".join(re.findall(r"`([^`]*)`", text)))
    known = [(package, name) for package, name in calls if package in LAYER]
    assert len(known) >= 40
    assert not [f"{p}.{name}" for p, name in known if p in MODULES and name not in MODULES[p].__all__]
