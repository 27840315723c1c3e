"""The commands that the pages of this repository name, in blocks and within their text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```", flags=re.M | re.S)
PROGRAMS = r"(make|kharness|python|pip|wandb|trackio|tensorboard|mlflow|torchrun|\.venv/bin/\S+|scripts/\S+)"
# Between two commands of a line.
BETWEEN = {"&&", "||", ";", "|", "&"}
# What a reader fills in; a command that breaks off is followed by more words of the reader's own.
PLACEHOLDER = re.compile(r"<[\w .-]+>|…|\bNAME=value\b")


@dataclass(frozen=True)
class DocumentedCommand:
    """The words of a command, as a shell splits them, after what it sets in the environment."""

    page: str
    words: tuple[str, ...]
    before: tuple[str, ...] = ()
    """The configurations that the lines above it in the same block have made: names of presets."""

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"

    @property
    def program(self) -> str:
        return self.words[0]


def commands_in(page: Path) -> Iterator[DocumentedCommand]:
    """All of a page, those of blocks first."""
    text = page.read_text()
    for language, body in BLOCK.findall(text):
        if language != "bash":
            continue
        before: tuple[str, ...] = ()
        for line in body.replace("\\\n", " ").splitlines():
            for command in of_line(page.name, line, before):
                yield command
                before += tuple(preset for word in command.words if (preset := preset_of(word)))
    for span in re.findall(r"`([^`]+)`", BLOCK.sub("", text)):
        line = " ".join(span.split())
        if re.match(rf"{PROGRAMS}( |$)", line):
            yield from of_line(page.name, line, ())


def of_line(page: str, line: str, before: tuple[str, ...]) -> Iterator[DocumentedCommand]:
    # What is to be filled in is one word, and no redirection.
    filled = re.sub(r"<([\w .-]+)>", lambda found: found[1].replace(" ", "-"), line)
    splitter = shlex.shlex(filled, posix=True, punctuation_chars="&|;")
    splitter.whitespace_split, splitter.commenters = True, "#"
    words: list[str] = []
    for word in [*splitter, ";"]:
        if word not in BETWEEN:
            words.append(word)
            continue
        while words and (re.match(r"[A-Z_]+=", words[0]) or words[0] in ("time", "do", "$")):
            words.pop(0)
        if words:
            yield DocumentedCommand(page, tuple(words), before)
        words = []


def preset_of(word: str) -> str:
    """The preset that a word of a make command names."""
    found = re.fullmatch(r"(?:defconfig-|DEFCONFIG=)([\w-]+)", word)
    return found[1] if found else ""
