"""Run directories: unique names, and the link to the newest."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from kharness.config.make.typed import typed_setting
from kharness.config.places import asked_path
from kharness.runs.errors import MatrixError
from kharness.runs.files import LATEST, MATRIX_JSON
from monitoring.errors import refusal
from monitoring.journal.atomic_file import name_beside


def results_directory(configured: str, output: Path) -> Path:
    """RESULTS_DIR; a relative one starts at the output directory."""
    return output / asked_path("RESULTS_DIR", configured)


def has_plan(directory: Path) -> bool:
    """Whether it is the directory of a matrix."""
    return plan_path(directory).is_file()


def plan_path(directory: Path) -> Path:
    """Where the plan of a matrix lies."""
    return directory / MATRIX_JSON


def stamp(now: float | None = None) -> str:
    """UTC time, that of epoch seconds or now, as 20260131T235959Z."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))


def create_exclusively(parent: Path, name: str) -> Path | None:
    """Make parent/name; None if that is taken, so that two starters never share a directory."""
    directory = parent / name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir()
    except FileExistsError:
        if directory.parent.is_dir():
            return None
        given = typed_setting("set RESULTS_DIR to", "--results names")
        raise MatrixError(f"{parent} is not a directory", hint=f"{given} a folder") from None
    except OSError as error:
        raise MatrixError(
            f"no run can be made in {parent}: {refusal(error)}",
            hint=f"{typed_setting('set RESULTS_DIR to', '--results names')} a folder that you can write to",
        ) from error
    return directory


def numbered(name: str, attempt: int) -> str:
    """name, name_2, name_3 …"""
    return name if attempt == 1 else f"{name}_{attempt}"


def sync_filesystem(folder: Path) -> None:
    """Return when everything written on the folder's file system so far survives a loss of power.

    One call for thousands of files: flushing each takes longer than writing them all.
    """
    if sys.platform == "linux":
        from monitoring.host import libc  # it loads ctypes, for which a program that is started would wait

        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if libc.sync_filesystem(descriptor):
                return
        finally:
            os.close(descriptor)
    os.sync()


def link_latest(directory: Path) -> bool:
    """Point the `latest` next to a directory at it, in one step; False where something else has that name."""
    link = directory.parent / LATEST
    if link.exists() and not link.is_symlink():
        return False
    temporary = name_beside(link)
    temporary.symlink_to(directory.name)
    os.replace(temporary, link)
    return True
