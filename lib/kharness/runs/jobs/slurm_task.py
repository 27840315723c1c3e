"""The program of a job on Slurm: it runs the cells of its array task, one after the other.

    python -m kharness.runs.jobs.slurm_task LIST.jsonl

Each cell's job.jsonl says how it began and ended. A job that has to leave, preempted or at its time limit,
has the training save, and asks Slurm to start it again: an exit code alone means nothing to Slurm.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
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
"""So many attempts in turn that end without a new step are the last."""


class StartedTraining(Protocol):
    """A training that this job has started."""

    def wait(self) -> int:
        """Its exit code, negative for a signal."""

    def send_signal(self, number: int) -> None: ...

    def kill(self) -> None: ...


Start = Callable[[Mapping[str, Any], Mapping[str, Any]], StartedTraining]
"""Starts the training of a cell, by the header of the list and the cell's entry; OSError if it cannot."""


class Task:
    """This job, and the training that runs now."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        """The signals so far that ask the job to end."""
        self.stopped = False
        """Whether the training that runs now was stopped by the runner, and its job goes on."""
        self.over_timeout = False
        """Whether it has taken longer than it may."""
        self.is_packed = False
        """Whether it has several cells, so that STOP is for one of them."""
        self._stop_file: Path | None = None
        self._training: StartedTraining | None = None
        for number in (LEAVE, STOP, BY_SLURM):
            signal.signal(number, self._ask)
        signal.signal(signal.SIGALRM, self._run_out)

    def run(
        self, start: Callable[[], StartedTraining], *, timeout: float = 0, stop_file: Path | None = None
    ) -> int:
        """Return the exit code of a training, negative for a signal; `timeout` is in seconds, 0 for none.

        In a packed job STOP ends it where there is its `stop_file`.
        """
        self.stopped = self.over_timeout = False
        self._stop_file = stop_file
        self._training = start()
        signal.setitimer(signal.ITIMER_REAL, timeout)
        if self.asked:  # while it was started
            self._training.send_signal(signal.SIGTERM)
        self._look_for_stop()
        try:
            return self._training.wait()
        finally:
            self._training = None
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if number == STOP and self.is_packed:
            self._look_for_stop()
            return
        self.asked.append(number)
        if self._training is not None and len(self.asked) == 1:
            self._training.send_signal(signal.SIGTERM)

    def _look_for_stop(self) -> None:
        word = stop_word(self._stop_file) if self._stop_file else None
        if word is None or self._training is None:
            return
        if word == KILL:
            self._training.kill()
        elif not self.stopped:
            self._training.send_signal(signal.SIGTERM)
        self.stopped = True

    def _run_out(self, number: int, frame: FrameType | None) -> None:
        if self._training is None:
            return
        if self.over_timeout:
            self._training.kill()
            return
        self.over_timeout = True
        signal.setitimer(signal.ITIMER_REAL, STOP_GRACE)
        self._training.send_signal(signal.SIGTERM)


def stop_word(path: Path) -> str | None:
    """The word that a runner has left for a cell that is to end, empty or KILL; None without any."""
    try:
        return path.read_text()
    except OSError:
        return None


def fresh(header: Mapping[str, Any], cell: Mapping[str, Any]) -> StartedTraining:
    """A process that prints to the log of the job, which is that of its only cell."""
    return subprocess.Popen(
        cell["command"],
        cwd=header["root"],
        env={**os.environ, **cell["environment"]},
        stdin=subprocess.DEVNULL,
    )


def main(argv: Sequence[str], *, task: Task | None = None, start: Start = fresh) -> int:
    task = task or Task()  # the first thing of all: before this a signal ends the job
    listed = Path(argv[0])
    index = int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))
    with listed.open() as lines:
        header = json.loads(next(lines))
        cells = next(json.loads(line) for number, line in enumerate(lines) if number == index)
    task.is_packed = header["packed"]
    from kharness.runs.jobs.job_file import read_starts

    code, ran = 0, []
    for cell in cells:
        before = read_starts(Path(cell["directory"]), cell["submission"])
        if before and before[-1].is_over:
            continue  # before this job was started again
        if task.asked:  # between two cells, or the last one was complete all the same
            _leave_rest(task.asked, header["signal_seconds"])
            break
        code, again = _run_cell(task, listed, header, cell, start)
        ran.append(Path(cell["directory"]))
        if again:
            return code
    for directory in ran:
        _wait_for_agent(directory)
    return 0 if header["packed"] else code


def _run_cell(
    task: Task, listed: Path, header: Mapping[str, Any], cell: Mapping[str, Any], start: Start
) -> tuple[int, bool]:
    """The exit code of the training, and whether this job has asked for its next start."""
    from kharness.runs.jobs.job_file import append
    from kharness.runs.journal_tail import end_offset

    directory = Path(cell["directory"])
    known = {"submission": cell["submission"], "job": _job(), "restart": _restart()}
    append(
        directory,
        {
            "event": "start",
            **known,
            "node": _node(),
            "time": time.time(),
            "journal_offset": end_offset(directory),
            "slot": _slot(cell["environment"]),
        },
    )
    # Looked for only now: who makes these files looks for start events next, so that one of both notices.
    stop_file = listed.with_name(cell["submission"] + STOP_FILE) if header["packed"] else None
    if listed.with_suffix(VOID).exists():
        append(directory, _end(known, None, LAUNCH_FAILED, "its submission was given up"))
        return 0, False
    if stop_file is not None and stop_word(stop_file) is not None:
        append(directory, _end(known, None, STOPPED, "stopped on request before it began"))
        return 0, False
    try:
        code = task.run(lambda: start(header, cell), timeout=header["cell_seconds"], stop_file=stop_file)
    except OSError as error:
        append(directory, _end(known, None, LAUNCH_FAILED, f"{cell['command'][0]}: {error.strerror}"))
        return 1, False
    shown = code if code >= 0 else 128 - code
    if task.over_timeout and code in (*SAVED, -signal.SIGKILL):
        over = f"over TIMEOUT={header['cell_seconds']:g}"
        append(directory, {**_end(known, code, TIMED_OUT, over), "over_timeout": True})
        return shown, False
    if task.stopped:
        append(directory, _end(known, code, STOPPED))
        return shown, False
    cause, reason, again = _why(task.asked, code, directory, header["signal_seconds"])
    append(directory, _end(known, code, cause, reason, requeued=again))
    if again:
        _requeue(directory, known)
    return shown, again


def _leave_rest(asked: Sequence[int], signal_seconds: float) -> None:
    """Have Slurm start this job again for the cells that have not had their turn."""
    left = _left_for(asked, signal_seconds)
    if left is not None and left[0] != CANCELLED and _ask_for_start() is None:
        time.sleep(REQUEUE_PATIENCE)


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


def _why(
    asked: Sequence[int], code: int, directory: Path, signal_seconds: float
) -> tuple[str | None, str | None, bool]:
    """Cause and reason of an end that Slurm has asked for, and whether the job is to be started again."""
    found = _left_for(asked, signal_seconds) if code in SAVED else None
    if found is None:
        return None, None, False
    cause, reason = found
    if cause == CANCELLED:
        return cause, reason, False
    if _without_step(directory) >= SAME_STEP:
        return cause, f"{reason}; {SAME_STEP} attempts in turn took no new step", False
    return cause, reason, True


def _left_for(asked: Sequence[int], signal_seconds: float) -> tuple[str, str] | None:
    """Cause and reason for which Slurm has asked the job to end; None where it has not."""
    if not asked or asked[0] == STOP:
        return None
    facts = _facts()
    state, node = facts.get("JobState", ""), _node()
    left = _seconds_until(facts.get("EndTime", ""))
    if state == "CANCELLED":
        return CANCELLED, f"its job {_job()} was cancelled"
    is_preempted = state == "PREEMPTED" or facts.get("PreemptTime", "None") not in ("None", "Unknown")
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


def _requeue(directory: Path, known: Mapping[str, object]) -> None:
    """Have Slurm start this job again, which ends it."""
    from kharness.runs.jobs.job_file import append

    _wait_for_agent(directory, AGENT_BEFORE_START)
    refused = _ask_for_start()
    if refused is not None:
        append(directory, {"event": "requeue_refused", **known, "time": time.time(), "reason": refused})
        return
    time.sleep(REQUEUE_PATIENCE)


def _ask_for_start() -> str | None:
    """Ask Slurm to start this job again; returns why it refuses, if it does."""
    done = _ask("scontrol", "requeue", _job())
    if done is None or done.returncode != 0:
        return (done.stderr if done else "scontrol does not run").strip()
    return None


def _wait_for_agent(directory: Path, patience: float = AGENT_PATIENCE) -> None:
    from monitoring.agent.lock import is_followed

    deadline = time.monotonic() + patience
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


def _restart() -> int:
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def _node() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def _slot(environment: Mapping[str, str]) -> dict[str, object]:
    """Resources of this job, in the words of the slots of status.json."""
    gpus = os.environ.get("SLURM_JOB_GPUS") or os.environ.get("SLURM_STEP_GPUS") or ""
    return {
        "threads": int(environment.get("OMP_NUM_THREADS", "0")),
        "cores": sorted(os.sched_getaffinity(0)),
        "gpus": [gpu for gpu in gpus.split(",") if gpu],
        "node": _node(),
        "job": _job(),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
