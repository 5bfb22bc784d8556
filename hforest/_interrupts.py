"""Keeps a Ctrl-C that comes while `python -m hforest` starts.

Python drops what is raised in some callbacks, such as one of its import system, and compiled code of NumPy
what is raised while it is imported: an interrupt there would be lost. As the command alone, and not as a
library, hforest lets Ctrl-C end the process while modules are imported, and has an exception that is dropped
later raised again.
"""

import _thread
import signal
import sys
from typing import Any

_before = sys.unraisablehook


def _again(dropped: Any) -> None:
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        # From another thread: not here, where it would be dropped again.
        _thread.start_new_thread(_thread.interrupt_main, ())
    else:
        _before(dropped)


def imported() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt again: the command's modules are imported."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if sys.argv[:1] == ["-m"] and "hforest" in sys.orig_argv:
    sys.unraisablehook = _again
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
