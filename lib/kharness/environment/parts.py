"""Install what a make call needs beyond the default environment, before anything runs."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from kharness.environment.create import RUN, create, fingerprint
from kharness.environment.locks import FOLDER, installed, normalized

# Those that set-up and `make check` install.
NOT_OPTIONAL = frozenset({"cuda", "torch", "test", "config", "dashboard", RUN})


def bring_for(configurations: Iterable[Mapping[str, object]]) -> None:
    """Install the trackers that trainings with these values report to; InstallError if that fails."""
    parts = _parts()
    bring({part for values in configurations for part in parts if values.get(f"ENABLE_{part.upper()}")})


def bring(parts: Collection[str]) -> None:
    """Install what is not there or pinned otherwise since; only where set-up has made the environment.

    In any other, and for names that are no part, the error of what is missing says what to install.
    """
    venv = Path(sys.prefix)
    if not (venv / ".ready").exists():
        return
    there = installed(venv)
    for part in sorted(_parts() & set(parts)):
        stamp = venv / f".ready-{part}"
        is_there = _named(part) <= there.keys()
        if not is_there or (stamp.exists() and stamp.read_text() != fingerprint([part])):
            create(stamp, [part])
            importlib.invalidate_caches()


def _parts() -> set[str]:
    return {path.stem for path in FOLDER.glob("*.txt")} - NOT_OPTIONAL


def _named(part: str) -> set[str]:
    """The packages that a part is for."""
    lines = (FOLDER / f"{part}.in").read_text().splitlines()
    return {normalized(re.split(r"[<>=!~\[ ;#]", line)[0]) for line in lines if line and line[0] not in "#-"}
