"""Why a run is not complete: one word per kind, decided by everything that the run left.

The words are in kharness.runs.exit_codes.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kharness.config.assignment import CHOSEN_FOR, chosen_name
from kharness.runs.exit_codes import (
    CANCELLED,
    CAUSE_OF_EXIT,
    DEVICE,
    DISK_FULL,
    ERROR,
    EXIT_STOPPED,
    LAUNCH_FAILED,
    NODE_FAILED,
    NON_FINITE,
    OTHER_VALUES,
    OUT_OF_MEMORY,
    PREEMPTED,
    RUNNER_DIED,
    SIGNAL,
    STOPPED,
    TIMED_OUT,
)
from kharness.runs.launch import Exit
from kharness.runs.status import COMPLETE, FAILED, INTERRUPTED, KILLED, TIMEOUT, Status
from monitoring.counts import cut_list

if TYPE_CHECKING:  # a program that is started does not wait for it
    from monitoring.journal.run_state import RunState

# What may go well when it is tried again as it is; everything else would only fail again.
RETRYABLE = frozenset({DEVICE, LAUNCH_FAILED, NODE_FAILED, OUT_OF_MEMORY, RUNNER_DIED, SIGNAL})
# What a scheduler does to a run that has saved: the next attempt costs no retry.
FREE = frozenset({PREEMPTED, TIMED_OUT})
# What a scheduler did to a job; whether the training was complete then, its journal knows.
BY_SCHEDULER = FREE | {CANCELLED, NODE_FAILED}
# What the same values end in every time: `make continue` leaves it, `make test_rerun` tries it again.
DETERMINISTIC = frozenset({NON_FINITE, OTHER_VALUES})

# What the scheduler's own process prints to the log of a job that it kills for its memory.
STEPD_MEMORY = r"slurmstepd(-\S+)?: .*([Ee]xceeded (job )?memory limit|oom[_-]kill event)"

# A training that had no chance to say it, in the words of torch, CUDA, ROCm and the C library; first match.
# As texts, which `re` compiles once they are needed: `make status` needs none.
_TOLD: Sequence[tuple[str, str]] = [
    (
        OUT_OF_MEMORY,
        r"OutOfMemoryError|\b(CUDA|HIP|XPU|MPS backend)( error:)? out of memory|\bMemoryError\b|bad_alloc"
        r"|DefaultCPUAllocator: (can't|not enough)|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|Cannot allocate memory"
        r"|" + STEPD_MEMORY,
    ),
    (DISK_FULL, r"No space left on device|Disk quota exceeded"),
    (DEVICE, r"\b(CUDA|HIP|NCCL|cuDNN|CUBLAS|CUDNN|RCCL|MIOpen)[ _](error|STATUS)|AcceleratorError"),
    (NON_FINITE, r"\bNonFiniteError\b"),
]

# Of these a run may have ended although its runner did, too: a full disk and want of memory meet both.
_ENDS_BOTH = frozenset({DEVICE, DISK_FULL, OUT_OF_MEMORY})

_TRACEBACK = "Traceback (most recent call last)"
_RAISED = r"[A-Za-z_][\w.]*: ."

# Filled in when a run starts, so what the trainer records differs from the requested template.
EXPANDED = frozenset({"TRACKER_PROJECT", "TRACKER_RUN_NAME"})


@dataclass(frozen=True)
class Stop:
    """A request of the runner's to stop a run."""

    cause: str
    """`stopped`, `timeout` or `stopped_early`."""
    reason: str = ""


@dataclass(frozen=True)
class Ending:
    status: Status
    cause: str | None
    reason: str | None


def judge(
    ended: Exit,
    state: RunState,
    asked: Mapping[str, object],
    *,
    stop: Stop | None = None,
    output: Sequence[str] = (),
) -> Ending:
    """Judge a process that has ended, from its exit, its journal, its launcher's knowledge and its last
    output.

    Exit code 0 is not enough: the journal must say that the training is complete and that it ran with the
    requested values.
    """
    requested = stop is not None or ended.exit_code == EXIT_STOPPED or ended.cause in BY_SCHEDULER
    # A request may come when all is done, and end the process in its last lines.
    if ended.exit_code == 0 or (requested and state.end.get("status") == COMPLETE):
        return _judge_success(state, asked)
    failed = state.end.get("status") == FAILED or ended.exit_code in CAUSE_OF_EXIT
    if stop is not None and not failed:
        return _judge_stopped(ended, state, stop)
    if ended.exit_code == EXIT_STOPPED or (ended.cause in FREE and not failed):
        return _judge_stopped(ended, state, Stop(ended.cause or STOPPED, ended.reason or ""))
    if ended.cause == CANCELLED:
        return Ending(KILLED, CANCELLED, ended.reason)
    cause = ended.cause or _cause(ended, state, output)
    killed = cause == NODE_FAILED or (cause == OUT_OF_MEMORY and ended.signal is not None)
    if killed and (line := memory_line(output)):
        return Ending(KILLED, OUT_OF_MEMORY, line)
    number = _signal(ended)
    if number is not None:
        name = signal.Signals(number).name if number in _SIGNALS else "unnamed"
        return Ending(KILLED, cause, ended.reason or f"signal {number} ({name})")
    error = state.end.get("error") or _last_words(output)
    how = "its end is unknown" if ended.exit_code is None else f"exit code {ended.exit_code}"
    # a program that has said nothing else has ended by its exit code
    return Ending(FAILED, cause, ended.reason or how + (f": {error}" if error and error != how else ""))


def memory_line(output: Sequence[str]) -> str:
    """Return the line that says a job was killed for its memory; empty if none does."""
    return next((line for line in reversed(output) if re.search(STEPD_MEMORY, line)), "")


def after_step(state: RunState) -> str:
    """Say how far a run was."""
    return f"after step {state.step}" if state.step else "before a step was recorded"


def judge_unseen(state: RunState, asked: Mapping[str, object], output: Sequence[str] = ()) -> Ending:
    """Judge a process that ended unobserved, since its runner died too: from its journal and last output."""
    ended_as = state.end.get("status")
    if ended_as == COMPLETE:
        return _judge_success(state, asked)
    if ended_as == INTERRUPTED:
        return Ending(INTERRUPTED, STOPPED, f"stopped on request after step {_done(state)}")
    if ended_as == FAILED:
        error = state.end.get("error")
        cause = _cause(Exit(None, None, 0.0), state, ())
        return Ending(FAILED, cause, f"its runner died; the journal says {error or FAILED}")
    reason = f"its runner died {after_step(state)}"
    cause, line = _told(output)
    if cause in _ENDS_BOTH:
        return Ending(KILLED, cause, f"{reason}; the output says: {line}")
    return Ending(KILLED, RUNNER_DIED, reason)


def common_words(text: str, own: Iterable[str]) -> str:
    """Return a reason without its own numbers and names, so that runs with the same failure match."""
    for word in sorted(filter(None, own), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "*", text)
    return re.sub(r"\d[\d.]*([eE][-+]?\d+)?", "*", text)


def other_values(recorded: object, asked: Mapping[str, object]) -> str:
    """The symbols in which the start record's configuration differs from the requested one; empty if none.

    What was left to trials (BATCH_SIZE_AUTO) is the training's to choose.
    """
    if not asked:  # of a program of its own, whose run may have no start record
        return ""
    if not isinstance(recorded, Mapping):
        return "the start record holds no configuration"
    left_to_trials = {name for name, switch in CHOSEN_FOR.items() if asked.get(switch)}
    names = [name for name in asked if name not in EXPANDED and chosen_name(name) not in left_to_trials]
    different = [
        f"{name}={recorded[name]!r}, requested {asked[name]!r}"
        if name in recorded
        else f"{name} is not recorded"
        for name in names
        if name not in recorded or not _same(recorded[name], asked[name])
    ]
    return cut_list(different, 3, "; ")


def _judge_success(state: RunState, asked: Mapping[str, object]) -> Ending:
    ended_as = state.end.get("status")
    if ended_as != COMPLETE:
        says = f"says {ended_as}" if state.end else "is missing"
        return Ending(FAILED, ERROR, f"exit code 0, but the journal's end record {says}")
    different = other_values(state.start.get("config"), asked)
    if different:
        return Ending(FAILED, OTHER_VALUES, f"ran with other values than requested: {different}")
    return Ending(COMPLETE, None, None)


def _done(state: RunState) -> int:
    """Return the step after which a run was saved and stopped; not every step is recorded (LOG_EVERY)."""
    step, done = state.step or 0, state.end.get("steps_done")
    return max(step, done - (state.end.get("first_step") == 0)) if isinstance(done, int) else step


def _judge_stopped(ended: Exit, state: RunState, stop: Stop) -> Ending:
    step = state.step or 0
    if state.end.get("status") == INTERRUPTED:
        how = f"stopped on request after step {_done(state)}"
    elif ended.signal == signal.SIGKILL:
        how = f"killed after step {step}, before it had stopped"
    elif step:
        how = f"stopped on request after step {step}, without an end record"
    else:
        how = "stopped on request before its first step"
    if stop.cause == TIMEOUT:
        return Ending(TIMEOUT, TIMED_OUT, f"{stop.reason}; {how}")
    status: Status = KILLED if ended.signal == signal.SIGKILL else INTERRUPTED
    return Ending(status, stop.cause, f"{stop.reason}; {how}" if stop.reason else how)


def _cause(ended: Exit, state: RunState, output: Sequence[str]) -> str:
    if ended.exit_code is not None and ended.exit_code in CAUSE_OF_EXIT:
        return CAUSE_OF_EXIT[ended.exit_code]
    recorded = state.end.get("cause")
    if isinstance(recorded, str):
        return recorded
    told, _ = _told([*output, str(state.end.get("error") or "")])
    return told or (ERROR if _signal(ended) is None else SIGNAL)


def _told(lines: Sequence[str]) -> tuple[str, str]:
    """Return the cause that the last line names which names one, and the line; empty texts without one.

    What a process complains of first is often not what ended it.
    """
    for line in reversed(lines):
        for cause, pattern in _TOLD:
            if re.search(pattern, line):
                return cause, line
    return "", ""


def _last_words(output: Sequence[str]) -> str:
    """Return a process's last message: its last `error:` line, or the end of its traceback."""
    for line in reversed(output):
        if line.startswith("error: "):
            return line.removeprefix("error: ")
    begins = max((i for i, line in enumerate(output) if line.startswith(_TRACEBACK)), default=len(output))
    return next((line for line in reversed(output[begins:]) if re.match(_RAISED, line)), "")


def _signal(ended: Exit) -> int | None:
    """Also one that a shell around the training reports as 128 + n."""
    if ended.signal is not None or ended.exit_code is None:
        return ended.signal
    number = ended.exit_code - 128
    return number if number in _SIGNALS else None


_SIGNALS = frozenset(number.value for number in signal.Signals)


def _same(recorded: object, asked: object) -> bool:
    # In JSON 1e3 comes back as 1000.0 and a tuple as a list; True and 1 are still two things.
    return recorded == asked and isinstance(recorded, bool) == isinstance(asked, bool)
