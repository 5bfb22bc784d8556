"""Pages of results and performance: scripts accept their commands, and tables equal their records."""

import argparse
import ast
import importlib.util
import json
import math
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hforest

ROOT = Path(__file__).resolve().parents[1]
BENCH, PAPER, DOCS = ROOT / "bench", ROOT / "lab" / "paper", ROOT / "docs"
RECORDS = BENCH / "results"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def anchors(page):
    """Returns the anchors of headings as on GitHub."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [p for p in PAGES if re.match(r"results|performance|developer", p.name)], ids=lambda p: p.name
)
def test_links_lead_to_headings(page):
    for target, heading in re.findall(
        r"\]\((?!https?://)([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8")
    ):
        assert heading in anchors(page.parent / target if target else page), f"{target}#{heading}"


class Parsed(Exception):
    """Raised when the parser of a script has accepted the options."""


def commands(page):
    """Returns lines of text blocks and inline code that call a script or the main job, without templates."""
    text = page.read_text(encoding="utf-8")
    lines = [
        line for block in re.findall(r"^```text\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()
    ]
    lines += re.findall(r"`(python [^`\n]*)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    found = [line.split("#")[0].strip() for line in lines]
    known = [line for line in found if re.match(r"python (bench/|lab/|-m hforest)", line)]
    return [line for line in known if "[" not in line and "--help" not in line]


def accepts(command, monkeypatch):
    """Parses a command by the parser of the script, up to the end of parse_args."""
    words = shlex.split(command)[1:]
    if words[0] == "-m":
        name, path, options = "page_main", Path(hforest.__file__).parent / "__main__.py", words[2:]
    else:
        path, options = ROOT / words[0], words[1:]
        name = f"page_{path.stem}"
    assert path.is_file(), f"{command}: {path} is not there"
    parse = argparse.ArgumentParser.parse_args

    def parsed(self, args=None, namespace=None):
        raise Parsed(parse(self, options if args is None else args, namespace))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    for folder in (BENCH, path.parent):
        monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "argv", [str(path), *options])
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    if words[0] == "-m":
        source = path.read_text(encoding="utf-8").replace('__name__ == "__main__"', "True")
        exec(compile(source, str(path), "exec"), {"__name__": "page", "__package__": "hforest"})
    else:
        spec.loader.exec_module(module)
        module.main()


@pytest.mark.parametrize(
    "command", sorted({command for page in PAGES for command in commands(page)}), ids=lambda c: c[:100]
)
def test_scripts_take_the_commands_of_the_pages(command, monkeypatch):
    with pytest.raises(Parsed):
        accepts(command, monkeypatch)


@pytest.mark.parametrize("path", [*BENCH.glob("*.py"), *PAPER.glob("*.py")], ids=lambda p: p.stem)
def test_benches_start_with_what_the_package_depends_on(path):
    """Functions import other libraries when they use them, after `need` or if they are installed."""
    imported = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.split(".")[0])
    own = {p.stem for folder in (BENCH, PAPER) for p in folder.glob("*.py")}
    more = {"torch"} if path.stem in ("torch_peers", "table_networks") else set()  # benches import them late
    assert imported <= {*sys.stdlib_module_names, *own, "hforest", "numpy", "scipy"} | more


def test_a_bench_ends_with_what_to_install(script):
    need = script("common").need
    need("-e '.[bench]'", "numpy")
    message = (
        "expected numpy, no_such to be installed, got no no_such; run pip install -e '.[x]' in the checkout"
    )
    with pytest.raises(SystemExit, match=re.escape(message)):
        need("-e '.[x]'", "numpy", "no_such")


def test_pages_have_commands():
    for name in ("hinge", "manifold", "co2", "neural", "cascade"):
        assert commands(DOCS / f"results-{name}.md"), name
    assert len(commands(DOCS / "performance-tables.md")) >= 6


@pytest.mark.parametrize(
    "command",
    [
        "python lab/paper/cascade.py --data DIR --run 1 --no-such-option",
        "python lab/paper/cascade.py --only letters",
        "python lab/paper/co2_table1.py --trees many",
    ],
)
def test_a_wrong_command_is_found(command, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        accepts(command, monkeypatch)
    capsys.readouterr()


@pytest.mark.slow
def test_peers_of_hinge_are_checked_and_timed():
    """In a small run, results of peers are compared before timing."""
    sizes = "--shapes 30,4,3,2,2 --jobs forward forward+backward --threads 1 --repeats 1 --settings scalar"
    command = [sys.executable, DOCS.parent / "bench" / "hinge.py", *sizes.split(), "--peers"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "numpy" in done.stdout


def record(name, key="rows"):
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))[key]


# page, script, function of the script, record, key in it, further arguments, the figure that a test changes
TABLES = {
    "table2": ("results-hinge", "table2", "table2", "rows", (), "error"),
    "table3": ("results-hinge", "table3", "table3", "rows", (), "least"),
    "manifold": ("results-manifold", "manifold", "manifold", "rows", (), "error"),
    "co2_table1": ("results-co2", "co2_table1", "co2_table1", "runs", (), "errors"),
    "co2_fig1": ("results-co2", "co2_fig1", "co2_fig1", "rows", ([4, 8, 12, 20],), "leaves"),
    "co2_pixels": ("images", "co2_pixels", "co2_pixels", "rows", (), "seconds"),
    "shallow_neural": ("results-neural", "shallow_neural", "neural_paper", "rows", (), "error"),
    "cascade": ("results-cascade", "cascade", "cascade", "rows", (), "accuracy"),
    "deep_neural": ("results-neural", "deep_neural", "deep_neural", "rows", (), "error"),
    "alternating": ("alternating", "alternating", "alternating", "rows", (), "errors"),
    "refine": ("co2", "refine", "refine", "rows", (False,), "error"),
    "boosting": ("boosting", "boosting", "boosting", "rows", (), "seconds"),
    "busy_calls": ("service", "busy_calls", "busy_calls", "rows", (), "milliseconds"),
    "targets": ("performance-tables", "targets", "targets", "rows", (), "seconds"),
    "memory": ("memory", "memory", "memory", "rows", (), "own"),
    "mlp_head": ("torch-mlp-head", "mlp_head", "mlp_head", "trials", (), "errors"),
    "layer_tables": ("torch-uses", "layer_tables", "layer_tables", "rows", (), "error"),
    "layer_uses, pixels": ("torch-uses", "layer_uses", "layer_uses", "rows", ("pixels",), "ms"),
    "layer_uses, stream": ("torch-uses", "layer_uses", "layer_uses", "rows", ("stream",), "microseconds"),
    "stats_groups": ("stats", "stats_groups", "stats_groups", "rows", (), "p"),
    "stats_intervals": ("stats", "stats_intervals", "stats_intervals", "rows", (), "square"),
    "stats_many": ("stats", "stats_many", "stats_many", "rows", (), "seconds"),
    "gpu": ("performance-tables", "gpu", "gpu", "rows", (), "gpu"),
    "torch_layers, rows": ("torch-training", "torch_layers", "torch_layers", "rows", ("rows",), "least"),
    "torch_layers, step": ("torch-training", "torch_layers", "torch_layers", "rows", ("step",), "processor"),
}  # fmt: skip


# further tables of the same records: page, script, function, record, key, what changes a record
MORE = [
    ("results-hinge", "table2", "authors_table", "table2", "error"),
    ("torch-mlp-head", "mlp_head", "heads_table", "mlp_head", "errors"),
    ("images", "pixels_torch", "table", "pixels_torch", "seconds"),
    ("stats", "stats", "confounded_table", "stats_conditional", "p"),
]


# pages with tables of bench/tabular.py: record, function, task
TABULAR = [
    ("results-tables", "tabular_public", "summary_table", "classification"),
    ("results-tables", "tabular_public_regression", "summary_table", "regression"),
    ("results-tables", "tabular_judge_five", "summary_table", "classification"),
    ("results-tables", "tabular_seconds", "summary_table", "classification"),
    ("classic", "tabular_classic_regression", "summary_table", "regression"),
    ("manifold", "tabular_projections", "summary_table", "classification"),
    ("neural", "tabular_neural", "summary_table", "classification"),
    ("co2", "tabular_co2_choose", "summary_table", "classification"),
]

SHOWN = {
    "tabular_co2_choose": (
        "rf", "co2", "co2:n_trees=10", "co2:nu=10,lr=0.01,bootstrap=True,min_samples_oblique=1",
        "co2:nu=4,lr=0.1,bootstrap=False,min_samples_oblique=50",
        "co2:n_trees=100,nu=4,lr=0.1,bootstrap=False,min_samples_oblique=50",
    ),
    "tabular_judge_five": ("rf", "hinge", "cascade", "sporf", "co2", "neural"),
    "tabular_classic_regression": (
        "rf", "classic:max_features=0.6", "classic", "extra:max_features=0.6", "extra"
    ),
}  # fmt: skip
"""Records, or functions of them, of which pages show only some methods."""


def shown(name, function):
    rows, methods = record(name), SHOWN.get(name, SHOWN.get(f"{name}, {function}"))
    return rows if methods is None else [row for row in rows if row["method"] in methods]


def changed(value):
    """Returns a record in which one or several figures are changed."""
    if isinstance(value, dict):
        return {key: changed(a) for key, a in value.items()}
    if isinstance(value, list):
        return [changed(a) for a in value]
    return None if value is None else value + 7


def stands_on(page, table):
    """Returns whether exactly this table is on a page."""
    return f"\n\n{table}\n\n" in f"\n{(DOCS / page).read_text(encoding='utf-8')}\n"


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_the_records(name, script):
    page, module, file, key, more, _ = TABLES[name]
    rows = record(file, key)
    assert stands_on(f"{page}.md", script(module).table(rows, *more)), f"run {module}.py without --data"


@pytest.mark.parametrize("name", TABLES)
def test_a_changed_record_is_seen(name, script):
    page, module, file, key, more, figure = TABLES[name]
    rows = [{**row, figure: changed(row.get(figure))} for row in record(file, key)]
    assert not stands_on(f"{page}.md", script(module).table(rows, *more))


@pytest.mark.parametrize(("page", "module", "name", "file", "figure"), MORE)
def test_further_tables_are_those_of_the_records(page, module, name, file, figure, script):
    rows, made = record(file), getattr(script(module), name)
    assert stands_on(f"{page}.md", made(rows)), f"run {module}.py without --data"
    # Rows differ: one table names the method with the smallest error.
    first = rows[0].get("method")
    other = [{**row, figure: changed(row[figure])} if row.get("method") == first else row for row in rows]
    assert not stands_on(f"{page}.md", made(other))


def test_the_page_shows_each_classifier_that_errs_less_than_morf(script):
    errors = {}
    for row in record("manifold"):
        errors.setdefault((row["data"], row["size"]), {}).setdefault(row["method"], []).append(row["error"])
    means = [{method: np.mean(of) for method, of in found.items()} for found in errors.values()]
    better = {method for of in means for method, mean in of.items() if mean < of["MORF"]}
    assert better == {"SVM", "CNN"} < set(script("manifold").SHOWN)


def test_importance_on_empty_pixels_is_that_of_the_record(script):
    shares, made = record("manifold", "importance"), script("manifold").importance_table
    assert stands_on("results-manifold.md", made(shares))
    assert not stands_on("results-manifold.md", made({**shares, "empty": [1 - a for a in shares["empty"]]}))


@pytest.mark.parametrize(("page", "file", "name", "task"), TABULAR)
def test_tables_of_ordinary_tables_are_those_of_the_records(page, file, name, task, script):
    table, rows = getattr(script("tabular"), name), shown(file, name)
    assert stands_on(f"{page}.md", table(rows, task)), f"run tabular.py --table {file}.json"
    other = [
        {
            **row,
            **{k: row[k] * (1.2 if row["method"] == "rf" else 2) for k in ("error", "log_loss") if k in row},
        }
        for row in rows
    ]
    assert not stands_on(f"{page}.md", table(other, task))


def test_the_table_of_intervals_is_that_of_the_record(script):
    rows = [row for row in record("intervals") if (row["function"], row["in_bag"]) == ("waves", 0.5)]
    table = script("intervals").table
    assert stands_on("stats.md", "\n".join(table(rows)))
    assert not stands_on("stats.md", "\n".join(table([{**row, "sets": row["sets"] + 1} for row in rows])))


def test_tables_of_performance_are_those_of_the_records(script):
    performance = script("performance")
    for name in performance.ON_PAGE:
        assert stands_on("performance-tables.md", performance.TABLES[name]()), (
            f"run bench/performance.py {name}"
        )


def test_a_changed_record_of_performance_is_seen(script, monkeypatch):
    performance = script("performance")
    read = performance.rows

    def slower(name):
        figures = ("forest_ms", "ns_per_pair", "seconds", "seconds_per_row", "against", "ratio")
        return [{key: changed(a) if key in figures else a for key, a in row.items()} for row in read(name)]

    monkeypatch.setattr(performance, "rows", slower)
    for name in performance.ON_PAGE:
        assert not stands_on("performance-tables.md", performance.TABLES[name]()), name


def page(name):
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def ranges(ratios):
    low, high = f"{min(ratios):.1f}", f"{max(ratios):.1f}"
    return f"{low} to {high} times"


def said_of_peers(rows):
    """Returns for each job the least, largest and mean ratio of torch.compile's times to those of hforest.

    The time of torch.compile is that of the formulation with the least candidate time, or an error. Nothing
    is returned for a record without candidates: its formulation is not known to be the fastest.
    """
    found = {}
    for row in rows:
        if "shape" in row:
            found.setdefault((*row["shape"], row["kind"]), {})[row["job"], row["rung"]] = row
    jobs = {
        "forward": ("forward", "hforest"),
        "dense": ("forward+backward", "hforest"),
        "sparse": ("forward+backward", "hforest sparse"),
        "layer": ("forward+backward", "hforest.torch"),
    }
    ratios = {}
    for cell in found.values():
        for name, (job, rung) in jobs.items():
            peer = cell[job, "torch.compile"]
            if "candidates" in peer and (job, rung) in cell:
                least = min(peer["candidates"].values())
                assert peer["candidates"][peer["formulation"]] == least, (peer["shape"], peer["kind"], job)
                ratios.setdefault(name, []).append(peer["ns_per_pair"] / cell[job, rung]["ns_per_pair"])
    assert all(len(of) == len(found) for of in ratios.values())
    return {
        name: f"{ranges(of)} (geometric mean {math.exp(np.log(of).mean()):.1f})"
        for name, of in ratios.items()
    }


RATIO = re.compile(r"torch\.compile[^.|]*? \d+\.\d to \d+\.\d times")


def test_what_the_page_says_of_pytorch_is_what_the_record_has():
    """Ratios of the times of the fastest formulation of torch.compile to those of hforest; else none."""
    said = said_of_peers(record("hinge_peers"))
    text = page("docs/performance.md").replace("`", "")
    assert bool(RATIO.search(text)) == bool(said), "a ratio needs a record with candidates"
    for name in said:
        assert f" {said[name]}" in text, said


def with_candidates(rows):
    """Returns the record as if torch.compile was the fastest of two formulations."""
    return [
        {**row, "formulation": "a", "candidates": {"a": row["ns_per_pair"], "b": 2 * row["ns_per_pair"]}}
        if row.get("rung") == "torch.compile" and "candidates" not in row else row
        for row in rows
    ]  # fmt: skip


@pytest.mark.parametrize("job", ["forward", "forward+backward"])
def test_a_page_with_another_peer_than_the_fastest_is_refused(job, script, monkeypatch):
    """A record whose peer was timed with the slowest of its formulations, or with a faster one left unused."""
    performance, rows = script("performance"), with_candidates(record("hinge_peers"))
    said = said_of_peers(rows)
    assert said
    k = next(k for k, row in enumerate(rows) if (row.get("job"), row.get("rung")) == (job, "torch.compile"))
    times = rows[k]["candidates"]
    slow = max(times, key=times.__getitem__)
    for row in (
        {**rows[k], "formulation": slow, "ns_per_pair": times[slow]},
        {**rows[k], "candidates": {**times, "a new one": min(times.values()) / 2}},
    ):
        with pytest.raises(AssertionError):
            said_of_peers([*rows[:k], row, *rows[k + 1 :]])
        with pytest.raises(ValueError, match="expected the fastest formulation"):
            performance.fastest(row)
    assert performance.fastest(rows[k]) == rows[k]["formulation"]


def test_what_the_page_says_of_applying_forests_is_what_the_record_has():
    rows = [row for row in record("predict") if row["threads"] == 1 and row["rows"] > 1]
    for rung in ("sklearn", "onnx"):
        said = ranges([row["ratio"] for row in rows if row["rung"] == rung])
        assert f" {said}" in page("docs/performance.md"), said


def test_what_the_page_says_of_growing_is_what_the_record_has():
    """Times of scikit-learn over those of hforest, of one target and of several."""
    seconds = {(row["name"], row["call"]): row["seconds"] for row in record("targets")}
    found = {
        name: taken / seconds[name, "hforest"]
        for (name, call), taken in seconds.items()
        if call == "scikit-learn"
    }
    several = {name: ratio for name, ratio in found.items() if "targets" in name}
    one = {name: ratio for name, ratio in found.items() if name not in several}
    least, most = (ranges(of.values()).removesuffix(" times").split(" to ") for of in (one, several))
    assert (
        f"take 1/{least[0]} to 1/{least[1]} of scikit-learn's time, with 10 or 100 targets 1/{most[0]} to 1/{most[1]}"
    ) in page("docs/performance.md")


def test_the_table_of_missed_goals_is_that_of_the_record():
    errors = {}
    for row in record("tabular_judge_five"):
        if row["task"] == "classification" and row["table"] != "mushroom":  # no method errs there
            errors.setdefault(row["table"], {}).setdefault(row["method"], []).append(row["error"])
    for method in ("hinge", "neural", "sporf", "co2"):
        logs = {t: np.log(np.mean(of[method]) / np.mean(of["rf"])) for t, of in errors.items()}
        groups = [[logs[t] for t in logs if t not in out] for out in ((), ("splice",), ("splice", "shuttle"))]
        cells = " | ".join(f"{np.exp(np.mean(group)):.3f}" for group in groups)
        assert re.search(rf"\| `{method}`, [\d.]+ \| {re.escape(cells)} \|", page("docs/results-tables.md"))


def test_what_the_page_says_of_a_later_version_is_what_the_record_has():
    ratios = {}
    for row in record("compare"):
        ratios.setdefault(row["bench"], []).append(row["ratio"])
    means = ", ".join(f"{name} {np.exp(np.mean(np.log(of))):.2f}" for name, of in ratios.items())
    assert f": {means}. The largest" in page("docs/performance.md")
    assert f"forests, {max(max(of) for of in ratios.values()):.1f}." in page("docs/performance.md")


def test_the_difference_of_forests_and_the_cnn_is_that_of_the_records(script):
    pixels = script("co2_pixels")
    forests = [r for r in record("co2_pixels") if r["part"] == "test" and r["trees"] == 64]
    networks = [r for r in record("pixels_torch") if r["learner"] == "CNN"]
    assert len(forests) == len(networks) == 3
    means = [np.mean([100 * r["scores"][0]["mean_jaccard"] for r in of]) for of in (networks, forests)]
    interval = pixels.interval(pixels.resampled(networks) - pixels.resampled(forests))
    said = f"are {means[0] - means[1]:.1f} points below the CNN (95 % over images: {interval})"
    assert said in " ".join(page("docs/images.md").split())


# Norouzi et al. 2015, Table I: errors of CO2 forests with 10, 30 and 1000 trees
CO2 = {"letter": (3.2, 2.3, 1.8), "usps": (5.8, 5.9, 5.5), "mnist": (2.5, 2.0, 1.9), "connect4": (17.1, 15.7, 14.7)}  # fmt: skip


def test_cells_of_table_1_that_are_met_are_those_of_the_record():
    runs = {}
    for run in record("co2_table1", "runs"):
        if run["method"] == "CO2":
            for trees, error in run["errors"].items():
                runs.setdefault((run["data"], trees), []).append(error)

    def met(suffix):
        found = []
        for data, paper in CO2.items():
            for trees, error in zip(("10", "30", "1000"), paper, strict=True):
                name = f"{data}{suffix}" if (f"{data}{suffix}", trees) in runs else data
                if (data, trees) in runs or suffix:
                    found.append(np.mean(runs[name, trees]) <= error)
        return found

    assert (sum(met("")), len(met("")), met(", no bootstrap")) == (6, 11, [True] * 12)
    assert "6 of the 12 (one was not run); without bootstrap (USPS with): all 12" in page("docs/results.md")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("30 trees, the default", ""),
        ("30 trees, `min_samples_oblique=50`", "min_samples_oblique=50"),
        ("100 trees, `min_samples_oblique=50`", "n_trees=100,min_samples_oblique=50"),
    ],
)
def test_errors_of_co2_with_bootstrap_over_those_without_are_those_of_the_record(name, settings):
    errors = {}
    for row in record("tabular_co2_bagging"):
        errors.setdefault((row["method"], row["table"]), []).append(row["error"])
    bagged = "co2:" + settings.replace("min", "bootstrap=True,min") if settings else "co2:bootstrap=True"
    plain = f"co2:{settings}" if settings else "co2"
    tables = dict.fromkeys(table for _, table in errors)
    ratio = {t: np.mean(errors[bagged, t]) / np.mean(errors[plain, t]) for t in tables}
    targets = ["houses", "puma8NH"]
    classes = [t for t in tables if t not in targets]
    groups = (classes, [t for t in classes if t != "letter"], ["letter"], targets)
    cells = [f"{math.exp(np.mean([math.log(ratio[t]) for t in group])):.3f}" for group in groups]
    assert f"| {name} | {' | '.join(cells)} |" in page("docs/results-co2.md")


def test_every_trial_of_the_searches_is_in_the_record(script):
    search = script("co2_search")
    rows = record("co2_search")
    planned = [
        key for group, trials in search.PLAN.items() for trial in trials for key in search.keys(group, trial)
    ]
    assert all(any(key.items() <= row.items() for row in rows) for key in planned)
    assert all(any(key.items() <= row.items() for key in planned) for row in rows)


def test_curves_over_trees_are_means_of_the_record(script, tmp_path):
    table1, rows = script("co2_table1"), record("co2_table1", "runs")
    curve = table1.curve(rows, "connect4", "CO2")
    assert list(curve)[:3] == [10, 30, 50]
    ten = [r["errors"]["10"] for r in rows if (r["data"], r["method"]) == ("connect4", "CO2")]
    assert len(ten) == 5
    assert curve[10] == statistics.mean(ten)
    assert table1.curve(rows, "sensit", "CO2") == {}
    pytest.importorskip("matplotlib")
    table1.draw(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_sets_without_a_split_are_split_as_the_paper_counts(script, tmp_path):
    x = np.repeat(np.arange(581_012) % 1000, 2).reshape(-1, 2).astype(np.int16)
    np.savez(tmp_path / "covertype.npz", x=x, y=(x[:, 0] % 7).astype(np.uint8))
    x, y, x_test, y_test = script("co2_data").load(tmp_path, "covertype", "as published")
    assert (len(x), len(x_test)) == (500_000, 81_012)
    assert (x[:, 0] % 7 == y).all()
    assert (x_test[:, 0] % 7 == y_test).all()
    assert (np.diff(y[:50].astype(int)) % 7 != 1).any()  # drawn


def test_records_have_the_settings_of_their_scripts(script):
    settings = script("co2_table1").SETTINGS
    assert all(row["settings"] == settings[row["data"]] for row in record("co2_table1", "runs"))


def test_runs_with_other_settings_are_not_taken_for_those_of_a_record(script, tmp_path):
    data = script("co2_data")
    records = data.Record(tmp_path / "record.json")
    records.add({"data": "letter", "seed": 0, "settings": {"nu": 4.0, "lr": 0.1}, "error": 3.0})
    records.write()
    again = data.Record(tmp_path / "record.json")
    assert again.find({"data": "letter", "seed": 0, "settings": {"nu": 4.0, "lr": 0.1}})["error"] == 3.0
    assert again.find({"data": "letter", "seed": 0, "settings": {"nu": 4.0}}) is None
    assert again.find({"data": "letter", "seed": 0, "settings": {"nu": 43.0, "lr": 0.1}}) is None


def test_a_table_is_split_the_same_for_everybody(script, tmp_path):
    tabular = script("tabular")
    x = np.arange(120).reshape(60, 2)
    np.savez(tmp_path / "whole.npz", x=x, y=np.arange(60) % 4)
    path = tmp_path / "whole.npz"
    data, x_test, y_test = tabular.load(path, 48, 3, False, "raw")
    assert (len(data.x), len(x_test)) == (32, 16)
    shown = np.concatenate([data.x, x_test])
    assert len({tuple(row) for row in shown.tolist()}) == 48
    assert (data.y == data.x[:, 0] // 2 % 4).all()
    assert (y_test == x_test[:, 0] // 2 % 4).all()
    inner, held, _ = tabular.load(path, 48, 3, True, "raw")  # no method sees the test rows
    assert np.array_equal(np.concatenate([inner.x, held]), data.x)
    assert (len(inner.x), len(held)) == (24, 8)
    unit, _, _ = tabular.load(path, 48, 3, False, "unit")
    assert (unit.x.min(axis=0).tolist(), unit.x.max(axis=0).tolist()) == ([0, 0], [1, 1])
    np.savez(tmp_path / "abalone.npz", x=x, y=np.arange(60))
    assert tabular.load(tmp_path / "abalone.npz", 60, 0, False, "raw")[0].task == "regression"


def test_spaces_have_settings_of_the_methods(script):
    tabular = script("tabular")
    assert set(tabular.SPACES) <= set(tabular.METHODS)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 90)).astype(np.float32), np.arange(60) % 2
    for name in ("classic", "extra", "sporf", "co2", "neural"):
        for key, values in tabular.SPACES[name].items():
            method = f"{name}:{key}={values[-1]!r}" + (
                ",n_trees=2" if name != "neural" else ",n_trees=1,depth=2"
            )
            if key == "depth":
                continue
            _, settings = tabular.parsed(method)
            p = tabular.METHODS[name].fit(tabular.Data(x, y, 2, 0), settings)(x)
            assert p.shape == (60, 2), method
    assert tabular.search("classic:n_trees=3", tabular.Data(x, y, 2, 0), 0.0) == {"n_trees": 3}


def test_ranks_and_ratios_by_hand(script):
    tabular = script("tabular")
    errors = {
        "a": {"rf": 4, "x": 2, "y": 4},
        "b": {"rf": 1, "x": 2, "y": 0.5},
        "c": {"rf": 0, "x": 1, "y": 0},
    }
    rows = [
        {"table": t, "method": m, "task": "classification", "scale": "raw", "error": e, "fit_seconds": e + 1}
        for t, row in errors.items()
        for m, e in row.items()
    ]
    found = tabular.summary(rows, "classification")
    np.testing.assert_allclose(found.ranks, [(2.5 + 2 + 1.5) / 3, (1 + 3 + 3) / 3, (2.5 + 1 + 1.5) / 3])
    # On c two methods have no error.
    np.testing.assert_allclose(found.ratios, [1, (0.5 * 2) ** 0.5, 0.5**0.5])
    np.testing.assert_allclose(found.times, [1, (3 / 5 * 3 / 2 * 2) ** (1 / 3), (1.5 / 2) ** (1 / 3)])
    assert tabular.summary(rows, "regression") is None


def test_log_loss_by_hand(script):
    tabular = script("tabular")
    p = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.2, 0.2, 0.6]], np.float32)
    eps = np.finfo(np.float32).eps
    expected = -(np.log(0.5) + np.log(eps)) / 2
    # The third row's label is not among those for fitting.
    np.testing.assert_allclose(tabular.log_loss(p, np.array([0, 1, -1])), expected, rtol=1e-6)
    assert tabular.labels_of(p).tolist() == [0, 0, 2]
    rows = [
        {"table": t, "method": m, "task": "classification", "scale": "raw", "error": 5, "fit_seconds": 1,
         **({} if loss is None else {"log_loss": loss})}
        for t, row in {"a": {"rf": 1, "x": 0.5, "y": None}, "b": {"rf": 4, "x": 8, "y": None}}.items()
        for m, loss in row.items()
    ]  # fmt: skip
    found = tabular.summary(rows, "classification")
    np.testing.assert_allclose(found.loss_ratios, [1, 1, np.nan])
    np.testing.assert_allclose(tabular.summary(rows, "classification", "x").loss_ratios[0], 1)
    assert "log loss / random forest's" in tabular.summary_table(rows)
    assert "error / x's" in tabular.summary_table(rows, base="x")
    old = [{key: value for key, value in row.items() if key != "log_loss"} for row in rows]
    assert "og loss" not in tabular.tables_of(old)


def test_figures_by_hand(script):
    tabular = script("tabular")
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8], [0.5, 0.5]], np.float32)
    y = np.array([0, 1, 1, 0, -1])
    found = tabular.figures(p, y, 2)
    np.testing.assert_allclose(found["log_loss"], tabular.log_loss(p, y))
    np.testing.assert_allclose(found["auc"], (0 + 1 + 0 + 1) / 4)
    np.testing.assert_allclose(found["ece"], (0.1 + 0.6 + 0.3 + 0.8) / 4, rtol=1e-6)
    assert set(tabular.figures(p, np.array([0, 0, 0, 0, -1]), 2)) == {"log_loss", "ece"}
    assert tabular.figures(np.array([0, 1]), np.array([0, 0]), 2) == {}  # labels alone
    np.testing.assert_allclose(tabular.figures(np.array([1.0, 2]), np.array([1.0, 4]), None)["rmse"], 2**0.5)
    rows = [
        {
            "table": t,
            "method": "rf",
            "task": "classification",
            "scale": "raw",
            "error": 5,
            "fit_seconds": 1,
            **more,
        }
        for t, more in {"new": found, "old": {"log_loss": 0.5}}.items()
    ]
    shown = tabular.tables_of(rows)
    assert "### AUC\n\n| table | `rf` |\n|---|---|\n| new | 0.5000 |\n| old | – |" in shown
    assert "| new | 45.00% |" in shown
    assert "RMSE" not in shown


# Demsar 2006, table 5a: critical values of the two-tailed Nemenyi test at .05
@pytest.mark.parametrize(("n_methods", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_critical_differences_are_those_of_the_table(n_methods, q, script):
    tabular = script("tabular")
    expected = q * (n_methods * (n_methods + 1) / (6 * 14)) ** 0.5
    np.testing.assert_allclose(tabular.critical_difference(n_methods, 14), expected, rtol=5e-4)


def test_mean_ranks_are_of_tables_with_all_methods(script, tmp_path):
    pytest.importorskip("matplotlib")
    tabular = script("tabular")
    errors = {
        ("a", "classification"): {"rf": 1, "hinge": 3, "et": 3},
        ("b", "classification"): {"rf": 1, "hinge": 0.5},
        ("c", "regression"): {"et": 3, "hinge": 2, "rf": 4},
    }
    rows = [
        {"table": t, "method": m, "task": task, "scale": "raw", "error": e, "fit_seconds": 1}
        for (t, task), row in errors.items()
        for m, e in row.items()
    ]
    methods, ranks, n, n_all = tabular.mean_ranks(rows)
    assert (dict(zip(methods, ranks, strict=True)), n, n_all) == ({"hinge": 1.75, "rf": 2, "et": 2.25}, 2, 3)
    assert tabular.alike(np.array([1, 2, 3, 4.5, 5]), 2.1) == [(0, 2), (2, 4)]
    assert tabular.alike(np.array([1, 4.0]), 2.1) == []
    tabular.ranks_figure(rows, tmp_path / "ranks.png")
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="--ranks: expected"):
        tabular.mean_ranks([row for row in rows if row["table"] == "b" and row["method"] == "rf"])


def test_tables_have_each_value_missing_by_its_chance(script):
    removed = script("tabular_data").removed
    x = np.arange(20000, dtype=np.float32).reshape(10000, 2)
    for kind, first, last in (("random", 0.2, 0.2), ("value", 0.1, 0.3)):
        gone = np.isnan(removed(x, kind, 0))
        # five deviations of a mean of 10 000
        np.testing.assert_allclose([gone[:5000].mean(), gone[5000:].mean()], [first, last], atol=0.023)
        assert removed(x, kind, 0).dtype == np.float32


def test_no_table_is_in_two_halves_and_categories_are_of_known_tables(script):
    data = script("tabular_data")
    names = [name for half in data.HALVES.values() for name in half]
    assert len(set(names)) == len(names) == 46
    assert set(data.CATEGORIES) <= set(names)


def test_columns_of_categories_are_read_as_such(script, tmp_path):
    tabular = script("tabular")
    rng = np.random.default_rng(0)
    number = rng.permutation(40)
    x = np.column_stack([rng.integers(0, 40, 1200), rng.normal(size=1200)]).astype(np.float32)
    np.savez(tmp_path / "abalone.npz", x=x, y=number[x[:, 0].astype(int)] % 2 * 8 + (x[:, 1] > 0))
    errors = {}
    for categorical in (False, True):
        key = {
            "rows": 900, "split": 0, "held_out": False, "scale": "raw", "categorical": categorical,
            "gaps": None, "seconds": 0.0,
        }  # fmt: skip
        row = tabular.measure("classic:n_trees=3,max_depth=3", tmp_path / "abalone.npz", key)
        errors[categorical] = row["error"]
        assert "log_loss" not in row
    assert errors[True] < 0.5 * errors[False]
    assert not tabular.METHODS["rf"].categorical


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("hinge", {"n_members": 1, "n_trees": 5, "steps": 100}), ("classic", {"n_trees": 10}),
        ("histgb", {"max_iter": 20}), ("lightgbm", {"n_estimators": 20}), ("xgboost", {"n_estimators": 20}),
        ("catboost", {"iterations": 20}), ("ydf", {"num_trees": 5}), ("ydf_boosted", {"num_trees": 20}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("n_classes", [None, 2, 3])
def test_methods_take_categories_and_missing_values(name, settings, n_classes, script):
    tabular = script("tabular")
    pytest.importorskip(tabular.METHODS[name].needs)
    rng = np.random.default_rng(0)
    code = rng.integers(0, 12, 600)
    x = np.column_stack([code, rng.normal(size=(600, 2))]).astype(np.float32)
    x[rng.random((600, 3)) < 0.05] = np.nan
    x[:5, 0] = -1  # missing, too
    y = rng.permutation(12)[code] % (n_classes or 12)
    data = tabular.Data(x[:400], y[:400], n_classes, 0, (0,))
    if n_classes is None:
        data = data._replace(y=data.y.astype(np.float64))
    x[400, 0] = 30  # a category that no sample for fitting has
    p = tabular.fit(name, data, settings)(x[400:])
    assert p.shape == ((200,) if n_classes is None else (200, n_classes))
    assert np.isfinite(p).all()
    if n_classes is not None:
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)
    # The mean of targets, or the most frequent class, has 100, or 50 and more.
    assert tabular.error(tabular.labels_of(p), y[400:], n_classes) < 45


@pytest.mark.parametrize("method", ["forest", "co2:nu", "co2:nu=lr", "co2:nu=="])
def test_a_wrong_method_is_found(method, script):
    with pytest.raises(SystemExit, match="--methods: expected"):
        script("tabular").parsed(method)


@pytest.fixture
def folder(tmp_path):
    """Writes small sets in the format of the real ones."""
    rng = np.random.default_rng(0)

    def split(n_features, n_classes, n=60, shift=0):
        x, y = rng.integers(0, 17, (n, n_features)), np.arange(n) % n_classes
        return {"x_train": x - shift, "y_train": y, "x_test": x[:20] - shift, "y_test": y[:20]}

    np.savez(tmp_path / "optdigits.npz", **split(64, 10))
    np.savez(tmp_path / "mnist.npz", **split(784, 10))
    np.savez(tmp_path / "usps.npz", **split(256, 10))
    np.savez(tmp_path / "shuttle.npz", **split(9, 3))
    np.savez(tmp_path / "pendigits.npz", **split(16, 10))
    np.savez(tmp_path / "letter.npz", x=rng.integers(0, 16, (90, 16)), y=np.arange(90) % 26)
    images = {
        f"x_{part}": rng.integers(0, 256, (4, 64, 66, 3), np.uint8) for part in ("train", "val", "test")
    }
    np.savez(tmp_path / "camvid.npz", **images, **{f"y{k[1:]}": x[..., 0] % 12 for k, x in images.items()})
    np.savez(tmp_path / "yeast.npz", x=rng.random((1060, 8)), y=np.arange(1060) % 10)
    adult = split(3, 2)
    adult["x_train"], adult["x_test"] = (adult[key] % 3 for key in ("x_train", "x_test"))
    np.savez(tmp_path / "adult.npz", **adult, categorical=[1], n_levels=[3])
    order = rng.permutation(60)
    g50c = {"x": rng.random((60, 50)), "y": np.arange(60) % 2}
    np.savez(tmp_path / "g50c.npz", **g50c, train_idx=order[None, :40], test_idx=order[None, 40:])
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "key", "count"),
    [
        ("co2_table1", "--only optdigits --trees 2 --runs 2 --methods CO2 RF OC1", "runs", 6),
        ("co2_table1", "--only pendigits sensit --trees 2 --runs 1", "runs", 2),  # sensit is missing
        ("co2_choices", "--only usps --trees 1 --runs 1", "runs", 15),
        ("co2_search", "--only shuttle --trees 1", "rows", 40),
        ("co2_search", "--only 'letter, 10 trees' --trees 6", "rows", 22),
        ("co2_fig1", "--runs 1 --depth 4", "rows", 5),
        ("refine", "--only usps", "rows", 1),
        (
            "co2_pixels",
            "--methods 'random forest' CO2 --trees 1 --pixels 50 --most 1 --seeds 1 --depth 2",
            "rows",
            24,
        ),
        ("cascade", "--only yeast --trees 1 --runs 1", "rows", 1),
        ("cascade", "--only 'mnist full scanned' --images 30 --trees 1 --runs 1", "rows", 1),
        ("manifold", "--only bars --most 10 --runs 1 --methods MORF RF LogReg", "rows", 3),
        ("cascade_leaves", "--trees 1 --levels 1", "rows", 9),
        ("shallow_neural", "--only g50c --seeds 0", "rows", 1),
        (
            "tabular",
            "--tables letter optdigits --methods classic sporf:n_trees=5 neural:epochs=1 --splits 2",
            "rows",
            12,
        ),
    ],
)
@pytest.mark.slow
def test_scripts_make_rows_once(name, options, key, count, script, folder, monkeypatch, capsys):
    path = folder / "record.json"
    options = [*shlex.split(options), "--data", str(folder), "--json", str(path)]
    if name == "shallow_neural":
        options += ["--state", str(folder)]
    if name == "co2_fig1":
        options += ["--png", str(folder / "figure.png")]
    if name == "manifold":
        pytest.importorskip("sklearn")
    if name in ("refine", "tabular"):
        monkeypatch.setattr("hforest.set_num_threads", lambda n: None)  # of this process
    module = script(name)
    monkeypatch.setattr(sys, "argv", [name, *options])
    module.main()
    rows = json.loads(path.read_text(encoding="utf-8"))[key]
    assert len(rows) == count
    capsys.readouterr()
    module.main()  # the record is complete
    assert json.loads(path.read_text(encoding="utf-8"))[key] == rows
    assert capsys.readouterr().out.count("\n|") >= 2
