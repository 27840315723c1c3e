"""Runs a program as it is and records it: `python -m monitoring.bridge DIR [options] -- COMMAND…`.

The bridge is the program's parent and the only writer of DIR/metrics.jsonl. It passes signals and the exit
code on, sends the output straight to DIR/output.log, and reads what the program reports from wherever that
goes. When the program has ended it reads for at most DRAIN seconds what is still coming, then writes the end
record.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitoring.bridge.between_lines import saying_between_lines
from monitoring.bridge.guard import Guard
from monitoring.bridge.hook import hooked
from monitoring.bridge.neighbors import Neighbors
from monitoring.bridge.script import Script
from monitoring.bridge.sooner import after_start
from monitoring.bridge.source import Watched
from monitoring.bridge.sources import source_kinds
from monitoring.bridge.sources.output import end_cut_off_line, end_whole_line
from monitoring.bridge.standing import Standing, kept_before, stores_before, write_known
from monitoring.errors import RunBusyError, UserError, report_error, unwritable
from monitoring.host.file_locks import try_lock
from monitoring.journal.end_status import COMPLETE, FAILED, INTERRUPTED
from monitoring.journal.files import BRIDGE_JSON, OUTPUT_LOG, RUN_JSON, journal_name
from monitoring.spool import SPOOL

if TYPE_CHECKING:
    from monitoring.bridge.following import Bridge

# After so many seconds one line says what was found.
TELL_AFTER = 60.0
# The beginning of a word of --resume-with that is a condition.
IF = "if:"


def main(argv: Sequence[str] | None = None, guard: Guard | None = None, columns: int = 0) -> int:
    """Return the program's exit code, 128 plus the signal that has ended it, or 2 if it cannot be run.

    The `guard` is this process's, if it has one already; `columns` the width of the terminal on which its
    lines appear beside the program's, 0 without one.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        options = _parser().parse_args(given[: given.index("--")] if "--" in given else given)
        with saying_between_lines(options.directory / OUTPUT_LOG, columns):
            return _run(options, _command(given), guard or Guard())
    except UserError as error:
        return report_error(error)


def _run(options: argparse.Namespace, command: Sequence[str], guard: Guard) -> int:
    # that of a bridge around this one: this run is none of its program's
    os.environ.pop(SPOOL, None)
    watched = _watched(options)
    journal = watched.directory / journal_name(0)
    is_first = _made(journal)
    was_killed = not is_first and not _has_ended(journal)
    neighbors = Neighbors(watched.cwd, watched.directory, was_killed=was_killed)
    watched.neighbors = neighbors
    stores = stores_before(watched)
    watched.before = {path: (one.size, one.changed) for path, one in stores.items()}
    if not is_first:
        # before this process says something, which in a matrix goes there too
        end_cut_off_line(watched.directory / OUTPUT_LOG)
        if not ((watched.directory / RUN_JSON).exists() and journal.stat().st_size):
            _record_unopened(options, command, watched, stores)
        run, bridge = _opened(options, command, watched, stores)
        bridge.attempt.stand_for_killed()
        bridge.resume_earlier()
        bridge.begin()
        bridge.attempt.start_recorded()
        neighbors.forget_earlier()
        words = () if options.from_scratch else options.resume_with
        script = _script(_resuming(command, words, watched.directory), watched, guard)
    else:
        # a run's first attempt: the program starts before all that it does not need
        if kept := kept_before(watched, stores):
            write_known(watched.directory / BRIDGE_JSON, [], kept)
        script = _script(command, watched, guard)
        run, bridge = _opened(options, command, watched, stores)
        bridge.begin()
        bridge.attempt.start()
    from monitoring.bridge.last_words import last_words  # now that the program runs
    from monitoring.journal.journal import say

    after_start()

    tell_at, is_told = time.monotonic() + TELL_AFTER, False
    while not script.wait(bridge.look_every):
        bridge.look()
        if time.monotonic() >= tell_at:
            tell_at, is_told = math.inf, bridge.has_found
            _tell_found(bridge, options, is_ended=False)
    code = script.exit_code()
    if code == 0 and not script.has_rest():
        end_whole_line(watched.directory / OUTPUT_LOG)
    is_complete = code == 0 and script.stopped_by is None
    bridge.drain(script.has_rest, is_complete=is_complete)
    said = last_words(watched.directory / OUTPUT_LOG) if code else ""  # before this process says something
    is_ended = script.end_rest()
    bridge.settle(is_killed=code != 0)
    bridge.tell_cut_off()
    if is_complete:
        bridge.attempt.restore()
    end_cut_off_line(watched.directory / OUTPUT_LOG)
    if is_ended:
        say("note: what the program had left running is ended")
    guard.dismiss()
    if not is_told and (bridge.has_found or code == 0):  # a program that failed has said why
        _tell_found(bridge, options, is_ended=True)
    for line in bridge.uploads():
        say(line)
    _finish(run, code, script.stopped_by, said, bridge.done())
    neighbors.leave()
    # as a shell has it for a program that a signal ended
    return 128 - code if code < 0 else code


def _tell_found(bridge: Bridge, options: argparse.Namespace, *, is_ended: bool) -> None:
    """Say what was found, and which of that decides nothing."""
    from monitoring.journal.journal import say  # now that the program runs

    better = str(json.loads(options.config).get("REPORT_BETTER") or "")
    for line in filter(None, (bridge.described(is_ended=is_ended), bridge.undirected(better))):
        say(line)


def _made(journal: Path) -> bool:
    """Make an empty journal; False if there is one.

    RunDirectoryError where there can be none, RunBusyError for a directory that another bridge has. It is
    locked until this process ends: the run that locks the journal is opened after the program has started.
    """
    try:
        journal.parent.mkdir(parents=True, exist_ok=True)
        if not _locked(journal.parent):
            raise RunBusyError(
                f"{journal.parent} is being written by another process",
                hint="end that one first, or give this run a directory of its own",
            )
        os.close(os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        return False
    except OSError as error:
        raise unwritable(journal, error) from error
    return True


def _has_ended(journal: Path) -> bool:
    from monitoring.journal.run_state import read_end  # no first attempt waits for it

    return read_end(journal).ended


def _locked(directory: Path) -> bool:
    opened = os.open(directory, os.O_RDONLY)  # for as long as this process lives
    try:
        return try_lock(opened)
    except OSError:  # a file system without locks
        return True


def _watched(options: argparse.Namespace) -> Watched:
    if options.pattern:
        from monitoring.bridge.printed_line import check_patterns

        check_patterns(options.pattern)
    cwd = options.cwd.absolute()
    environment = {**os.environ, **dict(pair.split("=", 1) for pair in options.set)}
    watched = Watched(
        options.directory.absolute(),
        cwd,
        time.time(),
        hooked(environment) if options.hook else environment,
        [cwd / path for path in options.follow],
        options.pattern,
        [options.directory.absolute() / name for name in json.loads(options.trackers)],
    )
    watched.environment = _environment(watched)
    return watched


def _script(command: Sequence[str], watched: Watched, guard: Guard) -> Script:
    """Start the program, its output appended to output.log."""
    watched.note_start()
    output = os.open(watched.directory / OUTPUT_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        script = Script(command, environment=watched.environment, cwd=watched.cwd, output=output, guard=guard)
        watched.note_start(script.group)
        return script
    finally:
        os.close(output)


def _resuming(command: Sequence[str], words: Sequence[str], directory: Path) -> Sequence[str]:
    """Return the command of a later attempt: from scratch where a path in the run directory is not there.

    Of what a path with `*` or `?` stands for it is the newest: programs name checkpoints by their steps. A
    word `if:PATH` is only looked for: programs that are told no path (nanoGPT) need one to be there as well.
    """
    from monitoring.journal.journal import say  # first attempts, which are waited for, need nothing of it

    found = []
    for word in words:
        start = word.find(f"{directory}/")
        path = _newest(directory, word[start + len(str(directory)) + 1 :]) if start >= 0 else ""
        if path is None:
            say(f"note: {word[start:]} does not exist: this attempt begins from scratch")
            return command
        if not word.startswith(IF):
            found.append(word[:start] + path if path else word)
    return [*command, *found]


def _newest(directory: Path, pattern: str) -> str | None:
    """Return the newest path below a directory that a pattern stands for; None where there is none.

    `PATTERN/..` is the folder of the newest file: of one that is written last, when its folder is complete.
    """
    found = pattern.removesuffix("/..")
    paths = [directory / found] if (directory / found).exists() else []
    paths += [path for path in directory.glob(found) if path.exists()] if found and not paths else []
    if not paths:
        return None
    newest = max(paths, key=lambda path: path.stat().st_mtime_ns)
    return str(newest if found == pattern else newest.parent)


def _record_unopened(
    options: argparse.Namespace, command: Sequence[str], watched: Watched, stores: Mapping[Path, Standing]
) -> None:
    """Record the attempt of a bridge that was killed when its program ran and its run was not yet open.

    What the program has reported is that attempt's, or this one would seem to have done it twice.
    """
    run, bridge = _opened(options, command, watched, stores)
    bridge.attempt.start()
    bridge.resume_earlier()
    run.finish(FAILED, error="the bridge was killed before it had opened the run")


def _opened(
    options: argparse.Namespace, command: Sequence[str], watched: Watched, stores: Mapping[Path, Standing]
) -> tuple[Any, Bridge]:
    """Open the run; if that fails, whatever has been started ends with this process."""
    from monitoring.bridge.attempt import ProgramAttempt
    from monitoring.bridge.following import Bridge  # the program does not wait for what these import
    from monitoring.bridge.interpreter import interpreter_of
    from monitoring.journal.run_json import INTERPRETER
    from monitoring.run import Run

    # whose folder has the git revision that counts
    sys.argv = [str(_program_file(command, watched.cwd) or ""), *command[1:]]
    run = Run(
        watched.directory,
        name=options.name or watched.directory.name,
        project=options.project or watched.directory.parent.name or "runs",
        config=json.loads(options.config),
        trackers=json.loads(options.trackers),
        gpu_monitor=options.gpu_monitor,
        machine_monitor=options.machine_monitor,
        identity={
            "command": shlex.join(command),
            "cwd": str(watched.cwd),
            INTERPRETER: interpreter_of(command, watched.cwd, watched.environment),
        },
        quiet=True,  # the command that started the bridge has said it
    )
    attempt = ProgramAttempt(
        run,
        watched.directory / journal_name(0),
        program=Path(command[0]).name,
        num_steps=options.steps,
    )
    return run, Bridge(attempt, watched, stores)


def _program_file(command: Sequence[str], cwd: Path) -> Path | None:
    """Return the script that a command runs, or the program itself where it is in a folder of the user."""
    files = [cwd / word for word in command if word.endswith((".py", ".sh")) or word == command[0]]
    return next((file for file in reversed(files) if file.is_file()), None)


def _finish(run: Any, code: int, stopped_by: int | None, said: str, done: Mapping[str, object]) -> None:
    """Write the end record. Of a failure it gives no cause: the output may know it better."""
    if code == 0 and stopped_by is None:
        run.finish(COMPLETE, **done)
    elif stopped_by is not None and code in (0, 128 + stopped_by, -stopped_by, os.EX_TEMPFAIL):
        run.finish(INTERRUPTED, cause="stopped", **done)
    elif code < 0:
        run.finish(FAILED, error=f"ended by {signal.Signals(-code).name}", **done)
    else:
        run.finish(FAILED, error=said or f"exit code {code}", **done)


def _environment(watched: Watched) -> dict[str, str]:
    """Return the program's environment: the user's, and what its trackers need to be followed."""
    found = dict(watched.environment)
    for module in source_kinds().values():
        variables = module.variables(watched) if hasattr(module, "variables") else {}
        for name, value in variables.items():
            found.setdefault(name, value)
    return found


def _command(given: Sequence[str]) -> list[str]:
    if "--" not in given or not (command := list(given[given.index("--") + 1 :])):
        raise UserError("there is no command", hint="python -m monitoring.bridge DIR -- python train.py")
    return command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m monitoring.bridge",
        description=__doc__,
        # one that looks for the terminal's width is made for each option
        formatter_class=functools.partial(argparse.HelpFormatter, width=100),
    )
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
    parser.add_argument("--resume-with", action="append", default=[], metavar="WORD",
                        help="the program has it too in attempts after the first")  # fmt: skip
    parser.add_argument(
        "--from-scratch", action="store_true", help="a later attempt that has no words of --resume-with"
    )
    parser.add_argument("--hook", action="store_true", help="record calls of trackers in the program itself")
    parser.add_argument("--gpu-monitor", action="store_true")
    parser.add_argument("--machine-monitor", action="store_true")
    return parser
