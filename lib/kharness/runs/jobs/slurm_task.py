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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from kharness.runs.exit_codes import CANCELLED, EXIT_STOPPED, LAUNCH_FAILED, PREEMPTED, TIMED_OUT

LEAVE = signal.SIGUSR1
"""Sent by Slurm (`--signal`) before the time limit, and to a job that is preempted."""
STOP = signal.SIGUSR2
"""Sent by the runner: save and end, and stay away."""
BY_SLURM = signal.SIGTERM
"""Sent by Slurm where it does not pass LEAVE on, and by `scancel`."""

VOID = ".void"
"""The ending of a file beside the list that takes back what is in it."""

AGENT_PATIENCE = 30.0
"""Seconds that a training's agent has to deliver the last records before Slurm ends all of the job."""
REQUEUE_PATIENCE = 60.0
"""Seconds in which Slurm ends a job that it starts again."""
SAVED = (EXIT_STOPPED, -signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of a training that was told to end, and did; without its own code while it imports."""
SAME_STEP = 3
"""So many attempts in turn that end without a new step are the last."""


class Task:
    """This job, and the training that runs now."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        """The signals so far that ask the training to end."""
        self._training: subprocess.Popen[bytes] | None = None
        for number in (LEAVE, STOP, BY_SLURM):
            signal.signal(number, self._ask)

    def run(self, command: Sequence[str], root: str, environment: Mapping[str, str], log: int | None) -> int:
        """Return the exit code of a training, negative for a signal."""
        self._training = subprocess.Popen(
            command,
            cwd=root,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        if self.asked:  # while it was started
            self._training.send_signal(signal.SIGTERM)
        return self._training.wait()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked.append(number)
        if self._training is not None and len(self.asked) == 1:
            self._training.send_signal(signal.SIGTERM)


def main(argv: Sequence[str]) -> int:
    task = Task()  # the first thing of all: before this a signal ends the job
    listed = Path(argv[0])
    index = int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))
    with listed.open() as lines:
        header = json.loads(next(lines))
        cells = next(json.loads(line) for number, line in enumerate(lines) if number == index)
    code = 0
    for cell in cells:
        from kharness.runs.jobs.job_file import read_starts

        ran = read_starts(Path(cell["directory"]), cell["submission"])
        if ran and ran[-1].is_over:
            continue  # before this job was started again
        code = _run_cell(task, listed, header, cell, own_log=len(cells) > 1)
        if task.asked:
            return code
    return code if len(cells) == 1 else 0


def _run_cell(
    task: Task, listed: Path, header: Mapping[str, Any], cell: Mapping[str, Any], *, own_log: bool
) -> int:
    from kharness.runs.files import OUTPUT_LOG
    from kharness.runs.jobs.job_file import append
    from kharness.runs.journal_tail import journal_end

    directory = Path(cell["directory"])
    known = {"submission": cell["submission"], "job": _job(), "restart": _restart()}
    append(
        directory,
        {
            "event": "start",
            **known,
            "node": _node(),
            "time": time.time(),
            "journal_offset": journal_end(directory),
            "slot": _slot(cell["environment"]),
        },
    )
    # Looked for only now: who makes this file looks for start events afterwards, so that one of both notices.
    if listed.with_suffix(VOID).exists():
        append(directory, _end(known, None, LAUNCH_FAILED, "its submission was given up"))
        return 0
    log = os.open(directory / OUTPUT_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if own_log else None
    try:
        code = task.run(cell["command"], header["root"], cell["environment"], log)
    except OSError as error:
        append(directory, _end(known, None, LAUNCH_FAILED, f"{cell['command'][0]}: {error.strerror}"))
        return 1
    finally:
        if log is not None:
            os.close(log)
    cause, reason, again = _why(task.asked, code, directory, header["signal_seconds"])
    append(directory, _end(known, code, cause, reason, requeued=again))
    if again:
        _requeue(directory, known)
    else:
        _wait_for_agent(directory)
    return code if code >= 0 else 128 - code


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
    if not asked or asked[0] == STOP or code not in SAVED:
        return None, None, False
    facts = _facts()
    state, node = facts.get("JobState", ""), _node()
    left = _seconds_until(facts.get("EndTime", ""))
    if state == "CANCELLED":
        return CANCELLED, f"its job {_job()} was cancelled", False
    is_preempted = state == "PREEMPTED" or facts.get("PreemptTime", "None") not in ("None", "Unknown")
    if not is_preempted and (
        state == "TIMEOUT" or (asked[0] == LEAVE and left is not None and left < signal_seconds + 90)
    ):
        cause, reason = (
            TIMED_OUT,
            f"the time limit of its job, {facts.get('TimeLimit', 'unknown')}, on {node}",
        )
    elif is_preempted or asked[0] == LEAVE:
        cause, reason = PREEMPTED, f"preempted on {node}"
    else:
        return None, None, False  # somebody's `scancel --signal=TERM`
    if _without_step(directory) >= SAME_STEP:
        return cause, f"{reason}; {SAME_STEP} attempts in turn took no new step", False
    return cause, reason, True


def _without_step(directory: Path) -> int:
    """How many attempts in turn, this one included, have ended where the one before them had."""
    from monitoring.journal.files import JOURNAL
    from monitoring.journal.run_state import read_end

    mark = directory / ".slurm_step"
    step = read_end(directory / JOURNAL).step or 0
    try:
        before, count = map(int, mark.read_text().split())
    except (FileNotFoundError, ValueError):
        before, count = -1, 0
    count = count + 1 if step == before else 1
    mark.write_text(f"{step} {count}")
    return count


def _requeue(directory: Path, known: Mapping[str, object]) -> None:
    """Have Slurm start this job again, which ends it."""
    from kharness.runs.jobs.job_file import append

    done = _ask("scontrol", "requeue", _job())
    if done is None or done.returncode != 0:
        reason = (done.stderr if done else "scontrol does not run").strip()
        append(directory, {"event": "requeue_refused", **known, "time": time.time(), "reason": reason})
        return
    time.sleep(REQUEUE_PATIENCE)


def _wait_for_agent(directory: Path) -> None:
    from monitoring.agent.lock import is_followed

    deadline = time.monotonic() + AGENT_PATIENCE
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
