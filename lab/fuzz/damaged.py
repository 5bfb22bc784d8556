"""Files with damage: truncated, with flipped bits, of other kinds, with edited arrays; files with foreign members."""

import functools
import io
import pickle
import shutil
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .malformed import _edited_numbers
from .oracle import Case, Finding, call, run, told
from .values import Setting

MOST = 1 << 20
"""Bytes that a load of nothing takes at most."""

HOW = (
    "truncated", "a bit", "bytes", "zeros", "inserted", "empty", "not a zip", "a pickle", "no members",
    "a member missing", "a member more", "a member edited", "two edited", "text edited", "objects", "twice", "a folder",
    "missing",
)  # fmt: skip
EDITS = {"a member missing", "a member more", "a member edited", "two edited", "text edited", "objects"}
"""Sound files of other content; all others are damage that must never go unnoticed."""


def _members(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data)) as archive:
        return {name: archive[name] for name in archive.files}


def _packed(arrays: dict[str, Any], compressed: bool = False) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def _edited_text(s: Setting, a: np.ndarray) -> np.ndarray:
    # Settings and versions stand in members of text or JSON.
    text = str(a)
    at = s.integer(0, max(0, len(text) - 1))
    new = s.choice(("9", "", "-", "\x00", "null", "1e999", "[", '"', "99999999999999999999999"))
    return np.array(text[:at] + new + text[at + 1 :])


def _edited_members(s: Setting, how: str, data: bytes) -> bytes:
    members = _members(data)
    names = sorted(members)
    name = s.choice(names)
    if how == "a member missing":
        del members[name]
    elif how == "a member more":
        members["unknown"] = np.arange(3)
    elif how == "objects":
        members[name] = np.array([None, {}], dtype=object)
    elif how == "text edited":
        texts = [key for key in names if members[key].dtype.kind in "US"] or names
        name = s.choice(texts)
        members[name] = _edited_text(s, members[name])
    else:
        for _ in range(1 + (how == "two edited")):
            name = s.choice(names)
            if members[name].dtype.kind in "biuf":
                members[name] = np.asarray(_edited_numbers(s, members[name]))
            else:
                members[name] = _edited_text(s, members[name])
    return _packed(members, s.flag())


def _damaged_bytes(s: Setting, how: str, data: bytes) -> bytes:
    at = s.integer(0, len(data) - 1)
    n = s.integer(1, 40)
    if how == "truncated":
        return data[:at]
    if how == "a bit":
        return data[:at] + bytes([data[at] ^ (1 << s.integer(0, 7))]) + data[at + 1 :]
    if how == "bytes":
        return data[:at] + s.random.bytes(n) + data[at + n :]
    if how == "zeros":
        return data[:at] + bytes(len(data[at : at + n])) + data[at + n :]
    if how == "inserted":
        return data[:at] + s.random.bytes(n) + data[at:]
    if how == "twice":
        return data + data
    if how == "not a zip":
        return s.random.bytes(n)
    if how == "a pickle":
        return pickle.dumps({"a": [1, 2]})
    if how == "no members":
        stream = io.BytesIO()
        zipfile.ZipFile(stream, "w").close()
        return stream.getvalue()
    return b""


FOREIGN = {
    "numbers": lambda: np.arange(3),
    "huge": lambda: np.zeros(1 << 21),
    "objects": lambda: np.array([None, {}], dtype=object),
    "of text": lambda: np.array("a word"),
}
"""Arrays that are no fields."""


def _npy(a: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, a)
    return stream.getvalue()


@functools.cache
def _foreign(what: str) -> bytes:
    if what == "no array":
        return b"of others"
    if what == "a false header":
        return _npy(np.zeros(9)).replace(b"(9,), ", b"(9999999999,), ", 1)
    return _npy(FOREIGN[what]())


def foreign(s: Setting, path: Path) -> tuple[str, Path]:
    """Writes a copy of a file with members that are no fields; returns what they are, and the copy."""
    what = s.choice((*FOREIGN, "no array", "a false header"))
    copy = path.with_name(f"foreign-{path.name}")
    shutil.copyfile(path, copy)
    names = ("unknown", "x.npy", "é", "../above", "a/b", "0", "X", "")
    with zipfile.ZipFile(copy, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in {s.choice(names) for _ in range(s.integer(1, 3))}:
            archive.writestr(f"{name}.npy", _foreign(what))
    return what, copy


def run_measured(case: Case) -> None:
    """Raises Finding if a load takes more than three times the memory of its fields, or as `oracle.run`."""
    name = next(name for name in case.target.parameters if name in ("file", "path"))
    size = sum(a.nbytes for a in _members(case.arguments[name].read_bytes()).values())
    tracemalloc.start()
    try:
        outcome = call(case.target.function, case.make())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if peak > 3 * size + MOST:
        raise told(
            Finding(f"more memory than three times the fields: {peak} bytes for {size}"), case, outcome
        )
    run(case)


def damaged(s: Setting, path: Path) -> tuple[str, Path, bool]:
    """Writes a damaged copy of a file; returns what was done, the copy, and whether its content may be read."""
    how = s.choice(HOW)
    copy = path.with_name(f"damaged-{path.name}")
    if how == "a folder":
        return how, path.parent, False
    if how == "missing":
        return how, path.with_name("missing"), False
    data = path.read_bytes()
    copy.write_bytes(_edited_members(s, how, data) if how in EDITS else _damaged_bytes(s, how, data))
    return how, copy, how in EDITS
