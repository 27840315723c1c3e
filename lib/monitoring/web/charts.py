"""Windows of the series of runs, in the units of the page's axes: steps, seconds since the start, samples, tokens."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from monitoring.journal.fields import row_of
from monitoring.journal.files import JOURNAL
from monitoring.journal.records import as_number
from monitoring.journal.series import RunSeries
from monitoring.web.rows import RunRow, start_of

# Runs whose series are held; those that were looked at longest ago go first.
MOST_HELD = 200

# Seconds of reading before what is there is drawn; the page asks for the rest.
AT_ONCE = 0.15

X_AXES = ("step", "time", "samples", "tokens")


@dataclass
class _Held:
    """The series of one run, read by one thread at a time."""

    series: RunSeries
    batch_size: float | None
    """Samples of a step."""
    tokens_per_sample: float | None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Charts:
    """Serves windows; thread-safe."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, _Held] = OrderedDict()
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
    ) -> dict[str, Any]:
        """Return the metrics of a run and a window of each wanted one; `more` where not all is read yet."""
        held = self._of(row)
        with held.lock:
            more = held.series.refresh(AT_ONCE)
            scale, origin = _scale(held, x, row)
            metrics = {name: _described(name, metric) for name, metric in held.series.metrics.items()}
            windows = []
            if scale is not None:
                edges = {
                    "lo": None if lo is None else lo / scale + origin,
                    "hi": None if hi is None else hi / scale + origin,
                }
                axis = "time" if x == "time" else "step"
                windows = [
                    _window(held.series, one, axis, edges, buckets, scale, origin)
                    for one in wanted
                    if one.get("metric") in metrics
                ]
        return {"metrics": metrics, "windows": windows, "more": more, "has_x": scale is not None}

    def _of(self, row: RunRow) -> _Held:
        with self._lock:
            held = self._held.pop(row.id, None)
            if held is None:
                start = start_of(row.directory / JOURNAL)
                batch = as_number(start.get("batch_size"))
                tokens = as_number(start.get("tokens_per_sample"))
                held = _Held(RunSeries(row.directory), batch, tokens)
            self._held[row.id] = held
            while len(self._held) > MOST_HELD:
                self._held.popitem(last=False)
        return held


def _scale(held: _Held, x: str, row: RunRow) -> tuple[float | None, float]:
    """Return what a step, or a second, counts on an axis, and where the axis begins; None of what it lacks."""
    if x == "time":
        return 1.0, float(row.facts.get("started") or 0.0)
    if x == "samples":
        return held.batch_size, 0.0
    if x == "tokens":
        both = held.batch_size and held.tokens_per_sample
        return held.batch_size * held.tokens_per_sample if both else None, 0.0  # type: ignore[operator]
    return 1.0, 0.0


def _described(name: str, metric: Any) -> dict[str, Any]:
    row = row_of(name)
    return {"unit": row.unit, "better": row.better, "kind": row.kind, "keys": list(metric.keys)}


def _window(
    series: RunSeries,
    one: Mapping[str, Any],
    axis: str,
    edges: Mapping[str, float | None],
    buckets: int,
    scale: float,
    origin: float,
) -> dict[str, Any]:
    name, key = str(one["metric"]), one.get("key", 0)
    found = series.window(name, key=key, x=axis, lo=edges["lo"], hi=edges["hi"], buckets=buckets)
    x = list(found.x) if scale == 1.0 and not origin else [(value - origin) * scale for value in found.x]
    window = {"metric": name, "key": key, "x": x, "last": list(found.last), "exact": found.exact}
    if not found.exact:
        window.update(min=list(found.min), max=list(found.max), count=list(found.count))
    return window
