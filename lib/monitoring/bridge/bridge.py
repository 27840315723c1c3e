"""Runs a program as it is and records it: `python -m monitoring.bridge DIR [options] -- COMMAND…`.

The bridge is the program's parent and the only writer of DIR/metrics.jsonl. It passes signals and the exit
code on, sends the output straight to DIR/output.log, and reads what the program reports from wherever that
goes. When the program has ended it reads for at most DRAIN seconds what is still coming, then writes the end
record.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from monitoring.bridge.guard import Guard
from monitoring.bridge.recorder import Followed, Recorder, late
from monitoring.bridge.script import Script
from monitoring.bridge.source import MetricSource, Reported, Watched
from monitoring.bridge.sources import SOURCE_KINDS, source_kinds
from monitoring.errors import UserError
from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.end_status import COMPLETE, FAILED, INTERRUPTED
from monitoring.journal.files import BRIDGE_JSON, OUTPUT_LOG, STORES, journal_name
from monitoring.journal.journal import say
from monitoring.journal.lineage import superseding
from monitoring.journal.run_json import read_run_json

# Seconds between two looks at the sources, and between two searches for new ones.
LOOK_EVERY, FIND_EVERY = 1.0, 2.0
# After so many seconds one line says what was found.
TELL_AFTER = 60.0
# Seconds that the sources have after the program's end; and, where something may still write them (what the
# program has left running, W&B's own process), without anything new before the end is believed.
DRAIN, QUIET = 20.0, 1.0
# A complaint of a store that is just being made is none.
TELL_COMPLAINT_AFTER = 5


class Bridge:
    """The sources of one program, and the run that they are recorded in."""

    def __init__(self, run: Any, watched: Watched) -> None:
        self.watched = watched
        self._run = run
        self._file = watched.directory / BRIDGE_JSON
        self._readers: list[tuple[MetricSource, Followed]] = []
        self._found: dict[str, int] = {}  # kind and path -> number
        self._complaints: dict[Path, int] = {}
        earlier = _earlier(self._file)
        for number, entry in enumerate(earlier):
            self._found[_key(entry["kind"], Path(entry["path"]))] = number
        self._listed = earlier
        self.recorder = Recorder(run, {number: str(entry["kind"]) for number, entry in enumerate(earlier)})
        if run.attempt > 1:
            self.recorder.recover(watched.directory / journal_name(0))
        self._next_find = 0.0

    def resume_earlier(self, since: float) -> None:
        """Record what the sources of killed attempts still hold; it belongs before this attempt's start.

        `since` is when the first of them started, in UTC epoch seconds.
        """
        now = self.watched
        self.watched = replace(now, started=since)
        self._find()
        self.watched = now
        self._read()
        self.recorder.record(time.time(), all_of_it=True)
        # what is appended to them from now on is this attempt's: output.log, files that the user named
        self._readers.clear()

    def look(self) -> bool:
        """Read what is new, and record what is decided; whether there was anything new."""
        if time.monotonic() >= self._next_find:
            self._next_find = time.monotonic() + FIND_EVERY
            self._find()
        is_new = self._read()
        self.recorder.record(time.time())
        return is_new

    def drain(self, has_rest: Callable[[], bool]) -> None:
        """Read until nothing comes any more, for at most DRAIN seconds, and record everything."""
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
        self.recorder.record(time.time(), all_of_it=True)

    def described(self) -> str:
        """Return one line on what was found, or on the lines that were seen last."""
        found = []
        for source, progress in self._readers:
            if progress.names or (progress.kind == "spool" and progress.place):
                names = list(progress.names)
                shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
                about = [f"{seconds:.1f} s late" if (seconds := late(progress)) else "", source.note]
                exact = "; ".join(part for part in about if part)
                found.append(f"{source.kind}: {shown or 'records'}{f' ({exact})' if exact else ''}")
            for name, kind in list(progress.left_out.items())[:3]:
                found.append(f"{name} of {progress.kind} is left out, for {kind} reports it too")
        if found:
            return f"recorded from {'; '.join(found)}"
        line = _last_line(self.watched.directory / OUTPUT_LOG)
        seen = f"; its last line is {line!r}" if line else ""
        return f"no metrics were found yet{seen}; --pattern REGEX or --follow FILE names them"

    def _find(self) -> None:
        for module in source_kinds().values():
            for source in module.find(self.watched):
                if all(source.path != known.path or source.kind != known.kind for known, _ in self._readers):
                    self._add(source)

    def _add(self, source: MetricSource) -> None:
        key = _key(source.kind, source.path)
        number = self._found.get(key)
        if number is None:
            number = self._found[key] = len(self._listed)
            self._listed.append({"kind": source.kind, "path": str(source.path), "found": time.time()})
            write_atomically(self._file, orjson.dumps({"sources": self._listed}, option=orjson.OPT_INDENT_2))
        progress = self.recorder.sources.setdefault(number, Followed(number, source.kind))
        self._readers.append((source, progress))

    def _read(self) -> bool:
        is_new = False
        now = time.time()
        for source, progress in self._readers:
            try:
                for reported in source.read(progress.read_to):
                    is_new = True
                    if reported.event == "start":
                        progress.read_to = reported.place
                        self._describe(reported)
                    elif reported.event == "end":
                        progress.read_to = reported.place
                    else:
                        self.recorder.take(progress, reported, now)
            except FileNotFoundError:
                continue  # a program may remove what it wrote; what was read is recorded
            except (OSError, ValueError) as error:
                self._complaints[source.path] = self._complaints.get(source.path, 0) + 1
                if self._complaints[source.path] == TELL_COMPLAINT_AFTER:
                    say(f"warning: {source.path} cannot be read now: {error}")
        return is_new

    def _describe(self, reported: Reported) -> None:
        """Take over what a Run of the program says of its model and training."""
        about = {name: value for name, value in reported.values.items() if name not in _OF_A_RUN}
        self._run.relay("start", None, reported.time or time.time(), about)


# Fields of a start record that are the spooled Run's own, not the training's.
_OF_A_RUN = frozenset({"run_name", "project", "run_id", "correlation_id", "supersedes", "resumed_from"})


def main(argv: Sequence[str] | None = None) -> int:
    """Return the program's exit code, 128 plus the signal that has ended it, or 2 if it cannot be run."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(
            _parser().parse_args(given[: given.index("--")] if "--" in given else given), _command(given)
        )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace, command: Sequence[str]) -> int:
    guard = Guard()
    from monitoring.run import Run  # after the fork, which would hold its files

    started = time.time()
    directory = options.directory.absolute()
    run = Run(
        directory,
        name=options.name or directory.name,
        project=options.project or directory.parent.name or "runs",
        config=orjson.loads(options.config),
        trackers=orjson.loads(options.trackers),
        gpu_monitor=options.gpu_monitor,
        machine_monitor=options.machine_monitor,
        identity={"program": shlex.join(command), "program_cwd": str(options.cwd)},
    )
    watched = Watched(
        directory,
        options.cwd.absolute(),
        started,
        {**os.environ, **dict(pair.split("=", 1) for pair in options.set)},
        [options.cwd.absolute() / path for path in options.follow],
        options.pattern,
    )
    environment = _environment(watched)
    watched = replace(watched, environment=environment)
    bridge = Bridge(run, watched)
    gone = None
    if run.attempt > 1:
        bridge.resume_earlier(read_run_json(directory)["attempts"][0]["started"])
        gone = superseding(directory / journal_name(0), 0)
    run.start(
        model={"name": Path(command[0]).name, "architecture": None, "parameters": None},
        training={"num_steps": options.steps},
        resumed_from=None,
        supersedes=gone,
    )
    (directory / STORES).mkdir(exist_ok=True)
    output = os.open(directory / OUTPUT_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        script = Script(command, environment=environment, cwd=options.cwd, output=output)
    except UserError as error:
        run.finish(FAILED, error=str(error))
        guard.dismiss()
        raise
    finally:
        os.close(output)
    guard.watch(script.group)
    tell_at = time.monotonic() + TELL_AFTER
    while not script.wait(LOOK_EVERY):
        bridge.look()
        if tell_at and time.monotonic() >= tell_at:
            tell_at = 0.0
            say(bridge.described())
    code = script.exit_code()
    bridge.drain(script.has_rest)
    if script.end_rest():
        say("note: what the program had left running is ended")
    guard.dismiss()
    if tell_at:
        say(bridge.described())
    _finish(run, code, script.stopped_by, _last_line(directory / OUTPUT_LOG))
    return 128 - code if code < 0 else code


def _finish(run: Any, code: int, stopped_by: int | None, said: str) -> None:
    """Write the end record. Of a failure it gives no cause: the output may know it better."""
    if code == 0 and stopped_by is None:
        run.finish(COMPLETE)
    elif stopped_by is not None and code in (0, 128 + stopped_by, -stopped_by, os.EX_TEMPFAIL):
        run.finish(INTERRUPTED, cause="stopped")
    elif code < 0:
        run.finish(FAILED, error=f"ended by {signal.Signals(-code).name}")
    else:
        run.finish(FAILED, error=said or f"exit code {code}")


def _environment(watched: Watched) -> dict[str, str]:
    """Return the program's environment: the user's, and what its trackers need to be followed."""
    found = dict(watched.environment)
    for module in source_kinds().values():
        for name, value in module.variables(watched).items():
            found.setdefault(name, value)
    return found


def _key(kind: str, path: Path) -> str:
    return f"{kind}\0{path}"


def _earlier(file: Path) -> list[dict[str, Any]]:
    try:
        found = orjson.loads(file.read_bytes())["sources"]
        return [
            entry for entry in found if entry["kind"] in SOURCE_KINDS.names and isinstance(entry["path"], str)
        ]
    except FileNotFoundError:
        return []
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{file} cannot be read: {error}", hint="it is damaged: remove it") from error


def _last_line(path: Path) -> str:
    """Return the last line of the output that is not empty, cut to what a message has room for."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return next((line.strip()[:100] for line in reversed(text.splitlines()) if line.strip()), "")


def _command(given: Sequence[str]) -> list[str]:
    if "--" not in given or not (command := list(given[given.index("--") + 1 :])):
        raise UserError("there is no command", hint="python -m monitoring.bridge DIR -- python train.py")
    return command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m monitoring.bridge", description=__doc__)
    parser.add_argument("directory", type=Path, help="the run directory")
    parser.add_argument("--name", help="of the run (default: the directory's)")
    parser.add_argument("--project", help="of the run (default: the folder's above)")
    parser.add_argument("--config", default="{}", help="the run's options, a JSON object")
    parser.add_argument("--trackers", default="{}", help="trackers and their options, a JSON object")
    parser.add_argument("--steps", type=int, help="how many the program will do, if that is known")
    parser.add_argument("--cwd", type=Path, default=Path.cwd(), help="where the program runs")
    parser.add_argument("--follow", type=Path, action="append", default=[], metavar="PATH",
                        help="a file or folder that the program writes metrics into")  # fmt: skip
    parser.add_argument("--pattern", action="append", default=[], metavar="REGEX",
                        help="metrics in a line of output, one named group each")  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="a variable of the program's environment")  # fmt: skip
    parser.add_argument("--from-scratch", action="store_true", help="as every attempt does")
    parser.add_argument("--gpu-monitor", action="store_true")
    parser.add_argument("--machine-monitor", action="store_true")
    return parser
