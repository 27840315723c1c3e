"""The agent: one process per run that brings its journal to every follower, however they or the trainer fare.

    python -m monitoring.agent RUN_DIR

A Run starts it and starts it again; it ends by itself when everything is delivered. Each follower has a
thread of its own, so that one that hangs or fails delays no other.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from monitoring.agent.catch_up_process import Apart
from monitoring.agent.delivery import LAST_TRIES, Delivery
from monitoring.agent.ending import OpenDirectory, begin_again, has_ended, is_running, set_signals
from monitoring.agent.journal_tails import journals_in
from monitoring.agent.lock import death, only_agent
from monitoring.agent.log import log_as_json
from monitoring.agent.notifications import notifications
from monitoring.agent.progress import DeliveryProgress, ProgressFile, read_progress
from monitoring.agent.rule_watch import RuleWatch
from monitoring.agent.sample_threads.journal_sampling import AllDone, Awaited
from monitoring.agent.sample_threads.samplings import samplings
from monitoring.errors import MonitoringError, report_error
from monitoring.follower import ALWAYS, RunInfo, follower_options, is_live
from monitoring.host import file_locks
from monitoring.journal.alerts import Alerts, is_controlled, where
from monitoring.journal.files import ALERTS, JOURNAL, SAMPLES
from monitoring.journal.ranks import sample_journals
from monitoring.journal.records import last_record, seq_of
from monitoring.journal.rotating_journal import newest_record
from monitoring.journal.run_json import read_run_json

# Seconds between looks at the trainer, by the rules and for followers.json; and between looks for an end
# record, by which followers that look seldom are woken.
LOOK_EVERY = 1.0
LOOK_FOR_END = 0.25

# Seconds that the agent waits, once no more records come, for a follower that neither delivers nor fails.
HANGING_AFTER = 600.0

# Seconds that what trackers leave behind, threads and functions for the exit, may take to end.
LONGEST_EXIT = 60.0

# The agent gives way to the training when both want a core.
NICENESS = 5


def follow(directory: Path, *, after: str = "") -> bool:
    """Follow a run until it ended, or its trainer is gone; returns whether everything is delivered.

    Waits for another agent of the run to end first. After the end that is bounded, whatever a tracker does:
    one that fails is given up after a few tries, one that hangs after HANGING_AFTER. `after` says how the
    agent before has died, if the trainer knows.
    """
    from monitoring.saved_environment import save_environment  # here: many import this module, few follow

    stop, ending = threading.Event(), threading.Event()
    set_signals(stop, ending)
    with only_agent(directory, wait=float("inf"), stop=stop) as died:
        # agent.log, locked by who started this one to show that it is coming (process.open_log)
        file_locks.unlock(1)
        run, opened = read_run_json(directory), OpenDirectory(directory)
        trackers: dict[str, Any] = run["tracking"]["trackers"]
        attempt = run["attempts"][-1]
        with contextlib.closing(Alerts(directory, shared=where(directory, run))) as alerts:
            if died or after:  # the first of all: what it died of may come again
                alerts.add("agent", "warning", death(after))
            sampling = samplings(directory, run, alerts)
            sampling.start()
            with contextlib.suppress(OSError):  # a full disk: the next agent writes it
                save_environment(directory, attempt)
            deliveries = _deliveries(directory, trackers, alerts)
            rules = RuleWatch(directory, run["config"], alerts, is_controlled=is_controlled(run))
            sender = notifications(directory, run, alerts)
            if is_running(attempt):
                alerts.resolve("trainer", "another training process continues the run")
            judged, reached_end, ended_at = threading.Event(), threading.Event(), 0.0
            saved = ProgressFile(directory)
            sampled, number = AllDone([sampling.done, judged]), attempt["attempt"]
            threads = _start(deliveries, lambda it: it.follow(number, ending, stop, sampled, reached_end))
            while any(thread.is_alive() for thread in threads) or not sampling.done.is_set():
                if (elsewhere := opened.moved_to()) is not None:
                    begin_again(elsewhere)
                saved.update(_progress(deliveries))
                has_all = sampling.done.is_set() and (ending.is_set() or reached_end.is_set())
                more = rules.look(time.time(), running=not ending.is_set(), delivered=_delivered(deliveries))
                if has_all and not more:  # what the rules find in the last records, trackers get too
                    judged.set()
                if not ending.is_set():
                    runs = is_running(attempt)  # before the journal: an end record is its last act
                    # Its process may live on, as that of a notebook: no record of this attempt follows.
                    if (ended := has_ended(directory / JOURNAL, attempt)) or not runs:
                        ending.set()
                    if not ended and not runs:
                        alerts.fire(
                            "trainer", "error", "the training process is gone and wrote no end record"
                        )
                if ending.is_set():
                    ended_at = ended_at or time.monotonic()
                    if not sampling.done.is_set():
                        sampling.end()
                sampling.watch()
                if ending.is_set() and _hanging(deliveries, since=ended_at):
                    what = "is not responding: `make sync` delivers the rest"
                    for name in (delivery.name for delivery in deliveries if not delivery.finished):
                        alerts.fire("follower", "error", f"{name} {what}", subject=name)
                    break  # the threads are daemons, and do not keep the process
                if judged.is_set():
                    _join(threads, sampling.done, 0.0 if more else LOOK_EVERY)
                elif not more:
                    _wait_for_end(directory / JOURNAL, attempt, reached_end, sampling.done)
            # where a hanging follower has ended the loop: alerts.jsonl gets all, followers by `make sync`
            while rules.look(time.time(), running=False, delivered=_delivered(deliveries)):
                pass
            if sender is not None:
                sender.close()
            saved.close(_progress(deliveries))
    for delivery in deliveries:  # without the lock, so that the next attempt's agent begins at once
        delivery.linger(stop)
    return all(delivery.finished for delivery in deliveries)


def catch_up(
    directory: Path, trackers: Mapping[str, Mapping[str, object]] | None = None, *, wait: float = 0.0
) -> list[Delivery]:
    """Bring followers to the end of the journal, now: the CSV, and `trackers` or else those of the run.

    Errors: RunBusyError if the run's agent is still running after `wait` seconds, RunDirectoryError if
    there is no run; a follower's own failure is in its Delivery's `error`, and one that is not `finished`
    does not respond.
    """
    run = read_run_json(directory)
    asked = run["tracking"]["trackers"] if trackers is None else trackers
    for name, options in asked.items():
        follower_options(name, options)
    chosen = {name: options for name, options in asked.items() if not is_live(name)}
    stop, ending = threading.Event(), threading.Event()
    ending.set()
    with (
        only_agent(directory, wait=wait, stop=stop) as died,
        contextlib.closing(Alerts(directory, shared=where(directory, run))) as alerts,
    ):
        if died:
            alerts.add("agent", "warning", death())
        deliveries = _deliveries(directory, chosen, alerts, last_tries=1)  # the caller can try again
        attempt = run["attempts"][-1]["attempt"]
        reached_end = threading.Event()
        threads = _start(deliveries, lambda it: it.follow(attempt, ending, stop, ending, reached_end))
        try:
            begun = time.monotonic()
            while any(thread.is_alive() for thread in threads) and not _hanging(deliveries, since=begun):
                _join(threads, ending, LOOK_EVERY)
        finally:
            stop.set()
            ProgressFile(directory).close(_progress(deliveries))
    return deliveries


def newest_seqs(directory: Path) -> dict[str, int]:
    """Journal of measurements -> the `seq` of its last record; 0 for none."""
    there = [path.name for kind in SAMPLES.values() for path in sample_journals(directory, kind).values()]
    known = dict.fromkeys([*SAMPLES.values(), *there])
    samples = {name: seq_of(newest_record(directory / name) or {}) for name in known}
    return {JOURNAL: seq_of(last_record(directory / JOURNAL) or {}), **samples}


def undelivered(directory: Path, newest: Mapping[str, int] | None = None) -> dict[str, int]:
    """How many records each follower of the run still lacks, by followers.json; empty if none lacks any.

    Counts records up to `newest`, if given, else all. Alerts do not count: some are about how a tracker
    ended, and no agent is left to deliver these.
    """
    last = newest or newest_seqs(directory)
    progress = read_progress(directory)
    trackers = read_run_json(directory)["tracking"]["trackers"]
    names = [*ALWAYS, *(name for name in trackers if not is_live(name))]
    lacking = {}
    for name in names:
        held = progress.get(name, DeliveryProgress())
        journals = [it for it in journals_in(directory, name) if it != ALERTS]
        lacking[name] = sum(max(0, last.get(it, 0) - held.seq_of(it)) for it in journals)
    return {name: count for name, count in lacking.items() if count > 0}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent; 0 when all is delivered, 3 when a follower was given up, 2 without such a run."""
    directory, host, after = _asked(sys.argv[1:] if argv is None else argv)
    with contextlib.suppress(OSError):  # not allowed here: the agent runs all the same
        os.nice(NICENESS)
    # before a tracker imports numpy, which starts a thread for each core and takes 40 MB of addresses for
    # each; where these are limited (ulimit -v) the library ends the process. No follower multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        with contextlib.suppress(OSError, ValueError):  # standard error is no file
            faulthandler.enable()  # a tracker's C library that aborts leaves its stack in agent.log
        run = read_run_json(directory)
        log_as_json(run["run_id"], libraries=bool(run["tracking"]["trackers"]))
        if host:
            from monitoring.agent.hosts.first_rank import FirstRank
            from monitoring.agent.hosts.sampling_agent import sample_host

            sample_host(directory, FirstRank.of(host))
            return 0
        return 0 if follow(directory, after=after) else 3
    except MonitoringError as error:
        return report_error(error)
    except Exception as error:  # noqa: BLE001 - it is logged; what is left of trackers must not keep the process
        sys.excepthook(type(error), error, error.__traceback__)
        return 1


def _asked(argv: Sequence[str]) -> tuple[Path, str, str]:
    """Return the run's directory, the host to sample, if only that, and how the agent before has died."""
    directory, *options = argv or [""]
    given = dict(zip(options[::2], options[1::2], strict=False))
    if (
        not directory.startswith("-")
        and given.keys() <= {"--host", "--after"}
        and len(options) == 2 * len(given)
    ):
        return Path(directory), given.get("--host", ""), given.get("--after", "")
    import argparse  # here: a Run asks as above, and its agent would spend 5 ms on this

    parser = argparse.ArgumentParser(
        prog="python -m monitoring.agent", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("directory", type=Path, metavar="RUN_DIR", help="a directory that a Run writes")
    parser.add_argument("--host", default="", help=argparse.SUPPRESS)  # for monitoring.agent.hosts
    parser.add_argument("--after", default="", help=argparse.SUPPRESS)
    read = parser.parse_args(argv)
    return read.directory, read.host, read.after


def _deliveries(
    directory: Path,
    trackers: Mapping[str, Mapping[str, object]],
    alerts: Alerts,
    *,
    last_tries: int = LAST_TRIES,
) -> list[Delivery]:
    followers = {**{name: {} for name in ALWAYS}, **trackers}
    run, saved, apart = RunInfo.read(directory), read_progress(directory), Apart(alerts)
    return [
        Delivery(
            run,
            name,
            options,
            saved=saved.get(name, DeliveryProgress()),
            alerts=alerts,
            last_tries=last_tries,
            apart=apart,
        )
        for name, options in followers.items()
    ]


def _start(deliveries: Sequence[Delivery], follow: Callable[[Delivery], None]) -> list[threading.Thread]:
    """Start one daemon thread per follower: what hangs in a tracker's code must not keep the process."""
    threads = [
        threading.Thread(target=follow, args=[delivery], name=delivery.name, daemon=True)
        for delivery in deliveries
    ]
    for thread in threads:
        thread.start()
    return threads


def _join(threads: Sequence[threading.Thread], sampled: Awaited, seconds: float) -> None:
    """Wait until all have ended, and the sampling too, or so many seconds."""
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    sampled.wait(max(0.0, deadline - time.monotonic()))


def _wait_for_end(
    journal: Path, attempt: Mapping[str, Any], reached_end: threading.Event, sampled: Awaited
) -> None:
    """Wait a while for the end of the attempt, or, once that is reached, for the last sample."""
    if reached_end.is_set():
        sampled.wait(LOOK_EVERY)
        return
    # half a look early: the last one then ends at LOOK_EVERY, and none begins there
    until = time.monotonic() + LOOK_EVERY - LOOK_FOR_END / 2
    while not reached_end.wait(LOOK_FOR_END) and time.monotonic() < until and not has_ended(journal, attempt):
        pass


def _hanging(deliveries: Sequence[Delivery], *, since: float) -> bool:
    """Whether no unfinished delivery has moved for HANGING_AFTER seconds, and so long has passed `since`."""
    moved = [delivery.last_moved for delivery in deliveries if not delivery.finished]
    return time.monotonic() - max([since, *moved]) > HANGING_AFTER


def _delivered(deliveries: Sequence[Delivery]) -> dict[str, int]:
    return {delivery.name: delivery.progress.seq for delivery in deliveries}


def _progress(deliveries: Sequence[Delivery]) -> dict[str, DeliveryProgress]:
    return {delivery.name: delivery.progress for delivery in deliveries}


def leave(code: int) -> NoReturn:
    """Exit with the code of `main`, as the interpreter does, but without tearing the modules down.

    Tearing them down takes as long as all the other work of an agent of a short run.
    """
    if not code:  # else a tracker hangs, whose threads would keep it
        bound = threading.Timer(LONGEST_EXIT, os._exit, [code])
        bound.daemon = True
        with contextlib.suppress(RuntimeError):  # out of threads
            bound.start()
        # as the interpreter does at its exit: threads that are no daemons end, then exit functions run
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a full disk
            stream.flush()
    os._exit(code)
