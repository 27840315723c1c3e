"""Calls of the C library that Python has no function for, with the types of each in one table."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import sys
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_int, c_uint, c_ulong
from pathlib import Path
from typing import Any

# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15

# linux/fs.h, and fcntl.h for a path that counts from the current folder
RENAME_EXCHANGE = 2
AT_FDCWD = -100

# malloc.h
M_MMAP_THRESHOLD = -3

# Bytes of a block of memory that is the kernel's own to move and to take back.
APART = 65536

# The kernel keeps so many bytes of a process's name.
NAME_BYTES = 15


class FILE(ctypes.Structure):
    """A stream of stdio.h, which is never looked into."""


# Every function that is called: its answer, and its arguments in order. prctl takes its last four as variable
# arguments, which are unsigned long each (prctl(2)).
FUNCTIONS: Mapping[str, tuple[type[c_int], tuple[Any, ...]]] = {
    "fflush": (c_int, (POINTER(FILE),)),
    "mallopt": (c_int, (c_int, c_int)),
    "prctl": (c_int, (c_int, c_ulong, c_ulong, c_ulong, c_ulong)),
    "renameat2": (c_int, (c_int, c_char_p, c_int, c_char_p, c_uint)),
    "syncfs": (c_int, (c_int,)),
}


def ending_with(parent: int) -> Callable[[], None]:
    """Return a function that has the kernel kill the calling process when `parent` dies.

    It ends the process now if `parent` is gone. Make it before a fork and call it after: only system calls
    are left to do. Does nothing off Linux. The kernel looks at the thread that has forked, not at its process
    (prctl(2)): one that ends before the child takes the child along.
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


def exchange(one: Path, other: Path) -> bool:
    """Give each of two files the other's name in one step; False, and nothing is done, where that fails."""
    try:
        rename = _function("renameat2")
    except AttributeError:  # no Linux, or a C library that has no such function
        return False
    names = AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other)
    return rename(*names, RENAME_EXCHANGE) == 0


def flush_streams() -> None:
    """Write out what C code of this process has printed."""
    _function("fflush")(None)


def keep_large_blocks_apart() -> None:
    """Let columns grow where they are, with no holes left where they were; does nothing without glibc."""
    with contextlib.suppress(AttributeError):
        # set once, it stays: glibc else raises it with each large block that is freed (mallopt(3))
        _function("mallopt")(M_MMAP_THRESHOLD, APART)


@functools.cache
def _function(name: str) -> Callable[..., int]:
    function = ctypes.CDLL(None)[name]
    function.restype, function.argtypes = FUNCTIONS[name]
    found: Callable[..., int] = function
    return found
