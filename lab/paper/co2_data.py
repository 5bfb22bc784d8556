"""Data sets, records and forests that the scripts on Norouzi et al. 2015 share."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from common import machine_text

from hforest import co2, growth, tree


class Record:
    """Rows in a json file that are kept between runs of a script.

    Rows without a machine were made on the file's "machine".
    """

    def __init__(self, path: Path, name: str = "rows"):
        self.path, self.name = path, name
        self.file: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        self.rows: list[dict[str, Any]] = self.file.setdefault(name, [])

    def find(self, key: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the row with these values."""
        return next((row for row in self.rows if key.items() <= row.items()), None)

    def add(self, row: dict[str, Any]) -> dict[str, Any]:
        """Appends a row that names this machine."""
        machine = machine_text()
        self.rows.append(
            row if self.file.setdefault("machine", machine) == machine else {**row, "machine": machine}
        )
        return self.rows[-1]

    def write(self) -> None:
        """Replaces the file."""
        self.path.write_text(
            json.dumps({"machine": self.file.get("machine"), self.name: self.rows}, indent=1) + "\n"
        )


SETTINGS = {
    "letter": {"nu": 4.0, "lr": 0.1, "max_features": 5},
    "usps": {"nu": 1.0, "lr": 0.01, "max_features": 28},
    "mnist": {"nu": 10.0, "lr": 0.01, "max_features": 54},
}
"""Settings that several scripts use; docs/results-co2.md describes how they were chosen."""


PAPER: dict[str, Any] = {"standardize": False, "bootstrap": True, "min_samples_oblique": 1}
"""Settings of the paper's plain form, unless a record has others."""


def grow(
    method: str, x: np.ndarray, y: np.ndarray, n_trees: int, settings: dict[str, Any], rng: int
) -> tree.Forest:
    """Grows a CO2 forest ("CO2"), an OC1 forest ("OC1") or a random forest ("RF").

    Random forests take max_features and bootstrap from the settings, which have the names in the records; OC1
    also restarts (0 without them) and jumps. Only this function calls functions of the library that grow.
    """
    if method == "CO2":
        of_stump = {name: a for name, a in settings.items() if name in co2.StumpSettings._fields}
        others = {name: a for name, a in settings.items() if name not in of_stump}
        return co2.grow(x, y, n_trees, stump=co2.StumpSettings(**of_stump), rng=rng, **PAPER | others)
    bootstrap = settings.get("bootstrap", True)
    if method == "OC1":
        return co2.grow(
            x, y, n_trees, max_features=settings["max_features"], splitter="oc1", standardize=False,
            bootstrap=bootstrap, restarts=settings.get("restarts", 0), jumps=settings.get("jumps", 5), rng=rng,
        )  # fmt: skip
    return growth.grow(
        x,
        y,
        n_trees,
        criterion="entropy",
        max_features=settings["max_features"],
        bootstrap=bootstrap,
        rng=rng,
    )


def standardised(x: np.ndarray, x_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns samples with mean 0 and deviation 1 over the training samples."""
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    deviation[deviation == 0] = 1
    return (x - mean) / deviation, (x_test - mean) / deviation


def ranked(x: np.ndarray, x_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns ranks as shares of the training samples, ties by half; uniform, with mean 0 and deviation 1."""
    columns = np.sort(x, axis=0)

    def share(a: np.ndarray) -> np.ndarray:
        below = [
            np.searchsorted(c, b, "left") + np.searchsorted(c, b, "right")
            for c, b in zip(columns.T, a.T, strict=True)
        ]
        return (np.stack(below, axis=1) / len(x) - 1) * 3**0.5

    return share(x), share(x_test)


CODING = {
    "letter": "standardised",
    "connect4": "standardised",
    "isolet": "as published",
    "shuttle": "ranked",
    "satimage": "standardised",
    "pendigits": "standardised",
    "protein": "as published",
    "sensit": "standardised",
    "covertype": "standardised",
    "mnist": "in [0, 1]",
    "usps": "in [0, 1]",
    "optdigits": "in [0, 1]",
}
"""Default codings of features."""


TRAINED_ON = {"letter": 15_000, "connect4": 55_000, "covertype": 500_000}
"""Training samples of the sets without an official split."""


def load(
    folder: Path, name: str, coding: str | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns x, y, x_test and y_test; float32 samples and int32 labels.

    Letter: the first 15 000 rows against the last 5000. Connect4: 55 000 drawn rows against the others;
    covertype: 500 000. The other sets have an official split. Codings: "standardised", "ranked", "in [0, 1]",
    "0 and 1" or "as published" (no change), "-1, 0, 1" (one feature for each square of connect4) and
    "-1, 0, 1, standardised".
    Shuttle's measurements are up to 96 deviations from their means, so they are ranked.
    """
    coding = coding or CODING[name]
    file = np.load(folder / f"{name}.npz")
    if name in TRAINED_ON:
        x, y = file["x"].astype(np.float32), file["y"]
        n = TRAINED_ON[name]
        if name != "letter":
            order = np.random.default_rng(0).permutation(len(x))
            x, y = x[order], y[order]
        x, y, x_test, y_test = x[:n], y[:n], x[n:], y[n:]
    else:
        x, x_test = (
            file[key].reshape(len(file[key]), -1).astype(np.float32) for key in ("x_train", "x_test")
        )
        y, y_test = file["y_train"], file["y_test"]
    if coding.startswith("-1, 0, 1"):
        x, x_test = (a[:, 0::3] - a[:, 2::3] for a in (x, x_test))
    if coding == "ranked":
        x, x_test = ranked(x, x_test)
    elif coding.endswith("standardised"):
        x, x_test = standardised(x, x_test)
    elif coding == "in [0, 1]":
        low, high = {"mnist": (0, 255), "usps": (-1, 1), "optdigits": (0, 16), "letter": (0, 15)}[name]
        x, x_test = ((a - low) / (high - low) for a in (x, x_test))
    x, x_test = (np.ascontiguousarray(a, np.float32) for a in (x, x_test))
    return x, y.astype(np.int32), x_test, y_test.astype(np.int32)


def held_out(
    x: np.ndarray, y: np.ndarray, fold: int = 0, n_folds: int = 5
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns training samples without one fold, and that fold: x, y, x_held and y_held.

    Fold 0 of five is the fifth of the samples that `hforest.co2.search` holds out.
    """
    order = np.random.default_rng(0).permutation(len(x))
    edge = [len(x) * k // n_folds for k in (fold, fold + 1)]
    held = np.sort(order[edge[0] : edge[1]])
    kept = np.sort(np.concatenate([order[: edge[0]], order[edge[1] :]]))
    return x[kept], y[kept], x[held], y[held]


def first_trees(forest: tree.Forest, n_trees: int) -> tree.Forest:
    """Returns the forest of only the first trees."""
    n_nodes = int(forest.tree_start[n_trees])
    entries = int(forest.indptr[n_nodes]) if len(forest.indptr) > 1 else 0
    return forest._replace(
        tree_start=forest.tree_start[: n_trees + 1],
        feature=forest.feature[:n_nodes],
        threshold=forest.threshold[:n_nodes],
        left=forest.left[:n_nodes],
        default_left=forest.default_left[:n_nodes],
        gain=forest.gain[:n_nodes],
        value=forest.value[: (n_nodes + n_trees) // 2],
        indptr=forest.indptr[: n_nodes + 1],
        indices=forest.indices[:entries],
        data=forest.data[:entries],
    )


def percent_wrong(scores: np.ndarray, y: np.ndarray) -> float:
    """Returns the error in percent of scores (n, n_classes)."""
    return 100 * float((scores.argmax(axis=1) != y).mean())
