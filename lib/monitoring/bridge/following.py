"""Finds what a program reports, reads it while it grows, and has it recorded."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from monitoring.bridge.attempt import ProgramAttempt
from monitoring.bridge.last_words import last_line
from monitoring.bridge.recorder import Followed, Recorder, late
from monitoring.bridge.source import Database, MetricSource, Reported, Watched
from monitoring.bridge.sources import richness, source_kinds
from monitoring.bridge.sources.jsonl import JsonLinesSource
from monitoring.bridge.sources.output import OutputSource
from monitoring.bridge.standing import Standing, kept_before, read_known, write_known
from monitoring.callbacks.logged import recorded_name
from monitoring.counts import cut_list
from monitoring.errors import RunDirectoryError, written_out
from monitoring.journal.files import BRIDGE_JSON, OUTPUT_LOG, journal_name
from monitoring.journal.journal import say

# Seconds between two looks at the sources, and between two searches for new ones: in the first minute, in
# which stores are made and people watch (most until there is something), and later, where a hundred programs
# are to cost next to nothing. Most of a look's CPU time goes into code and data that others have driven out
# of the caches meanwhile.
LOOK_FIRST, LOOK_EVERY, FIND_EVERY = 0.5, 1.0, 2.0
SETTLED_AFTER = 60.0
LOOK_LATER, FIND_LATER = 5.0, 15.0
# Seconds that the sources have after the program's end; and, where something may still write them (what the
# program has left running, W&B's own process), without anything new before the end is believed.
DRAIN, QUIET = 20.0, 1.0
# Entries of a source in bridge.json: where the values of the newest attempt begin in it, and the metrics that
# it reports as the source does that counts.
BEGINS, ALIKE = "begins", "alike"
# A complaint of a store that is just being made is none.
TELL_COMPLAINT_AFTER = 5


class Bridge:
    """The sources of one program, and the run that they are recorded in."""

    def __init__(self, attempt: ProgramAttempt, watched: Watched, stores: Mapping[Path, Standing]) -> None:
        """`stores` are those that were there before the program started."""
        self._stores = stores
        self.attempt = attempt
        self.watched = watched
        self._file = watched.directory / BRIDGE_JSON
        self._readers: list[tuple[MetricSource, Followed]] = []
        self._found: dict[str, int] = {}  # kind and path -> number
        self._complaints: dict[Path, int] = {}
        earlier, self._before = read_known(self._file)
        for number, entry in enumerate(earlier):
            self._found[_key(entry["kind"], Path(entry["path"]))] = number
        self._listed = earlier
        self._is_unlisted = False
        """Whether bridge.json lacks some of them."""
        self._standing: dict[Path, Standing] = {}
        """Stores that the program has not been seen to write yet."""
        kinds = {number: str(entry["kind"]) for number, entry in enumerate(earlier)}
        self.recorder = Recorder(attempt, kinds, self._is_expected)
        for number, entry in enumerate(earlier):
            self.recorder.left_out.know_alike(kinds[number], entry.get(ALIKE, ()))
        if attempt.number > 1:
            self.recorder.recover(watched.directory / journal_name(0))
        self._next_find = 0.0
        self._settled_at = time.monotonic() + SETTLED_AFTER
        self._noted: set[tuple[Path, str]] = set()
        self._said_at_end: Mapping[str, object] = {}
        """The end record of a Run of the program."""
        self._configs: dict[int, dict[str, object]] = {}
        """The configurations that the program has logged to its trackers, by how rich they are."""
        self._is_configured = True
        """Whether the run has it."""

    def resume_earlier(self) -> None:
        """Record what the sources of a killed attempt still hold; it belongs before this attempt's start.

        What those before had left was recorded when its program began. Where it has ended there is nothing
        left, and what is new since is other programs'.
        """
        if self.recorder.has_ended:
            return
        now = self.watched
        listed = {Path(entry["path"]) for entry in self._listed}
        # The killed bridge had found what was older than its last search.
        until = self._file.stat().st_mtime + FIND_LATER + 1 if self._listed else math.inf
        recorded = {path: followed.seq for path, followed in self._followed()}
        self._standing = {path: one for path, one in self._before.items() if recorded.get(path, 0) <= one.seq}
        self.watched = earlier = copy.copy(now)
        earlier.started, earlier.until, earlier.before = now.earlier_start(), until, {}
        earlier.own_files, earlier.processes = listed, now.earlier_processes()
        earlier.neighbors = now.neighbors and now.neighbors.earlier()
        earlier.unclear = unclear = set[Path]()
        self._find()
        self.watched = now
        for path in sorted(unclear):
            say(f"note: {path} is not read of the attempt before: another run was in this folder, too")
        self._read_left_out()
        self.settle(is_killed=True)
        # what is appended to them from now on is this attempt's: output.log, files that the user named
        self._readers.clear()

    def begin(self) -> None:
        """Leave out what stands in the stores now: it is other programs', or in the journal."""
        self.recorder.left_out.begin_attempt()
        self._standing = {path: one for path, one in self._stores.items() if one.is_shared}
        if not self.recorder.has_ended:
            for path, followed in self._followed():
                if path in self._standing:
                    self._standing[path] = self._standing[path].at(place=followed.read_to)
        self._keep_before()
        # what an earlier attempt has printed and did not read ends in a line that was cut off
        if printed := self._stores.get(output := self.watched.directory / OUTPUT_LOG):
            self._standing[output] = printed.at(place=printed.size)

    def settle(self, *, is_killed: bool) -> None:
        """Record what the sources that count have not kept of a killed program, once all of them are read.

        Which values of the others are of attempts until this one, the next bridge must know.
        """
        if is_killed:
            self._take_last_lines(OutputSource)
            self._configure()
            self.recorder.record(time.time(), all_of_it=True)
            for kind, steps in self.recorder.stand_in(time.time()).items():
                say(f"note: {steps} steps are recorded from {kind}: the source that counts has not kept them")
        if any(progress.left_out for _, progress in self._readers):
            for source, progress in self._readers:
                entry = self._listed[progress.number]
                entry[BEGINS] = progress.read_to
                entry[ALIKE] = self.recorder.left_out.alike(source.kind)
            with contextlib.suppress(RunDirectoryError):
                write_known(self._file, self._listed, self._before)

    def _read_left_out(self) -> None:
        """Take what sources that do not count had reported to the killed bridge, which kept it in memory."""
        for source, progress in self._readers:
            begins = self._listed[progress.number].get(BEGINS, 0)
            if source.path in self._standing or begins >= progress.read_to:
                continue
            with contextlib.suppress(OSError, ValueError):
                if standing := self._before.get(source.path):
                    begins = max(begins, standing.begin(source) or 0)
                for reported in copy.copy(source).read(begins):
                    if reported.place > progress.read_to:
                        break
                    if reported.event == "step":
                        self.recorder.leave_out(progress, reported)

    def _keep_before(self) -> None:
        """Note what others have written, for a bridge that continues. RunDirectoryError if that cannot be."""
        known, kept = self._before, kept_before(self.watched, self._stores)
        if self.recorder.has_ended:
            last_seq = self.recorder.last_seq
            self._before = {**known, **{path: one.at(seq=last_seq) for path, one in kept.items()}}
        else:  # what stands in the stores of the attempts before is recorded
            own = {path for path, _ in self._followed()}
            self._before = {**{path: one for path, one in kept.items() if path not in own}, **known}
        if self._before != known:
            write_known(self._file, self._listed, self._before)

    def _followed(self) -> Iterator[tuple[Path, Followed]]:
        """Yield the sources that earlier attempts have found."""
        for number, entry in enumerate(self._listed):
            yield Path(entry["path"]), self.recorder.sources[number]

    @property
    def look_every(self) -> float:
        """Seconds until the next look."""
        if time.monotonic() >= self._settled_at:
            return LOOK_LATER
        return LOOK_EVERY if self.has_found else LOOK_FIRST

    def look(self) -> bool:
        """Read what is new, and record what is decided; whether there was anything new."""
        # values that wait for a richer source are decided as soon as that one is found
        if (now := time.monotonic()) >= self._next_find or self.recorder.waits:
            self._next_find = now + (FIND_EVERY if now < self._settled_at else FIND_LATER)
            self._find()
        is_new = self._read()
        # rules begin anew with a start record: of what changes all the time they would see nothing
        if now < self._settled_at or not self.attempt.is_configured:
            self._configure()
        self.recorder.record(time.time())
        return is_new

    def drain(self, has_rest: Callable[[], bool], *, is_complete: bool) -> None:
        """Read until nothing comes any more, for at most DRAIN seconds, and record everything.

        Of a program that `is_complete`, what it has printed last of the test set is its result.
        """
        until = time.monotonic() + DRAIN
        quiet_since = time.monotonic()
        while True:
            is_written = has_rest()
            self._find()
            now = time.monotonic()
            if self._read():
                quiet_since = now
            is_written = is_written or any(source.kind == "wandb" for source, _ in self._readers)
            if now >= until or now - quiet_since >= (QUIET if is_written else 0.0):
                break
            time.sleep(0.1)
        self._take_last_lines(JsonLinesSource, OutputSource, Database)
        self._configure()
        self.recorder.record(time.time(), all_of_it=True)
        for source, progress in self._readers:
            if is_complete and isinstance(source, OutputSource) and source.of_test:
                self.recorder.take(progress, Reported(source.of_test, progress.read_to), time.time())
                self.recorder.record(time.time(), all_of_it=True)

    def described(self, *, is_ended: bool) -> str:
        """Return one line on what was found, or on the lines that were seen last; the program may go on."""
        of_kind: dict[str, list[tuple[MetricSource, Followed]]] = {}
        left_out: dict[str, None] = {}
        for source, progress in self._readers:
            if progress.names or (progress.kind == "spool" and progress.place):
                of_kind.setdefault(source.kind, []).append((source, progress))
            for name, kind in list(progress.left_out.items())[:3]:
                left_out[f"{name} of {progress.kind} is left out, for {kind} reports it too"] = None
        found = [_found(kind, sources) for kind, sources in of_kind.items()]
        for path in sorted(self.watched.unclear)[:1]:
            where = os.path.relpath(path, self.watched.cwd)
            left_out[
                f"{where} is not read, for another run is in this folder: give each a place of its own"
            ] = None
        for path in self.watched.follow:
            if not os.path.exists(path):
                where = os.path.relpath(path, self.watched.cwd)
                left_out[f"{where} is not there, which --follow names"] = None
        if found or left_out:
            return written_out(f"recorded from {'; '.join([*(found or ['nothing']), *left_out])}")
        line = last_line(self.watched.directory / OUTPUT_LOG)
        seen = f"; its last line is {line!r}" if line else ""
        yet = "" if is_ended else " yet"
        return f"no metrics were found{yet}{seen}; --pattern REGEX or --follow FILE names them"

    def undirected(self, better: str) -> str:
        """Return a line on metrics that decide nothing, beside the user's `better`; empty without any."""
        recorded = dict.fromkeys(recorded_name(name) for _, one in self._readers for name in one.names)
        if not recorded:
            return ""
        from monitoring.journal.fields import directions  # programs that report nothing need none of it

        said = {recorded_name(name): way for name, way in directions.read_directions(better).items()}
        names = directions.without_direction(recorded, said)
        return written_out(directions.directions_needed(names)) if names else ""

    def uploads(self) -> list[str]:
        """Return how to upload what the program's trackers keep on this disk alone, a line for each."""
        told = [
            (source.kind, command(source.path))
            for source, _ in self._readers
            if (command := getattr(source_kinds()[source.kind], "upload_command", None))
        ]
        return [
            f"{kind}: this run is on this disk, not uploaded; to upload it: {command}"
            for kind, command in dict.fromkeys(told)
            if command
        ]

    @property
    def has_found(self) -> bool:
        """Whether the program has reported anything."""
        return self.recorder.count > 0

    def done(self) -> dict[str, object]:
        """Return what the end record says of the training: steps, and what a Run of the program says more."""
        own = {name: value for name, value in self._said_at_end.items() if name not in _HOW_IT_ENDED}
        return {**self.recorder.done(), **own}

    def _find(self) -> None:
        if self._listed:
            with contextlib.suppress(OSError):
                # its time is that of the last search, which the bridge after a killed one reads
                # (resume_earlier)
                os.utime(self._file)
        for module in source_kinds().values():
            for source in module.find(self.watched):
                if all(source.path != known.path or source.kind != known.kind for known, _ in self._readers):
                    self._add(source)
        if self._is_unlisted:
            # a full disk, which must not end the program: again with the next search
            with contextlib.suppress(RunDirectoryError):
                write_known(self._file, self._listed, self._before)
                self._is_unlisted = False

    def _is_expected(self) -> bool:
        """Whether the program is to report elsewhere, too: into a file that --follow names, by a tracker."""
        found = {source.kind for source, _ in self._readers}
        return any(not os.path.exists(path) for path in self.watched.follow) or any(
            name not in found and hasattr(module, "is_expected") and module.is_expected(self.watched)
            for name, module in source_kinds().items()
        )

    def _add(self, source: MetricSource) -> None:
        key = _key(source.kind, source.path)
        number = self._found.get(key)
        if number is None:
            number = self._found[key] = len(self._listed)
            self._listed.append({"kind": source.kind, "path": str(source.path), "found": time.time()})
            self._is_unlisted = True
        progress = self.recorder.sources.setdefault(number, Followed(number, source.kind))
        self._readers.append((source, progress))

    def _read(self) -> bool:
        is_new = False
        now = time.time()
        for source, progress in self._readers:
            try:
                if (standing := self._standing.get(source.path)) is not None:
                    if (place := standing.begin(source)) is None:
                        continue
                    # it writes after all: from here on what it holds is this program's
                    progress.read_to, progress.skip = place, 0
                    del self._standing[source.path]
                for reported in source.read(progress.read_to):
                    is_new = True
                    if reported.event == "start":
                        progress.read_to = reported.place
                        self._describe(reported)
                    elif reported.event == "config":
                        progress.read_to = reported.place
                        self._take_config(source.kind, reported.values)
                    elif reported.event == "end":
                        progress.read_to = reported.place
                        self._said_at_end = reported.values
                    else:
                        self.recorder.take(progress, reported, now)
                self._note(source, source.left_out)
            except FileNotFoundError:
                continue  # a program may remove what it wrote; what was read is recorded
            except Exception as error:  # noqa: BLE001 - whatever a file holds, the program goes on
                self._complaints[source.path] = self._complaints.get(source.path, 0) + 1
                if self._complaints[source.path] == TELL_COMPLAINT_AFTER:
                    say(f"warning: {source.path} cannot be read now: {error}")
        return is_new

    def _take_last_lines(self, *kinds: type[JsonLinesSource | OutputSource | Database]) -> None:
        """Read what stands at the end of stores of these kinds, as without the end of a line."""
        for source, _ in self._readers:
            if isinstance(source, kinds):
                source.is_whole = True
        self._read()

    def tell_cut_off(self) -> None:
        """Say which files end in the middle of a record, now that nothing writes them any more."""
        for source, progress in self._readers:
            if source.path not in self._standing:
                with contextlib.suppress(OSError):
                    self._note(source, source.cut_off(progress.read_to))

    def _note(self, source: MetricSource, what: str) -> None:
        """Say once what is left out of a source."""
        if what and (source.path, what) not in self._noted:
            self._noted.add((source.path, what))
            say(f"note: {source.path.name} {what}")

    def _describe(self, reported: Reported) -> None:
        """Take over what a Run of the program says of its model and training."""
        about = {name: value for name, value in reported.values.items() if name not in _OF_A_RUN}
        self.attempt.describe(reported.time or time.time(), about)

    def _take_config(self, kind: str, config: Mapping[str, object]) -> None:
        from monitoring.bridge.flat import options  # few programs have any

        known = self._configs.setdefault(richness(kind), {})
        if (new := {**known, **options(config, str(self.watched.directory))}) != known:
            known |= new
            self._is_configured = False

    def _configure(self) -> None:
        if not self._is_configured:
            self._is_configured = True
            self.attempt.configure(time.time(), self._configs)


# Fields of a start record that are the spooled Run's own, not the training's.
_OF_A_RUN = frozenset({"run_name", "project", "run_id", "correlation_id", "supersedes", "resumed_from"})


# Fields of an end record that are the program's to say: a Run of its may be one of several.
_HOW_IT_ENDED = frozenset({"status", "error", "cause", "traceback"})


def _found(kind: str, sources: Sequence[tuple[MetricSource, Followed]]) -> str:
    """Say what a kind of source reports, how late and how exact."""
    names = list(dict.fromkeys(name for _, progress in sources for name in progress.names))
    shown = cut_list(names, 6)
    seconds = max(late(progress) or 0.0 for _, progress in sources)
    about = [f"{seconds:.1f} s late" if seconds else "", *dict.fromkeys(source.note for source, _ in sources)]
    exact = "; ".join(part for part in about if part)
    return f"{kind}: {shown or 'records'}{f' ({exact})' if exact else ''}"


def _key(kind: str, path: Path) -> str:
    return f"{kind}\0{path}"
