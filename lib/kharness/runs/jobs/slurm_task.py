"""The program of a job on Slurm: it runs the cells of its array task, as many at a time as it has room for.

    python -m kharness.runs.jobs.slurm_task LIST.jsonl

Each cell's job.jsonl says how it began and ended. A job that has to leave, preempted or at its time limit,
has its trainings save, and asks Slurm to start it again: an exit code alone means nothing to Slurm.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from kharness.runs.exit_codes import CANCELLED, EXIT_STOPPED, LAUNCH_FAILED, PREEMPTED, STOPPED, TIMED_OUT

LEAVE = signal.SIGUSR1
"""Sent by Slurm (`--signal`) before the time limit, and to a job that is preempted."""
STOP = signal.SIGUSR2
"""Sent by the runner: save and end, and stay away."""
BY_SLURM = signal.SIGTERM
"""Sent by Slurm where it does not pass LEAVE on, and by `scancel`."""

VOID = ".void"
"""The ending of a file beside the list that takes back what is in it."""
STOP_FILE = ".stop"
"""The ending of one that ends a single cell of a job of several; STOP has the job look for it."""
KILL = "kill"

STOP_GRACE = 30.0
"""Seconds that a training has to save when it is over its TIMEOUT."""

AGENT_PATIENCE = 30.0
"""Seconds that a training's agent has to deliver the last records before Slurm ends all of the job."""
AGENT_BEFORE_START = 3.0
"""The same, where all of it ends because Slurm is to start the job again: it may be killed at any moment."""
REQUEUE_PATIENCE = 60.0
"""Seconds in which Slurm ends a job that it starts again."""
SAVED = (EXIT_STOPPED, -signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of a training that was told to end, and did; without its own code while it imports."""
SAME_STEP = 3
"""Attempts in turn that may end without a new step; then no other follows."""
LOOK_EVERY = 1.0
"""Seconds between two looks at whether a cell that waits has room, where nothing else happens."""


class StartedTraining(Protocol):
    """A training that this job has started."""

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    def send_signal(self, number: int) -> None: ...

    def kill(self) -> None: ...


class JobPart(Protocol):
    """The part of a job that a cell gets."""

    noted: Mapping[str, object]
    """Its resources, in the words of the slots of status.json."""

    def start(self) -> StartedTraining:
        """Start the cell's training there; OSError if that cannot be done."""

    def free(self) -> None:
        """Give it back: the training has ended, or was never started."""


class SharedJob(Protocol):
    """The cores and GPUs of a job, shared out among its cells."""

    def place(self, header: Mapping[str, Any], cell: Mapping[str, Any]) -> JobPart | None:
        """A place for one more cell, by the header of the list and its entry; None while there is none."""

    def filenos(self) -> Sequence[int]:
        """Descriptors that become readable when a training may have ended."""


class WholeJob:
    """All that a job has, for its only cell, whose process prints to the log of the job."""

    def place(self, header: Mapping[str, Any], cell: Mapping[str, Any]) -> JobPart | None:
        return _Whole(header, cell)

    def filenos(self) -> Sequence[int]:
        return ()


class _Whole:
    def __init__(self, header: Mapping[str, Any], cell: Mapping[str, Any]) -> None:
        self.noted: Mapping[str, object] = slot_of_job(int(cell["environment"].get("OMP_NUM_THREADS", "0")))
        self._root, self._cell = header["root"], cell

    def start(self) -> StartedTraining:
        return subprocess.Popen(
            self._cell["command"],
            cwd=self._root,
            env={**os.environ, **self._cell["environment"]},
            stdin=subprocess.DEVNULL,
        )

    def free(self) -> None:
        pass


class Task:
    """The signals to this job; handlers only note them, and the loop of the job acts."""

    def __init__(self, *, is_packed: bool = False) -> None:
        """A packed job has several cells, so that STOP is for one of them."""
        self.asked: list[int] = []
        """The signals so far that ask the job to end."""
        self.stop_left = False
        """Whether word may have been left for a cell since this was last looked at."""
        self._is_packed = is_packed
        # Python runs handlers between bytecodes, and select would sleep on: the byte in the pipe wakes it.
        self._woken, write_end = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (LEAVE, STOP, BY_SLURM):
            signal.signal(number, self._ask)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a training may have ended

    def wait(self, seconds: float, filenos: Sequence[int]) -> None:
        """Return after `seconds`, or as soon as a signal has come or one of `filenos` has something."""
        if self._woken in select.select([self._woken, *filenos], [], [], seconds)[0]:
            os.read(self._woken, 4096)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if number == STOP and self._is_packed:
            self.stop_left = True
        else:
            self.asked.append(number)


@dataclass
class RunningCell:
    """A cell whose training runs in this job."""

    directory: Path
    known: Mapping[str, object]
    """Which start of which job it is, for the lines of its job file."""
    place: JobPart
    training: StartedTraining
    deadline: float | None
    """When it is over its TIMEOUT, on the monotonic clock."""
    stop_file: Path | None
    is_told: bool = False
    """Whether it was asked to save and end."""
    was_stopped: bool = False
    """Whether that was for the runner, and the job goes on."""
    over_timeout: bool = False

    def tell(self) -> None:
        if not self.is_told:
            self.is_told = True
            self.training.send_signal(signal.SIGTERM)

    def look_for_stop(self) -> None:
        word = stop_word(self.stop_file) if self.stop_file else None
        if word is None:
            return
        self.was_stopped = True
        if word == KILL:
            self.training.kill()
        else:
            self.tell()

    def keep_to_timeout(self, now: float) -> None:
        if self.deadline is None or now < self.deadline:
            return
        if self.over_timeout:
            self.training.kill()
            self.deadline = None
        else:
            self.over_timeout, self.deadline = True, now + STOP_GRACE
            self.tell()


def stop_word(path: Path) -> str | None:
    """The word that a runner has left for a cell that is to end, empty or KILL; None without any."""
    try:
        return path.read_text()
    except OSError:
        return None


def main(argv: Sequence[str], *, task: Task | None = None, room: SharedJob | None = None) -> int:
    task = task or Task()  # the first thing of all: before this a signal ends the job
    listed = Path(argv[0])
    index = int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))
    with listed.open() as lines:
        header = json.loads(next(lines))
        cells = next(json.loads(line) for number, line in enumerate(lines) if number == index)
    from kharness.runs.jobs.job_file import read_starts

    left = []
    for cell in cells:
        before = read_starts(Path(cell["directory"]), cell["submission"])
        if not before or not before[-1].is_over:  # else it had ended before this job was started again
            left.append(cell)
    return CellsOfJob(task, room or WholeJob(), listed, header).run(left)


class CellsOfJob:
    """The cells of this job: those that run, and what became of the others."""

    def __init__(self, task: Task, room: SharedJob, listed: Path, header: Mapping[str, Any]) -> None:
        self._task, self._room, self._listed, self._header = task, room, listed, header
        self._running: dict[str, RunningCell] = {}
        """Submission -> its cell."""
        self._ran: list[Path] = []
        self._again: list[RunningCell] = []
        """Those that have saved to go on when this job is started again."""
        self._left_for: tuple[str, str] | None = None
        self._asked_slurm = False
        self._code = 0

    def run(self, cells: Iterable[Mapping[str, Any]]) -> int:
        """Run them in their order, and return the exit code of the job."""
        waiting = deque(cells)
        while True:
            self._start(waiting)
            if not self._running and (self._task.asked or not waiting):
                break
            self._pass_on()
            if not self._collect():
                self._wait()
        left = self._left() if self._task.asked and waiting else None
        if self._again or (left is not None and left[0] != CANCELLED):
            self._requeue()
        if not self._again:
            _wait_for_agents(self._ran, AGENT_PATIENCE)
        # The cells of a packed job say in their own files how each has ended: the job has no one code.
        return 0 if self._header["packed"] and not self._again else self._code

    def _start(self, waiting: deque[Mapping[str, Any]]) -> None:
        """Start those that have room; the first one keeps its turn until it has."""
        while waiting and not self._task.asked:
            place = self._room.place(self._header, waiting[0])
            if place is None:
                return
            self._begin(waiting.popleft(), place)

    def _begin(self, cell: Mapping[str, Any], place: JobPart) -> None:
        from kharness.runs.jobs.job_file import append
        from kharness.runs.journal_tail import end_offset

        directory = Path(cell["directory"])
        self._ran.append(directory)
        restart = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        known = {"submission": cell["submission"], "job": _job(), "restart": restart}
        append(
            directory,
            {
                "event": "start",
                **known,
                "node": _node(),
                "time": time.time(),
                "journal_offset": end_offset(directory),
                "slot": place.noted,
            },
        )
        # Looked for only now: who makes these files looks for start events next, so that one of both notices.
        packed, timeout = self._header["packed"], self._header["cell_seconds"]
        stop_file = self._listed.with_name(cell["submission"] + STOP_FILE) if packed else None
        end = None
        if self._listed.with_suffix(VOID).exists():
            end = _end(known, None, LAUNCH_FAILED, "its submission was given up")
        elif stop_file is not None and stop_word(stop_file) is not None:
            end = _end(known, None, STOPPED, "stopped on request before it began")
        else:
            try:
                training = place.start()
            except OSError as error:
                self._code = 1
                end = _end(known, None, LAUNCH_FAILED, f"{cell['command'][0]}: {error.strerror}")
        if end is not None:
            append(directory, end)
            place.free()
            return
        deadline = time.monotonic() + timeout if timeout else None
        self._running[cell["submission"]] = RunningCell(
            directory, known, place, training, deadline, stop_file
        )

    def _pass_on(self) -> None:
        """Tell trainings what they are to know, those first that Slurm may kill soon."""
        looks, self._task.stop_left = self._task.stop_left, False
        for one in self._running.values():
            if self._task.asked:
                one.tell()
            if looks:
                one.look_for_stop()
            one.keep_to_timeout(time.monotonic())

    def _wait(self) -> None:
        now = time.monotonic()
        deadlines = [one.deadline - now for one in self._running.values() if one.deadline is not None]
        self._task.wait(max(0.0, min([LOOK_EVERY, *deadlines])), self._room.filenos())

    def _collect(self) -> bool:
        """Whether one has ended."""
        polled = {submission: one.training.poll() for submission, one in self._running.items()}
        ended = {submission: code for submission, code in polled.items() if code is not None}
        for submission, code in ended.items():
            one = self._running.pop(submission)
            one.place.free()
            self._close(one, code)
        return bool(ended)

    def _close(self, one: RunningCell, code: int) -> None:
        """Note how one has ended, and whether it goes on when this job is started again."""
        from kharness.runs.jobs.job_file import append

        self._code = code if code >= 0 else 128 - code
        if one.over_timeout and code in (*SAVED, -signal.SIGKILL):
            over = f"over TIMEOUT={self._header['cell_seconds']:g}"
            append(one.directory, {**_end(one.known, code, TIMED_OUT, over), "over_timeout": True})
        elif one.was_stopped:
            append(one.directory, _end(one.known, code, STOPPED))
        else:
            cause, reason, again = self._why(code, one.directory)
            append(one.directory, _end(one.known, code, cause, reason, requeued=again))
            if again:
                self._again.append(one)

    def _why(self, code: int, directory: Path) -> tuple[str | None, str | None, bool]:
        """Cause and reason of an end that Slurm has asked for, and whether the job is to be started again."""
        found = self._left() if code in SAVED else None
        if found is None:
            return None, None, False
        cause, reason = found
        if cause == CANCELLED:
            return cause, reason, False
        if _without_step(directory) >= SAME_STEP:
            return cause, f"{reason}; {SAME_STEP} attempts in turn took no new step", False
        return cause, reason, True

    def _left(self) -> tuple[str, str] | None:
        """Cause and reason for which Slurm has asked the job to end, with one question for all cells."""
        if not self._asked_slurm and self._task.asked:
            self._asked_slurm = True
            self._left_for = left_for(self._task.asked, self._header["signal_seconds"])
        return self._left_for

    def _requeue(self) -> None:
        """Have Slurm start this job again, which ends it."""
        from kharness.runs.jobs.job_file import append

        _wait_for_agents([one.directory for one in self._again], AGENT_BEFORE_START)
        refused = _ask_for_start()
        if refused is None:
            # Slurm is about to end this process. One that returned first would be a job that has ended by
            # itself.
            time.sleep(REQUEUE_PATIENCE)
            return
        for one in self._again:
            event = {"event": "requeue_refused", **one.known, "time": time.time(), "reason": refused}
            append(one.directory, event)


def _end(
    known: Mapping[str, object],
    code: int | None,
    cause: str | None = None,
    reason: str | None = None,
    *,
    requeued: bool = False,
) -> dict[str, object]:
    return {
        "event": "end",
        **known,
        "time": time.time(),
        "exit_code": code if code is None or code >= 0 else None,
        "signal": -code if code is not None and code < 0 else None,
        "cause": cause,
        "reason": reason,
        "requeued": requeued,
    }


def left_for(asked: Sequence[int], signal_seconds: float) -> tuple[str, str] | None:
    """Cause and reason for which Slurm has asked the job to end; None where it has not."""
    if not asked or asked[0] == STOP:
        return None
    facts = _facts()
    state, node = facts.get("JobState", ""), _node()
    left = _seconds_until(facts.get("EndTime", ""))
    if state == "CANCELLED":
        return CANCELLED, f"its job {_job()} was cancelled"
    is_preempted = state == "PREEMPTED" or facts.get("PreemptTime", "None") not in ("None", "Unknown")
    # Slurm may send the signal up to 60 seconds early (sbatch(1), --signal), and the question takes its time,
    # too: with more left than that it is no time limit but a preemption.
    if not is_preempted and (
        state == "TIMEOUT" or (asked[0] == LEAVE and left is not None and left < signal_seconds + 90)
    ):
        return TIMED_OUT, f"the time limit of its job, {facts.get('TimeLimit', 'unknown')}, on {node}"
    if is_preempted or asked[0] == LEAVE:
        return PREEMPTED, f"preempted on {node}"
    return None  # somebody's `scancel --signal=TERM`


def _without_step(directory: Path) -> int:
    """How many attempts in turn, this one included, have ended where the one before them had."""
    from kharness.runs.jobs.job_file import note_step
    from monitoring.journal.files import JOURNAL
    from monitoring.journal.run_state import read_end

    return note_step(directory, read_end(directory / JOURNAL).step or 0)


def _ask_for_start() -> str | None:
    """Ask Slurm to start this job again; returns why it refuses, if it does."""
    done = _ask("scontrol", "requeue", _job())
    if done is None or done.returncode != 0:
        return (done.stderr if done else "scontrol does not run").strip()
    return None


def _wait_for_agents(directories: Sequence[Path], patience: float) -> None:
    from monitoring.agent.lock import is_followed

    deadline = time.monotonic() + patience
    for directory in directories:
        while is_followed(directory) and time.monotonic() < deadline:
            time.sleep(0.1)


def _facts() -> dict[str, str]:
    """Facts that Slurm tells of this job; nothing where it does not answer."""
    done = _ask("scontrol", "show", "job", "-o", _job())
    words = done.stdout.split() if done is not None and done.returncode == 0 else []
    return {name: value for word in words if (pair := word.partition("="))[1] for name, _, value in [pair]}


def _ask(*command: str) -> subprocess.CompletedProcess[str] | None:
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None


def _seconds_until(text: str) -> float | None:
    try:
        return float(text) - time.time()
    except ValueError:
        pass
    try:  # scontrol of some versions ignores SLURM_TIME_FORMAT
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")) - time.time()
    except ValueError:
        return None


def _job() -> str:
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{index}" if array and index else os.environ.get("SLURM_JOB_ID", "")


def _node() -> str:
    from monitoring.host.name import host_name

    return os.environ.get("SLURMD_NODENAME") or host_name()


def slot_of_job(threads: int, cores: Sequence[int] = (), gpus: Sequence[str] = ()) -> dict[str, object]:
    """Resources in the words of the slots of status.json; where none are a cell's own those of the job."""
    all_gpus = os.environ.get("SLURM_JOB_GPUS") or os.environ.get("SLURM_STEP_GPUS") or ""
    return {
        "threads": threads,
        "cores": list(cores) or sorted(os.sched_getaffinity(0)),
        "gpus": list(gpus) or [gpu for gpu in all_gpus.split(",") if gpu],
        "node": _node(),
        "job": _job(),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
