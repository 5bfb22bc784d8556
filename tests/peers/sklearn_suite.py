"""A plug-in of pytest that runs scikit-learn's tests of its trees and forests with those of hforest.

The command, from the root of the checkout:

    python -m pytest -c tests/peers/pytest.ini -p tests.peers.sklearn_suite --pyargs \
        sklearn.ensemble.tests.test_forest sklearn.tree.tests.test_tree sklearn.tree.tests.test_monotonic_tree

`sklearn.toml` lists the tests that may fail, each with a reason, and the least number that must pass in each
file. The run fails on another failure, and below such a number if a whole file was run.
"""

import tomllib
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import sklearn.ensemble
import sklearn.tree

import hforest.sklearn

from . import trees

for _name in trees.FORESTS:
    setattr(sklearn.ensemble, _name, getattr(hforest.sklearn, _name))
sklearn.ensemble.RandomTreesEmbedding = trees.RandomTreesEmbedding
for _class in trees.SINGLE:
    setattr(sklearn.tree, _class.__name__, _class)

LIST = tomllib.loads((Path(__file__).parent / "sklearn.toml").read_text(encoding="utf-8"))


def name_of(item: Any) -> str:
    """Returns the name of a test as the list has it: test_forest.test_pickle[RandomForestClassifier]."""
    return f"{item.path.stem}.{item.name}"


def known(name: str) -> Iterator[str]:
    """Yields the patterns of the list that a test matches; brackets in patterns are plain characters."""
    for group in LIST["may_fail"]:
        for pattern in group["tests"]:
            if fnmatchcase(name, pattern.replace("[", "[[]")):
                yield pattern


class Counts:
    """Counts results, and changes the exit status."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self.unknown: list[str] = []
        self.needed: set[str] = set()
        self.patterns: dict[str, list[str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self.total[name_of(item).partition(".")[0]] += 1
            self.patterns[item.nodeid] = list(known(name_of(item)))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[None]:
        report = (yield).get_result()
        patterns = self.patterns.get(item.nodeid, [])
        if report.failed and patterns:
            self.needed.update(patterns)
            report.outcome, report.wasxfail = "skipped", patterns[0]
        elif report.failed:
            self.unknown.append(name_of(item))
        elif report.when == "call" and report.passed:
            self.passed[name_of(item).partition(".")[0]] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for file, least in LIST["floors"].items():
            if LIST["sizes"].get(file) == self.total[file] and self.passed[file] < least:
                session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        for file, n in sorted(self.total.items()):
            floor = LIST["floors"].get(file, 0)
            write(f"{file}: {self.passed[file]} of {n} tests pass; at least {floor} must")
        every = [pattern for group in LIST["may_fail"] for pattern in group["tests"]]
        for pattern in every:
            files = [file for file in LIST["sizes"] if fnmatchcase(file, pattern.partition(".")[0])]
            if all(self.total[file] for file in files) and pattern not in self.needed:
                write(f"no longer fails: {pattern}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Counts(), "counts-of-peers")
