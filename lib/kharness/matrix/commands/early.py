"""A bridge that is forked before its run is known: it imports what it needs while the run is planned.

A second interpreter takes as long to start as all the rest before the program does. And what a runner needs
to follow the run is imported once the program starts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from monitoring.bridge.sooner import after_start, before_start

if TYPE_CHECKING:  # the bridge is forked before that is imported
    from kharness.runs.command import CommandLaunch
    from kharness.runs.status import RunStatus


class EarlyBridge:
    """The process of a bridge that waits for its command line, and ends if none comes."""

    def __init__(self) -> None:
        ours, self._to = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        before_start()  # of this process and of the bridge
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._to)
            _wait_for_run(ours, parent)
        os.close(ours)

    def begin(self, launch: CommandLaunch) -> RunStatus:
        """Have it run the first attempt; returns the status, which is written before there is a program.

        So that is all there as soon as anything of the run is, whoever is killed.
        """
        from dataclasses import asdict

        from kharness.runs.files import OUTPUT_LOG
        from kharness.runs.launch import Job, Slot, environment_of_runs
        from kharness.runs.status import RUNNING, Attempt, RunStatus, write_status
        from monitoring.errors import columns_of
        from monitoring.host.name import host_name
        from monitoring.host.process import process_started

        job = Job("local", str(self.pid), host_name(), self.pid, time.time(), process_started(self.pid))
        attempt = Attempt(job.started, self.pid, job=asdict(job), slot=asdict(Slot()))
        status = RunStatus(RUNNING, [attempt])
        write_status(launch.directory, status, durable=False)
        content = {
            "words": launch.program[2:],  # those after `-m monitoring.bridge`
            "cwd": str(launch.root),
            "log": str(launch.directory / OUTPUT_LOG),
            "environment": environment_of_runs(Slot()),
            "columns": columns_of(sys.stdout),
        }
        with os.fdopen(self._to, "wb") as pipe:
            pipe.write(json.dumps(content).encode())
        after_start()
        return status


def _wait_for_run(ours: int, parent: int) -> NoReturn:
    """Become the bridge; nothing of the process that this one was forked from is run any more."""
    code = 1
    try:
        os.setsid()  # what a terminal sends to the runner is passed on by it
        os.closerange(3, ours)
        from monitoring.bridge.bridge import main
        from monitoring.bridge.guard import Guard
        from monitoring.bridge.sources import source_kinds
        from monitoring.host.libc import ending_with

        ending_with(parent)()
        source_kinds()
        guard = Guard()
        with os.fdopen(ours, "rb") as pipe:
            content = json.loads(pipe.read() or b"null")
        if content is not None:
            _enter(content)
            code = main(content["words"], guard, content["columns"])
            sys.stdout.flush()
            sys.stderr.flush()
    except Exception:  # noqa: BLE001 - as an interpreter of its own would
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _enter(content: Mapping[str, Any]) -> None:
    """Take over what a process gets when it is started: files, folder, environment, signals."""
    os.chdir(content["cwd"])
    log = os.open(content["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, fd in enumerate((nothing, log, log)):
        os.dup2(fd, number)
    os.close(nothing)
    os.close(log)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        for number in (1, 2)
    )
    os.environ.clear()
    os.environ.update(content["environment"])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
