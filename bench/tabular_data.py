"""Ordinary tables for the benches: their names, categories, splits, units of columns, missing values.

A table is an npz file of x and y, or of x_train, y_train, x_test and y_test, which are joined.
"""

import gzip
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

CHOOSE = (
    "letter", "magic", "phoneme", "dna", "spambase", "waveform_40", "connect4", "optdigits", "nursery",
    "yeast", "adult", "kddcup", "houses", "puma8NH", "abalone", "BNG_pwLinear",
)  # fmt: skip
"""Tables on which settings are chosen."""
JUDGE = (
    "churn", "coil2000", "ring", "splice", "sleep", "mushroom", "page_blocks", "usps", "isolet", "shuttle",
    "ijcnn1", "poker_train_only", "madelon", "pol", "fried", "mv",
)  # fmt: skip
"""Tables that are used for no choice."""
PUBLIC = (
    "car", "german", "led24", "allbp", "mfeat_fourier", "vowel",
    "GAMETES_Epistasis_2_Way_20atts_0.4H_EDM_1_1", "solar_flare_2", "krkopt", "503_wind", "215_2dplanes",
    "4544_GeographicalOriginalofMusic", "588_fri_c4_1000_100", "1199_BNG_echoMonths",
)  # fmt: skip
"""Tables only for the public comparison."""
HALVES = {"choose": CHOOSE, "judge": JUDGE, "public": PUBLIC}
REGRESSIONS = ("abalone",)
"""Tables whose targets are whole numbers."""
CATEGORIES = {
    "adult": (1, 3, 5, 6, 7, 8, 9, 13),
    "kddcup": (1, 2, 3),  # protocol, service, flag
    "abalone": (0,),  # sex
    "churn": (0, 2),  # state, area code
    "coil2000": (0, 4),  # MOSTYPE, MOSHOOFD: types of customers
    "splice": tuple(range(60)),
    "mushroom": tuple(range(22)),
    "poker_train_only": (0, 2, 4, 6, 8),  # suits
    "car": tuple(range(6)),
    "german": (0, 2, 3, 5, 6, 8, 9, 11, 13, 14, 16),
    "allbp": (28,),  # referral source
    "vowel": (1,),  # speaker
    "GAMETES_Epistasis_2_Way_20atts_0.4H_EDM_1_1": tuple(range(20)),
    "solar_flare_2": tuple(range(9)),
}
"""Columns of categories, determined only by column names and descriptions of the tables.

These columns stay numbers: codes with an order (nursery, ranks and files of krkopt), indicators (connect4,
dna), and columns of two values beside numbers. So do identifiers (telephone numbers of churn), and columns
whose names have no clear meaning (sleep, mv).
"""
SCALES = ("raw", "unit", "deviations", "powers", "indicators")
FEW = 16
"""Maximum number of values of a column of whole numbers that becomes indicators."""
GAPS = ("random", "value")
"""How values are removed."""
SHARE = 0.2
"""Share of missing values."""


class Data(NamedTuple):
    """Samples for fitting."""

    x: np.ndarray
    """(n_samples, n_features) float32."""
    y: np.ndarray
    """(n_samples,) labels 0 to n_classes - 1, int64, each of which occurs; or targets, float64."""
    n_classes: int | None
    """None in a regression."""
    seed: int
    categorical: tuple[int, ...] = ()
    """Columns of categories: whole numbers, of which those below 0, and NaN, are missing."""

    @property
    def task(self) -> str:
        return "regression" if self.n_classes is None else "classification"


def generate(folder: Path, *tables: str) -> None:
    """Writes files of these names with 600 rows of 16 columns of small whole numbers, for short runs.

    houses has targets, letter 26 labels, other tables two; camvid has images and the labels of their pixels;
    oj.csv.gz has a column of numbers, one of words, and labels.
    """
    rng = np.random.default_rng(0)
    for table in tables:
        if table == "oj.csv.gz":
            rows = (f"{a},word{a % 7},{'AB'[a % 3 // 2]}\n" for a in rng.integers(0, 100, 600))
            (folder / table).write_bytes(gzip.compress(("a,b,Purchase\n" + "".join(rows)).encode()))
            continue
        arrays: dict[str, np.ndarray] = {"x": rng.integers(0, 16, (600, 16), np.uint8)}
        noisy = arrays["x"][:, 0] + arrays["x"][:, 1] + rng.normal(size=600)
        arrays["y"] = noisy if table == "houses" else (noisy > 15).astype(np.uint8)
        if table == "letter":
            arrays["y"] = np.clip(noisy, 0, 25).astype(np.uint8)
        if table == "camvid":
            arrays = {
                f"x_{part}": rng.integers(0, 256, (2, 48, 64, 3), np.uint8) for part in ("train", "test")
            }
            arrays |= {f"y{name[1:]}": x[..., 0] % 12 for name, x in arrays.items()}
        np.savez(folder / f"{table}.npz", **arrays)  # type: ignore[arg-type]


def find(folders: Iterable[Path], table: str) -> Path:
    """Returns the file of a table."""
    for folder in folders:
        if (folder / f"{table}.npz").is_file():
            return folder / f"{table}.npz"
    raise SystemExit(f"--data: expected folders with {table}.npz, found it in none; add its folder")


Change = Callable[[np.ndarray], np.ndarray]


def _indicators(x: np.ndarray) -> Change:
    """Converts columns of few whole numbers to indicators of the numbers in the samples for fitting."""
    values = [np.unique(column) for column in x.T]
    few = [len(v) <= FEW and bool((v == np.round(v)).all()) for v in values]

    def changed(a: np.ndarray) -> np.ndarray:
        columns = [a[:, f, None] == values[f] if is_few else a[:, f, None] for f, is_few in enumerate(few)]
        return np.concatenate(columns, axis=1).astype(np.float32)

    return changed


def scaler(scale: str, x: np.ndarray, seed: int) -> Change:
    """Returns the change of columns, which depends on the samples for fitting."""
    if scale == "indicators":
        return _indicators(x)
    low: Any = np.zeros(x.shape[1])
    divisor: Any = np.ones(x.shape[1])
    if scale == "unit":
        low, divisor = x.min(axis=0).astype(np.float64), np.ptp(x, axis=0).astype(np.float64)
    elif scale == "deviations":
        low, divisor = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    elif scale == "powers":
        divisor = 10.0 ** np.random.default_rng([seed, 1]).integers(-12, 13, x.shape[1])
    divisor = np.where(divisor > 0, divisor, 1)
    return lambda a: ((a - low) / divisor).astype(np.float32)


def removed(x: np.ndarray, kind: str, seed: int) -> np.ndarray:
    """Samples in which a fifth of the values is NaN, at random or by value (see `GAPS`).

    By value each has a chance of 0.4 times its rank in its column, 0 for the least and 1 for the greatest.
    """
    chance = np.full(x.shape, SHARE)
    if kind == "value":
        for column, ascending, p in zip(x.T, np.sort(x, axis=0).T, chance.T, strict=True):
            low, high = (np.searchsorted(ascending, column, side) for side in ("left", "right"))
            p[:] = SHARE * (low + high) / len(x)
    return np.where(np.random.default_rng([seed, 7]).random(x.shape) < chance, x.dtype.type(np.nan), x)


def load(
    path: Path,
    rows: int,
    split: int,
    held_out: bool,
    scale: str,
    categorical: bool = False,
    gaps: str | None = None,
) -> tuple[Data, np.ndarray, np.ndarray]:
    """Samples for fitting, and samples and their labels or targets for the test.

    Labels are numbered among the samples for fitting; other labels are -1, which no model predicts.
    """
    with np.load(path) as file:
        names = ("x_train", "x_test") if "x_train" in file else ("x",)
        x = np.concatenate([file[name] for name in names])
        y = np.concatenate([file["y" + name[1:]] for name in names])
    picked = np.random.default_rng(split).permutation(len(x))[:rows]
    train, test = np.split(picked, [2 * len(picked) // 3])
    if held_out:
        train, test = np.split(train, [3 * len(train) // 4])
    n_classes, y_train, y_test = None, y[train].astype(np.float64), y[test].astype(np.float64)
    if y.dtype.kind != "f" and path.stem not in REGRESSIONS:
        classes, numbers = np.unique(y[train], return_inverse=True)
        n_classes, y_train = len(classes), np.asarray(numbers)
        number = np.full(int(y.max()) + 1, -1)
        number[classes] = np.arange(n_classes)
        y_test = number[y[test]]
    x = x.astype(np.float32)
    x_train, x_test = x[train], x[test]
    if scale != "raw":
        change = scaler(scale, x_train, split)
        x_train, x_test = change(x_train), change(x_test)
    if gaps is not None:
        x_train, x_test = np.split(removed(np.concatenate([x_train, x_test]), gaps, split), [len(x_train)])
    columns = CATEGORIES.get(path.stem, ()) if categorical else ()
    return Data(x_train, y_train, n_classes, split, columns), x_test, y_test
