"""Output of the commands: a bar, files that replace only their older versions, a picture."""

import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .core import files

PICTURE = "hforest.png"
_ORIGIN = {
    "png": ("Software", b"Software\0hforest"),
    "pdf": ("Creator", b"/Creator (hforest)"),
    "svg": ("Creator", b"<dc:title>hforest</dc:title>"),
    "ps": ("Creator", b"%%Creator: hforest"),
    "eps": ("Creator", b"%%Creator: hforest"),
}
"""By format, where Matplotlib writes the program that made a picture, and the bytes that this becomes."""


PICTURE_SUFFIXES = tuple(f".{kind}" for kind in (*_ORIGIN, "jpg", "jpeg", "webp", "tif", "tiff"))


class Bar:
    """On a terminal a bar with a text (tqdm's, where it is installed); elsewhere a line for each text."""

    def __init__(self, name: str, total: int, first: int = 0) -> None:
        self._name, self._total, self._done, self._text = name, total, first, ""
        self._shown, self._bar, self._terminal = 0.0, None, sys.stderr.isatty()
        if self._terminal:
            with suppress(ImportError):
                from tqdm import tqdm

                self._bar = tqdm(total=total, initial=first, desc=name, unit="step", mininterval=0.2)

    def __call__(self, done: int, text: str = "") -> None:
        """Shows that `done` steps are finished."""
        new, self._done, self._text = text != self._text, done, text
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._bar.n)
        elif self._terminal and (done == self._total or time.perf_counter() - self._shown > 0.1):
            self._shown = time.perf_counter()
            marks = "#" * (20 * done // self._total)
            line = f"\r{self._name} |{marks:<20}| {done} of {self._total}  {text}"
            print(line, end="", file=sys.stderr, flush=True)
        elif new and not self._terminal:
            self._print()

    def _print(self) -> None:
        text = f", {self._text}" if self._text else ""
        print(f"{self._name}: step {self._done} of {self._total}{text}", flush=True)

    def close(self) -> None:
        """Ends the bar's line, or prints the last one where there was no text."""
        if self._bar is not None:
            self._bar.close()
        elif self._terminal:
            print(file=sys.stderr)
        elif not self._text:
            self._print()


# -------------------------------------------------------------------------------------------- files


class Output(NamedTuple):
    """A file that an option names."""

    option: str
    path: str | Path
    what: str = ""
    is_older: Callable[[str | Path], bool] | None = None
    """Returns whether an existing file may be replaced; None: any may."""


def model_path(save: str, kind: str = "") -> Path:
    """Returns the model file of --save; with a kind, that of model.npz is model.kind.npz."""
    path = Path(save)
    if not path.name or save.endswith(os.sep) or path.is_dir():
        raise IsADirectoryError(
            f"--save: expected the path of a file, got the folder {save!r}; add a file name"
        )
    return path.with_name(f"{path.stem}.{kind}{path.suffix or '.npz'}") if kind else path


def check_outputs(outputs: Iterable[Output], inputs: Mapping[str, str | None]) -> None:
    """Checks, before any work, that every output can be written and replaces only older output."""
    taken = [(name, path) for name, path in inputs.items() if path is not None]
    for option, path, what, is_older in outputs:
        for other, used in taken:
            if _same_file(path, used):
                raise ValueError(
                    f"{option}: expected a different file from {other}, got {path}; choose another path"
                )
        taken.append((option, str(path)))
        files.check_writable(path)
        if is_older is not None and os.path.exists(path) and not is_older(path):
            raise ValueError(
                f"{option}: expected a new file or {what} written by hforest, got {path}, which is a "
                "damaged file or of another kind; choose another path, or remove that file"
            )


def _same_file(a: str | Path, b: str | Path) -> bool:
    return os.path.realpath(a) == os.path.realpath(b) or (
        os.path.exists(a) and os.path.exists(b) and os.path.samefile(a, b)
    )


def check_archive(path: str) -> None:
    """Says of a file of another kind, such as a .csv file, how an archive is made of it."""
    if os.path.isfile(path) and not path.endswith(".npz") and not zipfile.is_zipfile(path):
        archive = str(Path(path).with_suffix(".npz"))
        raise ValueError(
            f"{path}: expected an .npz archive with arrays x and y, got another file; make one in Python, "
            f"for example if the column 'label' is to be predicted:\n"
            f"    table = pandas.read_csv({path!r}); y = numpy.array(table.pop('label').tolist())\n"
            f"    numpy.savez({archive!r}, x=pandas.get_dummies(table).to_numpy(float), y=y)"
        )


# ------------------------------------------------------------------------------------------ picture


def picture_format(path: str) -> str:
    """Returns the format of a picture from its name."""
    return Path(path).suffix[1:].lower() or "png"


_PICTURE_BYTES = 1 << 26
"""Number of first bytes of a file that are searched for its origin."""


def check_picture(path: str) -> None:
    """Checks that Matplotlib, where it is installed, can draw to a file of that name."""
    with suppress(ImportError):
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        known = FigureCanvasAgg.get_supported_filetypes()
        if picture_format(path) not in known:
            raise ValueError(
                f"--plot: expected a picture that ends in .{', .'.join(sorted(known))}, got {path}; choose "
                "one of these suffixes"
            )


def is_picture(path: str | Path) -> bool:
    """Returns whether a file is a picture that `draw` wrote."""
    _, origin = _ORIGIN.get(picture_format(str(path)), ("", b""))
    with open(path, "rb") as stream:
        return bool(origin) and origin in stream.read(_PICTURE_BYTES)


def draw(path: str | None, histories: Mapping[str, Mapping[str, np.ndarray]], measured: str) -> None:
    """Draws loss and error over the steps; without a path to PICTURE, unless a file of others is there."""
    name = PICTURE if path is None else path
    try:
        if path is None:
            check_outputs([Output(name, name, "a picture", is_picture)], {})
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print(f"{name}: not drawn, since Matplotlib is not installed (pip install matplotlib)")
        return
    except (OSError, ValueError) as error:
        print(f"no picture was drawn: {error}")
        return
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for label, history in histories.items():
        left.semilogy(history["step"], history["loss"], label=label)
        right.plot(history["step"], 100 * history["error"], label=label)
    left.set(xlabel="step", ylabel="training loss")
    right.set(xlabel="step", ylabel=f"{measured} in %")
    right.legend()
    save_picture(figure, name)
    pyplot.close(figure)
    print(f"{name}: loss and {measured} over the steps")


def save_picture(figure: Any, name: str | Path) -> None:
    """Writes a figure of Matplotlib to a file whose name says the format."""
    kind = picture_format(str(name))
    more: dict[str, Any] = {"metadata": {_ORIGIN[kind][0]: "hforest"}} if kind in _ORIGIN else {}
    with files.replacing(name) as stream:
        figure.savefig(stream, dpi=150, format=kind, **more)


# ---------------------------------------------------------------------------------------- intervals

Z = 1.959964
"""95 % of the normal distribution lie within Z deviations."""


def wilson(k: float, n: float) -> tuple[float, float]:
    """Returns the 95 % interval of a share of which k of n rows were counted (Wilson 1927)."""
    share, z2 = k / n, Z**2 / n
    middle, half = share + z2 / 2, Z * np.sqrt(share * (1 - share) / n + z2 / n / 4)
    return max(0.0, float((middle - half) / (1 + z2))), min(1.0, float((middle + half) / (1 + z2)))


def normal(values: np.ndarray) -> tuple[float, float]:
    """Returns the 95 % interval of the mean of values, by the normal distribution."""
    half = Z * values.std() / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)
