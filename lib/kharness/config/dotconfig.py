"""The text format of `.config`, presets and fragments, line by line and without the option tree."""

from __future__ import annotations

import functools
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kharness.config.errors import ConfigError
from monitoring.errors import refusal

CONFIG = ".config"
HEADER = "Automatically generated file; DO NOT EDIT."
"""In the second line of every complete `.config`, ours and C conf's; presets and fragments lack it."""

_MOST_BYTES = 1 << 24
"""A thousand times a complete `.config`."""

_SET = re.compile(r"CONFIG_([A-Za-z0-9_]+)=(.*)", re.ASCII | re.DOTALL)
_UNSET = re.compile(r"# CONFIG_([A-Za-z0-9_]+) is not set", re.ASCII)
_NEARLY_SET = re.compile(r"\W*(?:CONFIG_)?([A-Z][A-Z0-9_]*)\s*=")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True)
class ConfigLine:
    """One assignment as written in a file."""

    number: int
    symbol: str
    text: str | None
    """Right of the `=`, quotes and all; None for `# CONFIG_X is not set`."""


def read_text(path: Path, shown: str) -> str:
    """The file's text; ConfigError if it is missing, unreadable, no file of a config's size, or not UTF-8."""
    try:
        _refuse_endless(path, shown)
        data = path.read_bytes()
    except OSError as error:
        reason = refusal(error)
        raise ConfigError(f"{shown}: {reason}", hint="check the path, and that you may read it") from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{shown}:{line}: byte 0x{data[error.start]:02x} is not UTF-8",
            hint=f"save the file as UTF-8, for example: iconv -f latin1 -t utf-8 {path.name}",
        ) from error


def _refuse_endless(path: Path, shown: str) -> None:
    """A device or a pipe may have no end, or never begin."""
    about = path.stat()
    if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
        raise ConfigError(f"{shown} is not a regular file", hint="name a text file")
    if about.st_size > _MOST_BYTES:
        raise ConfigError(
            f"{shown} has {about.st_size:,} bytes: it is not a configuration", hint="name a text file"
        )


def parse_lines(text: str, shown: str) -> Iterator[ConfigLine]:
    """Every assignment of a file called `shown`; ConfigError at a line that is neither one nor a comment."""
    # Not splitlines(): it would also split inside strings that hold a form feed or a Unicode line separator.
    for number, raw in enumerate(text.split("\n"), 1):
        if (found := _assigned(raw)) is not None:
            yield ConfigLine(number, *found)
        elif (line := raw.rstrip(" \t\r")) and not line.lstrip().startswith("#"):
            nearly = _NEARLY_SET.match(line)
            raise ConfigError(
                f"{shown}:{number}: {line[:60]!r} is not an assignment",
                hint=f"write CONFIG_{nearly[1]}=… from the first column on and without blanks around the ="
                if nearly
                else "lines are CONFIG_NAME=value, '# CONFIG_NAME is not set', or comments that start with #",
            )


def assigned(text: str) -> list[tuple[str, str | None]]:
    """Symbol and text of each assignment of a `.config` that kharness has written."""
    return [found for raw in text.split("\n") if (found := _assigned(raw)) is not None]


@functools.lru_cache(maxsize=4096)
def _assigned(raw: str) -> tuple[str, str | None] | None:
    """Symbol and text of a line, None where it is no assignment. The cells of a matrix share most lines."""
    line = raw.rstrip(" \t\r")
    if match := _SET.fullmatch(line):
        return match[1], match[2]
    return (match[1], None) if (match := _UNSET.fullmatch(line)) else None


def quote(value: str) -> str:
    """A string value as written in `.config`."""
    return '"' + value.replace("\\", r"\\").replace('"', r"\"") + '"'


def unquote(text: str) -> str:
    """The string that a quoted right-hand side means; ValueError says what is wrong with it."""
    if not text.startswith('"'):
        raise ValueError("needs double quotes")
    value: list[str] = []
    rest = iter(enumerate(text[1:], 1))
    for position, char in rest:
        if char == '"':
            after = text[position + 1 :].strip()
            if after.startswith("#"):
                raise ValueError("is followed by an inline comment")
            if after:
                raise ValueError(f"is followed by {after[:40]!r} after its closing quote")
            return "".join(value)
        if char == "\\":
            char = next(rest, (0, ""))[1]
        value.append(char)
    raise ValueError("has an unterminated quote")


def plain_value(line: ConfigLine, kind: str, where: str, *, number: bool = False) -> str:
    """The value that a line gives a symbol of type `kind` (`bool`, `int`, `hex`, `string`), unquoted.

    A string that stands for numbers (`number`) needs no quotes.
    ConfigError, located at `where`, for quotes that are missing, too many or open, and for inline comments.
    """
    if line.text is None:
        if kind != "bool":
            raise ConfigError(
                f"{where}: {line.symbol} is of type {kind} and cannot be unset",
                hint="give it a value, or remove the line",
            )
        return "n"
    given = f"{where}: {line.symbol}={line.text[:60]}"
    before_comment = line.text.partition("#")[0].strip()
    if kind == "string" and not (number and '"' not in line.text):
        try:
            return unquote(line.text)
        except ValueError as error:
            value = quote(before_comment.strip('"'))
            hint = f"write CONFIG_{line.symbol}={value}"
            raise ConfigError(f"{given} {error}", hint=hint) from None
    if "#" in line.text:
        raise ConfigError(
            f"{given} is followed by an inline comment",
            hint=f"put the comment on a line of its own above CONFIG_{line.symbol}={before_comment}",
        )
    if line.text.startswith('"'):
        bare = line.text.strip('"')
        raise ConfigError(
            f"{given} is quoted, but is of type {kind}", hint=f"write CONFIG_{line.symbol}={bare}"
        )
    return line.text


def check_storable(value: str) -> None:
    """Raise ConfigError for text no `.config` line can hold: line breaks, control characters, not UTF-8."""
    if match := _UNPRINTABLE.search(value):
        what = "a line break" if match[0] in "\r\n" else f"the control character {match[0]!r}"
        raise ValueError(f"holds {what}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("is not UTF-8") from None
