"""Memory of this process that is in use."""

import ctypes
import gc
import sys


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
                 "keepcost")]  # fmt: skip


try:
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
except (AttributeError, TypeError):  # not glibc, or one older than 2.33; Windows
    mallinfo = None


def in_use() -> tuple[int, int]:
    """Blocks of Python's allocator and bytes of the C library's that are in use."""
    gc.collect()
    info = mallinfo() if mallinfo else None
    return sys.getallocatedblocks(), info.uordblks + info.hblkhd if info else 0
