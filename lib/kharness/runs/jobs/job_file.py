"""job.jsonl in a run directory: how each job of a scheduler that ran it began and ended.

Only the job writes it, a line for each event, so that what happened while no runner looked is known.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kharness.runs.files import JOB_JSONL
from kharness.runs.launch import Exit, JobStart

START, END, REFUSED_REQUEUE = "start", "end", "requeue_refused"


STEP_MARK = ".slurm_step"
"""The step after which jobs ended on request, and how many did so in turn; in the run directory."""


def attempts_without_step(directory: Path) -> int:
    """Count the attempts in turn that have ended on request at one step, as the last job noted it."""
    return _read_mark(directory)[1]


def note_step(directory: Path, step: int) -> int:
    """Note that a job has ended on request after `step`; returns how many in turn have ended there."""
    before, count = _read_mark(directory)
    count = count + 1 if step == before else 1
    (directory / STEP_MARK).write_text(f"{step} {count}")
    return count


def _read_mark(directory: Path) -> tuple[int, int]:
    try:
        step, count = map(int, (directory / STEP_MARK).read_text().split())
    except (FileNotFoundError, ValueError):
        return -1, 0
    return step, count


def append(directory: Path, event: Mapping[str, object]) -> None:
    """Add one line, which a reader sees whole or not at all."""
    fd = os.open(directory / JOB_JSONL, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, json.dumps(event).encode() + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)


def read_starts(directory: Path, submission: str) -> list[JobStart]:
    """The starts of one submission, the oldest first; none where it has not begun."""
    try:
        with open(os.path.join(directory, JOB_JSONL), "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    # The last one is empty, or a line that is still being written.
    return starts_of([event for line in lines[:-1] if (event := _parsed(line))], submission)


def starts_of(events: Sequence[Mapping[str, Any]], submission: str) -> list[JobStart]:
    """Like `read_starts`, of events that are read already."""
    starts: list[JobStart] = []
    for event in events:
        if event.get("submission") != submission:
            continue
        if event["event"] == START:
            starts.append(
                JobStart(
                    job=event["job"],
                    restart=event["restart"],
                    node=event["node"],
                    started=event["time"],
                    journal_offset=event["journal_offset"],
                    slot=event["slot"],
                )
            )
        elif starts and event["event"] == END:
            found = Exit(
                event["exit_code"],
                event["signal"],
                event["time"],
                event["cause"],
                event["reason"],
                over_timeout=event.get("over_timeout", False),
            )
            starts[-1] = replace(starts[-1], end=found, requeued=event["requeued"])
        elif starts and event["event"] == REFUSED_REQUEUE:
            starts[-1] = replace(starts[-1], requeued=False)
    return starts


def _parsed(line: bytes) -> Mapping[str, Any] | None:
    try:
        event: Mapping[str, Any] = json.loads(line)
    except ValueError:  # cut off by a full disk
        return None
    return event
