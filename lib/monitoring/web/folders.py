"""Finds the runs below some folders and keeps their rows current; a path that hangs holds up nothing else."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from monitoring.errors import MonitoringError, refusal
from monitoring.journal.files import JOURNAL, RUN_JSON
from monitoring.web.rows import RunRow, Signature, read_row, signature

# Folders in each other that are looked into: a matrix in a folder of a project in a folder of results.
DEPTH = 5

# Seconds between two looks at runs that train, and at all folders; a long look is made less often.
LIVE_EVERY = 1.0
ALL_EVERY = 2.0
SHARE = 50

# Seconds after which a path that has not answered is left alone, and after which nobody looks any more.
HANGS_AFTER = 5.0
IDLE_AFTER = 30.0


class StatusJudge(Protocol):
    """Knows more than its journal of how a run stands, as an addition to the page does."""

    status_files: Sequence[str]
    """Names of files of a run by which it says how that stands."""

    def status_of(self, directory: Path, found: str) -> str:
        """Return how a run stands, where more is known than its journal and its process say: `found`."""


@dataclass
class _Folder:
    """One folder of results, and the thread that reads it."""

    name: str
    path: Path
    at: tuple[Path, float] | None = None
    """The folder being read, and since when, monotonic."""
    turn: int = 0
    """A thread whose number is another one has hung, and ends when it comes back."""
    hung: set[Path] = field(default_factory=set)
    problem: str = ""


class RunIndex:
    """The rows of all runs; any thread may ask. `close` ends the reading."""

    def __init__(self, folders: Sequence[Path], judges: Sequence[StatusJudge] = ()) -> None:
        self.version = 0
        """Rises with each change of a row."""
        self.epoch = time.time_ns() // 1000
        """Rises where all rows have to be sent anew: another option differs between runs. It begins with the
        time, in µs, for a page may have rows of a server before this one, of the same version."""
        self.lock = threading.Lock()
        self.rows: dict[str, RunRow] = {}
        self.gone: dict[str, int] = {}
        """Run that is no longer there -> the version of that change."""
        self.is_complete = False
        """Whether all folders were read once."""
        self.varying: dict[str, None] = {}
        """Options that differ between runs, in the order in which runs name them."""
        self._judges = judges
        self._first: dict[str, object] = {}
        self._spelled: dict[str, str] = {}
        """Option in small letters -> how the first run that has it spells it."""
        self._signatures: dict[str, Signature] = {}
        self._asked = time.monotonic()
        self._wake = threading.Event()
        self._closed = False
        self._folders = [_Folder(name, path) for name, path in _named(folders)]
        self._read_once: set[str] = set()
        for folder in self._folders:
            self._start(folder)
        threading.Thread(target=self._watch, name="watch folders", daemon=True).start()

    @property
    def folders(self) -> list[str]:
        return [str(folder.path) for folder in self._folders]

    def problems(self) -> list[str]:
        """Return a sentence for each folder or run that cannot be read."""
        found = [folder.problem for folder in self._folders if folder.problem]
        for folder in self._folders:
            found += [f"{path} does not answer" for path in sorted(folder.hung)]
        return found

    def hangs(self, directory: Path) -> bool:
        """Whether a run, or a folder that it is in, does not answer."""
        return any(_is_in(directory, folder.hung) for folder in self._folders)

    def asked(self) -> None:
        """Note that somebody looks: without anybody nothing is read."""
        self._asked = time.monotonic()
        self._wake.set()

    def get(self, run_id: str) -> RunRow | None:
        """Return the row of a run that was found below the folders; no other path has an id."""
        with self.lock:
            return self.rows.get(run_id)

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    # ------------------------------------------------------------- the threads that read

    def _start(self, folder: _Folder) -> None:
        folder.turn += 1
        threading.Thread(
            target=self._read_for_ever, args=(folder, folder.turn), name=f"read {folder.name}", daemon=True
        ).start()

    def _watch(self) -> None:
        """Leave a path that hangs alone, and go on with the others."""
        while not self._closed:
            for folder in self._folders:
                at = folder.at
                if at is not None and time.monotonic() - at[1] > HANGS_AFTER:
                    folder.hung.add(at[0])
                    folder.at = None
                    self._read_once.add(folder.name)  # the others are shown meanwhile
                    self._start(folder)
            time.sleep(LIVE_EVERY / 2)

    def _read_for_ever(self, folder: _Folder, turn: int) -> None:
        next_all = 0.0
        while not self._closed and folder.turn == turn:
            now = time.monotonic()
            if now >= next_all:
                self._read_all(folder, turn)
                took = time.monotonic() - now
                next_all = time.monotonic() + max(ALL_EVERY, SHARE * took)
                self._read_once.add(folder.name)
                self.is_complete = len(self._read_once) == len(self._folders)
            else:
                self._read_live(folder, turn)
            self._wake.clear()  # before the look: whoever asks after it wakes this thread
            if time.monotonic() - self._asked > IDLE_AFTER and not self._closed:
                self._wake.wait()
                next_all = 0.0
            else:
                time.sleep(LIVE_EVERY)

    def _read_all(self, folder: _Folder, turn: int) -> None:
        seen: set[str] = set()
        try:
            found = sorted(self._runs_in(folder, turn), key=lambda it: -it[1])
            folder.problem = ""
        except FileNotFoundError:
            folder.problem, found = f"{folder.path} does not exist", []
        except OSError as error:
            folder.problem = f"{folder.path} cannot be read: {refusal(error)}"
            found = []
        for directory, _ in found:
            if folder.turn != turn:
                return
            run_id = self._id(folder, directory)
            seen.add(run_id)
            self._look(folder, run_id, directory)
        if folder.turn == turn:
            self._remove(folder, seen)

    def _read_live(self, folder: _Folder, turn: int) -> None:
        with self.lock:
            live = [
                (run_id, row.directory)
                for run_id, row in self.rows.items()
                if row.is_running and run_id.split("/")[0] == folder.name
            ]
        for run_id, directory in live:
            if folder.turn != turn:
                return
            self._look(folder, run_id, directory)

    def _runs_in(self, folder: _Folder, turn: int) -> Iterator[tuple[Path, float]]:
        """Yield each run directory with when its journal was written; links are not followed."""
        waiting = [(folder.path, 0)]
        while waiting and folder.turn == turn:
            path, depth = waiting.pop()
            if path in folder.hung:
                continue
            folder.at = (path, time.monotonic())
            try:
                modified = _run_modified(path)
                if modified is not None:
                    yield path, modified
                elif depth < DEPTH:
                    with os.scandir(path) as entries:
                        waiting += [
                            (Path(entry.path), depth + 1)
                            for entry in entries
                            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
                        ]
            except OSError:
                if path == folder.path:
                    raise
            finally:
                if folder.turn == turn:
                    folder.at = None
                else:  # it has hung, and answers again
                    folder.hung.discard(path)

    def _look(self, folder: _Folder, run_id: str, directory: Path) -> None:
        """Read a run again if one of its files has changed, or if its process may have died."""
        if directory in folder.hung:
            return
        turn = folder.turn
        folder.at = (directory, time.monotonic())
        try:
            # before the row: what changes while that is read is seen at the next look
            now = signature(directory, [name for judge in self._judges for name in judge.status_files])
            known = self.rows.get(run_id)
            if self._signatures.get(run_id) == now and known is not None and not known.is_running:
                return
            row = read_row(run_id, directory)
            for judge in self._judges:
                row.facts["status"] = judge.status_of(directory, row.facts["status"])
            if known is not None and known.facts == row.facts and self._signatures.get(run_id) == now:
                return
            self._signatures[run_id] = now
            self._put(row)
        except FileNotFoundError:
            self._drop(run_id)
        except (OSError, MonitoringError, ValueError, TypeError, KeyError) as error:
            self._put(unreadable(run_id, directory, error))
        finally:
            if folder.turn == turn:
                folder.at = None
            else:  # it has hung, and answers again
                folder.hung.discard(directory)

    def _put(self, row: RunRow) -> None:
        with self.lock:
            self.version += 1
            row.version = self.version
            before = self.rows.get(row.id)
            if before is not None and not row.best:
                row.best = before.best
            row.options = {
                self._spelled.setdefault(name.lower(), name): value for name, value in row.options.items()
            }
            self.rows[row.id] = row
            self.gone.pop(row.id, None)
            known = len(self.varying)
            for name, value in row.options.items():
                if self._first.setdefault(name, value) != value:
                    self.varying.setdefault(name)
            if len(self.varying) != known:
                self.epoch += 1

    def _drop(self, run_id: str) -> None:
        with self.lock:
            if self.rows.pop(run_id, None) is not None:
                self.version += 1
                self.gone[run_id] = self.version
                self._signatures.pop(run_id, None)

    def _remove(self, folder: _Folder, seen: set[str]) -> None:
        with self.lock:
            own = [run_id for run_id in self.rows if run_id.split("/")[0] == folder.name]
            gone = [
                run_id
                for run_id in own
                if run_id not in seen and not _is_in(self.rows[run_id].directory, folder.hung)
            ]
        for run_id in gone:
            self._drop(run_id)

    def _id(self, folder: _Folder, directory: Path) -> str:
        inside = directory.relative_to(folder.path)
        return folder.name if inside == Path() else f"{folder.name}/{inside.as_posix()}"


def _is_in(path: Path, folders: Set[Path]) -> bool:
    """Whether a path is one of some folders, or below one."""
    return not folders.isdisjoint((path, *path.parents))


def _run_modified(path: Path) -> float | None:
    """When the journal of a run directory was written; None for a directory that is no run."""
    for name in (JOURNAL, RUN_JSON):
        try:
            status = os.stat(path / name, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            return status.st_mtime
    return None


def _named(folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield each folder with a name of its own: its last part, numbered where two have the same."""
    taken: set[str] = set()
    for path in dict.fromkeys(folder.absolute() for folder in folders):
        real = path.resolve()
        base = real.name.replace("/", "") or "root"
        name, number = base, 2
        while name in taken:
            name, number = f"{base}-{number}", number + 1
        taken.add(name)
        yield name, real


def unreadable(run_id: str, directory: Path, error: Exception) -> RunRow:
    """Return the row of a run whose files cannot be read, with the reason."""
    reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
    facts = {
        **dict.fromkeys(("step", "steps", "left", "pace", "started", "updated", "seconds", "host", "group")),
        "id": run_id, "run_id": run_id, "name": directory.name, "project": "", "status": "unreadable",
        "attempt": 0, "seq": 0, "errors": 0, "warnings": 0, "alert": None,
        "problem": f"cannot be read: {reason}",
    }  # fmt: skip
    return RunRow(run_id, directory, facts)
