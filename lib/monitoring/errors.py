"""Errors that the user can fix: the root of all of them, and the one place that prints them.

UserError                    a message, a hint with one thing to try, the exit code
├── MonitoringError
│   ├── RunDirectoryError    the run directory cannot be made, written or understood
│   ├── RunBusyError         another process writes or follows this run
│   ├── UnknownFollower      no tracker or exporter of that name
│   ├── FollowerOptionsError an option that the follower does not have, or a value it refuses
│   ├── MissingPackage       the package of a follower or of a GPU sampler is not installed
│   ├── SamplerError         a driver is there and its GPUs cannot be sampled
│   ├── PortTakenError       an exporter cannot listen at the address it was given
│   └── NoTerminal           the dashboard has nothing to paint on
└── KharnessError            (kharness.config.errors)
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    import re

# sysexits.h EX_IOERR: a disk, or a user's quota on it, is full.
EXIT_DISK_FULL = 74


class UserError(Exception):
    """One sentence for the user, and in `hint` the next thing to try; commands exit with `exit_code`."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", exit_code: int | None = None) -> None:
        """`exit_code` where it is not that of the class."""
        super().__init__(message)
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code

    @property
    def message(self) -> str:
        return str(self)


class MonitoringError(UserError):
    """An error of monitoring that the user can fix."""


class RunDirectoryError(MonitoringError):
    """The run directory cannot be made, written or understood."""


class RunBusyError(MonitoringError):
    """Another process writes or follows this run."""


class UnknownFollower(MonitoringError):
    """No tracker or exporter has this name."""


class FollowerOptionsError(MonitoringError):
    """The follower has no such option, or refuses its value."""


class MissingPackage(MonitoringError):
    """The package that a follower writes with, or that a sampler reads with, is not installed."""


# What statistics, tables and pictures of a report are made with; the extra `report` brings it.
_OF_REPORTS = ("numpy", "scipy", "jinja2", "markupsafe", "matplotlib", "PIL")


@contextlib.contextmanager
def naming_package(what: str) -> Iterator[None]:
    """Raise MissingPackage, naming the extra to install, if `what` lacks a package."""
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in _OF_REPORTS:
            raise
        hint = "pip install numpy scipy jinja2 matplotlib pillow"
        raise MissingPackage(f"{what} needs {error.name}", hint=hint) from error


class SamplerError(MonitoringError):
    """A GPU driver is there, and its GPUs cannot be sampled."""


class PortTakenError(MonitoringError):
    """An exporter cannot listen at the address it was given."""

    is_of_host = False
    """Whether it is the host that is wrong, not the port."""

    def options_are(self, *, port: str, host: str) -> Self:
        """This error with a hint that names what a user of this entry point sets."""
        self.hint = f"choose a free port with {port}; 0 is any"
        if self.is_of_host:
            self.hint = f"set {host} to an address of this machine, such as 127.0.0.1"
        return self


class NoTerminal(MonitoringError):
    """The dashboard has no terminal to be shown in."""


def unwritable(path: Path, error: OSError) -> RunDirectoryError:
    """Return the error for a path that the system does not let us write."""
    full = is_full(error)
    return RunDirectoryError(
        f"{path} cannot be written: {refusal(error)}",
        hint="free some space" if full else "choose a run directory that you can write to",
        exit_code=EXIT_DISK_FULL if full else None,
    )


def make_directory(path: Path) -> None:
    """Make a directory and those above it, unless they are there; RunDirectoryError: it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def is_full(error: OSError) -> bool:
    """Whether an error means that the disk, or the user's quota, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def refusal(error: Exception) -> str:
    """Return why the system refused a call, as the end of a sentence."""
    return str(getattr(error, "strerror", None) or error).lower()


def failure(error: BaseException) -> str:
    """Return `Type: message` on one line; of imports that failed by one another it is the first one's.

    Where addresses are limited and there were too few, it says so.
    """
    import resource  # here: bad news is rare

    while isinstance(error, ImportError) and isinstance(error.__cause__, ImportError):
        error = error.__cause__
    kind, message = type(error).__name__, " ".join(str(error).split())
    told = f"{kind}: {message}" if message else kind
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return told
    is_short = isinstance(error, MemoryError) or any(words in message.lower() for words in _NO_ADDRESSES)
    return f"{told} (addresses are limited to {limit // 2**20} MiB, see `ulimit -v`)" if is_short else told


# What the loader, Python's threads and the system say.
_NO_ADDRESSES = ("failed to map segment", "can't start new thread", "cannot allocate memory")


def error_lines(message: object, hint: str = "") -> list[str]:
    """`error: …`, and `hint: …` if there is one; what a name may hold for a terminal is written out.

    A line break stays where the next line is indented, as in the list of all that is refused.
    """
    lines = [f"error: {message}", *([f"hint: {hint}"] if hint else [])]
    return ["\n  ".join(map(written_out, line.split("\n  "))) for line in lines]


def written_out(text: str) -> str:
    """Return the text with line breaks, escapes and other control characters as Python writes them."""
    return text.translate(_CONTROLS)


_CONTROLS = {ord(sign): ascii(sign)[1:-1] for sign in map(chr, range(ord("\xa0"))) if not sign.isprintable()}


def print_error(message: object, hint: str = "") -> None:
    """Print it on standard error in one write, after flushing standard output.

    On a terminal no line is wider than it; elsewhere each stays whole, for programs that read it.
    """
    sys.stdout.flush()
    text = "\n".join(error_lines(message, hint))
    print(fitting(text, columns_of(sys.stderr)), file=sys.stderr, flush=True)


def fitting(text: str, columns: int) -> str:
    """Return the text in lines of at most `columns`; as it is for 0."""
    return "\n".join(part for line in text.split("\n") for part in folded(line, columns)) if columns else text


def columns_of(stream: TextIO) -> int:
    """Width of the terminal that the stream writes to; 0 where it is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):  # closed, or no file
        return 0


def moves_cursor(stream: TextIO) -> bool:
    """Whether it is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def folded(line: str, columns: int) -> list[str]:
    """Return the line in parts of at most `columns`, further ones indented by two more; words stay whole.

    A command at its end, as in `resume with: make continue RUN=x`, is a line of its own that can be copied;
    one that is longer goes on after a backslash, as a shell takes it.
    """
    if len(line) <= columns:
        return [line]
    import re
    import textwrap

    if _is_command(line):
        return command_lines(line, columns)
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    wrapper = textwrap.TextWrapper(
        columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    start = r"(?<=: )(make|kharness|cd|\S*wandb) "
    command = re.search(f"{start}.*$", line)
    is_command = command is not None and _is_command(command[0])
    # All that is typed may have colons, as host:80 in a value; a command in a sentence follows its last one.
    command = command if is_command else re.search(f"{start}[^:]*$", line)
    before = line[: command.start()].rstrip() if command else ""
    if command and " " in before.lstrip() and (is_command or len(indent + command[0]) <= columns):
        return [*wrapper.wrap(before), *command_lines(indent + command[0], columns)]
    return command_lines(line, columns) if is_command else wrapper.wrap(line)


def _is_command(text: str) -> bool:
    """Whether all of it is typed: not a sentence that begins with a command."""
    typed = _shell_words(text)
    name, *words = typed[typed.index("&&") + 1 :] if "&&" in typed else typed or [""]
    if len(words) < 2 or any(word.endswith((",", ";")) for word in words):
        return False
    if name == "make":
        values = words[1:] if words[0].startswith("M=") else words
        first = next((at for at, word in enumerate(values) if "=" in word), len(values))
        return first < len(values) and all("=" in word for word in values[first:])
    is_program = name == "kharness" or name.endswith("wandb")
    return is_program and (words[1][0] in "-'\"" or "=" in words[1] or "/" in words[1])


def command_lines(line: str, columns: int) -> list[str]:
    """Return a command in lines of at most `columns` that a shell takes as one.

    Words stay whole, quoted ones too; what controls a terminal is written out, in `$'…'`. With 0 columns
    there is one line.
    """
    import re

    if not line.isprintable():
        line = re.sub(r"""'[^']*'|"[^"]*\"""", _without_controls, line)
    if len(line) <= columns or not columns:
        return [line]
    start = line[: len(line) - len(line.lstrip())]
    first, *words = _shell_words(line)
    lines = [start + first]
    for place, word in enumerate(words, start=1):
        rest = 0 if place == len(words) else len(" \\")
        if len(lines[-1]) + 1 + len(word) + rest <= columns:
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(f"{start}    {word}")
    return lines


def _shell_words(command: str) -> list[str]:
    import re

    return re.findall(r"""(?:'[^']*'|"[^"]*"|\S)+""", command)


def _without_controls(quoted: re.Match[str]) -> str:
    text = quoted[0]
    # A line break between quotes is one for every shell, and does a terminal no harm; `$'…'` is not for all.
    if text.replace("\n", "").isprintable():
        return text
    return "$'" + written_out(text[1:-1].replace("\\", "\\\\")) + "'"


def report_error(error: UserError) -> int:
    """Print the error and its hint; returns the exit code."""
    print_error(error, error.hint)
    return error.exit_code
