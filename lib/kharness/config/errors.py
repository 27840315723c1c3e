"""The errors a user can mend, and the one place where they become a line on the terminal.

KharnessError        base: a message, a hint with one thing to try, the exit code
└── ConfigError      a configuration that cannot be taken as it was asked for
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from kharness.config.output import FULL, lasting_text, lost_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving a whole configuration
    from typing import NoReturn, TextIO


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
    other one is a bug and keeps its traceback. Printing never ends `main`: a reader that is gone, or a
    terminal that is closed, is no error; a file that did not take all that was printed is one at the end.
    """
    sys.exit(exit_code(main))


def exit_code(main: Callable[[Sequence[str]], int | None]) -> int:
    """The exit code of `main(argv)`, what went wrong reported as run_command does."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(lasting_text, before)
    try:
        code = main(sys.argv[1:]) or 0
        sys.stdout.flush()
        code = code or _unless_lost(sys.stdout)
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        if isinstance(error, OSError) and is_full(error):
            error = full_disk(error)
        hint = getattr(error, "hint", None)
        if hint is None:
            raise
        _tell(error, hint)
        code = int(getattr(error, "exit_code", 2))
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before
    return code


def is_full(error: OSError) -> bool:
    """Whether the disk, or the user's share of it, is full."""
    return error.errno in FULL


def full_disk(error: OSError) -> KharnessError:
    """What to say of a full disk; `error` names the file if it knows it."""
    where = f"{error.filename}: " if error.filename else ""
    said = KharnessError(f"{where}{(error.strerror or str(error)).lower()}", hint="free some space")
    said.exit_code = EXIT_DISK_FULL
    return said


def _tell(error: Exception, hint: str) -> None:
    sys.stdout.flush()
    print(f"error: {error}\n" + (f"hint: {hint}\n" if hint else ""), end="", file=sys.stderr, flush=True)


def _unless_lost(stream: TextIO) -> int:
    """74, said on standard error, if what was printed did not fit where somebody meant to keep it."""
    lost = lost_text(stream)
    if lost is None:
        return 0
    _tell(full_disk(OSError(lost.errno, lost.strerror, "what was printed")), "free some space")
    return EXIT_DISK_FULL
