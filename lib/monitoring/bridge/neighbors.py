"""Bridges whose programs run in one folder, and so may write their files beside each other."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator
from pathlib import Path

from monitoring.host.process import process_started
from monitoring.journal.files import journal_name


class Neighbors:
    """The bridges of a folder: each has an entry in a directory of theirs, by which the others see it.

    Whoever comes or goes changes that directory, so that also one is seen which was there for a moment. The
    entry of a bridge that was killed tells the next one of its run whether anybody was.
    """

    def __init__(self, cwd: Path, run_dir: Path) -> None:
        """Enter this process; where that is not possible, nobody is ever seen."""
        self._seen_earlier = (run_dir / journal_name(0)).exists()
        # tempfile, which looks for more places, takes as long to import as all of a bridge's start may
        shared = Path(os.environ.get("TMPDIR") or "/tmp", f"monitoring-bridges-{os.getuid()}")
        self._folder = shared / folder_name(cwd)
        self._own = self._folder / f"{os.getpid()}-{process_started(os.getpid())}"
        self._seen = False
        self._changed = 0
        with contextlib.suppress(OSError):
            self._folder.parent.mkdir(mode=0o700, exist_ok=True)
            if self._folder.parent.lstat().st_uid != os.getuid():
                return
            self._folder.mkdir(mode=0o700, exist_ok=True)
            changed = self._folder.stat().st_mtime_ns
            for entry in self._others():
                if not _is_there(entry):
                    if (told := _told(entry)) and told[2] == str(run_dir):
                        self._seen_earlier = told[:2] != [str(changed), "0"]
                    entry.unlink(missing_ok=True)
            self._own.touch()
            self._changed = self._folder.stat().st_mtime_ns
            is_seen = str(int(self._seen_earlier or any(self._others())))
            self._own.write_text(f"{self._changed} {is_seen} {run_dir}")

    def earlier(self) -> Neighbors:
        """Return those of this run's earlier bridges: somebody, where the entry of a killed one is gone."""
        found = copy.copy(self)
        found._seen = bool(self._changed) and (self._seen_earlier or self.seen())
        return found

    def seen(self) -> bool:
        """Whether another bridge has been there since this one came."""
        if not self._seen and self._changed:
            with contextlib.suppress(OSError):
                self._seen = self._folder.stat().st_mtime_ns != self._changed or any(self._others())
        return self._seen

    def leave(self) -> None:
        """Take this process's entry out."""
        with contextlib.suppress(OSError):
            self._own.unlink(missing_ok=True)
            self._folder.rmdir()

    def _others(self) -> Iterator[Path]:
        return (Path(entry) for entry in os.scandir(self._folder) if entry.name != self._own.name)


def folder_name(cwd: Path) -> str:
    """Return a name that a folder has under all of its paths."""
    try:
        found = cwd.stat()
    except OSError:  # no program can be started there
        return "none"
    return f"{found.st_dev:x}-{found.st_ino:x}"


def _told(entry: Path) -> list[str]:
    """Return what a bridge has written: when its folder had changed, whether others were there, its run."""
    with contextlib.suppress(OSError):
        return [*entry.read_text().split(" ", 2), "", "", ""][:3]
    return []


def _is_there(entry: Path) -> bool:
    pid, _, started = entry.name.partition("-")
    return pid.isdecimal() and str(process_started(int(pid))) == started
