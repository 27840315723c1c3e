"""How far each follower of a run is: followers.json, which the agent writes and everybody may read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.files import ALERTS, FOLLOWERS_JSON, GPU_STATS, JOURNAL, SYSTEM_STATS

# Seconds between writes of followers.json that only say how far followers are.
PLACES_EVERY = 2.0

# The fields of DeliveryProgress that are of each journal, but for those of other hosts.
SEQ_FIELDS = {JOURNAL: "seq", GPU_STATS: "gpu_seq", SYSTEM_STATS: "system_seq", ALERTS: "alert_seq"}
HELD_FIELDS = {JOURNAL: "held", GPU_STATS: "gpu_held", SYSTEM_STATS: "system_held", ALERTS: "alert_held"}


@dataclass(frozen=True)
class DeliveryProgress:
    """How far a follower is, as followers.json keeps it. Only a hint where to read: the sink itself knows."""

    offset: int = 0
    """Bytes of the journal whose records are durably in the sink."""
    seq: int = 0
    """`seq` of the last of those records."""
    gpu_seq: int = 0
    """The last record of gpu_stats.jsonl that is durably in the sink, of a follower that takes those."""
    system_seq: int = 0
    """The last record of system_stats.jsonl, in the same way."""
    alert_seq: int = 0
    """The last record of alerts.jsonl, in the same way."""
    ended: bool = False
    """Whether the sink was closed after the run's end record."""
    error: str | None = None
    """Why the follower does not take records now."""
    held: int = 0
    """`seq` that the sink itself held when closed; lower if the last records had nothing for it."""
    gpu_held: int = 0
    """`gpu_seq` that the sink itself held when closed."""
    system_held: int = 0
    """`system_seq` that the sink itself held when closed."""
    alert_held: int = 0
    """`alert_seq` that the sink itself held when closed."""
    host_seqs: Mapping[str, int] = field(default_factory=dict)
    """The last record of each journal of another host that is durably in the sink."""
    host_held: Mapping[str, int] = field(default_factory=dict)
    """The sink's own numbers for these, once closed."""
    refused: int = 0
    """Records that the sink refused and that were skipped."""
    refusal: str | None = None
    """The last record that was refused, and why."""

    def seq_of(self, journal: str) -> int:
        name = SEQ_FIELDS.get(journal)
        return int(getattr(self, name) if name is not None else self.host_seqs.get(journal, 0))

    def held_of(self, journal: str) -> int:
        name = HELD_FIELDS.get(journal)
        return int(getattr(self, name) if name is not None else self.host_held.get(journal, 0))


def read_progress(directory: Path) -> dict[str, DeliveryProgress]:
    """Return each follower's progress by followers.json; empty if it is missing or damaged."""
    try:
        saved = orjson.loads((directory / FOLLOWERS_JSON).read_bytes())
        return {name: DeliveryProgress(**progress) for name, progress in saved.items()}
    except (OSError, orjson.JSONDecodeError, AttributeError, TypeError):
        return {}


def write_progress(directory: Path, progress: Mapping[str, DeliveryProgress]) -> None:
    """Replace followers.json, keeping what it says of followers that are not in `progress`."""
    merged = {**read_progress(directory), **progress}
    data = orjson.dumps(
        {name: asdict(merged[name]) for name in sorted(merged)},
        option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
    )
    write_atomically(directory / FOLLOWERS_JSON, data, durable=False)


class ProgressFile:
    """followers.json of an agent, its one writer; a full disk raises nothing, for it is only a hint."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held = read_progress(directory)
        self._places_due = 0.0

    def update(self, progress: Mapping[str, DeliveryProgress]) -> None:
        """Write it if a follower has ended, failed or refused something, or, now and then, got further."""
        if progress.items() <= self._held.items():
            return
        now = time.monotonic()
        if now < self._places_due and all(
            name in self._held and _events(it) == _events(self._held[name]) for name, it in progress.items()
        ):
            return
        self._places_due = now + PLACES_EVERY
        with contextlib.suppress(OSError):  # the next look writes it again
            write_progress(self._directory, progress)
            self._held = dict(progress)

    def close(self, progress: Mapping[str, DeliveryProgress]) -> None:
        """Write it unless it says this already."""
        if not progress.items() <= read_progress(self._directory).items():
            with contextlib.suppress(OSError):
                write_progress(self._directory, progress)


def _events(progress: DeliveryProgress) -> tuple[object, ...]:
    """Return the part of a progress whose change is written without delay."""
    return progress.ended, progress.error, progress.refused


def seqs_as_fields(seqs: Mapping[str, int]) -> dict[str, Any]:
    """Return the last `seq` of journals as fields of DeliveryProgress, 0 of one that is not there."""
    return _by_field(SEQ_FIELDS, "host_seqs", seqs)


def held_as_fields(seqs: Mapping[str, int]) -> dict[str, Any]:
    """Return what the sink itself holds of journals in the same way."""
    return _by_field(HELD_FIELDS, "host_held", seqs)


def _by_field(fields: Mapping[str, str], others: str, numbers: Mapping[str, int]) -> dict[str, Any]:
    known = {name: numbers.get(journal, 0) for journal, name in fields.items()}
    return {**known, others: {journal: it for journal, it in numbers.items() if journal not in fields}}
