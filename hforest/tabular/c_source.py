"""Models of tables as C: a header of arrays and the functions of predict.h."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..core import check
from ..core.aliases import FloatArray
from ..tree import Forest
from .encoding import Encoding
from .levels import Levels
from .model import FLOAT32, Boosted, Member, Model, checked

FIRST_LINE = "/* Model of a table, written by hforest"
"""Beginning of a header that `to_c` wrote."""
_TEMPLATE = Path(__file__).with_name("predict.h")
_PER_LINE = 12
_SPARSE = 0.25
"""Share of weights other than 0 up to which inner products are written as lists."""
_STRUCTS = """struct model_kernel {
    int n;             /* inner products */
    const int *start;  /* first entry of each; NULL: data are (columns, n) */
    const int *row;    /* column of each entry */
    const float *data; /* weights */
};
struct model_forest {
    int n_trees, n_outputs;
    const int *start, *feature, *left;
    const float *threshold, *value;
};
struct model_member {
    struct model_kernel kernel, grown_kernel;
    int n_trees, depth;
    const float *thresholds;
    const int *features;
    const float *weights, *intercept;
    struct model_forest forest, boosted;
    const float *linear; /* (columns, outputs): slopes of the boosted part, or NULL */
    float offset;
    double share, boosted_share;
};
"""


def _literal(text: str) -> str:
    """Returns a string literal of C, in ASCII without trigraphs."""
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "backslashreplace")
    )
    return f'"{plain}"'


def _words(a: np.ndarray) -> list[str]:
    """Returns numbers as C reads them without loss, or texts as literals."""
    if a.dtype.kind in "UTO":
        return [_literal(str(text)) for text in a.tolist()]
    if a.dtype.kind in "iub":
        return list(map(str, a.astype(np.int64).tolist()))
    digits = "%.9g" if a.dtype == FLOAT32 else "%.17g"
    return [(digits % value).replace("inf", "INFINITY") for value in a.tolist()]


class _Header:
    """Text of a header, definition by definition."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def array(self, name: str, a: np.ndarray) -> str:
        """Adds an array, of one 0 if it is empty, and returns its name."""
        kinds = {"f": "float" if a.dtype == FLOAT32 else "double", "i": "int", "b": "int", "u": "int"}
        kind = kinds.get(a.dtype.kind, "char *const")
        words = _words(a.ravel()) or ["0"]
        lines = (", ".join(words[i : i + _PER_LINE]) for i in range(0, len(words), _PER_LINE))
        text = ",\n    ".join(lines)
        self.parts.append(f"static const {kind} model_{name}[{len(words)}] = {{\n    {text}}};\n")
        return f"model_{name}"

    def numbers(self, **numbers: int | float) -> None:
        """Adds macros."""
        self.parts += [f"#define MODEL_{name} {value!r}\n" for name, value in numbers.items()]


def _kernel(header: _Header, name: str, kernel: FloatArray) -> str:
    n = kernel.shape[1]
    if not n or np.count_nonzero(kernel) > _SPARSE * kernel.size:
        return f"{{{n}, NULL, NULL, {header.array(name, kernel)}}}"
    column, row = np.nonzero(kernel.T)
    start = np.concatenate([[0], np.cumsum(np.bincount(column, minlength=n))])
    arrays = {"start": start, "row": row, "data": kernel[row, column]}
    names = ", ".join(header.array(f"{name}_{part}", a) for part, a in arrays.items())
    return f"{{{n}, {names}}}"


_NO_FOREST = "{0, 0, NULL, NULL, NULL, NULL, NULL}"


def _forest(header: _Header, name: str, forest: Forest) -> str:
    if forest.category_bits.size or bool((forest.feature == -2).any()):
        raise ValueError(
            f"model.{name}: expected splits by columns, as fit grows them, got others; export it with "
            "hforest.onnx.to_onnx"
        )
    left = forest.default_left & 1 if forest.default_left.size else np.zeros(len(forest.feature), np.uint8)
    feature = np.where(forest.feature < 0, -1, 2 * forest.feature.astype(np.int64) + left)
    c_name = re.sub(r"\W+", "_", name)
    arrays = {
        "start": forest.tree_start[:-1], "feature": feature, "left": forest.left,
        "threshold": forest.threshold, "value": forest.value,
    }  # fmt: skip
    names = ", ".join(header.array(f"{c_name}_{part}", a) for part, a in arrays.items())
    return f"{{{forest.n_trees}, {forest.value.shape[1]}, {names}}}"


def _member(header: _Header, i: int, member: Member) -> str:
    name, share = f"members[{i}]", float(member.share)
    grown = share < 1 or bool(member.offset)
    boosted = member.boosted or Boosted(member.forest, np.zeros(()))
    n_trees, n_vertices = member.thresholds.shape
    numbers = {field: getattr(member, field) for field in ("thresholds", "features", "weights", "intercept")}
    fields = [
        _kernel(header, f"kernel_{i}", member.kernel),
        _kernel(header, f"grown_kernel_{i}", member.grown_kernel),
        str(n_trees),
        str((n_vertices + 1).bit_length() - 1),
        *(header.array(f"{field}_{i}", a) for field, a in numbers.items()),
        _forest(header, f"{name}.forest", member.forest) if grown else _NO_FOREST,
        _NO_FOREST if member.boosted is None else _forest(header, f"{name}.boosted", boosted.forest),
        "NULL" if boosted.linear is None else header.array(f"linear_{i}", boosted.linear),
        *(repr(float(a)) for a in (np.float32(member.offset), member.share, boosted.share)),
    ]
    return "    {" + ",\n     ".join(fields) + "}"


def _starts(sizes: Iterable[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.asarray(list(sizes), np.int64))]).astype(np.int64)


def _encoding(header: _Header, encoding: Encoding | None, n_features: int) -> int:
    """Adds the encoding of columns and returns the number of encoded ones."""
    zeros, none = np.zeros(n_features, np.float32), np.zeros(0, np.int64)
    if encoding is None:
        slopes = np.zeros((0, 0, 1), np.float32)
        encoding = Encoding(zeros, zeros, zeros, none, none.reshape(0, 0), slopes)
    levels = encoding.levels or Levels(
        np.zeros(n_features, bool), np.ones(n_features, np.int64), _starts([0] * n_features), none, zeros[:0]
    )
    header.numbers(
        N_PREDICTORS=encoding.predictors.shape[1], N_ROUNDS=len(encoding.slopes),
        N_IMPUTED=len(encoding.imputed), HAS_MISSING=int(len(encoding.imputed) > 0),
        N_ENCODED=int(levels.widths.sum()),
    )  # fmt: skip
    width = np.where(levels.categorical, levels.widths, 0)
    arrays = {
        "fill_value": encoding.fill, "least": encoding.low.astype(np.float64),
        "most": encoding.high.astype(np.float64), "imputed": encoding.imputed,
        "predictors": encoding.predictors, "slopes": encoding.slopes.astype(np.float64), "width": width,
        "level_start": levels.start, "levels": levels.levels, "codes": levels.codes,
        "code_start": _starts(np.diff(levels.start) * width),
    }  # fmt: skip
    for name, a in arrays.items():
        header.array(name, a)
    return int(levels.widths.sum())


def _names(header: _Header, model: Model, n_features: int) -> None:
    """Adds names of features, categories and classes."""
    names: Sequence[str] = [str(j) for j in range(n_features)]
    start, categories = _starts([0] * n_features), np.zeros(0, "U1")
    if model.columns is not None:
        columns = model.columns
        names = columns.feature_names
        parts = [
            columns.levels[columns.level_start[j] : columns.level_start[j + 1]].tolist()
            if part in ("level", "rank")
            else []
            for j, part in zip(columns.source.tolist(), columns.parts.tolist(), strict=True)
        ]
        start = _starts(map(len, parts))
        categories = np.array([text for part in parts for text in part], object)
    header.array("features", np.array(names, object))
    header.array("category_start", start)
    header.array("categories", categories)
    if model.task == "classification":
        labels = np.arange(len(model.target_center)) if model.classes is None else model.classes
        header.array("classes", np.array([str(label) for label in labels.tolist()], object))


def identifier(text: str) -> str:
    """Returns a name of C that begins as a text, such as the name of a file, does."""
    plain = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()
    return plain if plain[:1].isalpha() else f"model_{plain}".rstrip("_")


def to_c(model: Model, *, name: str = "model") -> str:
    """Returns a model of a table as a header of C99: arrays, and a function that predicts a row.

    Other parameters: see `save`.

    Parameters
    ----------
    name : str
        Beginning of the names in the header: letters of ASCII, digits and _, first a letter.

    Returns
    -------
    str
        Text of the header, in ASCII. With name="model" it defines ``void model_predict(const double *x,
        double *y)``. x is a row of the matrix that `numbers` returns for the model's columns, NaN for missing
        values; y are MODEL_N_OUTPUTS probabilities or targets. ``model_features`` are the names of the
        MODEL_N_FEATURES columns, ``model_classes`` the labels. ``model_category(j, text)`` is the number of a
        category of column j.

    Raises
    ------
    ValueError
        A forest with splits by categories or projections, which `fit` does not grow; a name that C does not
        accept.

    Notes
    -----
    The header needs no library but libm, and no memory but the stack; it can be included in several files and
    threads. Results equal those of `predict` up to rounding: comparisons are in float32 and in the same
    order, and inner products have the same bits. The compiler must not reorder arithmetic (no -ffast-math).
    Text is read by the caller. Size: about 20 bytes per node of a forest.

    Examples
    --------
    >>> import numpy as np, hforest
    >>> x = np.arange(40.0).reshape(-1, 1); y = np.repeat([0, 1], 20)
    >>> model = hforest.tabular.fit(x, y, n_trees=5, steps=50, rng=0)
    >>> text = hforest.tabular.to_c(model, name="steps")
    >>> "static inline void steps_predict(const double *x, double *y)" in text
    True
    """
    model, n_features = checked("model", model)
    check.instance("name", name, str, "text", 'pass, for example, "model"')
    fits = re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) is not None
    remedy = 'pass, for example, "model"'
    check.require(fits, "name", "letters, digits and _, first a letter", repr(name), remedy)
    header, scaling = _Header(), model.scaling
    is_classes, n_outputs = model.task == "classification", len(model.target_center)
    products = [len(a.T) for member in model.members for a in (member.kernel, member.grown_kernel)]
    some = model.members[0]
    header.numbers(
        N_FEATURES=n_features, N_OUTPUTS=n_outputs, N_MEMBERS=len(model.members),
        MAX_PRODUCTS=max(products), IS_CLASSES=int(is_classes),
        IS_GEOMETRIC=int(model.mean == "geometric" and len(model.members) > 1),
        LEAST_PROBABILITY=model.least_probability, SMOOTHING=some.smoothing,
        SMOOTHED=1 + some.smoothing * n_outputs,
    )  # fmt: skip
    arrays: dict[str, Any] = {field: getattr(scaling, field) for field in ("low", "high", "center", "scale")}
    arrays |= {"knot_start": scaling.start, "knots": scaling.knots, "scores": scaling.scores}
    arrays |= {"target_center": model.target_center, "target_scale": model.target_scale}
    for field, a in arrays.items():
        header.array(field, a)
    _encoding(header, model.encoding, n_features)
    _names(header, model, n_features)
    header.parts.append(_STRUCTS)
    members = ",\n".join(_member(header, i, member) for i, member in enumerate(model.members))
    n_members = len(model.members)
    header.parts.append(f"static const struct model_member model_members[{n_members}] = {{\n{members}}};\n")
    functions = _TEMPLATE.read_text(encoding="utf-8").partition("*/\n")[2]
    body = "".join(header.parts) + functions
    strings = re.split(r'("(?:[^"\\]|\\.)*")', body)  # names in texts stay
    strings[::2] = [
        re.sub(r"\bmodel_", f"{name}_", re.sub(r"\bMODEL_", f"{name.upper()}_", part))
        for part in strings[::2]
    ]
    guard = f"{name.upper()}_H"
    return (
        f"{FIRST_LINE} {__version__}. {name}_predict writes the predictions of a row. */\n"
        f"#ifndef {guard}\n#define {guard}\n#include <math.h>\n#include <stddef.h>\n#include <string.h>\n\n"
        f"{''.join(strings)}\n#endif\n"
    )
