"""lab/paper/all.py: its page equals the records, scripts accept its commands, and runs resume and end."""

import json
import re
import statistics
import sys
from pathlib import Path

import pytest
from scipy import stats
from test_results import BENCH, DOCS, Parsed, accepts


@pytest.fixture
def papers(script):
    return script("all")


def test_the_page_is_that_of_the_records(papers):
    text = papers.page(papers.read(BENCH / "results"))
    assert (DOCS / papers.PAGE).read_text(encoding="utf-8") == text, "run python lab/paper/all.py"


def test_every_figure_of_the_page_comes_from_a_record(papers):
    """A cell has a line exactly where the record has it, and its line changes with the figures."""
    records = papers.read(BENCH / "results")
    for name, table in papers.TABLES.items():
        for cell in table.cells():
            rows = records[name]
            figures = papers.figures(cell, rows)
            assert bool(papers.line(cell, rows)) == bool(figures)
            if figures:
                other = cell._replace(scale=(cell.scale[0] + 7, cell.scale[1]))
                assert papers.line(other, rows) != papers.line(cell, rows)


def test_rows_of_fewer_images_are_not_those_of_all_images(papers):
    cell = papers.Cell("all images", "–", {"data": "a", "images": None}, "accuracy")
    rows = [{"data": "a", "images": 1000, "accuracy": 92.0}, {"data": "a", "accuracy": 97.0}]
    assert papers.figures(cell, rows) == [97.0]
    assert all("images" in cell.where for cell in papers.TABLES["cascade"].cells())


def test_the_summary_counts_runs(papers, monkeypatch):
    cells = [papers.Cell(name, "2.5", {"data": name}) for name in "abc"]
    tables = {"x": papers.Table("X", (), "a", lambda: cells), "y": papers.Table("Y", (), "b")}
    monkeypatch.setattr(papers, "TABLES", tables)
    rows = [{"data": name, "error": 2.0} for name in "aab"]
    assert papers.summary({"x": rows, "y": [{"seconds": 5400.0}]})[2:] == [
        "| X | `x` | [a](a.md) | 3 | – | 1 | 1 | 1 |",
        "| Y | `y` | [b](b.md) | 1 | 1.5 | – | – | – |",
    ]


def test_every_row_of_a_table_is_in_a_cell_or_is_a_departure(papers):
    """Keys of cells are those of the records."""
    records = papers.read(BENCH / "results")
    for name, table in papers.TABLES.items():
        where = [cell.where for cell in table.cells()]
        used = [row for row in records[name] if any(
            all(papers.value(row, key) == a for key, a in values.items()) for values in where
        )]  # fmt: skip
        assert not where or len(used) > len(records[name]) // 3, name


def test_cells_say_what_test_samples_were_used_for(papers):
    cells = [cell for table in papers.TABLES.values() for cell in table.cells()]
    assert len(cells) > 90
    assert all(re.search(r"held out|least of \d+ looks|by test error|by hand", cell.looks) for cell in cells)


@pytest.mark.parametrize(
    ("paper", "ours", "expected"),
    [
        ("2.5", [2.0], "-0.50"),
        ("2.5 ± 0.1", [2.0, 3.0], "+0.00 ± 6.35"),  # 12.706 * 0.7071 / 2 ** 0.5
        ("5.52 ± 0.51 (human activity)", [5.0, 6.0], "–"),
        ("–", [96.0], "–"),
    ],
)
def test_difference_and_interval(papers, paper, ours, expected):
    assert papers.compared(paper, ours) == expected


def test_interval_of_two_samples(papers):
    """Against SciPy's interval of two samples of one variance, which are given by mean, deviation and number."""
    ours, theirs = [2.0, 3.5, 2.5], [1.0, 2.0, 4.0, 2.0, 1.5]
    runs = papers.Runs(statistics.mean(theirs), statistics.stdev(theirs), 5)
    interval = stats.ttest_ind(ours, theirs).confidence_interval()
    half = (interval.high - interval.low) / 2
    assert papers.compared("9", ours, runs) == f"{(interval.low + interval.high) / 2:+.2f} ± {half:.2f}"
    assert papers.compared("9", ours[:1], runs) == "-0.10 ± 3.47"  # 2.776 * 1.1402 * (1 + 1 / 5) ** 0.5
    cell = papers.Cell("a", "9", {"data": "a"}, theirs=runs)
    assert (
        papers.line(cell, [{"data": "a", "error": 2.0}])
        == "| a | 9 | 2.10 ± 1.14 (5) | 2.00 | -0.10 ± 3.47 | 1 | held out |"
    )


def test_runs_of_the_authors_are_those_of_their_tables(papers):
    """Means and deviations of lay_runs.json are those that Lay et al. 2018 print, as far as they are printed."""
    record = json.loads((BENCH / "results" / "lay_runs.json").read_text(encoding="utf-8"))["rows"]
    runs = {(r["data"], r["kind"], r["n_trees"], r["depth"]): r for r in record}
    assert len(runs) == len(record)
    printed = 0
    for cell in [*papers._lay_2(), *papers._lay_3()]:
        if cell.theirs and not (cell.name.startswith("iris") and "folds" not in cell.name):
            mean, deviation = map(float, cell.paper.split(" ± "))
            assert abs(cell.theirs.mean - mean) < 0.051, cell
            assert abs(cell.theirs.deviation - deviation) < 0.011, cell
            printed += 1
    assert printed >= 20
    for (data, kind, n_trees, depth), row in runs.items():
        if depth == 1:  # trees and ferns of depth 1 are one function
            assert row["mean"] == runs[data, "fern", n_trees, 1]["mean"], (kind, row)
        if data == "iris":
            apart = runs["iris, folds 1 and 3", kind, n_trees, depth]
            assert apart["runs"] == 10
            assert abs(3 * row["mean"] - 2 * apart["mean"]) < 2.7


def commands(papers):
    folders = {"data": "DIR", "results": "bench/results", "work": "."}
    return [
        f"python lab/paper/{command.format(**folders)} --json FILE"
        for table in papers.TABLES.values()
        for command in table.commands
    ]


def test_scripts_take_the_commands(papers, monkeypatch):
    for command in commands(papers):
        with monkeypatch.context() as patch, pytest.raises(Parsed):
            accepts(command, patch)


def test_a_script_that_fails_is_named_and_the_page_is_written(papers, monkeypatch, tmp_path, capsys):
    """The other scripts run; an existing record is on the page."""
    (tmp_path / "failing.py").write_text("raise SystemExit(3)")
    (tmp_path / "working.py").write_text(
        "import json, sys\nopen(sys.argv[-1], 'w').write(json.dumps({'rows': [{'data': 'a', 'error': 2.25}]}))"
    )
    cell = papers.Cell("set a", "2.5", {"data": "a"})
    tables = {
        name: papers.Table(name, (f"{name}.py --data {{data}}",), "results-co2", lambda: [cell])
        for name in ("failing", "working")
    }
    monkeypatch.setattr(papers, "TABLES", tables)
    monkeypatch.setattr(papers, "PAPER", tmp_path)
    results = tmp_path / "records"
    monkeypatch.setattr(
        sys, "argv", ["all.py", "--data", "D", "--results", str(results), "--work", str(tmp_path)]
    )
    assert papers.main() == 1
    assert "failing: not finished" in capsys.readouterr().out
    text = (results / papers.PAGE).read_text(encoding="utf-8")
    assert "| failing | `failing` | [results-co2](results-co2.md) | 0 | – | 0 | 0 | 1 |" in text
    assert "## failing" not in text
    assert "Test samples: held out.\n" in text
    assert "| set a | 2.5 | 2.25 | -0.25 | 1 |\n" in text


def test_a_script_is_ended_when_the_hours_are_over(papers, monkeypatch, tmp_path):
    (tmp_path / "long.py").write_text(
        "import pathlib, sys, time\npathlib.Path(sys.argv[-1]).write_text('[]')\ntime.sleep(600)"
    )
    monkeypatch.setattr(papers, "TABLES", {"long": papers.Table("", ("long.py",) * 2, "")})
    monkeypatch.setattr(papers, "PAPER", tmp_path)
    folders = {"data": tmp_path, "results": tmp_path, "work": tmp_path}
    begin = papers.time.monotonic()
    assert not papers.run("long", folders, begin + 2.0)
    assert papers.time.monotonic() - begin < 60
    assert json.loads((Path(tmp_path) / "long.json").read_text()) == []
    assert not papers.run("long", folders, begin)
