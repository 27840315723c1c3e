"""Places where a program reports its metrics: what a source yields, and what all of them know."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from monitoring.bridge.guard import variables
from monitoring.bridge.neighbors import Neighbors
from monitoring.errors import unwritable
from monitoring.journal.files import STORES
from monitoring.spool import SPOOL


# No dataclasses here, nor in what else a program waits for: the module takes 9 ms to import, and a class a
# half or a whole one more.
class Reported:
    """Values that a program has reported together; they stay as they are."""

    __slots__ = ("event", "place", "step", "time", "values")

    def __init__(
        self,
        values: Mapping[str, object],
        place: int,
        step: int | None = None,
        time: float | None = None,
        event: str = "step",
    ) -> None:
        self.values = values
        self.place = place
        """The source's position just after them: a byte offset, a row's id, a count. It only grows."""
        self.step = step
        """None where the source has none: they are counted then."""
        self.time = time
        """UTC epoch seconds; None where the source does not say: the moment when they were read."""
        self.event = event
        """`step` for metrics under names of the program's own, `config` for the configuration that it has
        logged; otherwise a record of `monitoring.Run`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reported) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # as of what it holds

    def __repr__(self) -> str:
        return f"Reported({self.values!r}, {self.place}, {self.step}, {self.time}, {self.event!r})"


class MetricSource:
    """One file or database that is read while it grows."""

    kind: str
    """The module's name: `wandb`."""
    note = ""
    """How exact its values are; empty for a source that keeps every digit at once."""
    left_out = ""
    """A sentence on the first thing in it that is no metric."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, place: int) -> Iterator[Reported]:
        """Yield what stands after a place, in order. OSError and ValueError where it cannot be read now."""
        raise NotImplementedError

    def cut_off(self, place: int) -> str:
        """Say how a file ends whose writer was killed, after what was read of it; empty for a whole one."""
        return ""


def half_record(path: Path, end: int) -> str:
    """Say that a file goes on behind its last whole record; zeros there are room that was never used."""
    from monitoring.counts import counted  # no program waits for it

    with path.open("rb") as file:
        file.seek(end)
        rest = file.read()
    return (
        f"is cut off: its last {counted(len(rest), 'byte')} hold no whole record" if rest.strip(b"\0") else ""
    )


CUT_OFF = "ends in the middle of a line, which is left out"


class Lines(MetricSource):
    """A file of lines, which several programs may append to, and of which the last may have been cut off."""

    def __init__(self, path: Path, *, is_whole: bool = False) -> None:
        super().__init__(path)
        self.is_whole = is_whole
        """Whether its last line needs no end: nobody writes the file any more, and nobody had to stop."""

    def place_at(self, size: int) -> int:
        """Return the position after the lines in the first `size` bytes; here a byte offset."""
        return size


class Database(MetricSource):
    """An SQLite database, to whose table `metrics` several programs may add rows; the place is a row's id."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_whole = False
        """Whether nobody writes it any more."""
        self._first: int | None = None
        """The place after which its rows are the program's."""
        self._config: Mapping[str, object] = {}

    def read(self, place: int) -> Iterator[Reported]:
        """Yield the rows after an id, then the configuration of their runs if that is new."""
        self._first = place if self._first is None else self._first
        begins = place
        for reported in self.metrics(place):
            place = reported.place
            yield reported
        if place > begins or self.is_whole:
            with contextlib.suppress(ValueError):  # of a release that keeps none, or elsewhere
                config = self.config(self._first)
                if config != self._config:
                    self._config = config
                    yield Reported(config, place, event="config")

    def metrics(self, place: int) -> Iterator[Reported]:
        """Yield the rows after an id. ValueError as of `rows`."""
        raise NotImplementedError

    def config(self, place: int) -> Mapping[str, object]:
        """Return the configuration of the runs that have rows after an id. ValueError as of `rows`."""
        raise NotImplementedError

    def end(self) -> int:
        """Return the id of the last row; 0 without one."""
        try:
            ((found,),) = self.rows("SELECT max(rowid) FROM metrics")
        except ValueError:
            return 0
        return int(found or 0)

    def rows(self, query: str, *values: object) -> Iterator[tuple]:  # type: ignore[type-arg]
        """Yield what a query answers while another process writes; nothing is locked or changed.

        ValueError if it is no such database, or not yet.
        """
        import sqlite3  # no program waits for it

        try:
            yield from _answers(self.path, query, values)
        except sqlite3.Error as error:
            if error.sqlite_errorname != "SQLITE_READONLY_ROLLBACK":
                raise ValueError(f"{self.path.name}: {error}") from error
            # its writer was killed in the middle, and SQLite would first undo what that had begun
            self.left_out = "was cut off while it was written: what was not complete is left out"
            with _copied(self.path) as copy:
                try:
                    yield from _answers(copy, query, values, mode="rw")
                except sqlite3.Error as other:
                    raise ValueError(f"{self.path.name}: {other}") from other


def _answers(path: Path, query: str, values: Sequence[object], *, mode: str = "ro") -> Iterator[tuple]:  # type: ignore[type-arg]
    import sqlite3  # as above

    # sqlite.org/uri.html; the path may have any character
    address = f"{path.as_uri()}?mode={mode}"
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=1)) as found:
        yield from found.execute(query, values)


@contextlib.contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """Give a database and its journal in another place, where they may be changed."""
    import shutil  # as above
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name in (path.name, f"{path.name}-journal"):
            shutil.copyfile(path.with_name(name), Path(folder, name))
        yield Path(folder, path.name)


# In the stores of a run: the processes that were its program, a line for each attempt. Its time is that at
# which the last of them began.
PROCESSES = "processes"


class Watched:
    """A program as its sources know it."""

    def __init__(
        self,
        directory: Path,
        cwd: Path,
        started: float,
        environment: Mapping[str, str] | None = None,
        follow: Sequence[Path] = (),
        patterns: Sequence[str] = (),
        followers: Collection[Path] = (),
    ) -> None:
        self.directory = directory
        """The run directory, absolute."""
        self.cwd = cwd
        """Where the program runs."""
        self.started = started
        """UTC epoch seconds: stores that nobody has written since are of other programs."""
        self.environment = dict(os.environ) if environment is None else environment
        """The program's."""
        self.follow = follow
        """Files that the user has named."""
        self.patterns = patterns
        """Regular expressions of the user's, with a named group per metric."""
        self.followers = followers
        """Folders in the run directory that its trackers write."""
        self.before: Mapping[Path, tuple[int, int]] = {}
        """Size and time of the last change (ns) of the stores that were there when the program started."""
        self.until = math.inf
        """UTC epoch seconds: stores that were written later are of other programs."""
        self.neighbors: Neighbors | None = None
        """The other programs of this folder."""
        self.processes: set[int] = set()
        """Process ids of the program."""
        self.own_files: set[Path] = set()
        """Files that are the program's for certain."""
        self.foreign: set[Path] = set()
        """Files that a process of another program was seen to write; they stay its own when it has ended."""
        self.unclear: set[Path] = set()
        """Files of which nobody knows whose they are."""

    def own(self, name: str) -> Path:
        """Return a place for a store of the program's trackers, in the run directory."""
        return self.directory / STORES / name

    def note_start(self, process_id: int | None = None) -> None:
        """Note that the program starts, then its process, for a bridge that continues after a kill as well.

        RunDirectoryError if that cannot be.
        """
        file = self.own(PROCESSES)
        try:
            file.parent.mkdir(exist_ok=True)
            with file.open("a") as to:
                if process_id is not None:
                    self.processes.add(process_id)
                    to.write(f"{process_id}\n")
            os.utime(file, (self.started, self.started))
        except OSError as error:
            if process_id is None:  # else it runs
                raise unwritable(file, error) from error

    def earlier_start(self) -> float:
        """Return when the program of the last attempt began, in UTC epoch seconds."""
        try:
            return self.own(PROCESSES).stat().st_mtime
        except OSError:  # none has
            return self.started

    def earlier_processes(self) -> set[int]:
        """Return the processes of all attempts so far."""
        with contextlib.suppress(OSError):
            return {int(line) for line in self.own(PROCESSES).read_text().split() if line.isdecimal()}
        return set()

    def in_directory(self, names: str) -> Iterator[Path]:
        """Yield the files in the run directory with such a part in their names, but for the run's own."""
        for path in files_below(self.directory, part=names):
            if path.parent != self.directory and path.parent not in self.followers:
                yield path

    def is_new(self, path: Path) -> bool:
        """Whether a file was written since the program started; a second's grace for coarse clocks."""
        if path in self.own_files:
            return True
        try:
            found = path.stat()
        except OSError:
            return False
        if self.before.get(path) == (found.st_size, found.st_mtime_ns):
            return False
        return self.started - 1 <= found.st_mtime <= self.until

    def is_new_database(self, path: Path) -> bool:
        """Whether SQLite's database was written since the program started, and by no other program."""
        log = path.with_name(f"{path.name}-wal")
        return (self.is_new(path) or self.is_new(log)) and not self.is_of_another(path)

    def named(self, *endings: str) -> Iterator[Path]:
        """Yield the files with such an ending that the user has named, unless they may be another's."""
        for path in self.follow:
            # pathlib raises for a name that is too long
            if path.suffix in endings and os.path.isfile(path) and not self.is_of_another(path):
                yield path

    def is_of_another(self, path: Path, process_id: int | None = None) -> bool:
        """Whether a file is of another program, or may be: `process_id` writes it, if its name says that.

        Every process of the program has the variable that sends its runs into this run's spool. A file
        whose writer has ended, or is unknown, is this program's where no other has run in its folder.
        """
        if path in self.own_files or process_id in self.processes or path.is_relative_to(self.directory):
            return False
        if path in self.foreign:
            return True
        found = () if process_id is None else variables(process_id)
        if not found:
            is_unclear = self.neighbors is not None and self.neighbors.seen()
            if is_unclear:
                self.unclear.add(path)
            return is_unclear
        is_own = f"{SPOOL}={self.own('spool')}".encode() in found
        (self.own_files if is_own else self.foreign).add(path)
        return not is_own


# Folders are searched so deep, and so many entries are looked at in all.
DEEPEST, MOST_ENTRIES = 6, 20_000
# Bytes that are read at once.
PIECE = 1 << 18


def whole_lines(path: Path, place: int) -> Iterator[tuple[bytes, int]]:
    """Yield the lines after a byte offset, each with the offset of its end; a torn last one waits."""
    opened = os.open(path, os.O_RDONLY)  # a file object costs more than all that is read of a step
    try:
        begun, read = [], place
        while piece := os.pread(opened, PIECE, read):
            read += len(piece)
            first, *lines = piece.split(b"\n")
            begun.append(first)
            if not lines:
                continue
            lines.insert(0, b"".join(begun))
            begun = [lines.pop()]
            for line in lines:
                place += len(line) + 1
                yield line + b"\n", place
    finally:
        os.close(opened)


def files_below(folder: Path | str, ending: str = "", *, part: str = "") -> Iterator[Path]:
    """Yield the files below a folder whose names end so and have such a part.

    Links to folders are not followed. Names are texts until one fits: a hundred bridges search all the time.
    """
    left = MOST_ENTRIES
    folders = [(str(folder), 0)]
    while folders:
        place, depth = folders.pop()
        try:
            with os.scandir(place) as found:
                entries = sorted(found, key=_name)
        except OSError:  # it is gone, or nobody may read it
            continue
        for entry in entries:
            left -= 1
            if left < 0:
                return
            if entry.is_dir(follow_symlinks=False):
                if depth < DEEPEST:
                    folders.append((entry.path, depth + 1))
            elif entry.name.endswith(ending) and part in entry.name:
                yield Path(entry.path)


_name = attrgetter("name")
