"""Errors that the user can fix, and the one place where a command ends by printing them.

UserError                (monitoring.errors)
└── KharnessError
    └── ConfigError      a configuration that cannot be taken as requested
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from kharness.config.output import lasting_text, lost_text
from kharness.quiet import heed_interrupt
from monitoring.errors import EXIT_DISK_FULL, UserError, columns_of, is_full, refusal, report_error

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as resolving all of a configuration
    from typing import NoReturn, TextIO


RENDEZVOUS_FILE = "KHARNESS_RENDEZVOUS_FILE"
"""Variable with the file over which the processes (ranks) of a training on one host meet."""

_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class KharnessError(UserError):
    """A kharness error that the user can fix."""


class ConfigError(KharnessError):
    """A value, file or tree that cannot be taken as requested."""


def shadowed(module: str, what: str) -> ConfigError:
    """The error for another package that took the place of one of kconfiglib's modules."""
    return ConfigError(
        f"the installed {module} is not that of kconfiglib 14.1.0: it {what}",
        hint="esp-idf-kconfig installs packages of that name: pip uninstall esp-idf-kconfig, "
        "then pip install --force-reinstall kconfiglib==14.1.0",
    )


def run_command(main: Callable[[Sequence[str]], int | None]) -> NoReturn:
    """Run `main(argv)` and exit: 0, its own code, 2 for what the user can fix, 130 for Ctrl-C.

    A UserError, and a full disk wherever it is met (74), is reported in two lines; every other exception
    is a bug and keeps its traceback. Printing never ends `main`: a reader that is gone, or a
    terminal that is closed, is no error; a file that did not take all that was printed is one at the end.
    """
    sys.exit(exit_code(main))


def exit_code(main: Callable[[Sequence[str]], int | None]) -> int:
    """Return the exit code of `main(argv)`, reporting errors as run_command does."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(lasting_text, before)
    try:
        heed_interrupt()
        code = main(sys.argv[1:]) or 0
        sys.stdout.flush()
        code = code or _unless_lost(sys.stdout)
    except KeyboardInterrupt:
        if columns_of(sys.stderr):  # the terminal's ^C has no line of its own: the prompt would follow it
            print(file=sys.stderr)
        code = 130
    except UserError as error:
        code = report_error(error)
    except OSError as error:
        if not is_full(error):
            raise
        code = report_error(full_disk(error))
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before
    return code


def is_launched(environment: Mapping[str, str]) -> bool:
    """Whether torchrun, or a launcher like it, has started this process as one of several."""
    if RENDEZVOUS_FILE in environment:
        return True
    return all(name in environment for name in _OF_TORCHRUN)


@contextmanager
def reported_once(environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Within it only the first process of a training on each host reports the user's errors.

    For what all of them meet alike before they know each other, such as a wrong flag; all exit with its code.
    """
    try:
        yield
    except UserError as error:
        if is_launched(environment) and environment.get("LOCAL_RANK", "0") != "0":
            sys.exit(error.exit_code)
        raise


def full_disk(error: OSError) -> KharnessError:
    """Return the error for a full disk; `error` names the file if it knows it."""
    where = f"{error.filename}: " if error.filename else ""
    message = f"{where}{refusal(error)}"
    return KharnessError(message, hint="free some space", exit_code=EXIT_DISK_FULL)


def _unless_lost(stream: TextIO) -> int:
    """Return 74, reported on standard error, if output meant for a file did not fit on the disk."""
    lost = lost_text(stream)
    if lost is None:
        return 0
    return report_error(full_disk(OSError(lost.errno, lost.strerror, "what was printed")))
