"""One run as a process: start it by its command line, stop it, and judge what it left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kharness.matrix.errors import MatrixError
from kharness.matrix.journal_tail import JournalTail
from kharness.matrix.status import Attempt, RunStatus, Status, write_status

OUTPUT_LOG = "output.log"

# A training exits with this after it was asked to stop and has saved everything (EX_TEMPFAIL of sysexits.h).
STOPPED_ON_REQUEST = 75

# Filled in when a run starts, so what the trainer records differs from the template that was asked for.
EXPANDED = frozenset({"TRACKER_PROJECT", "TRACKER_RUN_NAME"})

# Make's own, and the word that make variables were given: a cell has them in its .config already.
NOT_FOR_RUNS = ("KHARNESS_MAKE_VARS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class Launch:
    """What is to run."""

    name: str
    directory: Path
    """The run directory, with its `.config`."""
    root: Path
    """The checkout: where the command runs."""
    model: str
    asked: Mapping[str, object]
    """The values that it must run with."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, f"{self.model}/train.py", "--run-dir", self.shown_directory]

    @property
    def shown_directory(self) -> str:
        inside = self.directory.is_relative_to(self.root)
        return str(self.directory.relative_to(self.root) if inside else self.directory)

    @property
    def command_line(self) -> str:
        """To be run by hand in the checkout."""
        return shlex.join(self.command)


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: Status
    attempt: Attempt

    @property
    def seconds(self) -> float:
        assert self.attempt.ended is not None
        return self.attempt.ended - self.attempt.started


class RunProcess:
    """A started run. It has a session of its own, so a Ctrl-C in the terminal reaches it only through `stop`.

    On Linux the kernel kills it when this process dies, however that happens.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.tail = JournalTail(launch.directory)
        self._stop_asked = False
        environment = {name: value for name, value in os.environ.items() if name not in NOT_FOR_RUNS}
        try:
            with (launch.directory / OUTPUT_LOG).open("ab") as log:
                self._process = subprocess.Popen(
                    launch.command,
                    cwd=launch.root,
                    env={**environment, "PYTHONUNBUFFERED": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_before_exec(),
                )
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise MatrixError(f"{launch.name} cannot be started: {reason}") from error
        self._attempt = Attempt(started=time.time(), pid=self._process.pid)
        write_status(launch.directory, RunStatus("running", [self._attempt]))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def started(self) -> float:
        """UTC epoch seconds."""
        return self._attempt.started

    def poll(self) -> Outcome | None:
        """The outcome once the process has ended, also written to status.json."""
        # Looked at without collecting it: until then nobody else can get its id, so its group is surely ours.
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        self.kill()
        returned = self._process.wait()
        self.tail.update()
        ended = replace(
            self._attempt,
            ended=time.time(),
            exit_code=returned if returned >= 0 else None,
            signal=-returned if returned < 0 else None,
        )
        status, reason = judge(ended, self.tail, self.launch.asked, stop_asked=self._stop_asked)
        outcome = Outcome(status, replace(ended, reason=reason))
        write_status(self.launch.directory, RunStatus(status, [outcome.attempt]))
        return outcome

    def stop(self) -> None:
        """Ask the training to stop after its current step."""
        self._stop_asked = True
        os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """End it at once, with everything it started except its agent."""
        # PermissionError: on macOS, a group in which nothing is left but a process to be collected.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def judge(
    attempt: Attempt, tail: JournalTail, asked: Mapping[str, object], *, stop_asked: bool
) -> tuple[Status, str | None]:
    """Status and reason of a process that has ended, from its exit and its journal.

    Exit code 0 is not enough: the journal must say that the training is complete and that it ran with the
    values that were asked for.
    """
    ended_as = tail.end.get("status")
    if attempt.exit_code == 0:
        if ended_as != "complete":
            says = f"says {ended_as}" if tail.end else "is missing"
            return "failed", f"exit code 0, but the journal's end record {says}"
        different = other_values(tail.start.get("config"), asked)
        if different:
            return "failed", f"ran with other values than asked: {different}"
        return "complete", None
    if stop_asked or attempt.exit_code == STOPPED_ON_REQUEST:
        if ended_as == "interrupted":
            return "interrupted", f"stopped on request after step {tail.step or 0}"
        if attempt.signal == signal.SIGKILL:
            return "killed", f"killed after step {tail.step or 0}, before it had stopped"
        return "interrupted", f"stopped on request after step {tail.step or 0}, without an end record"
    if attempt.signal is not None:
        return "killed", f"signal {attempt.signal} ({_signal_name(attempt.signal)})"
    error = tail.end.get("error")
    return "failed", f"exit code {attempt.exit_code}" + (f": {error}" if error else "")


def other_values(recorded: object, asked: Mapping[str, object]) -> str:
    """The symbols in which the start record's configuration differs from what was asked; empty if none."""
    if not isinstance(recorded, Mapping):
        return "the start record holds no configuration"
    names = [name for name in asked if name not in EXPANDED]
    different = [
        f"{name}={recorded[name]!r}, asked {asked[name]!r}" if name in recorded else f"{name} is not recorded"
        for name in names
        if name not in recorded or not _same(recorded[name], asked[name])
    ]
    more = f" and {len(different) - 3} more" if len(different) > 3 else ""
    return "; ".join(different[:3]) + more


def output_tail(log: Path, lines: int = 15) -> list[str]:
    """The last lines of a log, fit for a terminal."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 20_000))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    # A progress bar writes its states one over the other; only the last one was meant to stay.
    last = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in text.split("\n")]
    kept = [line for line in last if line][-lines:]
    return ["".join(c if c.isprintable() or c == "\t" else "?" for c in line)[:300] for line in kept]


def _same(recorded: object, asked: object) -> bool:
    # In JSON 1e3 comes back as 1000.0 and a tuple as a list; True and 1 are still two things.
    return recorded == asked and isinstance(recorded, bool) == isinstance(asked, bool)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unnamed"


def _before_exec() -> Callable[[], None]:
    """What the child does between fork and exec; only system calls, for little else is safe there."""
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def prepare() -> None:
        # nohup and background jobs make it ignored, and an ignored signal stays so over exec.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before prctl
                os._exit(1)

    return prepare
