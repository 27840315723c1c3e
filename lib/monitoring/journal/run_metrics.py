"""The values of a run's Prometheus metrics, from its records.

Everything is made from the run's files, so that it is the same after a restart: no counter starts again.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate

from monitoring.journal.fields import rows_at
from monitoring.journal.fields.row import EVAL, STEP
from monitoring.journal.records import Record, as_number
from monitoring.journal.run_state import RunState

# Upper bounds of the step duration's buckets, in seconds; the last bucket has none.
STEP_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)

# Metric -> the records and the field that it shows the last value of.
GAUGES = {
    row.prometheus: (event, row.name)
    for event in (STEP, EVAL)
    for row in rows_at(event)
    if row.prometheus_type == "gauge"
}

# MiB, as the GPU's own memory figures, in the journal's GB of 1e9 bytes.
MIB_A_GB = 1e9 / 2**20


@dataclass
class Histogram:
    """Counts of observations by bucket."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(STEP_BUCKETS) + 1))
    sum: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(STEP_BUCKETS, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Return each bucket's upper bound and the number of observations up to it."""
        return list(zip([*map(str, STEP_BUCKETS), "+Inf"], map(float, accumulate(self.counts)), strict=True))


@dataclass(eq=False)
class RankMetrics(RunState):
    """One rank of a run, by its journal: how it stands, and what it measured."""

    nonfinite: int = 0
    """Records with a value that is no finite number."""
    gauges: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Metric -> its last value and the seq of that record."""
    durations: Histogram = field(default_factory=Histogram)
    """Durations of all step records, also of steps done again: their time passed all the same."""
    allocations: int = 0
    allocated_mib: float = 0.0
    """Sum over the step records that measured it, MiB."""

    def __post_init__(self) -> None:
        super().__init__()

    def update(self, record: Record) -> range:
        """Take the next record of the journal."""
        gone, event, nonfinite = super().update(record), record.get("event"), record.get("nonfinite")
        if gone:  # what those records said is no longer the run's
            self.gauges = {name: held for name, held in self.gauges.items() if held[1] not in gone}
        if nonfinite:
            self.nonfinite += 1
        for metric, (source, name) in GAUGES.items():
            if event == source and name in record:
                self._set(metric, record[name], lost=isinstance(nonfinite, list) and name in nonfinite)
        if event == "step":
            self._measure(record)
        return gone

    def _set(self, metric: str, value: object, *, lost: bool) -> None:
        number = float("nan") if lost else as_number(value)
        if number is None:
            self.gauges.pop(metric, None)  # no longer measured
        else:
            self.gauges[metric] = (number, self.last_seq)

    def _measure(self, record: Record) -> None:
        seconds = as_number(record.get("sec_per_step"))
        if seconds is not None:
            self.durations.observe(seconds)
        allocated = as_number(record.get("gpu_mem_allocated"))
        if allocated is not None:
            self.allocations += 1
            self.allocated_mib += allocated * MIB_A_GB


@dataclass
class RunMetrics:
    """A run: its ranks, its newest samples and its alerts."""

    ranks: dict[int, RankMetrics] = field(default_factory=lambda: {0: RankMetrics()})
    gpus: dict[str, Record] = field(default_factory=dict)
    """Host -> its newest gpu record; of a record that names none the host is empty."""
    machines: dict[str, Record] = field(default_factory=dict)
    """Host -> its newest line of system_stats.jsonl."""
    alerts: dict[tuple[str, str], bool] = field(default_factory=dict)
    """(rule, subject) -> whether it fires now."""

    def update_gpus(self, record: Record) -> None:
        if record.get("event") == "gpu":
            self.gpus[str(record.get("host", ""))] = record

    def update_machine(self, record: Record) -> None:
        if record.get("event") == "system":
            self.machines[str(record.get("host"))] = record

    def update_alerts(self, record: Record) -> None:
        if record.get("state") in ("firing", "resolved"):
            key = (str(record.get("rule")), str(record.get("subject") or ""))
            self.alerts[key] = record["state"] == "firing"
