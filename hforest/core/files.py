"""Files of arrays: writes are complete or have no effect, and any damage is one error when read.

A file is replaced in four steps. Its new content is written to `path + PART`, locked against other writers
(on Windows to a separate part per writer). The part is flushed to the disk (fsync). It replaces the old file
(rename). The folder is flushed to the disk. A killed process leaves the old file, and perhaps a part, which
the next save to the path replaces (not on Windows).
"""

import errno
import importlib
import math
import os
import stat
import struct
import threading
import weakref
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO, TypeAlias

import numpy as np

FilePath: TypeAlias = str | os.PathLike[str]

PART = ".hforest-part"
"""End of the name of an incomplete file."""

# Some systems lack it: there folders are not flushed.
_flags = {name: getattr(os, name, 0) for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW")}

CLOSES_FIRST = os.name == "nt"
"""Whether open files can be neither renamed nor removed, as on Windows."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")


# -------------------------------------------------------------------------------------------- writing

_FORKS = threading.RLock()
"""Lock while a part is opened or closed; a fork waits for it."""
_parts = weakref.WeakSet[BinaryIO]()


def _drop_parts() -> None:
    # In a forked child: its copies of open parts would hold the locks of the parent's saves.
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in _parts:
        if not stream.closed:
            os.dup2(nothing, stream.fileno(), inheritable=False)
    os.close(nothing)
    _FORKS.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_FORKS.acquire, after_in_parent=_FORKS.release, after_in_child=_drop_parts)


def _target(path: FilePath) -> str:
    """Returns the file that a save to `path` replaces, new or regular, in an existing folder."""
    name = os.fsdecode(path)
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except NotADirectoryError:
        raise NotADirectoryError(
            f"{name}: expected a file in a folder, got a path through a file; choose another path"
        ) from None
    if not stat.S_ISREG(mode):
        error = IsADirectoryError if stat.S_ISDIR(mode) else OSError
        raise error(f"{name}: expected a new or a regular file, got {_kind(mode)}; choose the path of a file")
    if not os.path.basename(name):
        raise IsADirectoryError(
            f"{name!r}: expected the path of a file, got the path of a folder; add a file name"
        )
    target = os.path.realpath(name)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"{name}: expected a file in a folder that exists, got {folder}, which does not exist; create "
            "it, or choose another path"
        )
    return target


def _is(descriptor: int, path: str) -> bool:
    """Returns whether `path` still is the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


@contextmanager
def _part(path: str) -> Iterator[tuple[BinaryIO, str]]:
    """Yields an empty file and its name; removes it at the end unless it was renamed."""
    if CLOSES_FIRST:
        # Without locks each save has a separate file.
        import tempfile

        folder, name = os.path.split(path)
        descriptor, part = tempfile.mkstemp(prefix=name, dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream, part
        finally:
            with suppress(FileNotFoundError):
                os.remove(part)
    else:
        with _locked(path) as stream:
            yield stream, path


@contextmanager
def _locked(path: str) -> Iterator[BinaryIO]:
    """Yields an empty, locked file at `path`; removes it at the end unless it was renamed."""
    while True:
        with _FORKS:
            flags = os.O_RDWR | os.O_CREAT | _flags["O_CLOEXEC"] | _flags["O_NOFOLLOW"]
            descriptor = os.open(path, flags, 0o666)
            stream = os.fdopen(descriptor, "wb")
            _parts.add(stream)
        try:
            # Network file systems may lack locks, too.
            with suppress(ImportError, OSError):
                fcntl = importlib.import_module("fcntl")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The previous owner of the lock may have renamed or removed the file.
            if not _is(descriptor, path):
                continue
            try:
                stream.truncate(0)
                yield stream
                return
            finally:
                if _is(descriptor, path):
                    os.remove(path)
        finally:
            with _FORKS:
                stream.close()


def _sync_folder(path: str) -> None:
    if not _flags["O_DIRECTORY"]:
        return
    descriptor = os.open(path, os.O_RDONLY | _flags["O_DIRECTORY"])
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot do that
            raise
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: FilePath) -> Iterator[BinaryIO]:
    """Yields a stream whose content replaces the file at the end of a `with` block, completely or not at all.

    The file is new or regular, in an existing folder; links are followed. OSError if it cannot be written.
    After this and any other exception an existing file is unchanged, and no part remains.
    """
    target = _target(path)
    part = target + PART
    with _part(part) as (stream, name):
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
        if CLOSES_FIRST:
            stream.close()
        os.replace(name, target)
        _sync_folder(os.path.dirname(target))


def check_writable(path: FilePath) -> None:
    """Checks that `replacing` can write a file, without changing it.

    OSError for a folder, a device or another special file, or a folder that does not exist or takes no file.
    """
    target = _target(path)
    try:
        with _part(target + PART):
            pass
    except OSError as error:
        raise type(error)(
            f"{os.fsdecode(path)}: expected a file that can be written, got an error ({error.strerror}); "
            "choose another path, or change the permissions of the folder"
        ) from None


def write_npz(path: FilePath, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays to an .npz file as `replacing`, without a suffix; TypeError for Python objects."""
    plain = {name: np.asarray(a) for name, a in arrays.items()}
    for name, a in plain.items():
        if a.dtype.hasobject:
            raise TypeError(
                f"{name}: expected an array of numbers or text, got dtype {a.dtype}; convert it, since files "
                "hold no Python objects"
            )
    with replacing(path) as stream:
        try:
            np.savez(stream, **plain)  # type: ignore[arg-type]
        except ValueError as error:  # raised by zipfile in place of an interrupt
            raise error.__context__ or error from None


# -------------------------------------------------------------------------------------------- reading

_MAX_RATIO = 1100
"""Deflate compresses at most 1032 times: larger ratios are damage."""

_SMALL = 1 << 16
"""Maximum number of bytes of a small array."""


def _check_members(archive: zipfile.ZipFile, stream: BinaryIO, size: int) -> None:
    # The end of the archive has the number of members: a damaged directory may lack the last ones.
    stream.seek(max(0, size - 22 - len(archive.comment)))
    end = stream.read(22)
    members = archive.infolist()
    if len(end) < 22 or end[:4] != b"PK\5\6":
        raise ValueError("bytes after the end of the archive")
    count = struct.unpack_from("<H", end, 10)[0]
    if count not in (len(members), 0xFFFF):
        raise ValueError(f"{len(members)} of {count} members")
    if len(set(archive.namelist())) != len(members):
        raise ValueError("two members with the same name")
    for info in members:
        if not info.filename.endswith(".npy"):
            raise ValueError(f"a member {info.filename!r} that is not an array")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"a member {info.filename!r} in an unknown compression")
        ratio = 1 if info.compress_type == zipfile.ZIP_STORED else _MAX_RATIO
        if info.compress_size > size or info.file_size > ratio * info.compress_size:
            raise ValueError(f"a member {info.filename!r} larger than the file")


class _PythonObjectsError(ValueError):
    """Error about an array that would need unpickling."""


class _UnreadableError(Exception):
    """Error of a reader of an archive; its argument describes the fault of the file."""


def text(a: np.ndarray) -> str:
    """Returns the value of an array without axes as text, or a description of other arrays.

    It does not call ``str(a)``, in which NumPy drops exceptions of signal handlers.
    """
    return str(a.item()) if a.shape == () else f"an array of shape {a.shape} and dtype {a.dtype}"


class Archive(Mapping[str, np.ndarray]):
    """The arrays of an open .npz file by name, each read on request.

    Every byte that is read is compared with a checksum.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

    def __getitem__(self, name: str) -> np.ndarray:
        info = self._members[name]
        try:
            self._header(info)
            with self._archive.open(info) as stream:
                a: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
                if stream.read(1):  # compares the checksum at the end
                    raise ValueError(f"{info.filename!r} with bytes after its array")
            return a
        except (
            Exception
        ) as error:  # zipfile, zlib and NumPy raise errors of a dozen classes for damaged files
            raise _UnreadableError(error) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def small(self, name: str) -> np.ndarray:
        """Returns an array of a few numbers, or a text; raises ValueError if it has more than 64 KB."""
        try:
            shape, dtype = self._header(self._members[name])
        except KeyError:
            raise
        except Exception as error:
            raise _UnreadableError(error) from None
        if math.prod(shape) * dtype.itemsize > _SMALL:
            raise ValueError(
                f"{name} is an array of shape {shape} and dtype {dtype}, larger than {_SMALL} bytes"
            )
        return self[name]

    def _header(self, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype]:
        # The member must have the size that the header announces, so a damaged header cannot request huge
        # arrays.
        with self._archive.open(info) as stream:
            version = np.lib.format.read_magic(stream)
            if version == (1, 0):
                shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
            elif version == (2, 0):
                shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
            else:
                raise ValueError(f"an array in version {version} of the format")
            if dtype.hasobject:
                raise _PythonObjectsError(info.filename.removesuffix(".npy"))
            if (
                min(shape, default=0) < 0
                or stream.tell() + math.prod(shape) * dtype.itemsize != info.file_size
            ):
                raise ValueError(
                    f"{info.filename!r} in a size that contradicts its shape {shape} and dtype {dtype}"
                )
        return shape, dtype


@contextmanager
def opened(path: FilePath, what: str) -> Iterator[Archive]:
    """Yields the arrays of an .npz file, which can be read until the end of a `with` block.

    `what` is the expected kind of file, for messages: "a checkpoint written by hforest". ValueError, also in
    reads inside the block, if the file is damaged, truncated, of another kind or not regular, or an array has
    Python objects.
    """
    name = os.fsdecode(path)
    with ExitStack() as stack:
        try:
            mode = os.stat(name).st_mode
            if not stat.S_ISREG(mode):
                raise ValueError(_kind(mode))
            stream = stack.enter_context(open(name, "rb"))
            size = os.fstat(stream.fileno()).st_size
            if not size:
                raise ValueError("an empty file")
            if not zipfile.is_zipfile(stream):
                raise ValueError("not a zip archive")
            archive = stack.enter_context(zipfile.ZipFile(stream))
            _check_members(archive, stream, size)
            for info in archive.infolist():
                # Compares both names of a member: an optional array with a damaged name would be passed over.
                archive.open(info).close()
        except Exception as error:
            raise _unreadable(name, what, error) from None
        try:
            yield Archive(archive)
        except _UnreadableError as error:
            error.__traceback__ = None  # see check.fields_of
            raise _unreadable(name, what, error.args[0]) from None


def _unreadable(name: str, what: str, error: Exception) -> Exception:
    """Returns the exception for a file that cannot be read because of `error`."""
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(f"{name}: expected {what}, got no such file; check the path")
    if isinstance(error, PermissionError):
        return PermissionError(
            f"{name}: expected {what}, got a file without permission to read; change its permissions"
        )
    if isinstance(error, MemoryError):
        return MemoryError(
            f"{name}: expected arrays that fit into memory, got larger ones ({error}); free memory, or store "
            "fewer samples"
        )
    if isinstance(error, _PythonObjectsError):
        return ValueError(
            f"{name}: expected {what}, got Python objects in the array {str(error)!r}, which are not loaded; "
            "if you trust the file, write its numbers and texts to a new one:\n"
            f"    file = numpy.load({name!r}, allow_pickle=True)\n"
            "    numpy.savez('new.npz', **{name: numpy.array(a.tolist()) for name, a in file.items()})"
        )
    return ValueError(
        f"{name}: expected {what}, got an unreadable file ({type(error).__name__}: {error}); "
        "it is damaged, truncated or of another format: restore it or create a new one"
    )


def read_npz(path: FilePath, what: str, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Returns arrays of an .npz file: those of `names` that it has, or all. Raises as `opened`."""
    with opened(path, what) as archive:
        return {name: archive[name] for name in archive if names is None or name in names}
