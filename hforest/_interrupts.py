"""Keeps a Ctrl-C that comes while `python -m hforest` starts.

Python drops what is raised in some callbacks, such as one of its import system: an interrupt there would be
lost. As the command alone, and not as a library, hforest has it raised again.
"""

import _thread
import sys
from typing import Any

_before = sys.unraisablehook


def _again(dropped: Any) -> None:
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        # From another thread: not here, where it would be dropped again.
        _thread.start_new_thread(_thread.interrupt_main, ())
    else:
        _before(dropped)


if sys.argv[:1] == ["-m"] and "hforest" in sys.orig_argv:
    sys.unraisablehook = _again
