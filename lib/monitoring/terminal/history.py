"""Which part of the past the graphs show: the last minute, five, thirty, or all that is known of a run."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from monitoring.gpu.sample import GpuSample
from monitoring.terminal.timeline import NAMES, Part, Timeline, columns

if TYPE_CHECKING:
    from monitoring.terminal.past import Past

# Seconds that the graphs can show; the last of them is as much as there is.
WINDOWS = (60.0, 300.0, 1800.0, 4 * 3600.0, math.inf)


class GraphHistory:
    """Samples since the dashboard was started, and those that the run recorded before that."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.zoom = 0
        """The place of the window in WINDOWS."""
        self.recorded_in: Path | None = None
        """The journal of samples that the past is read from."""
        self._past: Past | None = None

    @property
    def end(self) -> float:
        """UTC epoch seconds of the newest sample."""
        return self.timeline.last or clock.time()

    @property
    def is_reading(self) -> bool:
        """Whether more of the past is still to come."""
        return self._past is not None and not self._past.is_complete

    def add(self, time: float, gpus: Iterable[GpuSample]) -> None:
        """Add one look; on a machine whose clock was set back the graphs begin again."""
        if self.timeline.last is not None and time < self.timeline.last:
            self.clear()
        self.timeline.add(time, gpus)

    def clear(self) -> None:
        """Forget everything, also what a run recorded."""
        self.timeline = Timeline()
        self.close()

    def read_past(self, journal: Path, samples: Sequence[GpuSample] | None) -> None:
        """Read what a host of a run recorded before our first sample; of `samples`' GPUs alone, if given."""
        if journal == self.recorded_in or self.timeline.began is None:
            return
        from monitoring.terminal.past import Past

        self.close()
        self.recorded_in = journal
        uuids = None if samples is None else {sample.index: sample.uuid for sample in samples}
        self._past = Past(journal, self.timeline.began, uuids=uuids)

    def close(self) -> None:
        """Read no further."""
        if self._past is not None:
            self._past.close()
        self._past = None

    def window(self, width: int) -> float:
        """Return seconds that a graph shows; never less than a tenth of a second per column."""
        seconds = WINDOWS[self.zoom]
        if math.isinf(seconds):
            began = self._began()
            seconds = max(WINDOWS[0], self.end - began if began is not None else 0.0)
        return max(seconds, width / 10)

    def values(self, index: int | None, name: str, width: int) -> list[float | None]:
        """One value of a GPU, or of all together, in so many columns; the newest sample is in the last."""
        place, each = NAMES.index(name), self.window(width) / width
        anchor = self._began() or 0.0
        # columns begin at whole numbers of them since the first sample, so that they do not change
        start = anchor + each * (math.floor((self.end - anchor) / each + 1e-3) - width + 1)
        parts: list[Part] = []
        if self._past is not None:
            with self._past.lock:
                parts.append(self._past.timeline.of(index).since(start, place, each))
        parts.append(self.timeline.of(index).since(start, place, each))
        return columns(parts, start, each, width)

    def utilization(self, index: int, width: int) -> list[float | None]:
        """Return the recent utilization of one GPU, by column."""
        return self.values(index, "util", width)

    def _began(self) -> float | None:
        began = self._past.timeline.began if self._past is not None else None
        return self.timeline.began if began is None else began
