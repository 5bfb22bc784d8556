"""README, whose part is the front page: every figure that compares is a claim of bench/claims.py, and that of its records."""

import re

import pytest
from test_results import page

COMPARED = r"[\d.]+ to [\d.]+ times|(?<![\w.])\.\d\d\b|\d+ % fewer|geometric mean [\d.]+"


@pytest.fixture
def claims(script):
    return script("claims")


def test_pages_print_the_worst_column(claims):
    for claim in claims.CLAIMS:
        for text in claims.printed(claim):
            assert text in page("README.md"), f"{claim.name}: expected {text!r}"


def test_a_changed_record_is_seen(claims, monkeypatch):
    worst = claims.worst
    monkeypatch.setattr(claims, "worst", lambda of: {name: 1.3 * ratio for name, ratio in worst(of).items()})
    for claim in claims.CLAIMS:
        if "less" in "".join(claim.texts):  # a number of tables
            continue
        for text in claims.printed(claim):
            assert text not in page("README.md"), claim.name


def test_no_figure_is_without_a_claim(claims):
    texts = [text for claim in claims.CLAIMS for text in claims.printed(claim)]
    said = re.findall(COMPARED, page("README.md"))
    assert said
    assert sorted(said) == sorted(re.findall(COMPARED, " | ".join(texts)))


def test_tables_have_catboosts_errors(claims):
    """README says "CatBoost's errors", and of how many tables."""
    share = {
        claim.name: float(claims.figures(claims.worst(claims.columns(claim)))["share"])
        for claim in claims.CLAIMS
        if claim.name in ("errors where CatBoost ran", "errors of CatBoost")
    }
    assert share["errors where CatBoost ran"] <= share["errors of CatBoost"]
    rows = [row for name in claims.PUBLIC for row in claims.rows_of(claims.RESULTS / f"{name}.json")]
    assert f" of the {len({row['table'] for row in rows})} (geometric mean" in page("README.md")


def test_two_processors_and_two_vector_paths_are_columns(claims):
    for claim in claims.CLAIMS:
        if claim.bench:
            found = list(claims.columns(claim))
            # Code that PyTorch 2.13 compiles for AVX-512 ends the process on an AMD EPYC (Zen 5).
            paths = ("avx2",) if claim.bench == "hinge" else ("avx2", "avx512")
            assert {f"AMD EPYC, {path}" for path in paths} <= {*found}, claim.name
            of_xeon = {f"Intel(R) Xeon(R) Processor, {path}" for path in paths}
            assert of_xeon <= {*found} or {"hinge_peers", "hinge_peers_avx2"} <= {*found}, claim.name


def test_the_worst_column_by_hand(claims):
    assert claims.worst({"a": {"x": 2.0, "y": 5.0}, "b": {"x": 3.0, "z": 1.0}}) == {
        "x": 2.0,
        "y": 5.0,
        "z": 1.0,
    }
    found = claims.figures({"x": 0.5, "y": 2.0, "z": 0.51})
    assert (found["range"], found["share"], found["fewer"], found["less"]) == (
        "0.5 to 2.0 times",
        ".80",
        "20",
        "2",
    )
    rows = [
        {"name": "forest, 9 rows, exact", "call": call, "seconds": 9.0, "all": taken}
        for call, taken in (("hforest", [1.0, 2.0]), ("scikit-learn", [7.0, 3.0]))
    ]
    assert claims.targets(("exact",), (False,), rows) == {"forest, 9 rows, exact": 3.0}
    assert claims.targets(("exact",), (True,), rows) == {}
    grown = {"set": "a", "rung": "exact", "threads": 1, "against": {"peer": 4.0}}
    rows = [grown, {**grown, "against": {"peer": 3.0}}, {**grown, "threads": 2, "against": {"peer": 1.0}}]
    assert claims.grown({"exact": "peer"}, rows) == {"a, exact": 3.0}
