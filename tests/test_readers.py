"""`python -m hforest --data FILE --target NAME`: CSV and Parquet files with named columns, and predictions."""

import csv
import gzip
import importlib.util
import os
import re
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from test_tables import SMALL, lines

from hforest import tabular
from hforest.__main__ import main
from hforest.core import roc
from hforest.tabular import reading, tables, texts
from hforest.tabular.evaluation import errors, importances, metrics, pictures


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def people(tmp_path):
    """Returns a table whose class follows from two numbers, with dates, a constant and row numbers."""
    rng = np.random.default_rng(0)
    n = 300
    age, hours = rng.integers(17, 91, n), rng.normal(40, 10, n)
    days = np.datetime64("2024-01-01") + rng.integers(0, 90, n)
    income = np.where(age / 20 + hours / 10 > 6.5, ">50K", "<=50K")
    rows = list(
        zip(
            age.tolist(),
            np.round(hours, 2).tolist(),
            map(str, days),
            ["EU"] * n,
            range(n),
            income,
            strict=True,
        )
    )
    path = tmp_path / "people.csv"
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("age", "hours", "day", "area", "row", "income"), *rows])
    return path, rows, income


# ------------------------------------------------------------------------------------------- files


def test_kinds_follow_from_the_texts(tmp_path):
    path = written(
        tmp_path / "t.csv",
        "\ufeffnumber, text ,flag,day,moment,instant,clock,mixed,nothing\n"
        "1.5, a,true,2024-02-29,2024-02-29 06:30:00,2024-02-29T06:30:00+02:00,06:30,12A,?\n"
        '?,"b, c",FALSE,2024-03-01,2024-03-01,2024-03-01T00:00:00Z,07:00:01,13,NA\n'
        "\n"
        "1e3, NA ,,,NaN,null,,None,\n",
    )
    table = tabular.read(path)
    assert table.columns == [
        "number",
        "text",
        "flag",
        "day",
        "moment",
        "instant",
        "clock",
        "mixed",
        "nothing",
    ]
    assert table.lines.tolist() == [2, 3, 5]
    columns = tabular.columns(table)
    kinds = columns.kinds.tolist()
    assert kinds == ["number", "text", "boolean", "date", "datetime", "instant", "time", "text", "missing"]
    x = dict(zip(columns.feature_names, tabular.numbers(columns, table).T, strict=True))
    np.testing.assert_array_equal(x["number"], [1.5, np.nan, 1000])
    np.testing.assert_array_equal(x["flag"], [1, 0, np.nan])
    np.testing.assert_array_equal(x["day, day"], [29, 1, np.nan])
    np.testing.assert_array_equal(x["instant, hour"], [4, 0, np.nan])
    np.testing.assert_allclose(x["clock"], [6.5 / 24, (7 + 1 / 3600) / 24, np.nan])
    assert columns.levels.tolist() == ["a", "b, c", "12A", "13"]
    spelt = tabular.columns(table, categorical=["number"])
    assert spelt.levels.tolist()[:2] == ["1.5", "1e3"]


def read_texts(values, **hints):
    """Returns a column of texts as it is read, 10 times over and with a missing value."""
    column = tables.of_array(np.array([*(10 * values), None], object))
    return texts.typed(column, texts.Hints(**hints))


@pytest.mark.parametrize(
    ("values", "kind", "first"),
    [
        # numbers written otherwise
        (["1", "-2.5", "1e5"], "number", [1, -2.5, 1e5]),
        (["1,5", "-0,25"], "number", [1.5, -0.25]),
        (["1.234,5", "2"], "number", [1234.5, 2]),
        (["1,234", "5"], "number", [1234, 5]),
        (["1 234,5", "-1 000"], "number", [1234.5, -1000]),
        (["1'234.5", "5"], "number", [1234.5, 5]),
        (["12 %", "5 %"], "number", [12, 5]),
        (["$1,200.50", "-$3"], "number", [1200.5, -3]),
        (["5,5 kg", "6 kg"], "number", [5.5, 6]),
        (["(12)", "12-", "\u22125"], "number", [-12, -12, -5]),
        (["1.5", "2"] * 6 + ["<0.01"], "number", [1.5, 2]),
        (["1.5", "2", "n/a"], "number", [1.5, 2, np.nan]),
        (["3"] * 12 + ["#DIV/0!"], "number", [3]),
        (["1_000", "2"], "text", None),
        (["001", "010"], "text", None),
        (["5 kg", "5 g"], "text", None),
        (["12A", "13"], "text", None),
        (["1. never", "2. once"], "text", None),
        (["1.5", "<0.01"], "text", None),
        # dates and times
        (["31.12.2020", "1.2.2021"], "date", [18627, 18659]),
        (["13/02/2020", "01/02/2020"], "date", [18305, 18293]),
        (["02/13/2020", "02/01/2020"], "date", [18305, 18293]),
        (["5 March 2021", "6 Mar 2021"], "date", [18691, 18692]),
        (["2024-02-29T06:00", "2024-03-01 18:00:00.0"], "datetime", [19782.25, 19783.75]),
        (["2024-02-29T06:00:00+02:00", "2024-03-01 00:00:00 UTC"], "instant", [19782 + 4 / 24, 19783]),
        (["2024-02-30", "2024-01-01"], "text", None),
        (["2024-02-30"] + ["2024-01-01"] * 12, "date", [np.nan, 19723]),
        (["2024", "2025"], "number", [2024, 2025]),
        (["06:00", "6:00 PM"], "time", [0.25, 0.75]),
        (["06:00", "25:30"], "duration", [0.25, 25.5 / 24]),
        (["2 days 06:00:00", "1:00"], "duration", [2.25, 1 / 24]),
        (["today", "now"], "text", None),
        (["True", "false"], "boolean", [1, 0]),
        (["yes", "no"], "text", None),
        (["9007199254740993", "9007199254740992"], "text", None),
    ],
)  # fmt: skip
def test_texts_that_look_like_values(values, kind, first):
    typed = read_texts(values)
    assert typed.values.kind == kind
    if first is not None:
        a = typed.values.data
        a = (a - np.datetime64(0, "us")) / np.timedelta64(1, "D") if a.dtype.kind == "M" else a.astype(float)
        a[typed.values.absent] = np.nan
        np.testing.assert_allclose(a[: len(first)], first)
        again = texts.cast(tables.of_array(np.array(values, object)), typed.form, tables.NULL_VALUES)
        np.testing.assert_array_equal(again.values.data[: len(first)], typed.values.data[: len(first)])
    assert typed.values.absent[-1]


def test_what_decides_between_two_readings():
    both = ["01/02/2020", "03/04/2020"]
    month, day = read_texts(both), read_texts(both, day_first=True)
    assert [str(t.values.data[0])[:10] for t in (month, day)] == ["2020-01-02", "2020-02-01"]
    assert "pass day_first" in month.faults[0]
    assert not day.faults
    assert not read_texts(["01/02/2020", "13/02/2020"]).faults
    assert read_texts(["1,234", "5,678"], decimal=",").values.data[0] == 1.234
    assert read_texts(["-9", "4"], null_values=("", "-9")).values.absent.tolist()[:2] == [True, False]


def test_faults_are_named_with_their_places(tmp_path):
    lines_of = ["a,b,c", *(f"{i}.5,{i % 2 or 'x'}{i},{'k' * 5}{i}" for i in range(50))]
    lines_of[8] = "<0.01" + lines_of[8][3:]
    table = tabular.read(written(tmp_path / "t.csv", "\n".join(lines_of)))
    with pytest.warns(UserWarning, match="column 'a'") as caught:
        columns = tabular.columns(table)
    said = str(caught[0].message)
    assert "column 'a': 49 of 50 values read as numbers; '<0.01' in line 9 cannot be read as numbers" in said
    assert "column 'b': looks like numbers, but 25 of 50 values cannot be read" not in said
    assert (
        "column 'c': 50 different texts in 50 rows are an identifier or free text, which is left out" in said
    )
    assert columns.parts.tolist() == ["value"]
    described = tabular.describe(columns)
    assert "a: 49 of 50 values read as numbers; '<0.01' in line 9" in described
    html = described._repr_html_()
    assert html.startswith("<table><tr><th>column</th>")
    assert "&lt;0.01" in html
    assert "<0.01" not in html
    with pytest.warns(UserWarning, match="column 'a'"):
        kept = tabular.columns(table, categorical=["c", "b"])
    assert kept.parts.tolist() == ["value", "level", "level"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("before", ["", "\r\n", "sep={}\r\n"])
@pytest.mark.parametrize("after", ["", "{}"])
def test_dialects(separator, before, after, tmp_path):
    rows = [separator.join("ab"), *(separator.join("12") + after.format(separator) for _ in range(3))]
    text = before.format(separator) + "\r\n".join(rows) + "\r\n"
    written(tmp_path / "t.csv", text)
    (tmp_path / "u.csv").write_bytes(text.encode("utf-16"))
    with gzip.open(tmp_path / "t.csv.gz", "wt", newline="") as stream:
        stream.write(text)
    for name in ("t.csv", "t.csv.gz", "u.csv"):
        table = tabular.read(str(tmp_path / name))
        assert table.frame.to_dict(as_series=False) == {"a": ["1"] * 3, "b": ["2"] * 3}
        assert table.lines[0] == 3 if before else table.lines[0] == 2
    bare = tabular.read(str(tmp_path / "t.csv"), header=False)
    assert bare.frame.row(0) == ("a", "b") if not after else bare.frame.columns == ["0", "1"]


def test_quoted_values_of_several_lines(tmp_path):
    table = tabular.read(written(tmp_path / "t.csv", 'a,b\n"x\ny",1\n"p,q",2\n'))
    assert table.frame.to_dict(as_series=False) == {"a": ["x\ny", "p,q"], "b": ["1", "2"]}
    assert table.place(1) == "row 1"


def test_memory_is_linear_in_the_file(tmp_path):
    path = written(tmp_path / "t.csv", "a,b,y\n" + "".join(f"{i},w{i % 3},{i % 2}\n" for i in range(400)))
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text() + "1," + "x" * 131_000 + ",1\n")
    code = (
        "import resource, sys; from hforest.__main__ import main\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "status = main(sys.argv[1:])\n"
        "print('more:', (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--data", path, "--target", "y", *SMALL, "--save", str(tmp_path / "m.npz")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.rpartition("more:")[2]) < 400  # of which polars takes most
    assert os.path.getsize(tmp_path / "m.npz") < 2_000_000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "t.csv: expected a line of column names, got an empty file"),
        (b"a,b\n1,2\n1,2,3\n", "t.csv: expected 2 values in each line, as in the first, got 3 in line 3: '1, 2, 3'"),
        (b"a,b\n1,2\n1\n", "t.csv: expected 2 values in each line, as in the first, got 1 in line 3: '1'"),
        (b"a,a\n1,2\n", "t.csv: expected a first line of unique column names, got 'a' twice"),
        (b"a,b\n\xff,1\n", "t.csv: expected a CSV file in UTF-8, got an unreadable file"),
        (None, "t.csv: expected a table, got no such file; check the path"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_read(content, words, tmp_path, capsys):
    if content is not None:
        (tmp_path / "t.csv").write_bytes(content)
    assert main(["--data", str(tmp_path / "t.csv"), "--target", "a"]) == 2
    assert re.match(f"error: .*{words}", capsys.readouterr().err)


def test_a_file_that_is_not_packed(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(
        ValueError, match="expected a CSV file in UTF-8, got an unreadable file .Not a gzipped file"
    ):
        tabular.read(str(tmp_path / "t.csv.gz"))


@pytest.mark.libraries
def test_a_damaged_parquet_file_ends_no_process(tmp_path, monkeypatch):
    polars = pytest.importorskip("polars")
    path = tmp_path / "t.parquet"
    polars.DataFrame({"a": np.arange(500.0), "b": [f"text {i}" for i in range(500)]}).write_parquet(path)
    assert len(tabular.read(path).frame) == 500
    content, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(8):
        damaged = bytearray(content)
        for at in rng.integers(0, len(content), 20):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged)
        with suppress(ValueError):
            tabular.read(path)
    monkeypatch.setattr(reading, "_CONVERT", "import os; os.abort()")
    with pytest.raises(ValueError, match=r"t\.parquet: expected a Parquet file, .*ended its process"):
        tabular.read(path)


@pytest.mark.libraries
def test_parquet_files(tmp_path, capsys):
    polars = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    frame = polars.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.where(x[:, 0] > 0, "up", "down").tolist()})
    path, model = str(tmp_path / "t.parquet"), str(tmp_path / "m.npz")
    frame.write_parquet(path)
    assert main(["--data", path, "--target", "y", *SMALL, "--save", model]) == 0
    assert (
        "160 training rows and 40 held-out rows that neither training nor selection used, 2 columns, 2 classes"
        in lines(capsys)[1]
    )
    frame.write_csv(tmp_path / "t.csv")
    outputs = []
    for data in (path, str(tmp_path / "t.csv")):
        assert main(["predict", model, data]) == 0
        outputs.append(capsys.readouterr())
    assert outputs[0] == outputs[1]
    assert len(outputs[0].out.splitlines()) == 201
    for suffix in ("parquet", "csv"):
        assert main(["predict", model, path, "--out", str(tmp_path / f"out.{suffix}")]) == 0
    frames = polars.read_parquet(tmp_path / "out.parquet"), polars.read_csv(tmp_path / "out.csv")
    assert (
        frames[0].columns == frames[1].columns == ["predicted y", "probability of down", "probability of up"]
    )
    np.testing.assert_allclose(frames[0][:, 1:].to_numpy(), frames[1][:, 1:].to_numpy(), atol=1e-6)
    capsys.readouterr()
    written(tmp_path / "bad.parquet", "no")
    assert main(["--data", str(tmp_path / "bad.parquet"), "--target", "y"]) == 2
    assert "bad.parquet: expected a Parquet file, got an error of polars" in capsys.readouterr().err


def test_a_file_without_polars_names_the_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "polars", None)
    for name in ("t.parquet", "t.csv"):
        assert main(["--data", written(tmp_path / name, ""), "--target", "y"]) == 2
        error = capsys.readouterr().err
        assert "expected polars 1.0 or newer to read text, got none; install it with pip install -e" in error
        assert "'.[tables]'" in error


# ------------------------------------------------------------------------------------------ models


def test_a_model_of_a_file_predicts_other_files(people, tmp_path, capsys):
    path, rows, income = people
    model, out = str(tmp_path / "m.npz"), tmp_path / "out.csv"
    command = ["--data", str(path), "--target", "income", "--drop", "row", *SMALL, "--save", model]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert (
        "240 training rows and 60 held-out rows that neither training nor selection used, 4 columns, 2 classes"
        in printed
    )
    header, *others = printed[printed.index("column ") :].splitlines()
    assert header.split() == ["column", "kind", "values", "missing", "features"]
    assert others[2].split()[:2] == ["day", "dates"]
    assert others[3].endswith("none (one value)")
    shares = re.search(r"target income: (\S+) (\S+) %, (\S+) (\S+) %", printed)
    assert sum(float(shares[i]) for i in (2, 4)) == pytest.approx(100, abs=0.11)
    assert float(re.search(r"error (\S+) %", printed)[1]) < 20

    loaded = tabular.load(model)
    assert loaded.columns.names.tolist() == ["age", "hours", "day", "area"]
    assert main(["predict", model, str(path), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "ignored, since the model does not know them: 'row'\n" in printed.err
    assert float(re.search(r"error (\S+) %", printed.err)[1]) < 20
    with open(out, newline="", encoding="utf-8") as stream:
        head, *predicted = csv.reader(stream)
    assert head == ["predicted income", "probability of <=50K", "probability of >50K"]
    assert np.mean([row[0] == label for row, label in zip(predicted, income, strict=True)]) > 0.8
    table = {
        "age": [row[0] for row in rows], "hours": [row[1] for row in rows],
        "day": np.array([row[2] for row in rows], "M8[D]"), "area": ["EU"] * len(rows),
    }  # fmt: skip
    p = tabular.predict(loaded, table)
    np.testing.assert_allclose([[float(share) for share in row[1:]] for row in predicted], p, atol=1e-6)

    # Other columns, without the target, in another order.
    lines_of = ["hours,age,day"] + [f"{row[1]},{row[0]},{row[2]}" for row in rows[:5]]
    new = written(tmp_path / "new.csv", "\n".join(lines_of))
    assert main(["predict", model, new]) == 0
    printed = capsys.readouterr()
    assert "are rows of training" in printed.err
    assert [line.split("\t")[0] for line in printed.out.splitlines()] == [
        "predicted income",
        *(row[0] for row in predicted[:5]),
    ]
    # An older file of predictions is replaced, others are not.
    assert main(["predict", model, new, "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 6
    for other in (str(path), written(tmp_path / "thesis.csv", "all of it")):
        assert main(["predict", model, new, "--out", other]) == 2
    assert (tmp_path / "thesis.csv").read_text() == "all of it"
    truth = written(tmp_path / "truth.csv", "income\n>50K\n")
    assert main(["predict", model, new, "--out", truth]) == 2
    assert main(["predict", model, new, "--out", truth, "--force"]) == 0
    # Columns of archives are matched by position.
    assert main(["predict", model, new, "--out", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as file:
        assert file["labels"].tolist() == [row[0] for row in predicted[:5]]


def test_targets_of_a_column(people, tmp_path, capsys):
    path, rows, _ = people
    model, out = str(tmp_path / "m.npz"), tmp_path / "out.csv"
    command = ["--data", str(path), "--target", "hours", "--drop", "income", "row", *SMALL]
    assert main([*command, "--save", model]) == 0
    printed = lines(capsys)
    assert printed[1].endswith("4 columns, regression") or printed[1].endswith("3 columns, regression")
    lowest, highest = min(row[1] for row in rows), max(row[1] for row in rows)
    ends = re.search(r"\ntarget hours: (\S+) to (\S+)\n", "\n".join(printed))
    assert lowest <= float(ends[1]) < float(ends[2]) <= highest
    assert re.search(
        r"mean squared error \S+ \(95 %: \S+ to \S+\), \S+ % of the variance\nR2 \S+, mean absolute error",
        "\n".join(printed),
    )
    assert main(["predict", model, str(path), "--out", str(out)]) == 0
    head, *values = out.read_text().splitlines()
    assert head == "predicted hours"
    assert len(values) == 300
    assert np.isfinite([float(value) for value in values]).all()


@pytest.mark.parametrize(
    ("target", "task", "words"),
    [
        ("age", None, "regression"),  # whole numbers, and more than 20 of them
        ("age", "classification", "classes"),
        ("few", None, "3 classes"),
        ("few", "regression", "regression"),
        ("half", None, "regression"),
        ("flag", None, "2 classes"),
    ],
)
def test_what_a_target_is(target, task, words, tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [f"{i % 40},{i % 3},{i % 3 / 2},{i % 2 == 0},{rng.normal():.3f}" for i in range(200)]
    path = written(tmp_path / "t.csv", "\n".join(["age,few,half,flag,x", *rows]))
    options = ["--task", task] if task else []
    assert main(["--data", path, "--target", target, *options, *SMALL]) == 0
    assert lines(capsys)[1].endswith(words)


def test_rows_without_a_target_are_left_out(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal():.3f},{'?' if i % 10 == 0 else i % 2}" for i in range(100)]
    path, model = written(tmp_path / "t.csv", "\n".join(["x,y", *rows])), str(tmp_path / "m.npz")
    assert main(["--data", path, "--target", "y", *SMALL, "--save", model]) == 0
    printed = lines(capsys)
    assert printed[1] == f"{path}: 10 rows have no 'y', and are left out"
    assert "72 training rows and 18 held-out rows" in printed[2]
    assert main(["predict", model, path]) == 0
    captured = capsys.readouterr()
    _, *found = captured.out.splitlines()
    wrong = [int(row.split()[0]) != i % 2 for i, row in enumerate(found) if i % 10]
    assert (len(found), len(wrong)) == (100, 90)
    assert captured.err.startswith(f"error {100 * np.mean(wrong):.2f} % (95 %: ")
    assert set(np.load(model)["classes"].tolist()) == {0, 1}


def test_a_file_without_a_header(people, tmp_path, capsys):
    path, _, _ = people
    bare = written(tmp_path / "bare.csv", "".join(path.read_text().splitlines(keepends=True)[1:]))
    model = str(tmp_path / "m.npz")
    assert main(["--data", bare, "--no-header", "--target", "5", "--drop", "4", *SMALL, "--save", model]) == 0
    capsys.readouterr()
    assert main(["predict", model, bare, "--no-header"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 301
    assert "ignored, since the model does not know them: '4'" in printed.err
    assert main(["--data", bare, "--target", "income"]) == 2
    assert "pass one of them, or pass --no-header if these are values" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--target: expected the name of a column of {path} (age, hours, day, area, row, income), got none"),
        (["--target", "wage"], "(age, hours, day, area, row, income), got 'wage'; pass one of them"),
        (["--target", "income", "--drop", "x"], "--drop: expected the name of a column"),
        (["--target", "day"], "{path}, column 'day': expected text, booleans or numbers to predict, got dates; choose another column"),
        (["--target", "income", "--train", "300"], "--train: expected 1 to 299, got 300"),
        (["--target", "income", "--task", "regression"], "column 'income': expected numbers as targets, got text"),
    ],
)  # fmt: skip
def test_wrong_options(options, words, people, capsys):
    path = people[0]
    assert main(["--data", str(path), *options]) == 2
    assert words.format(path=path) in capsys.readouterr().err


def test_options_of_columns_and_archives(tmp_path, capsys):
    np.savez(tmp_path / "t.npz", x=np.arange(40.0).reshape(-1, 2), y=np.arange(20) % 2)
    model, path = str(tmp_path / "m.npz"), str(tmp_path / "t.npz")
    assert main(["--data", path, "--target", "y"]) == 2
    assert "--target: expected a file with named columns (.csv, " in capsys.readouterr().err
    assert main(["--data", path, *SMALL, "--save", model]) == 0
    assert main(["predict", model, written(tmp_path / "t.csv", "a,b\n1,2\n")]) == 2
    assert "t.csv: expected an .npz archive with x, since" in capsys.readouterr().err


def test_other_columns_are_named(people, tmp_path, capsys):
    path, _, _ = people
    model = str(tmp_path / "m.npz")
    assert main(["--data", str(path), "--target", "income", *SMALL, "--save", model]) == 0
    new = written(tmp_path / "new.csv", "age,hours,row\nforty,2,1\n")
    capsys.readouterr()
    assert main(["predict", model, new]) == 2
    assert [line.strip() for line in capsys.readouterr().err.splitlines()[1:]] == [
        "column 'age': expected numbers, got text such as 'forty'; convert the column",
        "column 'day': expected a column of dates, got no column of that name; add or rename a column",
    ]


def test_gaps_and_categories_of_a_file(tmp_path, capsys):
    rng = np.random.default_rng(0)
    jobs = np.array(["cook", "smith", "clerk", "?"])[rng.integers(0, 4, 400)]
    wages = rng.normal(size=400)
    y = np.where((jobs == "cook") ^ (wages > 0), "yes", "no")
    rows = [
        f"{a},{'' if i % 9 == 0 else round(b, 3)},{c}"
        for i, (a, b, c) in enumerate(zip(jobs, wages, y, strict=True))
    ]
    path, model = written(tmp_path / "t.csv", "\n".join(["job,wage,y", *rows])), str(tmp_path / "m.npz")
    assert main(["--data", path, "--target", "y", *SMALL, "--save", model]) == 0
    assert float(re.search(r"error (\S+) %", capsys.readouterr().out)[1]) < 30
    new = written(tmp_path / "new.csv", "wage,job\n,baker\n2,\n")
    assert main(["predict", model, new]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 3
    unknown = "column 'job': 1 of 1 values are unknown categories, read as missing values, such as 'baker' in line 2"
    assert unknown in captured.err


# ---------------------------------------------------------------------------------------- pictures


@pytest.mark.libraries
@pytest.mark.parametrize("target", ["income", "hours"])
def test_pictures(target, people, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    path, folder = people[0], tmp_path / "pictures"
    others = {"income", "hours"} - {target}
    command = ["--data", str(path), "--target", target, "--drop", "row", *(others - {"hours"}), *SMALL]
    for _ in range(2):  # older pictures are replaced
        assert main([*command, "--plot", str(folder)]) == 0
    names = sorted(file.name for file in folder.iterdir())
    assert names == sorted(pictures.NAMES["classification" if target == "income" else "regression"])
    assert all(pictures.is_picture(file) for file in folder.iterdir())
    assert "drawn from the held-out rows" in capsys.readouterr().out
    (folder / names[0]).write_text("mine")
    assert main([*command, "--plot", str(folder)]) == 2
    assert "--plot: expected a new file or a picture written by hforest" in capsys.readouterr().err
    assert main([*command, "--plot", str(path)]) == 2
    assert "--plot: expected a folder, got the file" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is not None, reason="Matplotlib is installed")
def test_pictures_without_matplotlib(people, tmp_path, capsys):
    assert main(["--data", str(people[0]), "--target", "income", "--plot", str(tmp_path / "p")]) == 2
    assert "--plot: expected Matplotlib 3.8 or newer, got none" in capsys.readouterr().err


@pytest.mark.libraries
def test_importances_are_of_columns():
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    days = np.datetime64("2024-01-01") + rng.integers(0, 90, 600)
    table = {"noise": rng.normal(size=600), "day": days, "same": np.zeros(600)}
    y = (days.astype(int) % 7 < 3).astype(int)
    model = tabular.fit(table, y, n_members=1, n_trees=20, depth=4, n_projections=0, steps=100, rng=0)
    found = importances.of_some_rows(model, tabular.numbers(model.columns, table), y)
    assert importances.best(found, 9).tolist() == [1, 0]
    assert importances.best(found, 1).tolist() == [1]
    ax = pytest.importorskip("matplotlib.figure").Figure().subplots()
    pictures._importances(ax, model, tabular.numbers(model.columns, table), y)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["noise", "day"]
    np.testing.assert_array_equal([bar.get_width() for bar in ax.patches], found.mean[[0, 1]])


@pytest.mark.libraries
def test_calibration_by_hand():
    ax = pytest.importorskip("matplotlib.figure").Figure().subplots()
    p = np.array([[0.62, 0.38]] * 4 + [[0.05, 0.95]] * 2)
    pictures._calibration(ax, p, np.array([0, 0, 1, 0, 1, 1]))
    (drawn,) = ax.containers
    points, _, (bars,) = drawn.lines
    np.testing.assert_allclose(points.get_xydata(), [[0.62, 0.75], [0.95, 1]])
    for bar, k, n in zip(bars.get_segments(), (3, 2), (4, 2), strict=True):
        np.testing.assert_allclose(bar[:, 1], metrics.wilson(k, n))
    assert len(ax.get_legend().get_texts()) == 2


# --------------------------------------------------------------------------------------- intervals


def test_intervals():
    # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for k, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        np.testing.assert_allclose(metrics.wilson(k, n), (low, high), atol=5e-5)
    low, high = metrics.normal(np.array([0.0, 2.0, 0.0, 2.0]))
    np.testing.assert_allclose((low, high), (1 - 1.959964 / 2, 1 + 1.959964 / 2))


# ------------------------------------------------------------------------------ labels and outputs


def fitted(tmp_path, rows, *more, name="t.csv"):
    """Returns the status of a fit to the columns a and y of a file, and the path of the model."""
    path = written(tmp_path / name, "\n".join(["a,y", *rows]))
    return main(["--data", path, "--target", "y", *SMALL, "--save", str(tmp_path / "m.npz"), *more])


@pytest.mark.parametrize(
    "labels",
    [["001", "010"], ["100000000000000000", "100000000000000001"], ["1.0", "2.0"], ["-1", "1"], ["a", "=b"]],
)
def test_labels_are_given_back_as_they_are_spelt(labels, tmp_path, capsys):
    rows = [f"{i - 100},{labels[i >= 100]}" for i in range(200)]
    assert fitted(tmp_path, rows) == 0
    new = written(tmp_path / "new.csv", "a,y\n-50,\n50,unheard\n")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "m.npz"), new]) == 0
    captured = capsys.readouterr()
    assert [line.split("\t")[0] for line in captured.out.splitlines()[1:]] == labels
    assert "1 of 2 rows have a label that the model does not know, and are not compared" in captured.err
    out = str(tmp_path / "out.csv")
    for options, first in (([], "'=b"), (["--raw", "--force"], "=b")):
        assert main(["predict", str(tmp_path / "m.npz"), new, "--out", out, *options]) == 0
        with open(out, newline="") as stream:
            predicted = [row[0] for row in csv.reader(stream)][1:]
        assert predicted == [first if label == "=b" else label for label in labels]


def test_a_target_that_is_nearly_numbers_is_refused_by_line(tmp_path, capsys):
    rows = [f"{i},{i * 0.5}" for i in range(100)]
    rows[6] = "6,<3"
    assert fitted(tmp_path, rows) == 2
    assert "'<3' in line 8 cannot be read as numbers" in capsys.readouterr().err
    assert fitted(tmp_path, rows, "--null-values", "<3") == 0
    assert "1 rows have no 'y', and are left out" in capsys.readouterr().out
    assert fitted(tmp_path, [f"{i},k{i}" for i in range(100)]) == 2
    assert "expected classes of several rows each, got 80 classes in 80 rows" in capsys.readouterr().err


def test_the_saved_model_is_that_of_all_rows(tmp_path, capsys):
    rows = [f"{i % 37},{int(i % 37 > 20)}" for i in range(100)]
    outputs = []
    for more in ([], ["--no-refit"]):
        assert fitted(tmp_path, rows, *more) == 0
        assert ("the model is fitted to all 100 rows" in capsys.readouterr().out) == (not more)
        outputs.append(tabular.load(str(tmp_path / "m.npz")))
    whole = tabular.fit(
        tabular.numbers(outputs[0].columns, {"a": [i % 37 for i in range(100)]}), [int(i % 37 > 20) for i in range(100)],
        n_trees=10, depth=4, n_projections=20, steps=100, rng=0,
    )  # fmt: skip
    same = [np.array_equal(whole.members[0].thresholds, model.members[0].thresholds) for model in outputs]
    assert same == [True, False]


def test_output_in_ascii_and_control_characters(tmp_path):
    labels = chr(27) + "[31m", "\u00fc"
    rows = [f"{i},{labels[i % 2]}" for i in range(60)]
    path = written(tmp_path / "t.csv", "\n".join(["a,y", *rows]))
    done = subprocess.run(
        [sys.executable, "-m", "hforest", "--data", path, "--target", "y", *SMALL], capture_output=True,
        env=dict(os.environ, PYTHONIOENCODING="ascii"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert b"\\x1b[31m" in done.stdout


def test_measures_of_two_classes_by_hand():
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]])
    first, second, third = errors.lines(
        p, np.array([0, 1, 1, 0]), np.array(["no", "yes"]), np.array(["no", "no", "yes"])
    )
    assert first.startswith("error 25.00 %")
    loss = -np.log([0.9, 0.4, 0.8, 0.7]).mean()
    assert second == f"log loss {loss:.4f}, AUC 1.0000; the constant no is wrong in 50.00 %"
    assert [line.split() for line in third.splitlines()[2:]] == [["no", "2", "0"], ["yes", "1", "1"]]
    tied = roc.auc(np.array([0.5, 0.5, 0.1, 0.9]), np.array([True, False, False, True]))
    assert tied == 0.875


def test_mutated_files_end_with_words(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = ["a,b,c,y", *(f"{i}.5,w{i % 3},2024-01-{i % 28 + 1:02d},{i % 2}" for i in range(60))]
    good = "\n".join(rows).encode()
    marks = [b",", b'"', b"\n", b"\0", b"\xff", b"=", b";", b"'", b"\r", b"1" * 30, b" "]
    for i in range(60):
        data = bytearray(good)
        for _ in range(rng.integers(1, 6)):
            at = int(rng.integers(0, len(data)))
            data[at : at + int(rng.integers(0, 3))] = marks[rng.integers(len(marks))]
        (tmp_path / "t.csv").write_bytes(data)
        status = main(["--data", str(tmp_path / "t.csv"), "--target", "y", "--n-trees", "2", "--steps", "1"])
        captured = capsys.readouterr()
        assert status in (0, 2), i
        assert "Traceback" not in captured.err
        assert status == 0 or captured.err.startswith("error: "), i
