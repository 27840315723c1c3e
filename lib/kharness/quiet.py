"""Ctrl-C ends a program of ours without a traceback also while it still imports what it needs.

python -m kharness.quiet scripts/status.py …    # as the Makefile runs its scripts
"""

from __future__ import annotations

import os
import signal
import sys


def end_by_interrupt() -> None:
    """Have Ctrl-C end this process at once, as it ends a program in C; until `heed_interrupt`.

    For the time of imports, before anything is written. A KeyboardInterrupt there is a traceback through
    modules of others, and one within those of torch can abort the process.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not what nohup or a caller wants
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def heed_interrupt() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again, which somebody catches from here on."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    end_by_interrupt()
    import runpy

    del sys.argv[0]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))  # as for `python SCRIPT`
    runpy.run_path(sys.argv[0], run_name="__main__")
