"""Threads and the configuration report."""

import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Literal, overload

import numpy as np

from .._version import __version__
from . import check, machine

_blas_lock = threading.Lock()
_blas_limits: list[Any] = []
"""Limits of BLAS, one for each `one_blas_thread` that has not ended; only the first is not None."""


def _note_main_thread() -> None:
    global _blas_lock
    _blas_lock = threading.Lock()  # another thread of the parent may hold that of a child
    ident = threading.main_thread().ident
    assert ident is not None
    machine.set_main_thread(ident)


_note_main_thread()
# A child process has only the thread that forked, as its main thread.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=machine.end_threads, after_in_child=_note_main_thread)


def set_num_threads(n: int) -> None:
    """Sets the number of OpenMP threads for calls from the calling Python thread.

    The environment variable OMP_NUM_THREADS sets the initial value; `threadpoolctl.threadpool_limits` is
    obeyed, too (the last call counts). Results do not depend on the number. A build without OpenMP has one
    thread. A forked child may call every function: threads are ended before a fork. A larger number in the
    environment counts as 1024.

    Parameters
    ----------
    n : int
        1 to 1024.

    Notes
    -----
    Threads start in the first call that uses them. If the system refuses a thread (a container's limit of
    processes, ``ulimit -u``), the OpenMP runtime ends the process ("libgomp: Thread creation failed"), which
    no library can catch. Set fewer threads before that call, or raise the limit. A process needs `n` - 1
    threads for each Python thread that calls hforest.

    Examples
    --------
    >>> import hforest
    >>> before = hforest.get_num_threads()
    >>> hforest.set_num_threads(1)
    >>> hforest.get_num_threads()
    1
    >>> hforest.set_num_threads(before)
    """
    machine.set_num_threads(check.integer("n", n, 1, machine.MAX_THREADS))


def get_num_threads() -> int:
    """Returns the number of OpenMP threads that the next call from the calling Python thread may use."""
    return machine.get_num_threads()


@cache
def _blas() -> Any:
    """Returns the controller of the threads of BLAS; None without threadpoolctl."""
    with suppress(ImportError):
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limits BLAS to one thread in the process.

    For loops of products that take microseconds. Their bits depend on the number of threads, and where other
    programs run, BLAS waits milliseconds in each until its threads get a processor. Uses at the same time end
    in any order. Without threadpoolctl nothing is limited.
    """
    with _blas_lock:
        controller = None if _blas_limits else _blas()
        _blas_limits.append(controller and controller.limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _blas_lock:
            first = _blas_limits[0]
            _blas_limits.pop()
            if not _blas_limits and first is not None:
                first.restore_original_limits()


def _cupy() -> dict[str, str]:
    # Looks for its metadata first: importing CuPy costs a second and a CUDA context.
    from importlib import metadata

    for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        try:
            import cupy

            device = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"].decode()
        except Exception as error:
            device = f"none ({type(error).__name__}: {error})".splitlines()[0]
        return {"version": f"{name} {version}", "device": device}
    return {"version": "not installed", "device": "none"}


@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...


@overload
def show_config(mode: Literal["dicts"]) -> dict[str, Any]: ...


def show_config(mode: Literal["stdout", "dicts"] = "stdout") -> dict[str, Any] | None:
    """Prints, or returns, the build, versions, threads and processor of this hforest.

    Parameters
    ----------
    mode : "stdout" or "dicts"
        Whether to print the report and return None, or to return it as a dict.

    Returns
    -------
    dict or None
        version, python, numpy, compiler, openmp (specification's date, 0 without), threads,
        cpu_features (vector extensions of the processor), simd (the vector path in use: the best one, or the
        one that the environment variable HFOREST_SIMD names), serial_us (microseconds of work below which a
        call has one thread: the environment variable HFOREST_SERIAL_US), cupy (version and device).

    Examples
    --------
    >>> import hforest
    >>> sorted(hforest.show_config("dicts"))[:3]
    ['compiler', 'cpu_features', 'cupy']
    """
    check.choice("mode", mode, ("stdout", "dicts"))
    report: dict[str, Any] = {
        "version": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "compiler": machine.compiler(),
        "openmp": machine.openmp(),
        "threads": machine.get_num_threads(),
        "cpu_features": machine.cpu_features(),
        "simd": machine.simd(),
        "serial_us": machine.serial_us(),
        "cupy": _cupy(),
    }
    if mode == "dicts":
        return report
    lines = {
        "hforest": f"{report['version']} (Python {report['python']}, NumPy {report['numpy']})",
        "compiler": report["compiler"],
        "OpenMP": report["openmp"] or "none: this build runs on one thread",
        "threads": f"{report['threads']}; one for calls below {report['serial_us']:g} microseconds",
        "CPU features": f"{' '.join(report['cpu_features']) or 'baseline'}; in use: {report['simd']}",
        "CuPy": f"{report['cupy']['version']}; device: {report['cupy']['device']}",
    }
    for name, text in lines.items():
        print(f"{name:12} {text}")
    return None
