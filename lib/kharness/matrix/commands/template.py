"""Placeholders: `--lr {lr}` and `{flag?}` in the words of a command, its environment and its files.

A word is passed to the program letter for letter; no shell ever sees it. `{{` and `}}` are braces.
"""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kharness.runs.errors import MatrixError

# Placeholders that every run has beside the axes: its directory, and its name.
RUN_DIR, RUN_NAME = "run_dir", "run_name"
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)(\?)?\}")


@dataclass(frozen=True)
class Template:
    """A command with placeholders."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The placeholders in the order of their first use."""
        texts = [*self.words, *self.environment.values()]
        found = [match[1] for text in texts for match in _PLACEHOLDER.finditer(text) if match[1]]
        return list(dict.fromkeys(found))

    def check(self, axes: Iterable[str], cwd: Path) -> None:
        """MatrixError for a placeholder that is no axis, an axis without one, and a command not found."""
        known = list(axes)
        if not self.words:
            raise MatrixError(
                "there is no command", hint="kharness matrix -a lr=1,2 -- python train.py --lr {lr}"
            )
        for name in self.names:
            if name not in (*known, RUN_DIR, RUN_NAME):
                near = difflib.get_close_matches(name, [*known, RUN_DIR, RUN_NAME], 1)
                raise MatrixError(
                    f"{{{name}}} is no axis",
                    hint=f"perhaps {{{near[0]}}}"
                    if near
                    else f"give -a {name}=value,value, or write {{{{{name}}}}}",
                )
        for axis in known:
            if axis not in self.names:
                raise MatrixError(
                    f"the command never receives the axis {axis}",
                    hint=f"write {{{axis}}} where its value belongs: --{axis} {{{axis}}}",
                )
        program = self.words[0]
        if "{" not in program and _which(program, cwd) is None:
            raise MatrixError(f"{program} is not found", hint="give the command as you would type it here")

    def filled(self, values: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """Return the words and the environment with these values."""
        words = [found for word in self.words if (found := _filled(word, values)) is not None]
        environment = {name: _filled(text, values) or "" for name, text in self.environment.items()}
        return words, environment


def _filled(text: str, values: Mapping[str, str]) -> str | None:
    """Return the text with its values; None where a `{flag?}` in it is `n`."""
    gone = False

    def value(match: re.Match[str]) -> str:
        nonlocal gone
        if match[1] is None:
            return match[0][0]
        if not match[2]:
            return values[match[1]]
        said = values[match[1]]
        gone = gone or said in ("n", "false", "False", "0", "")
        return "" if said in ("y", "true", "True", "1") else said

    found = _PLACEHOLDER.sub(value, text)
    return None if gone else found


def _which(program: str, cwd: Path) -> str | None:
    if "/" in program:
        return shutil.which(cwd / program)
    return shutil.which(program)
