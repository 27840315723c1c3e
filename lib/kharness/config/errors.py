"""The errors a user can mend, and the one place where they become a line on the terminal.

KharnessError        base: a message, a hint with one thing to try, the exit code
└── ConfigError      a configuration that cannot be taken as it was asked for
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving a whole configuration
    from typing import NoReturn


# sysexits.h EX_IOERR: a disk, or somebody's share of it, is full.
EXIT_DISK_FULL = 74


class KharnessError(Exception):
    """Something the user can mend; `hint` is one thing to try."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(KharnessError):
    """A value, file or tree that cannot be taken as it was asked for."""


def run_command(main: Callable[[Sequence[str]], int | None]) -> NoReturn:
    """Run `main(argv)` and exit: 0, its own code, 2 for what the user can mend, 130 for Ctrl-C.

    Any exception with a `hint`, and a full disk wherever it is met (74), is reported in two lines; every
    other one is a bug and keeps its traceback.
    """
    sys.exit(exit_code(main))


def exit_code(main: Callable[[Sequence[str]], int | None]) -> int:
    """The exit code of `main(argv)`, what went wrong reported as run_command does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A value in a script that the terminal's encoding lacks is no reason to stop.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = main(sys.argv[1:]) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # `make list-defconfigs | head -1`: the reader has what it wanted; nothing is left to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if isinstance(error, OSError) and is_full(error):
            error = full_disk(error)
        hint = getattr(error, "hint", None)
        if hint is None:
            raise
        _tell(error, hint)
        code = int(getattr(error, "exit_code", 2))
    return code


def is_full(error: OSError) -> bool:
    """Whether the disk, or the user's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def full_disk(error: OSError) -> KharnessError:
    """What to say of a full disk; `error` names the file if it knows it."""
    where = f"{error.filename}: " if error.filename else ""
    said = KharnessError(f"{where}{(error.strerror or str(error)).lower()}", hint="free some space")
    said.exit_code = EXIT_DISK_FULL
    return said


def _tell(error: Exception, hint: str) -> None:
    lines = f"error: {error}\n" + (f"hint: {hint}\n" if hint else "")
    for stream, text in ((sys.stdout, ""), (sys.stderr, lines)):
        try:
            stream.write(text)
            stream.flush()
        except OSError:  # the output itself is on the full disk; the exit code still tells
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
