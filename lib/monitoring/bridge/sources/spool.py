"""Records that `monitoring.Run` and the callbacks write in a program under the bridge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from monitoring.bridge.source import MetricSource, Reported, Watched, files_below
from monitoring.bridge.sources import RICHEST
from monitoring.spool import ENDING, SPOOL

RICHNESS = RICHEST


def variables(watched: Watched) -> Mapping[str, str]:
    """Send every Run of the program into the spool, instead of a journal of its own."""
    return {SPOOL: str(watched.own("spool"))}


def find(watched: Watched) -> Iterator[SpoolSource]:
    """Return one source per run that the program has opened, of rank 0."""
    return map(SpoolSource, files_below(watched.own("spool"), ENDING))


class SpoolSource(MetricSource):
    """A file of records."""

    kind = "spool"

    def read(self, place: int) -> Iterator[Reported]:
        """Yield records from a byte offset on."""
        from monitoring.journal.encoding.global_step import as_step  # no program waits for it
        from monitoring.journal.records import ENVELOPE, as_number, read_records

        for record, end in read_records(self.path, place):
            values = {name: value for name, value in record.items() if name not in ENVELOPE}
            yield Reported(
                values,
                end,
                step=as_step(record.get("global_step")),
                time=as_number(record.get("time")),
                event=str(record.get("event")),
            )
