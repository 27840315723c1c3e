"""One module per tracker; follower.py says what it defines. Here is what all of them show: its points.

Besides what follower.py asks for, a tracker's module defines `read_back(run, options) -> list[TrackerPoint]`:
what the tracker holds of the run, in the order in which it took it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from monitoring.errors import MissingPackage
from monitoring.gpu.aggregates import gpu_texts
from monitoring.journal.encoding.global_step import whole_step
from monitoring.journal.files import journal_of_event, kind_and_host
from monitoring.journal.records import MOST_FIELDS, Fields, Record, fields_of, kind_of, points, seq_of

EPOCH = "epoch/"

# The environment variable that lets a tracker's package of any version through.
ANY_VERSION = "MONITORING_ANY_VERSION"


@dataclass(frozen=True)
class TrackerPoint:
    """One number of one record."""

    seq: int
    event: str
    """Event of the record as followers get it: `gpu@HOST` of another host's samples."""
    global_step: int | None
    """The record's step; None for an end record, and for one whose step is none."""
    metric: str
    """Its name in the journal."""
    value: float


def journal_points(records: Iterable[Record]) -> list[TrackerPoint]:
    """Return the points that every tracker holds after these records, no more and no less."""
    return [
        TrackerPoint(seq_of(record), event_of(record), step_of(record), metric, value)
        for record in records
        for metric, value in points(record).items()
    ]


def shown_points(record: Record) -> dict[str, float]:
    """Return the points of a record under the names that trackers show: those of an epoch as `epoch/NAME`.

    An epoch's train_loss is a mean: in one chart with the losses of single steps it would be a jagged line.
    The epoch's number stays `epoch`. Samples of another host than rank 0's are `HOST/gpu_0_utilization`.
    """
    fields = fields_of(record)
    return dict(zip(shown_names(fields), fields.values_in(record), strict=True))


@functools.lru_cache(maxsize=MOST_FIELDS)
def shown_names(fields: Fields) -> tuple[str, ...]:
    """Return the names of the points as trackers show them; see `shown_points`."""
    if not (prefix := prefix_of(fields.event)):
        return fields.names
    return tuple(name if name == "epoch" else prefix + name for name in fields.names)


def shown_texts(record: Record) -> dict[str, str]:
    """Return the texts of a record that trackers show: of a gpu record the quality of the load balance."""
    event = event_of(record)
    if kind_of(event) != "gpu":
        return {}
    return {prefix_of(event) + name: text for name, text in gpu_texts(record).items()}


def journal_metric(shown: str, event: str) -> str:
    """Return the journal's name of a metric that a tracker shows as `shown`."""
    return shown.removeprefix(prefix_of(event))


def journal_of(record: Record) -> str:
    """Return the journal that holds a record."""
    return journal_of_event(event_of(record))


def prefix_of(event: object) -> str:
    """Return the prefix that trackers put before the names of an event's points."""
    host = kind_and_host(str(event))[1]
    return f"{host}/" if host else EPOCH if event == "epoch" else ""


def event_of(record: Record) -> str:
    return record["event"]  # type: ignore[return-value]


def step_of(record: Record) -> int | None:
    return whole_step(record.get("global_step"))


def write_at(fd: int, data: bytes, at: int) -> None:
    """Append bytes to a file that ends at `at`; on OSError it is as it was before."""
    written = 0
    try:
        while written < len(data):
            written += os.pwrite(fd, data[written:], at + written)
    except OSError:
        os.ftruncate(fd, at)
        raise


def require_package(name: str, *, supported: str = "", install: str = "") -> None:
    """Raise MissingPackage unless the package is installed; it is not imported.

    `install` is what pip is to install if that is not what has the package's name, `supported` the releases
    that are best, such as `>=0.43,<0.44`.
    """
    if importlib.util.find_spec(name) is None:
        hint = f"pip install '{name}{supported}'" if supported else f"pip install {install or name}"
        raise MissingPackage(f"{name} is not installed", hint=hint)


def untested_release(name: str, supported: str) -> str | None:
    """The release that is installed where its private interface is not known: outside `supported`.

    None for one that is inside, and for any with ANY_VERSION set, as `make check-newest` does.
    """
    if os.environ.get(ANY_VERSION):
        return None
    from importlib import metadata  # takes as long to import as all else here

    installed = metadata.version(name)
    low, high = (_release(bound) for bound in supported.split(","))
    return None if low <= _release(installed) < high else installed


def untested_note(name: str, supported: str) -> str | None:
    """Return what a user is told of such a release, None where there is none to tell of."""
    if importlib.util.find_spec(name) is None or (release := untested_release(name, supported)) is None:
        return None
    return (
        f"{name} {release} is outside the releases that were tested ({supported}): its public interface is "
        "used, which is slower; an agent that is started again writes the whole run again"
    )


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without what makes it a pre-release."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
