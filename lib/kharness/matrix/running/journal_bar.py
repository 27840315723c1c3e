"""The progress bar of a training that another process does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from kharness.runs.bar_line import BarPlace, Bars, bar_line
from kharness.runs.journal_tail import JournalTail
from monitoring.journal.encoding.global_step import whole_step
from monitoring.journal.records import Record


class JournalBar(JournalTail):
    """The bar of a training that another process does, from its journal alone."""

    def __init__(self, directory: Path, stream: TextIO, *, since: int) -> None:
        """Records are read from byte `since` of the journal on."""
        super().__init__(directory, since=since)
        self._stream = stream
        self._bars = Bars(0, 0, 0)
        self._last_step: Mapping[str, object] = {}
        self._initial = 0
        self._began: float | None = None

    def update(self, record: Record) -> range:
        gone = super().update(record)
        match record.get("event"):
            case "start":
                self._last_step = {}
                self._bars = Bars.of(
                    num_epochs=whole_step(record.get("num_epochs")) or 0,
                    steps_per_epoch=int(self.steps_per_epoch or 0),
                    num_steps=self.num_steps or 0,
                )
                self._begin(self._place(self.step or 0))
            case "step":
                self._last_step = record
            case "epoch":
                if self._bars.num_epochs or whole_step(record.get("global_step")) == self.num_steps:
                    self._begin(None)
        return gone

    def line(self) -> str:
        """The bar as it stands; empty before the first step, between epochs and after the last step."""
        place = self._place(self.step or 0)
        if place is None or self.ended or not self._last_step or place.done in (self._initial, place.total):
            return ""
        seconds = max(0.0, (self.last_time or 0.0) - (self._began or 0.0))
        return bar_line(self._stream, place, initial=self._initial, seconds=seconds, record=self._last_step)

    def _begin(self, place: BarPlace | None) -> None:
        self._initial = place.done if place and place.done < place.total else 0
        self._began = self.last_time

    def _place(self, step: int) -> BarPlace | None:
        """None for a training that does not say how long it is, and for one that prints nothing."""
        config = self.start.get("config")
        if isinstance(config, Mapping) and config.get("LOG_LEVEL", "info") != "info":
            return None
        bars = self._bars
        return bars.after(step) if (bars.steps_per_epoch if bars.num_epochs else bars.num_steps) else None
