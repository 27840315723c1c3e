"""Reports: files of which one that fails does not prevent the others, their tables, and texts of runs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kharness.config.errors import KharnessError
from monitoring.errors import EXIT_DISK_FULL, UserError, is_full, refusal

Made = TypeVar("Made")


def guarded(
    name: str,
    make: Callable[[], Made],
    instead: Made,
    warn: Callable[[str], object],
    *,
    raises: type[Exception] | tuple[()] = (),
) -> Made:
    """Return the result of `make`; if it fails return `instead` and pass `warn` the exception in a line.

    Errors of the type `raises` are the caller's.
    """
    try:
        return make()
    except raises:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - costs a warning, and nothing else
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        warn(on_one_line(f"{name}: {reason}"))
        return instead


class NotWritten(KharnessError):
    """Files that could not be written; exit code 74 if a disk is full."""


class Writing:
    """Calls functions that write files, and collects their errors for the end."""

    def __init__(self) -> None:
        self.written: list[Path] = []
        self._failed: list[OSError] = []
        self._left_out: list[str] = []

    def write(self, write: Callable[[], Sequence[Path]]) -> bool:
        """Whether it could write all of its files; those are in `written`."""
        try:
            self.written += write()
        except OSError as error:
            self._failed.append(error)
            return False
        return True

    def take(self, other: Writing) -> None:
        """Add the results of another Writing."""
        self.written += other.written
        self._failed += other._failed

    def leave_out(self, what: str) -> None:
        """Name a file that is not attempted because an earlier one failed."""
        self._left_out.append(what)

    def check(self, *, again: str) -> None:
        """Raise NotWritten with every file that is missing; `again` is the command for once there is room."""
        if not self._failed:
            return
        reasons = [f"{_shown(error)}: {refusal(error)}" for error in self._failed]
        reasons += self._left_out
        full = any(map(is_full, self._failed))
        message = reasons[0]
        if len(reasons) > 1:
            message = "\n  ".join(["the report is not complete", *reasons])
        remedy = "free some space" if full else "make it writable"
        code = EXIT_DISK_FULL if full else None
        raise NotWritten(message, hint=f"{remedy}, then: {again}", exit_code=code)


def _shown(error: OSError) -> str:
    """The file, as one types it here."""
    path = Path(os.fsdecode(error.filename)) if error.filename else Path("a file")
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


# ECMA-48 control sequences (colors, cursor), operating system commands (titles), and two-byte escapes.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What neither XML 1.0 nor a terminal's reader can use, the eight-bit controls too; tabs and line ends stay.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

# What has a meaning within a line of GitHub Flavored Markdown (CommonMark 0.31.2, section 6; tables,
# strikethrough and formulas are GitHub's). An underscore within a word has none, nor has a lone `&`.
_INLINE = re.compile(r"[\\`*\[\]<|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|#(?=#*\s*$)")
# What makes a line a quote, a heading, a rule or a list (sections 4 and 5).
_BLOCK = re.compile(r">|#{1,6}(?=\s|$)|[-+](?=\s|$)|-(?=[-\s]+$)|(?<=\d)[.)](?=\s|$)")
_NUMBER = re.compile(r"\d{1,9}(?=[.)])")
_LINE_ENDS = re.compile(r"\s*[\t\n\u2028\u2029]\s*")


def attributes(one: object, *names: str) -> dict[str, object]:
    """Return some attributes of an object by their names, as JSON has them."""
    return {name: getattr(one, name) for name in names}


def readable(text: str) -> str:
    """Text without terminal controls; of what a progress bar overwrote, the last state."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROL.sub("\ufffd", text)


def on_one_line(text: str) -> str:
    """The same with a blank for each tab and line end, as a table needs it."""
    return _LINE_ENDS.sub(" ", readable(text))


def in_markdown(text: str) -> str:
    """Escape text so that Markdown shows it letter for letter within a line, such as in a table's cell."""
    return _INLINE.sub(r"\\\g<0>", on_one_line(text))


def markdown_list(lines: Iterable[str]) -> list[str]:
    """One paragraph with the lines as the items of a list, letter for letter; none without lines."""
    items = [list_item(in_markdown(line)) for line in lines]
    return ["\n".join(items)] if items else []


def list_item(line: str) -> str:
    """An item of a list in Markdown; the line is Markdown too, but begins no heading, quote or other list."""
    line = line.strip()
    number = _NUMBER.match(line)
    begins = _BLOCK.match(line, number.end() if number else 0)
    return f"- {line[: begins.start()]}\\{line[begins.start() :]}" if begins else f"- {line}"


ABSENT = "-"


@dataclass(frozen=True)
class Table:
    """Cells of text; the first `text_columns` are words, the others numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int

    def plain(self) -> str:
        """Columns lined up with spaces, for a terminal."""
        header, *rows = [[on_one_line(text) for text in row] for row in (self.header, *self.rows)]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = []
        for row in (header, ["-" * width for width in widths], *rows):
            parts = [
                text.ljust(width) if i < self.text_columns else text.rjust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(parts).rstrip())
        return "\n".join(lines)

    def without_empty(self) -> Table:
        """The same without columns in which no row has anything; the first one stays."""
        kept = [
            i
            for i in range(len(self.header))
            if i == 0 or not self.rows or any(row[i] not in (ABSENT, "") for row in self.rows)
        ]
        return Table(
            [self.header[i] for i in kept],
            [[row[i] for i in kept] for row in self.rows],
            sum(i < self.text_columns for i in kept),
        )

    def markdown(self) -> str:
        """A table of GitHub Flavored Markdown; every cell is shown letter for letter."""
        rule = [":---" if i < self.text_columns else "---:" for i in range(len(self.header))]
        header, *rows = [[in_markdown(text) for text in row] for row in (self.header, *self.rows)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))
