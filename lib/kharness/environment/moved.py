"""An environment whose folder was renamed, moved or copied: its files name the folder that it was made in."""

from __future__ import annotations

import os
import re
from pathlib import Path

# What `python -m venv` notes of the call that `Installer.make_environment` makes.
MADE = re.compile(r"^command = .* -m venv --without-pip (.+)$", re.MULTILINE)

# Bytes of a script's first line that Linux reads; one with a space in the path names no program.
LONGEST = 127


def moved_from(venv: Path) -> Path | None:
    """Where it was made, unless that is where it is, or nobody noted it."""
    try:
        made = MADE.search((venv / "pyvenv.cfg").read_text())
    except OSError:
        return None
    return Path(made[1]) if made and Path(made[1]) != Path(os.path.abspath(venv)) else None


def move_scripts(venv: Path, old: Path) -> None:
    """Have the scripts in bin/ run by the Python that is beside them."""
    python = re.escape(f"{old}/bin/").encode() + rb"""([^/'" \n]+)"""
    first = re.compile(b"#!%b\n|#!/bin/sh\n'''exec' ['\"]?%b['\"]? .*\n' '''\n" % (python, python))
    for script in (venv / "bin").iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        content = script.read_bytes()
        if found := first.match(content):
            name = (found[1] or found[2]).decode()
            script.write_bytes(_first(Path(os.path.abspath(venv), "bin", name)) + content[found.end() :])


def _first(python: Path) -> bytes:
    line = f"#!{python}\n".encode()
    if b" " in line or len(line) > LONGEST:
        line = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n".encode()
    return line
