"""The row of a field (unit, direction, descriptions), its possible places, and how rows are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Better = Literal["up", "down", "neither"]

Kind = Literal["result", "machine", "wall time"]
"""A result is equal bit for bit when a training is reproduced. What the machine did (speed, memory, power,
paths) is not; wall time is the part of it that other programs on the machine make longer."""

EVERY, STEP, EVAL, EPOCH, CHECKPOINT = "every", "step", "eval", "epoch", "checkpoint"
START, END, GAP, GPU, SYSTEM = "start", "end", "gap", "gpu", "system"
CONTROL_CHANGE, CONTROL_REFUSED = "control_change", "control_refused"
ALERT_SAMPLES = "alert_samples"
"""Places: events of records, and `every` for what is in each."""
OF_GPU, OF_GPUS, TRACKERS = "of_gpu", "of_gpus", "trackers"
"""Places in a gpu record: one GPU of `multi_gpu_data`, `aggregate_stats`, and its points in trackers."""
REPORT, SCRAPE, OWN = "report", "scrape", "own"
"""Places outside of records: a number of a run in reports, a metric of Prometheus, a name of your own."""

MEASURED = frozenset({EVERY, STEP, EVAL, EPOCH, CHECKPOINT, END, SYSTEM, TRACKERS, REPORT})
"""Where a name means a measurement: a `lost` of your own is not that of a gap."""


class FieldRow(NamedTuple):
    """One field, or a family of fields whose names follow a pattern."""

    name: str
    """Name, or pattern of names in which `*` stands for any text and `N` for a number."""
    unit: str
    """Empty for what has none: texts, hashes, truth values, ratios without a scale."""
    about: Mapping[str, str]
    """Place -> what the field is there, and how it is measured."""
    better: Better = "neither"
    kind: Kind = "result"
    prometheus: str = ""
    """Its name in Prometheus."""
    prometheus_type: str = ""
    dcgm: str = ""
    """Its name in dcgm-exporter, under which NVIDIA's GPUs are exported as well."""
    dcgm_factor: float = 1.0
    """Factor from its unit to dcgm's."""
    of: str = ""
    """The field of step records that a report's number is computed from."""
    line: str = ""
    """Its name in lines of training_metrics_*.jsonl."""

    @property
    def help(self) -> str:
        """The help text in Prometheus."""
        text = self.about[SCRAPE].replace("`", "")
        return text[0].upper() + text[1:]


UNITS = {
    "fraction": "0 to 1",
    "GB": "GB, 1e9 bytes",
    "MB": "MB, 1e6 bytes",
    "MiB": "MiB, 2^20 bytes",
}
"""Unit -> how docs write it out; others stand as they are."""

UNKNOWN_UNIT = "unit unknown"


def rows(
    names: str,
    unit: str = "",
    better: Better = "neither",
    kind: Kind = "result",
    *,
    prometheus: str = "",
    prometheus_type: str = "",
    dcgm: str = "",
    dcgm_factor: float = 1.0,
    of: str = "",
    line: str = "",
    **about: str,
) -> list[FieldRow]:
    """Return a row for each of some names that have everything in common."""
    if prometheus:
        about = {**about, SCRAPE: about.get(SCRAPE) or next(iter(about.values()))}
        prometheus_type = prometheus_type or ("counter" if prometheus.endswith("_total") else "gauge")
    return [
        FieldRow(name, unit, about, better, kind, prometheus, prometheus_type, dcgm, dcgm_factor, of, line)
        for name in names.split()
    ]


def shown(name: str, text: str, unit: str = "", *, kind: Kind = "machine") -> list[FieldRow]:
    """Return the row of a metric that only Prometheus has."""
    return rows(name, unit, kind=kind, prometheus=name, scrape=text)
