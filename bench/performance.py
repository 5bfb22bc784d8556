"""Prints tables from the records that the benches wrote: those of docs/performance-tables.md, and more.

    python bench/performance.py [TABLE ...]

The page has the commands that make the records anew. Nothing is measured here.
"""

import argparse
import json
import math
from collections.abc import Callable
from typing import Any

from common import RESULTS

KINDS = ("tree", "fern")
Rows = list[dict[str, Any]]


def rows(name: str) -> Rows:
    """Returns the rows of a record."""
    found: Rows = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return found


def only(of: Rows, **key: Any) -> Rows:
    """Returns the rows with these values."""
    return [row for row in of if all(row.get(name) == value for name, value in key.items())]


def markdown(head: list[str], body: list[list[str]]) -> str:
    """Returns a Markdown table."""
    lines = [f"| {' | '.join(line)} |" for line in (head, *body)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def significant(value: float) -> str:
    """Returns a number as text: three digits from 100 on, below one decimal."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def training() -> str:
    """A training step: milliseconds of the forest and of the whole network."""
    of = [row for row in rows("training") if "network_ms" in row and row["threads"] == 1]
    body = []
    for rung in ("fused", "rows", "dense", "numpy"):
        pair = [only(of, kind=kind, rung=rung)[0] for kind in KINDS]
        body.append([rung, *(f"{row['forest_ms']:.1f}, {row['network_ms']:.1f}" for row in pair)])
    return markdown(["step", "trees: forest, network", "ferns: forest, network"], body)


def depth() -> str:
    """The fused training step by depth: milliseconds."""
    of = [row for row in rows("training") if "depth" in row]
    depths = [row["depth"] for row in only(of, kind="tree")]
    body = [[f"{k}s", *(f"{only(of, kind=k, depth=d)[0]['forest_ms']:.1f}" for d in depths)] for k in KINDS]
    body.append(["leaf weights, millions", *(f"{1000 * 10 * 2**d / 1e6:.1f}" for d in depths)])
    return markdown(["depth", *map(str, depths)], body)


def shapes(of: Rows) -> list[tuple[list[int], str]]:
    """Returns shapes in the order of bench/hinge.py, and kinds."""
    order = ["1000,100,100,10,10", "53,5120,1000,10,10", "65536,100,100,10,10", "10000,784,1000,10,1"]
    order.append("4096,256,512,7,1")
    known = {(",".join(map(str, row["shape"])), row["kind"]): row["shape"] for row in of if "shape" in row}
    return [(known[text, kind], kind) for text in order for kind in KINDS if (text, kind) in known]


def kernels() -> str:
    """Hinge forests: nanoseconds per sample and tree."""
    of = rows("hinge")
    body = []
    for shape, kind in shapes(of):

        def ns(job: str, rung: str, threads: int = 1, shape: Any = shape, kind: str = kind) -> float:
            row = only(of, shape=shape, kind=kind, job=job, rung=rung, threads=threads)[0]
            return float(row["ns_per_pair"])

        plain, ours = ns("traverse", "plain"), ns("traverse", "hforest")
        both = ns("forward+backward", "hforest sparse")
        cells = [f"{plain:.1f}", f"{ours:.1f} ({plain / ours:.1f}x)", f"{ns('forward', 'hforest'):.1f}"]
        cells += [f"{ns(job, 'hforest'):.1f}" for job in ("backward", "backward sparse")]
        two = [("traverse", "hforest"), ("forward", "hforest"), ("forward+backward", "hforest sparse")]
        cells += [f"{both:.1f}", f"{both / plain:.2f}", ", ".join(f"{ns(*job, 2):.1f}" for job in two)]
        numpy = only(of, shape=shape, kind=kind, job="traverse", rung="numpy")
        slow = significant(numpy[0]["ns_per_pair"]) if numpy else "–"
        body.append([",".join(map(str, shape)), f"{kind}s", slow, *cells])
    head = [
        "shape",
        "kind",
        "NumPy traverse",
        "plain traverse",
        "traverse",
        "forward",
        "backward, dense",
        "backward, sparse",
    ]
    head += ["forward + sparse backward", "over plain traverse"]
    return markdown([*head, "two threads: traverse, forward, forward + sparse backward"], body)


JOBS_OF_PEERS = {
    "forward": ("forward", "hforest"),
    "dense": ("forward+backward", "hforest"),
    "sparse": ("forward+backward", "hforest sparse"),
    "layer": ("forward+backward", "hforest.torch"),
}
"""Jobs and rungs of hforest that are compared with peers, by the word for them on pages."""


def fastest(row: dict[str, Any]) -> str:
    """Returns the fastest formulation of a peer; a row that was timed with another one is refused."""
    candidates = row["candidates"]
    best: str = min(candidates, key=candidates.__getitem__)
    if row["formulation"] != best:
        raise ValueError(
            f"{row['shape']}, {row['kind']}, {row['job']}, {row['rung']}: expected the fastest formulation "
            f"{best!r}, got {row['formulation']!r}; measure the peer again with bench/hinge.py --peers"
        )
    return best


def over_peers(of: Rows, library: str = "torch.compile") -> dict[str, list[float]]:
    """Returns times of a library over those of hforest by the word of the job, in the order of `shapes`."""
    found: dict[str, list[float]] = {}
    for shape, kind in shapes(of):
        row = {(a["job"], a["rung"]): a for a in only(of, shape=shape, kind=kind, threads=1)}
        for word, (job, rung) in JOBS_OF_PEERS.items():
            peer = row[job, library]
            fastest(peer)
            found.setdefault(word, []).append(peer["ns_per_pair"] / row[job, rung]["ns_per_pair"])
    return found


def mean_of(ratios: list[float]) -> float:
    """Returns the geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def peers() -> str:
    """Hinge forests beside the fastest formulation of torch.compile and JAX, measured in one run."""
    of = rows("hinge_peers")
    # A library without candidates on the record has no ratio, for it is not known to be at its fastest.
    known = {row["rung"] for row in of if "candidates" in row}
    over = {a: over_peers(of, a) for a in ("torch.compile", "jax.jit") if a in known}
    words = {word: job for word, job in JOBS_OF_PEERS.items() if any(row.get("rung") == job[1] for row in of)}
    body = []
    for i, (shape, kind) in enumerate(shapes(of)):
        found = {(row["job"], row["rung"]): row for row in only(of, shape=shape, kind=kind, threads=1)}
        cells = [", ".join(significant(found[job]["ns_per_pair"]) for job in words.values())]
        cells += [", ".join(f"{ratios[i]:.1f}x" for ratios in a.values()) for a in over.values()]
        body.append([",".join(map(str, shape)), f"{kind}s", *cells])
    head = ["shape", "kind", f"hforest: {', '.join(words)}", *(f"{a} over hforest" for a in over)]
    if "torch.compile" in over:
        means = [", ".join(f"{mean_of(ratios):.1f}x" for ratios in a.values()) for a in over.values()]
        body.append(["geometric mean", "", "", *means])
    return markdown(head, body)


def formulations() -> str:
    """The fastest formulations of torch.compile in the table of peers."""
    of = rows("hinge_peers")
    body = []
    for shape, kind in shapes(of):
        found = {row["job"]: row for row in only(of, shape=shape, kind=kind, threads=1, rung="torch.compile")}
        names = (fastest(found[job]) for job in ("forward", "forward+backward"))
        body.append([",".join(map(str, shape)), f"{kind}s", *names])
    return markdown(["shape", "kind", "forward", "forward and backward"], body)


SETS = ("synthetic", "letter", "usps", "mnist")
OWN = ("exact", "binned", "extra", "completely random", "sparse", "patches to 8x8")
OTHERS = ("scikit-learn", "scikit-learn, extra trees", "scikit-learn-intelex")


def of_part(of: Rows, word: str) -> Rows:
    """Returns the rows of one part of a record made in parts, or all rows of another record."""
    return [row for row in of if word in row.get("part", word)]


def grown(rung: str, name: str) -> dict[str, Any] | None:
    """Returns the row of a forest beside its peers; forests on projections were grown beside treeple."""
    found = of_part(only(rows("grow"), rung=rung, set=name, threads=1), "all four")
    return found[0] if found else None


def growing() -> str:
    """Growing 100 trees: seconds / test error in percent."""
    body = []
    for rung in (*OWN, *OTHERS):
        found = [grown(rung, name) for name in SETS]
        text = ["–" if row is None else f"{row['seconds']:.2f} / {100 * row['error']:.2f}" for row in found]
        body.append([rung, *text])
    return markdown(["", *SETS], body)


def ratios() -> str:
    """Growing: how many times as fast as other libraries, each in its run."""
    of = rows("grow")
    pairs = [("exact", "scikit-learn"), ("exact", "scikit-learn-intelex"), ("exact", "ydf")]
    pairs += [("binned", "scikit-learn"), ("binned", "scikit-learn-intelex")]
    pairs += [("extra", "scikit-learn, extra trees"), ("sparse", "ydf, oblique")]
    pairs += [("sparse", "treeple, oblique")]
    pairs += [("patches to 8x8", "treeple, patches to 8x8")]
    body = []
    for rung, peer in pairs:
        cells = []
        for name in SETS:
            own = [row for row in only(of, rung=rung, set=name, threads=1) if peer in row["against"]]
            other = [
                row for row in only(of, rung=peer, set=name) if own and row.get("part") == own[0].get("part")
            ]
            error = f" (error {100 * other[0]['error']:.2f})" if own and peer.startswith("treeple") else ""
            cells.append(f"{own[0]['against'][peer]:.1f}{error}" if own else "–")
        body.append([f"{rung}: {peer}", *cells])
    return markdown(["how many times as fast as", *SETS], body)


def paths() -> str:
    """Growing on each vector path: how many times as fast as scikit-learn."""
    of = rows("grow_paths")
    body = []
    for rung in ("exact", "binned", "sparse"):
        for path in ("avx512", "avx2", "plain"):
            found = [only(of, rung=rung, set=name, simd=path)[0] for name in SETS]
            cells = [f"{row['against']['scikit-learn']:.1f} ({row['seconds']:.2f} s)" for row in found]
            body.append([f"{rung}, {path}", *cells])
    return markdown(["", *SETS], body)


def compared() -> str:
    """Times of the new code divided by those of the old code."""
    of = rows("compare")
    body = []
    for bench in dict.fromkeys(row["bench"] for row in of):
        ratios = [row["ratio"] for row in of if row["bench"] == bench]
        mean = mean_of(ratios)
        slowest = max((row for row in of if row["bench"] == bench), key=lambda row: row["ratio"])
        body.append([bench, f"{mean:.2f}", f"{max(ratios):.2f}: {slowest['row']}"])
    return markdown(["bench", "geometric mean", "largest"], body)


def threads() -> str:
    """Growing on MNIST with one thread and with two."""
    of = of_part(only(rows("grow"), set="mnist"), "MNIST with one thread and two")
    body = []
    for rung in (rung for rung in OWN if only(of, rung=rung)):
        one, two = (only(of, rung=rung, threads=n)[0]["seconds"] for n in (1, 2))
        body.append([rung, f"{one:.2f}", f"{two:.2f}", f"{one / two:.1f}"])
    return markdown(["MNIST", "one thread, s", "two threads, s", "ratio"], body)


def nodes() -> str:
    """A node with few and with many features: microseconds."""
    body = []
    for rung in ("node, sparse", "node, probe"):
        few, many = (only(rows("grow"), rung=rung, features=n) for n in (500, 50_000))
        cells = [", ".join(f"{1e6 * row['seconds']:.1f}" for row in part) for part in (few, many)]
        more = ", ".join(f"{row['against_first']:.1f}" for row in many)
        body.append([rung.removeprefix("node, "), *cells, more])
    return markdown(["projections", "500 features, us", "50 000 features, us", "ratio"], body)


def memory() -> str:
    """Growing 100 trees: peak memory in addition to the input."""
    body = []
    for row in only(rows("grow"), rung="memory"):
        sizes = [row[name] for name in ("input_bytes", "forest_bytes", "more_bytes")]
        body.append([*(f"{size / 1e6:.0f} MB" for size in sizes), f"{sizes[2] / sizes[0]:.1f}"])
    return markdown(["input", "forest", "most, on top of the input", "over the input"], body)


def large() -> str:
    """Growing a tree on large tables, two threads: seconds, memory in units of the table's, error."""
    of = only(rows("large"), trees=1, threads=2)
    body = []
    for forest in dict.fromkeys(row["forest"] for row in of):
        cells = []
        for table in ("clusters", "skewed"):
            for n in (1_000_000, 5_000_000):
                row = next(iter(only(of, table=table, forest=forest, rows=n)), None)
                cells.append("–")
                if row:
                    cells[-1] = f"{row['seconds']:.2f} s, {row['more_bytes'] / row['input_bytes']:.1f}x"
            error = only(of, table=table, forest=forest, rows=1_000_000)[0]["error"]
            cells.append(f"{100 * error:.2f}")
        body.append([forest, *cells])
    parts = [f"{table}: 1 million rows" for table in ("clusters", "skewed")]
    return markdown(["", parts[0], "5 million", "error, %", parts[1], "5 million", "error, %"], body)


FORESTS = {
    (20000, 100, 100, 10, 10): "100 features, 10 classes, depth 10",
    (20000, 100, 100, 10, 2): "100 features, 2 classes, depth 10",
    (20000, 100, 100, 0, 10): "100 features, 10 classes, to purity",
    (20000, 100, 100, 0, 2): "100 features, 2 classes, to purity",
    (5000, 16, 100, 0, 26): "letter's shape, 26 classes, to purity",
}
PREDICTORS = {
    "hforest": "hforest",
    "sklearn": "scikit-learn",
    "onnx": "onnxruntime",
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
}


def applying() -> str:
    """Applying forests on one thread: thousands of rows per second, microseconds per single row."""
    body = []
    for shape, label in FORESTS.items():
        cells = []
        for rung in PREDICTORS:
            of = only(rows("predict"), rung=rung, threads=1)
            found = {row["rows"] == 1: row for row in of if tuple(row["shape"]) == shape}
            cells.append("–")
            if found:
                many, one = (found[single] for single in (False, True))
                ratio = "" if rung == "hforest" else f" ({many['ratio']:.1f}x)"
                us = significant(1e6 * one["seconds_per_row"])
                cells[-1] = f"{1e-3 / many['seconds_per_row']:.0f}{ratio}, {us}"
        body.append([label, *cells])
    return markdown(["", *PREDICTORS.values()], body)


def cascades() -> str:
    """Cascades: seconds to grow two levels and classify the test samples, accuracy in percent."""
    of = rows("cascades")
    body = []
    for name in dict.fromkeys(row["data"] for row in of):
        ours, theirs = (only(of, data=name, rung=rung)[0] for rung in ("hforest", "sklearn"))
        cells = [f"{row['seconds']:.1f}, {100 * row['accuracy']:.2f}" for row in (ours, theirs)]
        samples = f"{ours['samples']:,}".replace(",", " ")
        body.append([f"{name}, {samples} samples", *cells, f"{theirs['seconds'] / ours['seconds']:.1f}"])
    return markdown(["data", "hforest", "scikit-learn", "scikit-learn over hforest"], body)


TABLES: dict[str, Callable[[], str]] = {
    "training": training,
    "depth": depth,
    "kernels": kernels,
    "peers": peers,
    "formulations": formulations,
    "growing": growing,
    "ratios": ratios,
    "paths": paths,
    "compared": compared,
    "threads": threads,
    "nodes": nodes,
    "memory": memory,
    "large": large,
    "applying": applying,
    "cascades": cascades,
}


ON_PAGE = ("training", "peers", "growing", "large", "applying")
"""The tables of docs/performance-tables.md, by name."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    chosen = parser.parse_args().tables or list(TABLES)
    unknown = set(chosen) - set(TABLES)
    if unknown:
        parser.error(f"TABLE: expected some of {', '.join(TABLES)}, got {', '.join(sorted(unknown))}")
    for name in chosen:
        print(f"\n{name}: {TABLES[name].__doc__}\n\n{TABLES[name]()}")


if __name__ == "__main__":
    main()
