"""How far each follower of a run is: followers.json, which the agent writes and everybody may read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import orjson

from monitoring.journal.atomic_file import write_atomically
from monitoring.journal.encoding.json_shape import json_lines
from monitoring.journal.files import FOLLOWERS_JSON, JOURNAL

# Seconds between writes of followers.json that only say how far followers are.
PLACES_EVERY = 2.0


@dataclass(frozen=True)
class DeliveryProgress:
    """How far a follower is, as followers.json keeps it. Only a hint where to read: the sink itself knows."""

    offset: int = 0
    """Bytes of the journal whose records are durably in the sink."""
    seq: int = 0
    """`seq` of the last of those records."""
    ended: bool = False
    """Whether the sink was closed after the run's end record."""
    error: str | None = None
    """Why the follower does not take records now."""
    held: int = 0
    """`seq` that the sink itself held when closed; lower if the last records had nothing for it."""
    other_seqs: Mapping[str, int] = field(default_factory=dict)
    """`seq` of the last record of each other journal that the follower takes: of samples, and of alerts."""
    other_held: Mapping[str, int] = field(default_factory=dict)
    """The sink's own numbers for these, once closed."""
    refused: int = 0
    """Records that the sink refused and that were skipped."""
    refusal: str | None = None
    """The last record that was refused, and why."""

    def seq_of(self, journal: str) -> int:
        return self.seq if journal == JOURNAL else self.other_seqs.get(journal, 0)

    def held_of(self, journal: str) -> int:
        return self.held if journal == JOURNAL else self.other_held.get(journal, 0)

    def at(self, seqs: Mapping[str, int], *, offset: int) -> Self:
        """Return the progress after these records of each journal, of a sink that is open."""
        others = _others(seqs)
        done = replace(self, offset=offset, seq=seqs[JOURNAL], other_seqs=others, ended=False, error=None)
        return done.holding({JOURNAL: 0})

    def holding(self, held: Mapping[str, int]) -> Self:
        """Return the progress with each sink's own position in the journals."""
        return replace(self, held=held[JOURNAL], other_held=_others(held))


def _others(seqs: Mapping[str, int]) -> Mapping[str, int]:
    return {name: seq for name, seq in seqs.items() if seq and name != JOURNAL}


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
    data = json_lines({name: merged[name] for name in sorted(merged)})
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
