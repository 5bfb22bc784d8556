"""The figures of README.md: every claim beside its records, and measured again.

    python bench/claims.py [--data DIR] [--benches NAME ...] [--json bench/results/claims.json]
    python bench/claims.py --records       prints claims and recorded figures, and measures nothing

A claim of times is a set of ratios by problem: time of the other library, in its fastest form that the bench
knows, over the time of hforest. Its columns are the records of earlier machines, and those of
bench/results/claims.json: one for each processor and vector path. README prints the worst column of each
problem (tests/test_claims.py). Without options the claims of times are measured again, each bench in a
process of its own for each vector path (HFOREST_SIMD), on one thread, in turn with the other libraries, by
processor time; a claim holds if no ratio is below the least one on the page. That takes about half an hour;
--benches names some. A bench that fails is left out, and the exit status is 1. DIR holds the files of
bench/grow.py.

Claims of errors and of tests take hours, and a vector path does not change them; treeple needs an environment
of its own. These are computed from their records and not measured again.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import performance
from common import RESULTS, machine_text, need, options_of, record

from hforest.core import machine

Rows = list[dict[str, Any]]
Ratios = dict[str, float]
BENCH = Path(__file__).parent


class Claim(NamedTuple):
    """Figures that pages print, and where they are from."""

    name: str
    ratios: Callable[[Rows], Ratios]
    """Returns a ratio for each problem from the rows of a record."""
    records: tuple[str, ...]
    """Records of earlier runs; each is a column, except that records of errors are one column together."""
    bench: str = ""
    """The key in `BENCHES` of the bench that measures the claim again; empty: computed from records only."""
    texts: tuple[str, ...] = ()
    """What README prints, with names of `figures`."""


BENCHES: dict[str, tuple[str, str]] = {
    "grow": (
        "grow.py --threads 1 --repeats 3 --features --rungs exact scikit-learn --clock processor",
        "grow.py --quick --features --rungs exact scikit-learn",
    ),
    "targets": ("targets.py --only forest --repeats 7", "targets.py --quick --only forest --outputs 2"),
    "predict": ("predict.py --threads 1 --clock processor", "predict.py --quick"),
    "hinge": (
        "hinge.py --shapes 1000,100,100,10,10 --jobs forward forward+backward --threads 1 --peers",
        "hinge.py --quick --shapes 30,4,3,2,2 --jobs forward forward+backward --peers --settings scalar",
    ),
}  # fmt: skip
"""Commands by name: in full, and of seconds."""


def grown(peers: dict[str, str], of: Rows) -> Ratios:
    """Returns ratios of growth on one thread by set and rung; `peers` names the other rung of each."""
    found: Ratios = {}
    for row in of:
        ratio = row.get("against", {}).get(peers.get(row.get("rung", "")))
        if ratio is not None and row["threads"] == 1:
            name = f"{row['set']}, {row['rung']}"
            found[name] = min(ratio, found.get(name, ratio))
    return found


def targets(words: tuple[str, ...], several: tuple[bool, ...], of: Rows) -> Ratios:
    """Returns ratios of the least times of scikit-learn and hforest, by job."""
    least = {(row["name"], row["call"]): min(row["all"]) for row in of if row["name"].startswith("forest")}
    return {
        name: taken / least[name, "hforest"]
        for (name, call), taken in least.items()
        if call == "scikit-learn" and name.endswith(words) and ("targets" in name) in several
    }


def applied(of: Rows) -> Ratios:
    """Returns ratios of applying forests to many rows on one thread, by shape."""
    kept = [row for row in of if (row["rung"], row["threads"]) == ("sklearn", 1) and row["rows"] > 1]
    return {",".join(map(str, row["shape"])): row["ratio"] for row in kept}


def compiled(word: str, of: Rows) -> Ratios:
    """Returns ratios of the fastest formulation of torch.compile, by shape and kind."""
    names = [f"{','.join(map(str, shape))}, {kind}s" for shape, kind in performance.shapes(of)]
    return dict(zip(names, performance.over_peers(of)[word], strict=True))


def errors(method: str, base: str, on: str, key: str, of: Rows) -> Ratios:
    """Returns means over splits of a method over those of another, of tables that method `on` ran on."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in of:
        found.setdefault(row["table"], {}).setdefault(row["method"], []).append(row)

    def mean(table: str, name: str, figure: str) -> float:
        return sum(row[figure] for row in found[table][name]) / len(found[table][name])

    return {
        table: mean(table, method, key) / mean(table, base, key)
        for table, methods in found.items()
        if on in methods and mean(table, "rf", "error") > 0  # a ratio needs an error
    }


def rejected(names: dict[str, str], of: Rows) -> Ratios:
    """Returns shares of data sets that tests reject at the level .05, by name of `names`."""
    p = {f"{row['test']} {row['n']} {row['d']} {row['statistic']}": row["p"] for row in of}
    return {name: sum(a <= 0.05 for a in p[cell]) / len(p[cell]) for name, cell in names.items()}


PUBLIC = ("tabular_public", "tabular_public_regression")


def of_errors(name: str, method: str, base: str, *texts: str, on: str = "rf", key: str = "error") -> Claim:
    """Returns a claim of a method's errors, or seconds, over those of another, on tables that `on` ran on."""
    return Claim(name, partial(errors, method, base, on, key), PUBLIC, texts=texts)


def of_tests(name: str, text: str, **names: str) -> Claim:
    """Returns a claim of shares of data sets without dependence that tests reject."""
    return Claim(name, partial(rejected, names), ("stats_published", "stats"), texts=(text,))


BOTH = ("exact", "255 bins")
CLAIMS = (
    Claim(
        "growing classes", partial(grown, {"exact": "scikit-learn"}), ("grow",), "grow",
        ("| {range} as fast as scikit-learn's random forest, ",),
    ),
    Claim(
        "growing classes, scikit-learn-intelex", partial(grown, {"exact": "scikit-learn-intelex"}), ("grow",),
        "grow", (", {range} as fast as scikit-learn-intelex's, ",),
    ),
    Claim(
        "growing on projections, treeple",
        partial(grown, {"sparse": "treeple, oblique", "patches to 8x8": "treeple, patches to 8x8"}),
        ("grow",), texts=("[grown {range} as fast]",),
    ),
    Claim(
        "growing one target", partial(targets, BOTH[:1], (False,)), ("targets",), "targets",
        ("| {range} as fast as scikit-learn's random forest; ",),
    ),
    Claim(
        "growing one target, 255 bins", partial(targets, BOTH[1:], (False,)), ("targets",), "targets",
        ("; {range} with 255 bins; ",),
    ),
    Claim(
        "growing several targets", partial(targets, BOTH, (True,)), ("targets",), "targets",
        ("; {range} with 10 or 100 targets; ",),
    ),
    Claim(
        "applying", applied, ("predict",), "predict",
        ("| {range} as fast as scikit-learn, the same trees |",),
    ),
    Claim(
        "torch.compile, forward", partial(compiled, "forward"),
        ("hinge_peers", "hinge_peers_avx2"), "hinge",
        ("`torch.compile` takes {range} (geometric mean {mean}) as long as a hinge layer forward",),
    ),
    Claim(
        "torch.compile, forward and backward", partial(compiled, "dense"),
        ("hinge_peers", "hinge_peers_avx2"), "hinge",
        (" and {range} (geometric mean {mean}) forward and backward",),
    ),
    of_errors(
        "errors", "hinge", "rf",
        "| {fewer} % fewer errors than a random forest, ",
        "On {n} of the 30 (geometric mean, three splits): `tabular.fit` {share}, ",
    ),
    of_errors("errors, LightGBM", "hinge", "lightgbm", ", {fewer} % fewer than LightGBM, "),
    of_errors("errors of XGBoost", "xgboost", "rf", ", XGBoost {share}, "),
    of_errors("errors of extra trees", "et", "rf", ", extra trees {share}, "),
    of_errors("errors of LightGBM", "lightgbm", "rf", ", LightGBM {share}, "),
    of_errors("errors of histogram boosting", "histgb", "rf", ", histogram boosting {share}. "),
    of_errors(
        "errors of CatBoost", "catboost", "rf",
        " CatBoost {share} on the {n} that it ran on, ",
        on="catboost",
    ),
    of_errors(
        "errors where CatBoost ran", "hinge", "rf",
        "that it ran on, `tabular.fit` {share}, ", on="catboost",
    ),
    of_errors(
        "errors, CatBoost", "hinge", "catboost", ", with fewer errors on {less} of them, ",
        on="catboost",
    ),
    of_errors(
        "time, CatBoost", "hinge", "catboost",
        ", CatBoost's errors in {share} of its time", " of them, in {share} of the time.",
        on="catboost", key="fit_seconds",
    ),
    of_tests(
        "tests, KMERF", "![KMERF rejects {least} and {most} %, ",
        narrow="KMERF 64 1 permutations", wide="KMERF 64 16 permutations",
    ),
    of_tests("tests, two forests", ", two forests of 400 trees {most} %, ", two="two forests 400 64 16 mse"),
    of_tests(
        "tests of hforest", ", the tests of hforest {most} %]",
        permutation="permutation 64 16 auc", split="split 64 16 auc", importance="importance 64 16 mdi_oob",
    ),
)  # fmt: skip


def rows_of(path: Path) -> Rows:
    found: Rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return found


def columns(claim: Claim) -> dict[str, Ratios]:
    """Returns the recorded ratios of a claim, by record, or processor and vector path."""
    if not claim.bench:
        rows = [row for name in claim.records for row in rows_of(RESULTS / f"{name}.json")]
        return {", ".join(claim.records): claim.ratios(rows)}
    found = {name: claim.ratios(rows_of(RESULTS / f"{name}.json")) for name in claim.records}
    path = RESULTS / "claims.json"
    for row in rows_of(path) if path.exists() else []:
        if row["claim"] == claim.name:
            found[f"{row['processor']}, {row['simd']}"] = row["ratios"]
    return found


def worst(of: dict[str, Ratios]) -> Ratios:
    """Returns the least ratio of each problem in any column."""
    found: Ratios = {}
    for ratios in of.values():
        for name, ratio in ratios.items():
            found[name] = min(ratio, found.get(name, ratio))
    return found


def figures(ratios: Ratios) -> dict[str, str]:
    """Returns what README prints of ratios."""
    low, high = min(ratios.values()), max(ratios.values())
    mean = performance.mean_of(list(ratios.values()))
    share = f"{mean:.2f}"
    return {
        "range": f"{low:.1f} to {high:.1f} times", "mean": f"{mean:.1f}", "n": str(len(ratios)),
        "share": share.removeprefix("0"), "fewer": f"{100 * (1 - float(share)):.0f}",
        "less": str(sum(ratio < 1 for ratio in ratios.values())), "least": f"{100 * low:.0f}",
        "most": f"{100 * high:.0f}",
    }  # fmt: skip


def printed(claim: Claim) -> list[str]:
    """Returns the texts that README must have by the records of a claim."""
    found = figures(worst(columns(claim)))
    return [text.format_map(found) for text in claim.texts]


def measured(name: str, simd: str, options: argparse.Namespace, folder: Path) -> Rows:
    """Runs a bench in a process of its own on one vector path; returns its rows, or none if it fails."""
    full, quick = BENCHES[name]
    script, *words = (quick if options.quick else full).split()
    if name == "grow" and options.data and not options.quick:
        words += ["--data", str(options.data)]
    path = folder / f"{name}_{simd}.json"
    # PyTorch reads its path from ATEN_CPU_CAPABILITY, and its compiler tries both lengths of vectors.
    environment = os.environ | {"HFOREST_SIMD": simd, "ATEN_CPU_CAPABILITY": simd}
    command = [sys.executable, str(BENCH / script), *words, "--json", str(path)]
    done = subprocess.run(command, env=environment, stdout=sys.stderr)
    return [] if done.returncode else rows_of(path)


def shown(claim: Claim) -> str:
    """Returns a line of the figures on the pages, and the columns of the record."""
    found = [f"{name} {figures(ratios)['range']}" for name, ratios in columns(claim).items()]
    text = ", ".join(found) if claim.bench else f"of {', '.join(claim.records)}, not measured again"
    said = dict.fromkeys(said.strip(" ,;|") for said in printed(claim))
    return f"{claim.name}: {' | '.join(said)} ({text})"


def main() -> int:
    """Runs the command."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--benches", nargs="+", choices=BENCHES, default=list(BENCHES))
    parser.add_argument("--data", type=Path, help="the folder of letter.npz, usps.npz and mnist.npz")
    parser.add_argument(
        "--records", action="store_true", help="prints what is recorded, and measures nothing"
    )
    parser.add_argument("--json", type=Path)
    options = options_of(parser, "--benches grow targets predict")
    print(machine_text())
    for claim in CLAIMS:
        print(shown(claim))
    if options.records:
        return 0
    need("-e '.[bench]'", "sklearn", *(["torch"] if "hinge" in options.benches else []))
    path, rows, below, failed = options.json, [], [], False
    said = {claim.name: figures(worst(columns(claim)))["range"] for claim in CLAIMS}
    if path and path.exists():
        rows = rows_of(path)
    known = machine.simd_paths()
    paths = [name for name in known if name.startswith("avx")] or [known[-1]]
    processor = machine_text().partition(",")[0]
    with tempfile.TemporaryDirectory() as folder:
        for bench, simd in itertools.product(options.benches, paths):
            of = measured(bench, simd, options, Path(folder))
            if not of:  # as where code that PyTorch has compiled ends the process
                print(f"{bench}, {simd}: the bench failed, and is left out", flush=True)
                failed = True
            for claim in CLAIMS:
                ratios = claim.ratios(of) if claim.bench == bench else {}
                if not ratios:  # of another bench, or the other library is not installed
                    continue
                now, least = figures(ratios)["range"], said[claim.name].split()[0]
                holds = float(now.split()[0]) >= float(least)
                below += [] if holds else [claim.name]
                verdict = "holds" if holds else "does not hold"
                print(
                    f"{claim.name}, {simd}: recorded {said[claim.name]}, in this run {now}: {verdict}",
                    flush=True,
                )
                key = {"claim": claim.name, "processor": processor, "simd": simd}
                rows = [row for row in rows if any(row[name] != key[name] for name in key)]
                rows.append(key | {"ratios": ratios})
            if path:
                record(path, rows, command="bench/claims.py --data DIR --json bench/results/claims.json")
    if below and not options.quick:
        print(
            f"below the pages: {'; '.join(dict.fromkeys(below))}; they print the worst column of the record"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
