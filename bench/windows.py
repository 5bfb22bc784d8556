"""Forests applied to every window of an image: in place, beside copies of the windows by blocks.

    python bench/windows.py --data camvid.npz [--kinds axis probe sparse patch] [--trees 32] [--json FILE]

With --grow one tree is grown on this number of windows, in place and, with --copies, on a copy that is made
before. Each tree grows in its own process, whose memory is the peak above that of the images (Linux):

    python bench/windows.py --data camvid.npz --grow 256000 --depth 8 [--copies] [--json FILE]

Forests are grown on windows of 31 x 31 x 3 numbers around labelled pixels of the training images, as many of
each class. They predict the class of each pixel of a test image, whose border is padded by 15 pixels. Windows
are copied in blocks of a million numbers. Before anything is timed, results in place and on copies must be
bit-identical, and those of some windows must equal the reference. "checked" is a call that checks the forest;
the others run inside `unchecked()`.

Figures are milliseconds per frame and nanoseconds per pixel and tree, the minimum of repeats taken in turn,
on one thread, in processor time, which other processes disturb less.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import machine_text, options_of, projected, record, side_by_side, sparse, spread

import hforest
from hforest import co2, growth, project, tree

SIDE, VOID = 31, 11
BLOCK = 1 << 20  # numbers of windows that are copied at once
KINDS: dict[str, Callable[..., tree.Forest]] = {
    "axis": hforest.grow,
    "probe": projected(project.probe_distribution, single_share=0.5),
    "sparse": sparse,
    "patch": partial(
        hforest.grow,
        projections=project.patch_distribution((SIDE, SIDE, 3), channels=True, patch_max=(8, 8)),
    ),
}


def windows(images: np.ndarray, pixels: np.ndarray | None = None) -> growth.Samples:
    """Returns the windows around pixels, numbered over all images; features are (row, column, channel)."""
    n, height, width, channels = images.shape
    half = SIDE // 2
    padded = np.pad(images, ((0, 0), (half, half), (half, half), (0, 0)), mode="reflect")
    planes = np.ascontiguousarray(np.moveaxis(padded, 3, 1), np.float32)
    number = np.arange(planes.size).reshape(planes.shape)
    base = number[:, 0, :height, :width].ravel()
    offset = np.moveaxis(number[0, :, :SIDE, :SIDE], 0, 2).ravel()
    base = base if pixels is None else base[pixels]
    return hforest.samples(planes.reshape(n * channels, -1), windows=(np.ascontiguousarray(base), offset))


def copied(samples: growth.Samples) -> np.ndarray:
    """Returns the windows as rows."""
    return np.take(samples.x.x.ravel(), samples.x.base[:, None] + samples.x.offset)


def at(samples: growth.Samples, rows: slice) -> growth.Samples:
    """Returns some of the windows."""
    x, base, offset = samples.x
    return hforest.samples(x, windows=(base[rows].copy(), offset))


def by_blocks(
    function: Callable[..., np.ndarray], forest: tree.Forest, samples: growth.Samples
) -> np.ndarray:
    """Returns results of a function on copies of windows, some at a time."""
    step = max(1, BLOCK // samples.shape[1])
    parts = range(0, len(samples), step)
    return np.concatenate([function(forest, copied(at(samples, slice(i, i + step)))) for i in parts])


def training(data: Any, n: int, every: int = 4) -> tuple[growth.Samples, np.ndarray]:
    """Returns windows around n pixels of some training images, as many of each class, and their labels."""
    images, labels = data["x_train"][::every], data["y_train"][::every].ravel()
    rng = np.random.default_rng(0)
    each = [rng.choice(np.flatnonzero(labels == k), n // VOID) for k in range(VOID)]
    pixels = np.concatenate(each)
    return windows(images, pixels), labels[pixels].astype(np.int32)


def check(forest: tree.Forest, frame: growth.Samples) -> None:
    """Checks that results are bit-identical to those on copies, and on some windows to the reference."""
    few = at(frame, slice(None, None, len(frame) // 7))
    for function in (tree.apply, tree.predict, tree.vote_shares):
        np.testing.assert_array_equal(function(forest, frame), by_blocks(function, forest, frame))
        with hforest.using("reference"):
            expected = function(forest, few)
        np.testing.assert_array_equal(function(forest, few), expected)


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures every kind of forest."""
    hforest.set_num_threads(options.threads)
    data = np.load(options.data)
    samples, y = training(data, options.samples)
    x = copied(samples)
    frame = windows(data["x_test"][:1])
    rows = []
    clock = time.process_time if options.threads == 1 else time.perf_counter
    print(
        f"{'forest':8} {'nodes':>8} {'depth':>6} {'way':10} {'ms/frame':>9} {'ns/pixel/tree':>14} "
        f"{'spread':>7}"
    )
    for kind in options.kinds:
        forest = GROWN[kind](x, y, options.trees, n_classes=VOID, max_depth=options.depth, rng=0)
        check(forest, frame)
        depth = mean_depth(forest, frame)
        calls: dict[str, Callable[[], Any]] = {"in place": partial(tree.predict, forest, frame)}
        if not options.alone:
            calls["copies"] = partial(by_blocks, tree.predict, forest, frame)
        with hforest.unchecked():
            times = side_by_side(calls, options.repeats, clock)
        times |= side_by_side({"checked": calls["in place"]}, options.repeats, clock)
        for way, taken in times.items():
            best = min(taken)
            each = 1e9 * best / (len(frame) * options.trees)
            rows.append(
                {
                    "forest": kind, "way": way, "seconds": best, "ns_per_pixel_and_tree": each,
                    "nodes": int(forest.feature.size), "mean_depth": depth, "spread": spread(taken),
                }
            )  # fmt: skip
            print(
                f"{kind:8} {forest.feature.size:8} {depth:6.1f} {way:10} {1e3 * best:9.1f} {each:14.1f} "
                f"{100 * spread(taken):6.0f}%",
                flush=True,
            )
    return rows


def mean_depth(forest: tree.Forest, frame: growth.Samples) -> float:
    """Returns the mean number of levels that a window walks."""
    depth = np.zeros(forest.feature.size, np.int32)
    for root, stop in zip(forest.tree_start[:-1], forest.tree_start[1:], strict=True):
        for at in range(root, stop):
            if forest.feature[at] != -1:
                child = root + forest.left[at]
                depth[child : child + 2] = depth[at] + 1
    return float(depth[forest.tree_start[:-1] + tree.apply(forest, frame)].mean())


GROWN = KINDS | {"co2": partial(co2.grow, max_rounds=5)}


def megabytes(name: str) -> float:
    """Returns VmRSS, the memory of this process, or VmHWM, its peak (Linux)."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def grow_one(options: argparse.Namespace) -> dict[str, Any]:
    """Grows one tree in this process; its seconds, and the memory above that of the images."""
    hforest.set_num_threads(options.threads)
    samples, y = training(np.load(options.data), options.grow, every=1)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak so far is that of padding the images
    before, start = megabytes("VmRSS"), time.process_time()
    x = copied_by_blocks(samples) if options.copies else samples
    made = time.process_time() - start
    forest = GROWN[options.kinds[0]](x, y, 1, n_classes=VOID, max_depth=options.depth, rng=0)
    return {
        "forest": options.kinds[0], "way": "copies" if options.copies else "in place",
        "windows": len(samples), "copy_seconds": made, "seconds": time.process_time() - start - made,
        "megabytes": megabytes("VmHWM") - before, "nodes": int(forest.feature.size),
    }  # fmt: skip


def copied_by_blocks(samples: growth.Samples) -> np.ndarray:
    """Returns the windows as rows, in little more memory than they take."""
    flat, out = samples.x.x.ravel(), np.empty(samples.shape, samples.dtype)
    for i in range(0, len(out), 256):
        np.take(flat, samples.x.base[i : i + 256, None] + samples.x.offset, out=out[i : i + 256], mode="clip")
    return out


def grow_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures every kind in place and, if requested, on copies."""
    rows = []
    print(f"{'forest':8} {'way':10} {'s to copy':>10} {'s to grow':>10} {'MB':>7} {'nodes':>7}")
    for kind in options.kinds:
        for copies in (False, True)[: 1 + options.copies]:
            command = [
                sys.executable,
                __file__,
                "--data",
                options.data,
                "--grow",
                options.grow,
                "--kinds",
                kind,
            ]
            command += ["--threads", options.threads, "--depth", options.depth, "--alone"]
            command += ["--copies"] * copies
            done = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)
            row = json.loads(done.stdout)
            rows.append(row)
            print(
                f"{kind:8} {row['way']:10} {row['copy_seconds']:10.1f} {row['seconds']:10.1f} "
                f"{row['megabytes']:7.0f} {row['nodes']:7}",
                flush=True,
            )
    return rows


def main() -> int:
    """Runs the bench."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--data", required=True, help="camvid.npz")
    parser.add_argument("--kinds", nargs="+", choices=GROWN)
    parser.add_argument("--trees", type=int, default=32)
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--depth", type=int, default=None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="measure forests in place alone, without copies")
    parser.add_argument("--grow", type=int, help="number of windows on which a tree is grown")
    parser.add_argument("--copies", action="store_true", help="with --grow: also grow on copies")
    parser.add_argument("--json")
    options = options_of(parser, "--data {data}/camvid.npz --samples 300 --trees 1 --repeats 1", "camvid")
    options.kinds = options.kinds or list(GROWN if options.grow else KINDS)
    if options.grow and options.alone:  # a process of grow_all
        print(json.dumps(grow_one(options)))
        return 0
    options.depth = 8 if options.grow and options.depth is None else options.depth
    print(machine_text())
    rows = grow_all(options) if options.grow else run(options)
    if options.json:
        settings = (
            {"grow": options.grow, "depth": options.depth} if options.grow else {"samples": options.samples}
        )
        record(options.json, rows, trees=options.trees, threads=options.threads, **settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
