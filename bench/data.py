"""Makes the .npz files that the scripts of bench read, from files as their publishers distribute them.

    python bench/data.py --from FOLDER --to DIR [--only letter ...]
    python bench/data.py --list

FOLDER holds the files that --list names. They may be compressed (.gz, .bz2; decompress .Z before). The script
omits a set with missing files, and prints its name. Nothing is downloaded. Labels become 0..K-1; categories
become codes in the order of the publisher's description; decimals become the nearest float32 (g50c: float64).
Other values do not change. satimage, pendigits, protein, sensit and covertype are also made from the files of
the page of LIBSVM (https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/), which Norouzi et al. 2015 cite.
Rows remain in the order of the files. If the sha256 of a set is known, it is
compared with that of the arrays. If they differ, the script writes the set, prints its name, and exits with
1.

Sets without an official split have the arrays x and y, the others x_train, y_train, x_test, y_test. Tables of
the Penn Machine Learning Benchmarks (NAME.tsv.gz) have x, y and names, and go to DIR/tabular and
DIR/tabular2. No checksum is known for satimage, pendigits, protein, sensit, covertype and CamVid. CamVid
(images of 360 x 480 pixels in three folders, with labels beside) is reduced threefold by means and
majorities, which needs matplotlib.
"""

import argparse
import bz2
import gzip
import hashlib
import struct
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from common import need
from tabular_data import PUBLIC

Arrays = dict[str, np.ndarray]
Classes = Callable[[str], int]
SPLIT = ("_train", "_test")
PACKED: dict[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".bz2": bz2.open}


class Source(NamedTuple):
    """Recipe for the arrays of a set."""

    files: tuple[str, ...]
    """Their names as published."""
    make: Callable[..., Arrays]
    """Returns the arrays, from the paths of the files."""
    other: "Source | None" = None
    """Recipe for the same samples in files of another publisher, used where `files` are missing."""


def opened(path: Path) -> IO[bytes]:
    """Returns a file, or the contents of a compressed one, for reading."""
    return next(read(f"{path}{end}", "rb") for end, read in PACKED.items() if Path(f"{path}{end}").exists())


def lines(paths: Iterable[Path]) -> list[str]:
    """Returns the lines of a file; with several files, lines of equal number joined by a space."""
    parts = []
    for path in paths:
        with opened(path) as file:
            text = file.read().decode("latin-1").splitlines()
        parts.append([line.strip() for line in text if line.strip() and not line.startswith("|")])
    return [" ".join(line) for line in zip(*parts, strict=True)]


def number(first: int = 0) -> Classes:
    """Returns a reader of labels that are numbers from `first` on."""
    return lambda text: round(float(text)) - first


def sign(text: str) -> int:
    """Returns labels: -1 is class 0, +1 is class 1."""
    return int(float(text) > 0)


def names(*order: str) -> Classes:
    """Labels that are written as names, in this order; a full stop behind the name is left out."""
    return lambda text: order.index(text.rstrip("."))


def text(
    parts: tuple[tuple[Path, ...], ...],
    dtype: str,
    classes: Classes,
    separator: str | None,
    label: int = -1,
    first: int = 0,
    codes: dict[int, tuple[str, ...]] | None = None,
    y_dtype: str = "uint8",
) -> Arrays:
    """Returns the arrays of text files of one row a line, features from `first` on, `label` left out."""
    found: Arrays = {}
    for part, end in zip(parts, SPLIT if len(parts) == 2 else ("",), strict=True):
        rows = [[a.strip() for a in line.split(separator)] for line in lines(part)]
        found[f"y{end}"] = np.array([classes(row.pop(label)) for row in rows], y_dtype)
        columns: list[Any] = [row[first:] for row in rows]
        x = np.array(columns, object).reshape(len(rows), -1)
        for column, order in (codes or {}).items():
            code = {name: i for i, name in enumerate(order)} | {"?": -1}
            x[:, column] = [code[name] for name in x[:, column]]
        found[f"x{end}"] = x.astype(np.float64).astype(dtype)
    return found


def one(dtype: str, classes: Classes, separator: str | None = ",", **more: Any) -> Callable[..., Arrays]:
    """Returns a recipe for one file of text."""
    return lambda a: text(((a,),), dtype, classes, separator, **more)


def two(dtype: str, classes: Classes, separator: str | None = ",", **more: Any) -> Callable[..., Arrays]:
    """Returns a recipe for a training and a test file of text."""
    return lambda a, b: text(((a,), (b,)), dtype, classes, separator, **more)


def madelon(x: Path, y: Path, x_test: Path, y_test: Path) -> Arrays:
    """Reads features and labels from separate files."""
    return text(((x, y), (x_test, y_test)), "int16", sign, None)


def idx(*paths: Path) -> Arrays:
    """Reads MNIST's binary files: magic number, sizes (big-endian), bytes."""
    found = {}
    for key, path in zip(("x_train", "y_train", "x_test", "y_test"), paths, strict=True):
        with opened(path) as file:
            _, _, kind, n_axes = struct.unpack("4B", file.read(4))
            shape = struct.unpack(f">{n_axes}i", file.read(4 * n_axes))
            if kind != 8:
                raise ValueError(f"{path}: expected bytes (type 8), got type {kind}; use the original file")
            found[key] = np.frombuffer(file.read(), np.uint8).reshape(shape[0], *([-1] if n_axes > 1 else []))
    return found


def libsvm(*paths: Path, n_features: int, classes: Classes) -> Arrays:
    """Reads lines of a label and index:value. Indices begin at 1; blanks may follow the colon."""
    found: Arrays = {}
    for path, end in zip(paths, SPLIT if len(paths) == 2 else ("",), strict=True):
        rows = lines([path])
        found[f"x{end}"] = x = np.zeros((len(rows), n_features), np.float32)
        found[f"y{end}"] = y = np.zeros(len(rows), np.uint8)
        for i, row in enumerate(rows):
            label, *entries = row.replace(": ", ":").split()
            y[i] = classes(label)
            for entry in entries:
                column, value = entry.split(":")
                x[i, int(column) - 1] = float(value)
    return found


def matlab(path: Path) -> Arrays:
    """Reads Chapelle's X, y, idxLabs and idxUnls, whose indices begin at 1."""
    from scipy.io import loadmat

    with opened(path) as file:
        a = loadmat(file)
    return {
        "x": np.asarray(a["X"], np.float64),
        "y": (a["y"].ravel() > 0).astype(np.uint8),
        "train_idx": (a["idxLabs"].astype(int) - 1).astype(np.int16),
        "test_idx": (a["idxUnls"].astype(int) - 1).astype(np.int16),
    }


def squares(path: Path) -> Arrays:
    """Reads Connect-4: three columns for each of the 42 squares, in the order x, blank, o."""
    codes = dict.fromkeys(range(42), ("x", "b", "o"))
    found = one("uint8", names("loss", "draw", "win"), codes=codes)(path)
    return {"x": np.eye(3, dtype=np.uint8)[found["x"]].reshape(-1, 126), "y": found["y"]}


ADULT = {
    1: "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
    3: "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters "
    "1st-4th 10th Doctorate 5th-6th Preschool",
    5: "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse",
    6: "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
    "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv "
    "Armed-Forces",
    7: "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    8: "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    9: "Female Male",
    13: "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan "
    "Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland "
    "France Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland "
    "Thailand Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands",
}  # fmt: skip
NURSERY = (
    "usual pretentious great_pret", "proper less_proper improper critical very_crit",
    "complete completed incomplete foster", "1 2 3 more", "convenient less_conv critical",
    "convenient inconv", "nonprob slightly_prob problematic", "recommended priority not_recom",
)  # fmt: skip
YEAST = ("CYT", "NUC", "MIT", "ME3", "ME2", "ME1", "EXC", "VAC", "POX", "ERL")
IRIS = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def adult(train: Path, test: Path) -> Arrays:
    """Returns codes of eight columns, and the number of codes of each; a missing value is -1."""
    codes = {column: tuple(order.split()) for column, order in ADULT.items()}
    found = two("int32", names("<=50K", ">50K"), codes=codes)(train, test)
    levels = [len(order) for order in codes.values()]
    return {**found, "categorical": np.array([*codes], np.uint8), "n_levels": np.array(levels, np.uint8)}


def camvid(*folders: Path) -> Arrays:
    """Returns images and labels of the three parts, files by name; a block of 3 x 3 pixels becomes one."""
    need("-e '.[bench]'", "matplotlib")
    from matplotlib.image import imread

    found = {}
    for key, folder in zip(
        ("x_train", "y_train", "x_val", "y_val", "x_test", "y_test"), folders, strict=True
    ):
        images = []
        for path in sorted(folder.glob("*.png")):
            image = np.rint(255 * imread(path)).astype(np.int64)
            blocks = image.reshape(image.shape[0] // 3, 3, image.shape[1] // 3, 3, -1)
            if key.startswith("x"):
                images.append(np.rint(blocks[..., :3].mean(axis=(1, 3))))
            else:
                votes = [(blocks[..., 0] == k).sum(axis=(1, 3)) for k in range(12)]
                images.append(np.argmax(votes, axis=0))
        found[key] = np.array(images, np.uint8)
    return found


def pmlb(path: Path, regression: bool) -> Arrays:
    """Reads a header, then rows; the column "target" is y. Columns of whole numbers that fit become int16."""
    with opened(path) as file:
        header = file.readline().decode().rstrip("\n\r").split("\t")
        a = np.loadtxt(file, np.float64, delimiter="\t", ndmin=2)
    at = header.index("target")
    x, y = np.delete(a, at, axis=1), a[:, at]
    whole = (x == np.rint(x)).all() and np.abs(x).max() < 2**15
    return {
        "x": x.astype(np.int16 if whole else np.float32),
        "y": y if regression else np.unique(y, return_inverse=True)[1].astype(np.uint8),
        "names": np.array([*header[:at], *header[at + 1 :]]),
    }


SOURCES = {
    "letter": Source(("letter-recognition.data",), one("uint8", names(*LETTERS), label=0)),
    "usps": Source(("zip.train", "zip.test"), two("float32", number(), None, label=0)),
    "mnist": Source(
        tuple(f"{of}-{kind}-ubyte" for of in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")),
        idx,
    ),
    "abalone": Source(
        ("abalone.data",), one("float32", number(), codes={0: ("M", "F", "I")}, y_dtype="int16")
    ),
    "madelon": Source(
        ("madelon_train.data", "madelon_train.labels", "madelon_valid.data", "madelon_valid.labels"), madelon
    ),
    "connect4": Source(("connect-4.data",), squares),
    "poker_train_only": Source(("poker-hand-training-true.data",), one("uint8", number())),
    "iris": Source(("bezdekIris.data",), one("float32", names(*IRIS))),
    "adult": Source(("adult.data", "adult.test"), adult),
    "yeast": Source(("yeast.data",), one("float32", names(*YEAST), None, first=1)),
    "g50c": Source(("g50c.mat",), matlab),
    "optdigits": Source(("optdigits.tra", "optdigits.tes"), two("uint8", number())),
    "isolet": Source(("isolet1+2+3+4.data", "isolet5.data"), two("float32", number(1))),
    "shuttle": Source(("shuttle.trn", "shuttle.tst"), two("int16", number(1), None)),
    "ijcnn1": Source(("ijcnn1", "ijcnn1.t"), partial(libsvm, n_features=22, classes=sign)),
    # Data sets of Norouzi et al. 2015, Table I, that no record here has.
    "satimage": Source(
        ("sat.trn", "sat.tst"), two("uint8", names(*"123457"), None),
        Source(("satimage.scale", "satimage.scale.t"), partial(libsvm, n_features=36, classes=number(1))),
    ),
    "pendigits": Source(
        ("pendigits.tra", "pendigits.tes"), two("uint8", number()),
        Source(("pendigits", "pendigits.t"), partial(libsvm, n_features=16, classes=number())),
    ),
    "protein": Source(("protein", "protein.t"), partial(libsvm, n_features=357, classes=number())),
    "sensit": Source(
        ("combined_scale", "combined_scale.t"), partial(libsvm, n_features=100, classes=number(1))
    ),
    "covertype": Source(
        ("covtype.data",), one("int16", number(1)),
        Source(("covtype",), partial(libsvm, n_features=54, classes=number(1))),
    ),
    "nursery": Source(
        ("nursery.data",),
        one(
            "uint8",
            names("not_recom", "recommend", "very_recom", "priority", "spec_prior"),
            codes={column: tuple(order.split()) for column, order in enumerate(NURSERY)},
        ),
    ),
    "camvid": Source(("train", "trainannot", "val", "valannot", "test", "testannot"), camvid),
    **{
        f"{folder}/{name}": Source((f"{name}.tsv",), partial(pmlb, regression=regression))
        for folder, regression, some in (
            ("tabular", False, "phoneme magic spambase waveform_40 churn page_blocks ring dna splice "
             "coil2000 mushroom sleep kddcup"),
            ("tabular", True, "houses pol fried puma8NH mv BNG_pwLinear"),
            ("tabular2", False, " ".join(PUBLIC[:9])),
            ("tabular2", True, " ".join(PUBLIC[9:])),
        )
        for name in some.split()
    },
}  # fmt: skip


LISTED = [line.split(maxsplit=2) for line in Path(__file__).with_suffix(".sha256").read_text().splitlines()]
SHA256 = {name: digest for digest, name, _ in LISTED}
"""Checksums of the arrays on which the records were made; see `checksum`."""


def checksum(arrays: Arrays) -> str:
    """Returns the sha256 of names, dtypes, shapes and bytes, sorted by name."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        a = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {a.dtype.str} {a.shape} ".encode() + a.tobytes())
    return digest.hexdigest()


def lacking(source: Source, folder: Path) -> list[str]:
    """Returns the files of a set that are not in a folder."""
    return [name for name in source.files if not any((folder / f"{name}{end}").exists() for end in PACKED)]


def recipes(name: str) -> list[Source]:
    """Returns the recipes of a set, the first publisher's first."""
    source = SOURCES[name]
    return [source] if source.other is None else [source, source.other]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from", dest="source", type=Path, help="folder of the files of the publishers")
    parser.add_argument("--to", type=Path, help="folder for the .npz files")
    parser.add_argument("--only", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    parser.add_argument("--list", action="store_true", help="print sets, files, arrays and their sha256")
    args = parser.parse_args()
    if args.list:
        for name in args.only:
            print(f"{name}: {' or '.join(', '.join(source.files) for source in recipes(name))}")
            print(
                *(f"    {shapes}; sha256 {digest}" for digest, of, shapes in LISTED if of == name), sep="\n"
            )
        return 0
    if not (args.source and args.to):
        parser.error("--from, --to: expected two folders, got fewer; name both, or use --list")
    differ = 0
    for name in args.only:
        source = next((a for a in recipes(name) if not lacking(a, args.source)), SOURCES[name])
        target, missing = args.to / f"{name}.npz", lacking(source, args.source)
        if missing:
            print(f"{name}: left out, as {', '.join(missing)} is not in {args.source}")
            continue
        arrays = source.make(*(args.source / file for file in source.files))
        target.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(target, **arrays)  # type: ignore[arg-type]
        other = name in SHA256 and checksum(arrays) != SHA256[name]
        differ += other
        state = "its sha256 is another than that of the arrays on record" if other else "written"
        print(f"{name}: {state} ({', '.join(f'{key} {a.shape}' for key, a in arrays.items())})")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
