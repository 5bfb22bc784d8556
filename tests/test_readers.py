"""`python -m hforest --data FILE --target NAME`: CSV and Parquet files with named columns, and predictions."""

import csv
import datetime as dt
import gzip
import importlib.util
import re

import numpy as np
import pytest

from hforest import _output, _pictures, _readers, tabular
from hforest.__main__ import main

SMALL = ["--n-trees", "10", "--depth", "4", "--n-features", "20", "--steps", "100"]


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def lines(capsys):
    return capsys.readouterr().out.splitlines()


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
    table = _readers.read(path)
    assert list(table) == ["number", "text", "flag", "day", "moment", "instant", "clock", "mixed", "nothing"]
    assert np.array_equal(table["number"], [1.5, np.nan, 1000], equal_nan=True)
    assert table["text"].tolist() == ["a", "b, c", None]
    assert table["flag"].tolist() == [True, False, None]
    assert table["day"].dtype == "M8[D]"
    assert table["day"].tolist() == [dt.date(2024, 2, 29), dt.date(2024, 3, 1), None]
    assert table["moment"].tolist() == [dt.datetime(2024, 2, 29, 6, 30), dt.datetime(2024, 3, 1), None]
    assert table["instant"].tolist()[0].utcoffset() == dt.timedelta(hours=2)
    assert table["clock"].tolist() == [dt.time(6, 30), dt.time(7, 0, 1), None]
    assert table["mixed"].tolist() == ["12A", "13", None]
    assert table["nothing"].tolist() == [None, None, None]
    kinds = tabular.columns(table).kinds.tolist()
    assert kinds == ["number", "text", "boolean", "date", "datetime", "instant", "time", "text", "missing"]
    assert _readers.read(path, text={"number"})["number"].tolist() == ["1.5", None, "1e3"]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-2.5", "1e5"], "f"), (["1_000", "2"], "O"), (["today", "now"], "O"), (["2024-02-30", "2024-01-01"], "O"),
        (["2024", "2025"], "f"), (["2024-01", "2024-02"], "O"), (["True", "false"], "b"), (["yes", "no"], "O"),
        (["25:00", "01:00"], "O"), (["2024-01-01", "01/02/2024"], "O"), (["2024-01-01T25:00", "2024-01-01"], "O"),
    ],
)  # fmt: skip
def test_texts_that_look_like_values(texts, kind):
    typed = _readers.typed_texts(texts)
    assert typed.dtype.kind == kind
    if kind == "O":
        assert typed.tolist() == texts


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_and_packed_files(separator, tmp_path):
    text = separator.join("ab") + "\r\n" + separator.join("12") + "\r\n"
    written(tmp_path / "t.csv", text)
    with gzip.open(tmp_path / "t.csv.gz", "wt") as stream:
        stream.write(text)
    for name in ("t.csv", "t.csv.gz"):
        table = _readers.read(str(tmp_path / name))
        assert {key: a.tolist() for key, a in table.items()} == {"a": [1.0], "b": [2.0]}
    bare = _readers.read(str(tmp_path / "t.csv"), header=False)
    assert {key: a.tolist() for key, a in bare.items()} == {"0": ["a", "1"], "1": ["b", "2"]}


def test_many_rows_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(_readers, "_ROWS", 7)
    path = written(tmp_path / "t.csv", "a,b\n" + "".join(f"{i % 10},w{i % 3}\n" for i in range(100)))
    table = _readers.read(path)
    assert table["a"].tolist() == [i % 10 for i in range(100)]
    assert table["b"].tolist() == [f"w{i % 3}" for i in range(100)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "t.csv: expected a line of column names, got an empty file"),
        (b"a,b\n1,2\n1,2,3\n", "t.csv: expected 2 values in each line, as in the first, got 3: '1, 2, 3'"),
        (b"a,a\n1,2\n", "t.csv: expected a first line of unique column names, got 'a' twice"),
        (b"a,b\n\xff,1\n", "t.csv: expected a CSV file in UTF-8, got an unreadable file"),
        (b"a,b\n" + b"x" * 200_000 + b",1\n", "t.csv: expected a CSV file in UTF-8, got an unreadable file .field larger"),
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
        _readers.read(str(tmp_path / "t.csv.gz"))


@pytest.mark.libraries
def test_parquet_files(tmp_path, capsys):
    pytest.importorskip("narwhals")
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
    written(tmp_path / "bad.parquet", "no")
    assert main(["--data", str(tmp_path / "bad.parquet"), "--target", "y"]) == 2
    assert "bad.parquet: expected a Parquet file, got an error of polars" in capsys.readouterr().err


def test_a_parquet_file_without_libraries(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_readers, "find_spec", lambda name: None)
    path = written(tmp_path / "t.parquet", "")
    assert main(["--data", path, "--target", "y"]) == 2
    assert "expected polars, pyarrow or pandas to read a Parquet file, got none" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------ models


def test_a_model_of_a_file_predicts_other_files(people, tmp_path, capsys):
    path, rows, income = people
    model, out = str(tmp_path / "m.npz"), tmp_path / "out.csv"
    command = ["--data", str(path), "--target", "income", "--drop", "row", *SMALL, "--save", model]
    assert main(command) == 0
    _, second, _, header, *others = lines(capsys)
    assert second.endswith(
        "240 training rows and 60 held-out rows that neither training nor selection used, 4 columns, 2 classes"
    )
    assert header.split() == ["column", "kind", "values", "missing", "features"]
    assert others[2].split()[:2] == ["day", "dates"]
    assert others[3].endswith("none (one value)")
    shares = re.fullmatch(r"target income: (\S+) (\S+) %, (\S+) (\S+) %", others[5])
    assert sum(float(shares[i]) for i in (2, 4)) == pytest.approx(100, abs=0.11)
    assert float(re.search(r"error (\S+) %", others[-1])[1]) < 20

    loaded = tabular.load(model)
    assert loaded.columns.names.tolist() == ["age", "hours", "day", "area"]
    assert main(["predict", model, str(path), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "ignored, since the model does not know them: 'row'\n" in printed.err
    assert float(re.search(r"error (\S+) %", printed.err)[1]) < 20
    with open(out, newline="", encoding="utf-8") as stream:
        head, *predicted = csv.reader(stream)
    assert head == ["income", "<=50K", ">50K"]
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
    assert not printed.err
    assert [line.split("\t")[0] for line in printed.out.splitlines()] == [
        "label",
        *(row[0] for row in predicted[:5]),
    ]
    # An older file of predictions is replaced, others are not.
    assert main(["predict", model, new, "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 6
    for other in (str(path), written(tmp_path / "thesis.csv", "all of it")):
        assert main(["predict", model, new, "--out", other]) == 2
    assert (tmp_path / "thesis.csv").read_text() == "all of it"
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
    assert printed[1].endswith("3 columns, regression")
    lowest, highest = min(row[1] for row in rows), max(row[1] for row in rows)
    ends = re.search(r"\ntarget hours: (\S+) to (\S+)\n", "\n".join(printed))
    assert lowest <= float(ends[1]) < float(ends[2]) <= highest
    assert re.search(r"mean squared error \S+ \(95 %: \S+ to \S+\), \S+ % of the variance", printed[-1])
    assert main(["predict", model, str(path), "--out", str(out)]) == 0
    head, *values = out.read_text().splitlines()
    assert head == "hours"
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
        (["--target", "day"], "{path}, 'day': expected text, booleans or numbers to predict, got dtype datetime64[D]"),
        (["--target", "income", "--train", "300"], "--train: expected 1 to 299, got 300"),
        (["--target", "income", "--task", "regression"], "y: expected"),
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
    assert float(re.search(r"error (\S+) %", lines(capsys)[-1])[1]) < 30
    new = written(tmp_path / "new.csv", "wage,job\n,baker\n2,\n")
    assert main(["predict", model, new]) == 0
    assert len(lines(capsys)) == 3


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
    assert names == sorted(_pictures.NAMES["classification" if target == "income" else "regression"])
    assert all(_output.is_picture(file) for file in folder.iterdir())
    assert "drawn from the held-out rows" in lines(capsys)[-1]
    (folder / names[0]).write_text("mine")
    assert main([*command, "--plot", str(folder)]) == 2
    assert "--plot: expected a new file or a picture written by hforest" in capsys.readouterr().err
    assert main([*command, "--plot", str(path)]) == 2
    assert "--plot: expected a folder, got the file" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is not None, reason="Matplotlib is installed")
def test_pictures_without_matplotlib(people, tmp_path, capsys):
    assert main(["--data", str(people[0]), "--target", "income", "--plot", str(tmp_path / "p")]) == 2
    assert "--plot: expected Matplotlib 3.8 or newer, got none" in capsys.readouterr().err


def test_importances_are_of_columns():
    rng = np.random.default_rng(0)
    days = np.datetime64("2024-01-01") + rng.integers(0, 90, 600)
    table = {"noise": rng.normal(size=600), "day": days, "same": np.zeros(600)}
    y = (days.astype(int) % 7 < 3).astype(int)
    model = tabular.fit(table, y, n_members=1, n_trees=20, depth=4, n_projections=0, steps=100, rng=0)
    names, rises = _pictures.importances(model, table, y)
    assert names == ["noise", "day"]
    assert rises[1] > 0.2
    assert abs(rises[0]) < 0.1


@pytest.mark.libraries
def test_calibration_by_hand():
    ax = pytest.importorskip("matplotlib.figure").Figure().subplots()
    p = np.array([[0.62, 0.38]] * 4 + [[0.05, 0.95]] * 2)
    _pictures._calibration(ax, p, np.array([0, 0, 1, 0, 1, 1]))
    (drawn,) = ax.containers
    points, _, (bars,) = drawn.lines
    np.testing.assert_allclose(points.get_xydata(), [[0.62, 0.75], [0.95, 1]])
    for bar, k, n in zip(bars.get_segments(), (3, 2), (4, 2), strict=True):
        np.testing.assert_allclose(bar[:, 1], _output.wilson(k, n))
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
        np.testing.assert_allclose(_output.wilson(k, n), (low, high), atol=5e-5)
    low, high = _output.normal(np.array([0.0, 2.0, 0.0, 2.0]))
    np.testing.assert_allclose((low, high), (1 - 1.959964 / 2, 1 + 1.959964 / 2))
