"""Docstrings: each parameter is documented once, by its function or by a function that this one refers to."""

import ast
import importlib
import inspect
import re
import typing
from collections import Counter
from pathlib import Path

import pytest
from test_architecture import INTEGRATIONS, LAYER, NESTED, PUBLIC, SUBPACKAGES, missing

import hforest

REFERENCE = re.compile(
    r"\b(?:Other parameters|Parameters)(?: and (?:errors|attributes))?: see ((?:`[\w.]+`(?:,? and |, )?)+)"
)
"""A docstring's reference to functions or classes that document the parameters which it omits."""
MAX_REPEATED = 204
"""Maximum number of docstring lines that repeat another."""


def public_classes():
    """Yields public classes and their methods whose docstrings have parameters."""
    names = [name for name in SUBPACKAGES if LAYER[name] and not (name in INTEGRATIONS and missing(name))]
    for module in [importlib.import_module(f"hforest.{name}") for name in [*names, *NESTED]]:
        for name in module.__all__:
            owner = getattr(module, name)
            if not inspect.isclass(owner) or not (
                inspect.isfunction(owner.__init__) or inspect.isfunction(owner.__new__)
            ):
                continue  # Cython's classes have no signature
            methods = [
                (f"{name}.{key}", value)
                for key, value in vars(owner).items()
                if inspect.isfunction(value) and not key.startswith("_")
            ]
            for label, documented in [(name, owner), *methods]:
                text = documented.__doc__ or ""
                if REFERENCE.search(text) or section(inspect.cleandoc(text), "Parameters"):
                    yield pytest.param(documented, id=f"{module.__name__}.{label}")


def section(text, title):
    """Returns a section of a docstring, or an empty text."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n-{{3,}}$|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def names(text):
    """Returns the parameters that a part of a docstring describes, in lines such as "x, y : arrays"."""
    heads = re.findall(r"^(\w+(?:, \w+)*)(?: : .*)?$", text, re.MULTILINE)
    return {name for head in heads for name in head.split(", ")}


def references(text):
    return [
        name
        for found in REFERENCE.finditer(" ".join(text.split()))
        for name in re.findall("`(.+?)`", found[1])
    ]


def target(name, documented):
    """Returns the function or class of a reference such as `forward` or `hforest.hinge.forward`."""
    package = ".".join(documented.__module__.split(".")[:2])
    found = importlib.import_module("hforest" if name.startswith("hforest.") else package)
    for part in name.removeprefix("hforest.").split("."):
        found = getattr(found, part)
    return found


def described(documented):
    """Returns the parameters that a docstring or its references describe; of a TypedDict its attributes."""
    text = inspect.getdoc(documented)
    if typing.is_typeddict(documented):
        return documented.__annotations__.keys() & names(section(text, "Attributes"))
    found = names(section(text, "Parameters"))
    found = found.union(*(described(target(name, documented)) for name in references(text)))
    return found & inspect.signature(documented).parameters.keys()


EVERYWHERE = names(hforest.__doc__)
"""Parameters that mean the same in every function."""


def faults(documented):
    """Returns what is wrong with the parameters in a docstring."""
    text, own = inspect.getdoc(documented), names(section(inspect.getdoc(documented), "Parameters"))
    parameters = inspect.signature(documented).parameters.keys() - {"self"}
    missing = parameters - own
    found = [f"{name}: not a parameter" for name in own - parameters]
    for name in references(text):
        theirs = missing & described(target(name, documented))
        found += [] if theirs else [f"{name}: documents no other parameter"]
        missing -= theirs
    return found + [f"{name}: not documented" for name in missing - EVERYWHERE]


@pytest.mark.parametrize("documented", [*PUBLIC, *public_classes()])
def test_every_parameter_is_documented(documented):
    assert faults(documented) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Parameters: see `best_split`.", None),
        (
            "Other\nparameters: see `hforest.split.best_split` and\n`impurity`.",
            "impurity: documents no other",
        ),
        ("\nParameters\n----------\nvalues : array\n\nNotes\n-----\ny : none", "y: not documented"),
        ("\nParameters\n----------\nvalues, y : arrays\n\nNotes\n-----\nNone.", None),
        ("\nParameters\n----------\nvalues, y, z : arrays", "z: not a parameter"),
    ],
)
def test_faults_are_seen(text, fault):
    def function(values, y, *, rng=None): ...

    function.__module__, function.__doc__ = "hforest.split.scores", f"Returns a number.\n\n{text}"
    found = faults(function)
    assert len(found) == 1 and fault in found[0] if fault else not found


def test_a_reference_to_nothing_is_seen():
    with pytest.raises(AttributeError, match="no_such_function"):
        target("no_such_function", hforest.split.impurity)


@pytest.mark.parametrize("function", PUBLIC)
def test_errors_are_described(function):
    found = section(inspect.getdoc(function), "Raises")
    assert not found or re.fullmatch(
        r"(?:[\w.]+(?:, [\w.]+)*\n(?:    .+\n|\n(?=.))+)+\n*", f"{found.strip()}\n"
    )


def test_errors_of_all_functions_are_described():
    for error in ("TypeError", "ValueError", "IndexError", "MemoryError"):
        assert re.search(rf"^{error}\n    \S", hforest.__doc__, re.MULTILINE)


def lines_of_docstrings():
    for path in sorted(Path(hforest.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield from map(str.strip, (ast.get_docstring(node) or "").splitlines())


def test_docstrings_do_not_repeat_each_other():
    lines = Counter(
        line
        for line in lines_of_docstrings()
        if len(line) >= 20 and not line.startswith((">>>", "...")) and set(line) - set("-=~ ")
    )
    repeated = {line: number - 1 for line, number in lines.most_common() if number > 1}
    assert sum(repeated.values()) <= MAX_REPEATED, f"refer to one docstring: {list(repeated)[:20]}"
