"""What Python has no function for: calls of the C library, with the types of each in one table."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
from collections.abc import Callable
from ctypes import POINTER, c_int, c_ulong

# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15

# The kernel keeps so many bytes of a process's name.
NAME_BYTES = 15


class FILE(ctypes.Structure):
    """A stream of stdio.h, which nobody looks into."""


# Every function that is called: its answer, and its arguments in order. prctl takes its last four as variable
# arguments, which are unsigned long each (prctl(2)).
FUNCTIONS = {
    "fflush": (c_int, (POINTER(FILE),)),
    "prctl": (c_int, (c_int, c_ulong, c_ulong, c_ulong, c_ulong)),
    "syncfs": (c_int, (c_int,)),
}


def ending_with(parent: int) -> Callable[[], None]:
    """What has the kernel kill the calling process when `parent` dies, or ends it now if that is gone.

    To be made before a fork and called after it: only system calls are left to do. Nothing but on Linux.
    """
    prctl = _function("prctl") if sys.platform == "linux" else None

    def end_with() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it died before
                os._exit(1)

    return end_with


def name_process(name: str) -> None:
    """Call this process so in ps and top, as exec would have. Linux only."""
    text = ctypes.create_string_buffer(os.fsencode(name)[:NAME_BYTES])
    _function("prctl")(PR_SET_NAME, ctypes.addressof(text), 0, 0, 0)


def sync_filesystem(descriptor: int) -> bool:
    """Write out the file system that an open file is on; False if it cannot be. Linux only."""
    return _function("syncfs")(descriptor) == 0


def flush_streams() -> None:
    """Write out what C code of this process has printed."""
    _function("fflush")(None)


@functools.cache
def _function(name: str) -> Callable[..., int]:
    function = ctypes.CDLL(None)[name]
    function.restype, function.argtypes = FUNCTIONS[name]
    found: Callable[..., int] = function
    return found
