"""Text that a run, a plan or a data set brought along, made fit for a terminal or a page in Markdown."""

from __future__ import annotations

import re

# ECMA-48 control sequences (colors, cursor), operating system commands (titles), and two-byte escapes.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What neither XML 1.0 nor a terminal's reader can use, the eight-bit controls too; tabs and line ends stay.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

# What has a meaning within a line of GitHub-flavoured Markdown (CommonMark 0.31.2, section 6; tables,
# strikethrough and formulas are GitHub's). An underscore within a word has none, nor has a lone `&`.
_INLINE = re.compile(r"[\\`*\[\]<|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|#(?=#*\s*$)")
# What makes a line a quote, a heading, a rule or a list (sections 4 and 5).
_BLOCK = re.compile(r">|#{1,6}(?=\s|$)|[-+](?=\s|$)|-(?=[-\s]+$)|(?<=\d)[.)](?=\s|$)")
_NUMBER = re.compile(r"\d{1,9}(?=[.)])")
_LINE_ENDS = re.compile(r"\s*[\t\n\u2028\u2029]\s*")


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


def list_item(line: str) -> str:
    """An item of a list in Markdown; the line is Markdown too, but begins no heading, quote or other list."""
    line = line.strip()
    number = _NUMBER.match(line)
    begins = _BLOCK.match(line, number.end() if number else 0)
    return f"- {line[: begins.start()]}\\{line[begins.start() :]}" if begins else f"- {line}"
