"""Windows of the series of runs, as the page's charts draw them."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from monitoring.journal.series import RunSeries, SeriesInfo, Window
from monitoring.web.past import attempt_then
from monitoring.web.rows import RunRow

# Runs whose series are held; those that were looked at longest ago go first.
MOST_HELD = 200

# Seconds of reading, of all runs of a request, before what is there is drawn; the page asks for the rest.
AT_ONCE = 0.3

# The same, of the first picture of a page.
SOON = 0.02

# Places at which a long journal is sampled when it is looked at first; of several runs each has its share.
FIRST_PLACES = 600
FEWEST_PLACES = 100

# Kinds of records that repeat what another kind has measured already.
REPEATING = ("epoch", "checkpoint", "end")


@dataclass
class _HeldSeries:
    """The series of one run, read by one thread at a time."""

    series: RunSeries
    lock: threading.Lock = field(default_factory=threading.Lock)


class Charts:
    """Serves windows; thread-safe."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, int | None], _HeldSeries] = OrderedDict()
        self._lock = threading.Lock()

    def windows(
        self,
        row: RunRow,
        wanted: Sequence[Mapping[str, Any]],
        *,
        x: str,
        lo: float | None,
        hi: float | None,
        buckets: int,
        moment: float | None = None,
        log_x: bool = False,
        until: float | None = None,
        runs: int = 1,
    ) -> dict[str, Any]:
        """Return the metrics of a run and a window of each wanted one; `more` where not all is read yet.

        With a `moment`, UTC epoch seconds, they are those of then. It is read until a monotonic time, by
        default for AT_ONCE; a long journal that nobody has opened is only sampled. `runs` are those that are
        asked for with it.
        """
        held = self._of(row, None if moment is None else attempt_then(row, moment))
        then_until = math.inf if moment is None else moment
        left = AT_ONCE if until is None else max(0.0, until - time.monotonic())
        with held.lock:
            more = held.series.refresh(left, places=max(FEWEST_PLACES, FIRST_PLACES // runs))
            found = held.series.metrics
            if moment is not None:
                then = held.series.value_at(moment)
                found = {name: info for name, info in found.items() if name in then}
            windows = []
            asked: Any = {"x": x, "lo": lo, "hi": hi, "buckets": buckets, "until": then_until, "log_x": log_x}
            if x in held.series.axes:
                for one in wanted:
                    name, key = str(one.get("metric")), one.get("key", 0)
                    if name in found and key in found[name].keys:
                        window = held.series.window(name, key=key, **asked)
                        windows.append({"metric": name, "key": key, **_columns(window)})
            has_x = x in held.series.axes
            began = held.series.began
        metrics = {name: _described(info) for name, info in found.items() if not _repeats(info, found)}
        return {"metrics": metrics, "windows": windows, "more": more, "has_x": has_x, "began": began}

    def _of(self, row: RunRow, attempt: int | None) -> _HeldSeries:
        key = row.id, attempt
        with self._lock:
            held = self._held.pop(key, None)
            if held is None or held.series.run_dir != row.directory:
                held = _HeldSeries(RunSeries(row.directory, attempt=attempt))
            self._held[key] = held
            while len(self._held) > MOST_HELD:
                self._held.popitem(last=False)
        return held


def _repeats(info: SeriesInfo, found: Mapping[str, SeriesInfo]) -> bool:
    return info.name != info.field and info.kind in REPEATING and info.field in found


def _described(info: SeriesInfo) -> dict[str, Any]:
    text = info.text.replace("`", "")
    return {
        "unit": info.unit,
        "better": info.better,
        "kind": info.row.kind,
        "of": info.kind,
        "keys": list(info.keys),
        "about": text,
    }


def _columns(window: Window) -> dict[str, Any]:
    """Return what is drawn: of exact windows the records, of others the least and greatest value, too."""
    found: dict[str, Any] = {"x": list(window.x_last), "last": list(window.last), "exact": window.exact}
    if not window.exact:
        found.update(min=list(window.min), max=list(window.max), count=list(window.count))
    if any(window.nonfinite):
        found["lost"] = [x for x, lost in zip(window.x_last, window.nonfinite, strict=True) if lost]
    if window.coarse:
        found["coarse"] = True
    return found
