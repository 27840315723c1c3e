"""Bridges whose programs run in one folder, and so may write their files beside each other."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator
from pathlib import Path

from monitoring.host.process import process_started


class Neighbors:
    """The bridges of a folder: each has an entry in a directory of theirs, by which the others see it.

    Whoever comes or goes changes that directory, so that also one is seen which was there for a moment. The
    entry of a bridge that was killed tells the next one of its run whether anybody was.
    """

    def __init__(self, cwd: Path, run_dir: Path, *, was_killed: bool) -> None:
        """Enter this process; where that is not possible, nobody is ever seen.

        Where the run's last bridge `was_killed`, whether anybody was there is asked of that one's time, too.
        """
        self._run_dir = run_dir
        self._seen_earlier = was_killed
        # tempfile, which looks for more places, takes as long to import as all of a bridge's start may
        shared = Path(os.environ.get("TMPDIR") or "/tmp", f"monitoring-bridges-{os.getuid()}")
        self._folder = shared / folder_name(cwd)
        self._own = self._folder / f"{os.getpid()}-{process_started(os.getpid())}"
        self._held: list[int] = []
        self._seen = False
        self._changed = 0
        with contextlib.suppress(OSError):
            # as long as this process has it open, no other folder gets the number of one that is removed
            self._held.append(os.open(cwd, os.O_PATH))
            self._folder.parent.mkdir(mode=0o700, exist_ok=True)
            if self._folder.parent.lstat().st_uid != os.getuid():
                return
            self._folder.mkdir(mode=0o700, exist_ok=True)
            changed = self._folder.stat().st_mtime_ns
            for entry in self._others():
                if not _is_there(entry):
                    if (told := _told(entry)) and told[2] == str(run_dir):
                        self._seen_earlier = was_killed and told[:2] != [str(changed), "0"]
                    entry.unlink(missing_ok=True)
            self._own.touch()
            self._changed = self._folder.stat().st_mtime_ns
            self._tell()

    def _tell(self) -> None:
        """Write the entry: for whom it is, and whether anybody was there."""
        is_seen = self._seen_earlier or self.seen()
        self._own.write_text(f"{self._changed} {int(is_seen)} {self._run_dir}")

    def forget_earlier(self) -> None:
        """Tell the next bridge nothing of those before this one: what their programs left is recorded."""
        if self._seen_earlier and self._changed:
            self._seen_earlier = False
            with contextlib.suppress(OSError):
                self._tell()

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
        while self._held:
            os.close(self._held.pop())

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
