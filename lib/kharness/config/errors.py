"""The errors a user can mend, and the one place where they become a line on the terminal.

KharnessError        base: a message, a hint with one thing to try, the exit code
└── ConfigError      a configuration that cannot be taken as it was asked for
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving a whole configuration
    from typing import NoReturn


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

    Any exception with a `hint` is reported in two lines; every other one is a bug and keeps its traceback.
    """
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
        hint = getattr(error, "hint", None)
        if hint is None:
            raise
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        if hint:
            print(f"hint: {hint}", file=sys.stderr)
        code = int(getattr(error, "exit_code", 2))
    sys.exit(code)
