"""Labels of pixels by forests on windows (Norouzi et al. 2015, section 6.2), on CamVid instead of faces.

    python lab/paper/co2_pixels.py --data DIR                 # the paper's sizes: days of one core
    python lab/paper/co2_pixels.py --data DIR --every 6 --held-every 16 --trees 4 --pixels 16000 --most 1
    python lab/paper/co2_pixels.py

Forests learn from training images. Each candidate is evaluated on validation images, with several powers of a
factor that corrects for the shares of the classes. For each method and each set of channels, the candidate
with the highest class-average Jaccard score is evaluated on test images, with every seed. Without --data the
table of the record is printed. Started again, the script continues with the missing runs; rows contain all
their settings.

raw         red, green and blue
channels    these, opponent colours and their means over boxes, gradients by orientation, and the position of
            the pixel
context     these, and the shares that a first forest predicts (auto-context); those of training images are
            predicted by a forest grown on the other half of these images
context 2   as context, with the shares that a forest of context predicts

The images are 120 x 160. Windows of 31 x 31 that read every third or fifth pixel have a "step". Unlike in the
paper, pixels at the borders have windows, too: images are mirrored there.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import co2_data
import numpy as np
from common import RESULTS

import hforest
from hforest import co2, images, project

VOID, N_CLASSES = 11, 11
BOXES = (5, 11, 21)
POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
BEFORE = {"context": "channels", "context 2": "context"}
"""The channels that the forests of label maps read, by the channels that contain these maps."""
CHANNELS = ("raw", "channels", *BEFORE)
DEPTHS, TREES = (5, 10, 15, 20, 30), (1, 2, 4, 8, 16, 32)
"""Points of the curves: limits of the depth of 16 trees, and numbers of trees of depth 20."""
RESAMPLES = 1000
"""Number of bootstrap samples of the images, for intervals."""
SCORES = ("mean_jaccard", "mean_recall", "pixels")

GROWERS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "random forest": (hforest.grow, [{}, {"min_samples_leaf": 5}]),
    "two-probe": (
        hforest.grow,
        [{"single_share": 0.0}, {"single_share": 0.5}, {"single_share": 0.5, "min_samples_leaf": 5}],
    ),
    "SPORF": (hforest.grow, [{}, {"min_samples_leaf": 5}]),
    "patches": (hforest.grow, [{}, {"min_samples_leaf": 5}]),
    "CO2": (
        co2.grow,
        [
            {"nu": nu, "lr": lr, "min_samples_leaf": 5}
            for nu, lr in ((4.0, 0.1), (1.0, 0.1), (4.0, 0.01), (4.0, 0.003), (10.0, 0.01), (10.0, 0.003))
        ],
    ),
}
"""The function that grows, and the settings to choose from, by method."""
WINDOWS = {"raw": [(15, 1), (31, 3)], "channels": [(31, 5)],
           "context": [(31, 5), (61, 10), (61, 6)], "context 2": [(31, 5), (61, 10)]}  # fmt: skip
"""Window and step."""


def settings_of(channels: str, method: str) -> list[dict[str, Any]]:
    """Returns settings to choose from; with label maps those of larger leaves, which were better."""
    return [a for a in GROWERS[method][1] if channels not in BEFORE or "min_samples_leaf" in a]


def candidates(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the settings that are compared on validation images, without trees, pixels and seed."""
    return [
        {"channels": channels, "method": method, "window": window, "step": step, "normalize": normalize,
         "settings": {"max_depth": args.depth, **settings}}
        for channels in args.channels
        for method in args.methods
        for window, step in WINDOWS[channels]
        if window in args.windows
        for settings in settings_of(channels, method)[: args.most]
        for normalize in ((False, True) if args.normalize and channels == "raw" else (False,))
    ]  # fmt: skip


class Data:
    """The images with their channels, made when they are first read."""

    def __init__(self, folder: Path, every: int, held_every: int) -> None:
        with np.load(folder / "camvid.npz") as archive:
            steps = {"train": every, "val": held_every, "test": held_every}
            self.x = {part: archive[f"x_{part}"][::step].astype(np.float32) for part, step in steps.items()}
            self.y = {part: archive[f"y_{part}"][::step] for part, step in steps.items()}
        self.wide: dict[str, np.ndarray] = {}

    def of(self, part: str, channels: str) -> np.ndarray:
        """Returns images of one part with their channels."""
        if channels == "raw":
            return self.x[part]
        if part not in self.wide:
            x, colours = self.x[part], images.opponent(self.x[part])
            more = (colours, images.boxes(colours, BOXES), images.gradients(x), images.coordinates(x))
            self.wide[part] = np.concatenate([x, *more], axis=-1)
        return self.wide[part]


def fit(x: np.ndarray, y: np.ndarray, run: dict[str, Any]) -> images.Model:
    """Grows the forest that a row describes."""
    grow, n_side = GROWERS[run["method"]][0], (run["window"] - 1) // run["step"] + 1
    settings = dict(run["settings"])
    shape = (n_side, n_side, x.shape[-1])
    n_features = math.prod(shape)
    if run["method"] == "patches":
        settings["projections"] = project.patch_distribution(shape, patch_max=3, channels=True)
    elif run["method"] == "SPORF":
        settings["projections"] = project.sparse_distribution(n_features)
    elif run["method"] == "two-probe":
        share = settings.pop("single_share")
        settings["projections"] = project.probe_distribution(n_features, share)
    return images.fit(
        x, y, partial(grow, **settings), window=run["window"], step=run["step"], normalize=run["normalize"],
        n_trees=run["trees"], n_pixels=run["pixels"], n_classes=N_CLASSES, void=VOID,
        max_memory=run["memory"], rng=run["seed"],
    )  # fmt: skip


class Maps:
    """Channels and label maps of images, by forests of one method and seed; maps are made when first read."""

    def __init__(self, data: Data, chosen: dict[str, dict[str, Any]]) -> None:
        self.data, self.chosen = data, chosen
        self.known: dict[tuple[str, str], Any] = {}

    def of(self, part: str, channels: str) -> np.ndarray:
        """Returns images of one part with their channels."""
        if channels not in BEFORE:
            return self.data.of(part, channels)
        if (part, channels) not in self.known:
            self.known[part, channels] = self.shares(part, BEFORE[channels])
        return np.concatenate([self.data.of(part, "channels"), self.known[part, channels]], axis=-1)

    def shares(self, part: str, channels: str) -> np.ndarray:
        """Shares of a forest that reads these channels: for training images, of the other half's."""
        run, x, y = self.chosen[channels], self.of("train", channels), self.data.y["train"]
        if part == "train":
            halves = [fit(x[i::2], y[i::2], run) for i in range(2)]
            found = np.empty((*y.shape, N_CLASSES), np.float32)
            for i in range(2):
                found[i::2] = images.predict(halves[1 - i], x[i::2], weight_back=run["power"])
            return found
        if ("model", channels) not in self.known:
            self.known["model", channels] = fit(x, y, run)
        return images.predict(
            self.known["model", channels], self.of(part, channels), weight_back=run["power"]
        )


def judge(
    shares_of: Callable[[np.ndarray], np.ndarray],
    x: Any,
    y: np.ndarray,
    factor: np.ndarray,
    powers: tuple[float, ...],
) -> dict[str, Any]:
    """Returns scores by power of a factor of the classes, seconds per image, and counts for one power.

    The counts are the confusion matrix of each image, its numbers in rows from left to right.
    """
    counts = np.zeros((len(powers), len(x), N_CLASSES, N_CLASSES), np.int64)
    begin = time.process_time()
    for i, (image, labels) in enumerate(zip(x, y, strict=True)):
        shares = shares_of(image)
        for of, power in zip(counts, powers, strict=True):
            label = (shares * factor**-power).argmax(axis=-1)
            of[i] = images.confusion(labels, label, N_CLASSES, void=VOID)
    found: dict[str, Any] = {"seconds_of_image": (time.process_time() - begin) / len(x), "scores": []}
    for of, power in zip(counts, powers, strict=True):
        score = images.scores(of.sum(axis=0))
        jaccard = [None if np.isnan(a) else float(a) for a in score.jaccard]
        found["scores"].append(
            {"power": power, **{name: getattr(score, name) for name in SCORES}, "jaccard": jaccard}
        )
    if len(powers) == 1:
        found["counts"] = [" ".join(map(str, of.ravel())) for of in counts[0]]
    return found


def judge_forest(
    model: images.Model, x: np.ndarray, y: np.ndarray, powers: tuple[float, ...]
) -> dict[str, Any]:
    """Returns the result of `judge` for a forest."""
    factor = np.where(model.class_factor > 0, model.class_factor, np.inf)
    return judge(lambda image: images.predict(model, image[None], weight_back=0.0)[0], x, y, factor, powers)


def best(rows: list[dict[str, Any]], **key: Any) -> dict[str, Any]:
    """Returns the row with the highest Jaccard score on validation images, and its power; {} without rows."""
    of = [row for row in rows if row["part"] == "val" and key.items() <= row.items()]
    found = [(score["mean_jaccard"], -i, row, score["power"])
             for i, row in enumerate(of) for score in row["scores"]]  # fmt: skip
    if not found:
        return {}
    _, _, row, power = max(found, key=lambda item: item[:2])
    return {**row, "power": power}


def resampled(of: list[dict[str, Any]]) -> np.ndarray:
    """Returns Jaccard scores over bootstrap samples of the images, (n,): means over rows (seeds).

    The samples are the same in every call, so differences of two results are of the same images.
    """
    rows = [np.array([line.split() for line in row["counts"]], np.int64) for row in of]
    n_images = len(rows[0])
    drawn = np.random.default_rng(0).multinomial(n_images, [1 / n_images] * n_images, RESAMPLES)
    counts = np.stack([drawn @ row for row in rows]).reshape(len(rows), RESAMPLES, N_CLASSES, N_CLASSES)
    return np.array([[images.scores(a).mean_jaccard for a in of_row] for of_row in counts]).mean(axis=0)


def interval(values: np.ndarray) -> str:
    """Returns the interval of the middle 95 %, in percent."""
    low, high = 100 * np.quantile(values, [0.025, 0.975])
    return f"{low:.1f} to {high:.1f}"


def cells(of: list[dict[str, Any]], digits: int = 2) -> list[str]:
    """Returns test scores in percent, means and deviations over the seeds of one method, and median seconds.

    Between them the interval over images of the seeds that have counts.
    """
    found = []
    for name in SCORES:
        values = [100 * row["scores"][0][name] for row in of]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        found.append(f"{statistics.mean(values):.1f}{spread}")
    counted = [row for row in of if "counts" in row]
    found.insert(1, interval(resampled(counted)) if counted else "")
    seconds = [statistics.median(row[name] for row in of) for name in ("seconds", "seconds_of_image")]
    return [*found, f"{seconds[0]:.0f}", f"{seconds[1]:.{digits}f}"]


def headed(*names: str) -> list[str]:
    """Returns the first lines of a table whose last columns are `cells`."""
    scores = (
        "class-average Jaccard",
        "95 % over images",
        "class average",
        "share of pixels",
        "seconds to fit",
        "seconds per image",
    )
    head = (*names, *scores)
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]


def size_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Returns window, step, windows per tree, and numbers of trees, of which the last may be None."""
    return row["window"], row["step"], row["pixels"], row["trees"], row.get("trees_of_maps")


def table(rows: list[dict[str, Any]]) -> str:
    """Returns test scores of forests, a line for each method, channels, window and number of trees.

    Beside them the Jaccard score of seed 0 on validation images.
    """
    lines = headed("channels", "forest", "window", "per tree", "trees", "Jaccard, validation", "seeds")
    for channels in CHANNELS:
        for method in GROWERS:
            key = {"part": "test", "channels": channels, "method": method}
            of = [row for row in rows if key.items() <= row.items()]
            for size in dict.fromkeys(map(size_of, of)):
                group = [row for row in of if size_of(row) == size]
                window, step, pixels, trees, _ = size
                names = ("channels", "method", "settings", "every", "held_every")
                val = best([row for row in rows if size_of(row) == size], **{a: group[0][a] for a in names})
                of_val = max(score["mean_jaccard"] for score in val["scores"])
                read = (
                    f"{window}, step {step}",
                    f"{pixels:,}",
                    f"{trees}",
                    f"{100 * of_val:.1f}",
                    f"{len(group)}",
                )
                lines.append(f"| {' | '.join((channels, method, *read, *cells(group)))} |")
    return "\n".join(lines)


PAIRS = (
    *((("raw", "random forest"), ("raw", method)) for method in ("two-probe", "SPORF", "patches", "CO2")),
    (("raw", "two-probe"), ("raw", "CO2")),
    *((("channels", method), ("raw", method)) for method in ("random forest", "patches")),
    *((("context", method), ("channels", method)) for method in ("random forest", "patches")),
    (("context 2", "patches"), ("context", "patches")),
)
"""Channels and forest, and what they are compared with."""


def differences_table(rows: list[dict[str, Any]]) -> str:
    """Returns differences of Jaccard scores in points, with intervals over images, for common seeds.

    Forests of equally many trees are compared; of several windows, the one that was chosen last.
    """
    lines = ["| forest | minus | trees | seeds | Jaccard | 95 % over images |", "|---" * 6 + "|"]
    counted = [row for row in rows if row["part"] == "test" and "counts" in row]
    for trees in sorted({row["trees"] for row in counted}):
        for pair in PAIRS:
            both = []
            for channels, method in pair:
                key = {"channels": channels, "method": method, "trees": trees}
                of = [row for row in counted if key.items() <= row.items()]
                both.append({row["seed"]: row for row in of if size_of(row) == size_of(of[-1])})
            seeds = sorted(set(both[0]) & set(both[1]))
            if not seeds:
                continue
            first, second = ([of[seed] for seed in seeds] for of in both)
            means = [
                statistics.mean(row["scores"][0]["mean_jaccard"] for row in of) for of in (first, second)
            ]
            words = (
                *(f"{method}, {channels}" for channels, method in pair),
                *map(str, (trees, len(seeds))),
                f"{100 * (means[0] - means[1]):.1f}",
                interval(resampled(first) - resampled(second)),
            )
            lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines)


def curves_table(rows: list[dict[str, Any]]) -> str:
    """Returns Jaccard scores in percent of raw test images by depth and by number of trees, for one seed."""
    of = [row for row in rows if row["part"] == "curve"]
    head = [*(f"depth {depth}" for depth in DEPTHS), *(f"{n} tree{'s' * (n > 1)}" for n in TREES)]
    lines = [f"| forest | {' | '.join(head)} |", "|---" * (1 + len(head)) + "|"]
    for method in GROWERS:
        scores = {
            (row["settings"]["max_depth"], row["trees"]): row["scores"][0]["mean_jaccard"]
            for row in of
            if row["method"] == method
        }
        sizes = [*((depth, 16) for depth in DEPTHS), *((20, n) for n in TREES)]
        if scores:
            lines.append(f"| {method} | {' | '.join(f'{100 * scores[size]:.1f}' for size in sizes)} |")
    return "\n".join(lines)


def main() -> None:
    """Makes every run that the record lacks, then prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets; without it the record is printed")
    parser.add_argument("--methods", nargs="+", choices=list(GROWERS), default=list(GROWERS))
    parser.add_argument("--channels", nargs="+", choices=CHANNELS, default=list(CHANNELS))
    parser.add_argument(
        "--windows", nargs="+", type=int, default=[15, 31, 61], help="sizes of windows to compare"
    )
    parser.add_argument("--trees", type=int, default=16)
    parser.add_argument(
        "--trees-of-maps", type=int, help="number of trees of the forests of label maps (default: --trees)"
    )
    parser.add_argument("--pixels", type=int, default=256_000, help="number of windows per tree")
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--most", type=int, default=3, help="number of settings per method to compare")
    parser.add_argument("--normalize", action="store_true", help="also compare raw windows of unit norm")
    parser.add_argument("--every", type=int, default=1, help="use every n-th training image")
    parser.add_argument("--held-every", type=int, default=1, help="use every n-th validation and test image")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs on the test images")
    parser.add_argument(
        "--curves", action="store_true", help="also compute scores by depth and by number of trees"
    )
    parser.add_argument("--no-test", action="store_true", help="use validation images alone")
    parser.add_argument("--memory", type=int, default=1 << 32, help="the most bytes of the windows of a tree")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "co2_pixels.json")
    args = parser.parse_args()
    hforest.set_num_threads(args.threads)
    record = co2_data.Record(args.json)
    maps_trees = args.trees_of_maps or args.trees

    def sizes(channels: str, trees: int = args.trees) -> dict[str, Any]:
        """Returns the settings that a run shares with others of the same channels."""
        found = {"trees": trees, "pixels": args.pixels, "every": args.every,
                 "held_every": args.held_every, "memory": args.memory}  # fmt: skip
        return found | ({"trees_of_maps": maps_trees} if channels in BEFORE else {})

    data = Data(args.data, args.every, args.held_every) if args.data else None
    maps: dict[tuple[str, int], Maps] = {}

    def read(part: str, chosen: dict[str, Any]) -> np.ndarray:
        """Returns the images of one part with the channels of a run."""
        method, seed, before = chosen["method"], chosen["seed"], chosen["channels"]
        assert data is not None
        of = maps.setdefault((method, seed), Maps(data, {}))
        while before in BEFORE:
            before = BEFORE[before]
            row = best(record.rows, **sizes(before, maps_trees), channels=before, method=method)
            if not row:
                sys.exit(f"co2_pixels.py: run --channels {before!r} --methods {method!r} before")
            of.chosen.setdefault(before, {**row, "seed": seed})
        return of.of(part, chosen["channels"])

    def run(part: str, chosen: dict[str, Any], powers: tuple[float, ...]) -> None:
        key = {"part": part, **chosen}
        if data is None or record.find(key):
            return
        x = read("train", chosen)
        begin = time.process_time()
        model = fit(x, data.y["train"], chosen)
        seconds = time.process_time() - begin
        images_of = "test" if part == "curve" else part
        found = judge_forest(model, read(images_of, chosen), data.y[images_of], powers)
        record.add({**key, **found, "seconds": seconds})
        record.write()
        top = max(found["scores"], key=lambda score: score["mean_jaccard"])
        words = [chosen[name] for name in ("channels", "method", "window", "step", "normalize", "settings")]
        print(
            part, *words, *(f"{100 * top[name]:.1f}" for name in SCORES), f"{seconds:.1f} s", file=sys.stderr
        )

    for channels in CHANNELS:  # context reads what was chosen before
        for candidate in candidates(args):
            if candidate["channels"] == channels:
                run("val", {**candidate, **sizes(channels), "seed": 0}, POWERS)
    for channels in () if args.no_test else args.channels:
        for method in args.methods:
            chosen = best(record.rows, **sizes(channels), channels=channels, method=method)
            for seed in range(args.seeds) if chosen else ():
                kept = {name: chosen[name] for name in ("window", "step", "normalize", "settings")}
                run("test", {"channels": channels, "method": method, **kept, **sizes(channels), "seed": seed},
                    (chosen["power"],))  # fmt: skip
    for method in args.methods if args.curves else ():
        chosen = best(record.rows, **sizes("raw"), channels="raw", method=method)
        for depth, n_trees in dict.fromkeys([*((a, 16) for a in DEPTHS), *((20, a) for a in TREES)]):
            kept = {name: chosen[name] for name in ("channels", "method", "window", "step", "normalize")}
            settings = {**chosen["settings"], "max_depth": depth}
            run("curve", {**kept, "settings": settings, **sizes("raw", n_trees), "seed": 0},
                (chosen["power"],))  # fmt: skip
    tables = (table, differences_table, curves_table)
    print(*(made(record.rows) for made in tables), sep="\n\n")


if __name__ == "__main__":
    main()
