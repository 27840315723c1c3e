"""Finds the Python that runs a program, whose packages are part of what the program computes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_PYTHON = re.compile(r"python[\d.]*")
# Bytes of a file in which its first line ends.
_FIRST_LINE = 1024


def interpreter_of(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> str | None:
    """Return the Python that runs a command: its first word, or what the first line of that file names.

    So torchrun and other scripts have theirs. None for a program of another kind, such as a shell's script.
    """
    program = found_program(command[0], cwd, environment)
    for _ in range(2):  # a script, and `env` in its first line
        if program is None or _PYTHON.fullmatch(Path(program).name):
            return program
        words = _named_by(program)
        if words and Path(words[0]).name == "env":
            words = [word for word in words[1:] if word != "-S"]
        program = found_program(words[0], cwd, environment) if words else None
    return None


def found_program(program: str, cwd: Path, environment: Mapping[str, str]) -> str | None:
    """Return the file that a first word of a command stands for in a folder; None where there is none."""
    # as shutil.which, which takes longer to import than to ask
    if os.sep in program:
        files = [str(cwd / program)]
    else:
        files = [os.path.join(folder, program) for folder in os.get_exec_path(environment)]
    return next((file for file in files if os.path.isfile(file) and os.access(file, os.X_OK)), None)


def _named_by(file: str) -> list[str]:
    """Return the words behind `#!`."""
    try:
        with open(file, "rb") as opened:
            first = opened.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return []
    return os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
