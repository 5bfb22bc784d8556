"""Times of growing random, oblique and manifold forests, beside those of other libraries.

    python bench/grow.py [--data DIR] [--sets synthetic letter usps mnist] [--threads 1 2] [--rungs WORD ...]
        [--clock processor] [--json FILE]

Trees are grown to purity. Every forest's test error is printed beside its time; the bench ends with an error
if that of a random forest exceeds scikit-learn's by more than two points. Peers are those of forest_peers.py
that are installed; with --rungs only rungs run whose names contain one of the words. DIR holds letter.npz,
usps.npz and mnist.npz; sets without their file are left out.

After the sets the bench measures:

* the time per node with few and with many features, at equal numbers of candidates and non-zeros;
* rung "memory": the peak memory that growing a forest takes in addition to its input, in a separate process;
* rung "single trees": calls that each grow one tree on the same samples, beside one call for all trees;
* rung "wide": one tree and many on few samples of 20,000 columns, and extra trees, beside scikit-learn's;
* rung "views": trees on views (groups of columns), beside trees without groups;
* rung "max_leaf_nodes": forests of trees of 31 leaves, beside scikit-learn's and forests of whole trees.
"""

import argparse
import importlib.util
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import forest_peers
import numpy as np
from common import CLOCKS, COMPLETELY_RANDOM, add_clock, machine_text, options_of, record, sparse

import hforest
from hforest import growth, project, tree

SETS = ("synthetic", "letter", "usps", "mnist")
Data = tuple[Any, Any, Any, Any]


def synthetic() -> Data:
    """Returns ten classes of two clusters each in 20 of 100 columns, mixed; a fifth is for the test."""
    rng = np.random.default_rng(0)
    n, n_features, n_informative, n_classes = 25000, 100, 20, 10
    centre = rng.choice([-1.0, 1.0], (2 * n_classes, n_informative))
    cluster = rng.integers(0, 2 * n_classes, n)
    informative = centre[cluster] + rng.normal(size=(n, n_informative)) @ rng.uniform(
        -1, 1, (n_informative,) * 2
    )
    x = rng.normal(size=(n, n_features))
    x[:, rng.permutation(n_features)[:n_informative]] = informative
    x, y = x.astype(np.float32), (cluster % n_classes).astype(np.int32)
    return x[:20000], y[:20000], x[20000:], y[20000:]


def load(name: str, folder: Path | None) -> Data | None:
    """Returns training and test samples of a set, or None if its file does not exist."""
    if name == "synthetic":
        return synthetic()
    path = folder / f"{name}.npz" if folder else None
    if path is None or not path.exists():
        print(f"{name}: left out, {path or 'no --data'} is not there")
        return None
    file = np.load(path)
    if name == "letter":
        x, y = file["x"].astype(np.float32), file["y"].astype(np.int32)
        return x[:15000], y[:15000], x[15000:], y[15000:]
    parts = [file[key] for key in ("x_train", "y_train", "x_test", "y_test")]
    x, y, x_test, y_test = parts
    n = 10000 if name == "mnist" else len(x)
    return (
        x[:n].reshape(n, -1).astype(np.float32), y[:n].astype(np.int32),
        x_test.reshape(len(x_test), -1).astype(np.float32), y_test.astype(np.int32),
    )  # fmt: skip


def growers(name: str, data: Data, options: argparse.Namespace, threads: int) -> forest_peers.Growers:
    """Returns the calls to time; each grows a forest and returns a function from samples to classes."""
    x, y, _, _ = data
    side, patches = int(x.shape[1] ** 0.5), (2, 3, 8) if name in ("usps", "mnist") else ()

    def ours(max_bins: int | None = None, **settings: Any) -> Callable[[], forest_peers.Labels]:
        def call() -> forest_peers.Labels:
            samples = growth.samples(x, max_bins=max_bins)
            forest = growth.grow(samples, y, options.trees, rng=0, **settings)
            return lambda samples: tree.predict(forest, samples).argmax(axis=1)

        return call

    calls: forest_peers.Growers = {
        "exact": ours(),
        "binned": ours(max_bins=256),
        "extra": ours(splitter="random", bootstrap=False),
        "completely random": ours(**COMPLETELY_RANDOM),
        "sparse": ours(projections=project.sparse_distribution(x.shape[1])),
    }
    for size in patches:
        calls[f"patches to {size}x{size}"] = ours(
            projections=project.patch_distribution((side, side), patch_max=size)
        )
    calls |= forest_peers.growers(x, y, options.trees, threads, patches)
    if options.rungs is not None:
        calls = {label: call for label, call in calls.items() if any(part in label for part in options.rungs)}
    return calls


def least(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Returns the least processor time of each call, in seconds; calls are made in turn."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - begin)
    return best


def run(name: str, data: Data, options: argparse.Namespace, threads: int) -> list[dict[str, Any]]:
    """Measures every grower on one set, in turn, `repeats` times, and returns the minimum times."""
    _, _, x_test, y_test = data
    clock = CLOCKS[options.clock]
    calls = growers(name, data, options, threads)
    best: dict[str, float] = dict.fromkeys(calls, float("inf"))
    error: dict[str, float] = {}
    for _ in range(options.repeats):
        for label, call in calls.items():
            begin = clock()
            labels = call()
            best[label] = min(best[label], clock() - begin)
            error[label] = float((labels(x_test) != y_test).mean())
    rows: list[dict[str, Any]] = []
    for label in calls:
        if label in ("exact", "binned") and error[label] > error.get("scikit-learn", 1.0) + 0.02:
            raise SystemExit(f"{name}, {label}: error {error[label]:.4f} against {error['scikit-learn']:.4f}")
        against = {rival: best[rival] / best[label] for rival in rivals(label) if rival in best}
        row = {
            "set": name, "rung": label, "threads": threads, "trees": options.trees, "seconds": best[label],
            "against": against, "error": error[label],
        }  # fmt: skip
        rows.append(row)
        times = ", ".join(f"{ratio:.1f}x {rival}" for rival, ratio in against.items())
        print(
            f"{name:10} {label:28} {best[label]:8.2f} s  error {100 * error[label]:6.2f} %  {times}",
            flush=True,
        )
    return rows


def rivals(label: str) -> list[str]:
    """Returns peers that grow the same kind of forest as a rung."""
    if label in ("exact", "binned"):
        return ["scikit-learn", "scikit-learn-intelex", "ydf"]
    if label == "sparse":
        return ["treeple, oblique", "ydf, oblique", "scikit-learn"]
    if label.startswith("patches"):
        return [f"treeple, {label}"]
    return ["scikit-learn, extra trees"] if label in ("extra", "completely random") else []


def node_times(features: list[int], repeats: int) -> list[dict[str, Any]]:
    """Measures seconds per node of sparse projections and of differences, by number of features."""
    n, n_projections = 1000, 22
    rows: list[dict[str, Any]] = []
    hforest.set_num_threads(1)
    distributions = {"sparse": project.sparse_distribution, "probe": project.probe_distribution}
    for projection, make in distributions.items():
        data: dict[int, tuple[Any, Any]] = {}
        for f in features:
            rng = np.random.default_rng(0)
            data[f] = rng.normal(size=(n, f)).astype(np.float32), rng.integers(0, 2, n, np.int32)
        # The work before the first node cancels in the difference between two forests.
        best = {(f, m): (float("inf"), 0) for f in features for m in (4, 24)}
        for _ in range(repeats):
            for f, m in best:
                begin = time.perf_counter()
                forest = growth.grow(*data[f], m, projections=make(f), n_projections=n_projections, rng=0)
                best[f, m] = min(best[f, m], (time.perf_counter() - begin, len(forest.feature)))
        first = 0.0
        for f in features:
            (few_seconds, few), (seconds, many) = best[f, 4], best[f, 24]
            each = (seconds - few_seconds) / (many - few)
            first = first or each
            rows.append(
                {"rung": f"node, {projection}", "features": f, "seconds": each, "against_first": each / first}
            )
            print(
                f"node       {projection:10} {f:6d} features {1e6 * each:8.2f} us {each / first:6.2f}x",
                flush=True,
            )
    return rows


def peak_resident() -> int:
    """Returns the peak memory of this process in bytes; `ru_maxrss` includes that of the parent."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peak(path: str, trees: int, max_bins: int | None) -> int:
    """Prints the peak of bytes that growing a forest takes on top of a file's samples."""
    x, y = (np.load(Path(path) / name) for name in ("x.npy", "y.npy"))
    before = peak_resident()
    forest = growth.grow(growth.samples(x, max_bins=max_bins), y, trees, rng=0)
    print(f"{peak_resident() - before} {sum(a.nbytes for a in forest)} {x.nbytes}")
    return 0


def memory_of(name: str, x: Any, y: Any, trees: int, max_bins: int | None = None) -> dict[str, Any]:
    """Returns the peak memory of growing a forest in a separate process, without its samples."""
    with tempfile.TemporaryDirectory() as to:
        np.save(Path(to) / "x.npy", x)
        np.save(Path(to) / "y.npy", y)
        command = [sys.executable, __file__, "--peak-of", to, "--trees", str(trees)]
        command += [] if max_bins is None else ["--max-bins", str(max_bins)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    more, held, given = (int(word) for word in output.split())
    print(
        f"memory     {name}, samples of {given / 1e6:.0f} MB, {trees} trees of {held / 1e6:.0f} MB: "
        f"{more / 1e6:.0f} MB more at the peak, {more / given:.2f} of the samples",
        flush=True,
    )
    return {
        "rung": "memory", "set": name, "trees": trees, "input_bytes": given, "forest_bytes": held,
        "more_bytes": more,
    }  # fmt: skip


def memory(folder: Path | None) -> list[dict[str, Any]]:
    """Measures peak memory on a large table, exact and binned, and on MNIST's training images; float32."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1_000_000, 30)).astype(np.float32)
    y = (x[:, :3].sum(axis=1) > 0).astype(np.int32)
    rows = [
        memory_of("1,000,000 x 30, exact", x, y, 2),
        memory_of("1,000,000 x 30, 256 bins", x, y, 2, 256),
    ]
    path = folder / "mnist.npz" if folder else None
    if path is not None and path.exists():
        file = np.load(path)
        x = file["x_train"].reshape(len(file["x_train"]), -1).astype(np.float32)
        rows.append(memory_of("mnist, exact", x, file["y_train"].astype(np.int32), 100))
    return rows


def single_trees(repeats: int, n_trees: int = 30) -> list[dict[str, Any]]:
    """Measures seconds of calls that each grow a tree on the same `growth.samples`, and of one call for all.

    Forests of both are compared. Processor time, so that other programs on the machine count little.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20000, 30)).astype(np.float32)
    y = (x[:, :3].sum(axis=1) > 0).astype(np.int32)
    kinds: dict[str, tuple[Callable[..., tree.Forest], int | None]] = {
        "exact": (growth.grow, None),
        "binned": (growth.grow, 256),
        "sparse projections": (sparse, None),
    }
    rows: list[dict[str, Any]] = []
    for name, (grow, max_bins) in kinds.items():
        seconds: dict[str, float] = {}
        for _ in range(repeats):
            begin = time.process_time()
            together = grow(growth.samples(x, max_bins=max_bins), y, n_trees, rng=0)
            middle = time.process_time()
            samples = growth.samples(x, max_bins=max_bins)
            each = [grow(samples, y, 1, first_tree=m, rng=0) for m in range(n_trees)]
            end = time.process_time()
            if any((a != b).any() for a, b in zip(tree.join(each), together, strict=True)):
                raise SystemExit(f"{name}: trees grown one by one differ from those of one call")
            for label, value in (("together", middle - begin), ("each", end - middle)):
                seconds[label] = min(seconds.get(label, np.inf), value)
        ratio = seconds["each"] / seconds["together"]
        print(f"samples    {name:20} {n_trees} calls of a tree {ratio:5.2f}x one call", flush=True)
        rows.append({"rung": "single trees", "kind": name, "trees": n_trees, **seconds, "ratio": ratio})
    return rows


def views(repeats: int, n_trees: int = 50) -> list[dict[str, Any]]:
    """Measures processor time per tree on two views, a tenth and the rest of the columns.

    One group of all columns is compared with no groups.
    """
    rows: list[dict[str, Any]] = []
    for n, d, whole in ((64, 10_000, False), (1000, 200, False), (1000, 200, True), (5000, 100, False)):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(n, d)).astype(np.float32)
        y = (x[:, 0] + x[:, -1] + rng.normal(size=n) > 0).astype(np.int32)
        samples = growth.samples(np.rint(20 * x) if whole else x)
        groups, half = [range(d // 10), range(d // 10, d)], int(np.ceil(d**0.5 / 2))
        calls: dict[str, Callable[[], tree.Forest]] = {}

        def on(distribution: project.Distribution, s: Any = samples, y: Any = y, m: int = 2 * half) -> Any:
            return growth.grow(s, y, n_trees, projections=distribution, n_projections=m, rng=0)

        for name, base in (
            ("axis", project.axis_distribution(d)),
            ("sparse", project.sparse_distribution(d)),
        ):
            calls[name] = partial(on, base)
            calls[f"{name}, views"] = partial(on, project.grouped_distribution(base, groups, half))
            one = on(project.grouped_distribution(base, [range(d)], 2 * half))
            if any((a != b).any() for a, b in zip(one, calls[name](), strict=True)):
                raise SystemExit(f"{name}: one group of all columns grows other trees than no groups")
        calls["columns"] = partial(growth.grow, samples, y, n_trees, max_features=2 * half, rng=0)
        best = least(calls, repeats + 1)  # the first call prepares the samples
        for name, seconds in best.items():
            row = {"rung": "views", "kind": name, "samples": n, "features": d, "whole": whole}
            ratio = seconds / best["columns"]
            rows.append({**row, "candidates": 2 * half, "seconds": seconds / n_trees, "ratio": ratio})
            print(
                f"views      {n:5} x {d:6}{' whole' if whole else '':6} {name:14} "
                f"{1e3 * seconds / n_trees:7.3f} ms per tree {ratio:6.2f}x columns",
                flush=True,
            )
    return rows


def binned(x: Any, y: Any, trees: int) -> tree.Forest:
    """Grows a forest on at most 256 bins, which it makes."""
    return hforest.grow(growth.samples(x, max_bins=256), y, trees, rng=0)


def wide(repeats: int) -> list[dict[str, Any]]:
    """Measures processor time of best and random thresholds on wide and other tables, beside peers."""
    rows: list[dict[str, Any]] = []
    for n, d, trees in (
        (200, 20_000, 1),
        (200, 20_000, 100),
        (1000, 1000, 20),
        (5000, 20, 20),
        (20_000, 30, 20),
    ):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(n, d)).astype(np.float32)
        y = (x[:, :3].sum(axis=1) + rng.normal(size=n) / 2 > 0).astype(np.int32)
        calls: dict[str, Callable[[], object]] = {
            "exact": partial(hforest.grow, x, y, trees, rng=0),
            "binned": partial(binned, x, y, trees),
            "extra": partial(hforest.grow, x, y, trees, splitter="random", bootstrap=False, rng=0),
        }
        peers = forest_peers.growers(x, y, trees, 1, ())
        calls |= {
            name: peers[name] for name in ("scikit-learn", "scikit-learn, extra trees") if name in peers
        }
        best = least(calls, repeats)
        for name, seconds in best.items():
            row = {"rung": "wide", "kind": name, "samples": n, "features": d, "trees": trees}
            rows.append({**row, "seconds": seconds})
            print(f"wide       {n:6} x {d:6} {trees:4} trees {name:26} {1e3 * seconds:9.2f} ms", flush=True)
    return rows


def few_leaves(repeats: int, n_trees: int = 100) -> list[dict[str, Any]]:
    """Measures processor time of forests whose trees have 31 leaves, beside scikit-learn's and whole trees.

    The errors of scikit-learn's forests and of ours, exact, may differ by a twentieth.
    """
    from sklearn import ensemble

    rng = np.random.default_rng(0)
    x = rng.normal(size=(25_000, 30)).astype(np.float32)
    target = x[:, 0] * x[:, 1] + x[:, 2] + rng.normal(size=len(x))
    rows: list[dict[str, Any]] = []
    for task, y in (("classification", (target > 0) * 1), ("regression", target)):
        kind = getattr(
            ensemble, "RandomForestClassifier" if task == "classification" else "RandomForestRegressor"
        )
        for words, share in (("sqrt", "sqrt"), ("all", None)):
            settings: dict[str, Any] = {"task": task, "max_features": share, "rng": 0}
            peer = kind(n_trees, max_leaf_nodes=31, max_features=share, n_jobs=1, random_state=0)

            def ours(
                bins: int | None, leaves: int | None, y: Any = y, settings: Any = settings
            ) -> tree.Forest:
                samples = growth.samples(x[:20_000], max_bins=bins)
                return hforest.grow(samples, y[:20_000], n_trees, max_leaf_nodes=leaves, **settings)

            calls: dict[str, Callable[[], Any]] = {
                "scikit-learn": partial(peer.fit, x[:20_000], y[:20_000]),
                "exact": partial(ours, None, 31),
                "255 bins": partial(ours, 255, 31),
                "exact, whole": partial(ours, None, None),
                "255 bins, whole": partial(ours, 255, None),
            }
            best = least(calls, repeats)
            p, q = tree.predict(ours(None, 31), x[20_000:]), peer.predict(x[20_000:])
            guess = p[:, 0] if task == "regression" else p.argmax(axis=1)
            errors = [float(np.mean((a - y[20_000:]) ** 2)) for a in (guess, q)]
            if not 0.95 < errors[0] / errors[1] < 1.05:
                raise SystemExit(f"max_leaf_nodes, {task}: expected about equal errors, got {errors}")
            for name, seconds in best.items():
                row = {"rung": "max_leaf_nodes", "task": task, "max_features": words, "kind": name}
                ratio = best["scikit-learn"] / seconds
                rows.append({**row, "trees": n_trees, "seconds": seconds, "ratio": ratio})
                print(
                    f"31 leaves  {task:14} {words:4} {n_trees:4} trees {name:16} {seconds:8.3f} s "
                    f"{ratio:6.1f}x scikit-learn's speed",
                    flush=True,
                )
    return rows


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--features", type=int, nargs="*", default=[500, 50000])
    parser.add_argument("--peak-of", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--max-bins", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="*", choices=SETS, default=list(SETS))
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rungs", nargs="+", metavar="WORD")
    parser.add_argument("--json", metavar="FILE")
    add_clock(parser, "wall")
    options = options_of(parser, "--sets synthetic --trees 3 --repeats 1 --features 50 --rungs exact")
    if options.peak_of:
        return peak(options.peak_of, options.trees, options.max_bins)
    print(machine_text())
    rows: list[dict[str, Any]] = []
    for name in options.sets:
        data = load(name, options.data)
        for threads in options.threads if data is not None else ():
            hforest.set_num_threads(threads)
            assert data is not None
            rows += run(name, data, options, threads)
    if options.features:
        rows += node_times(options.features, options.repeats)
    if options.rungs is None or "memory" in options.rungs:
        rows += memory(options.data)
    if options.rungs is None or "single trees" in options.rungs:
        rows += single_trees(options.repeats)
    if options.rungs is None or "views" in options.rungs:
        rows += views(options.repeats)
    if options.rungs is None or "wide" in options.rungs:
        rows += wide(options.repeats)
    if (options.rungs is None or "max_leaf_nodes" in options.rungs) and importlib.util.find_spec("sklearn"):
        hforest.set_num_threads(1)
        rows += few_leaves(options.repeats)
    if options.json:
        record(options.json, rows, command=" ".join(sys.argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
