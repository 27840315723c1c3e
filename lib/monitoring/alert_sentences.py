"""Alerts of a run's agent as sentences: at the end of `make`, in `make status` and in the report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from monitoring.counts import counted, cut_list
from monitoring.journal.alerts import is_alert
from monitoring.journal.end_status import COMPLETE
from monitoring.journal.files import ALERTS, JOURNAL
from monitoring.journal.records import Record, last_record, read_records

# So many runs are named in a line.
MOST_NAMED = 3


@dataclass(frozen=True)
class Alert:
    """An alert that began, whether or not it is over."""

    run: str
    """The name of its directory."""
    time: float
    severity: str
    rule: str
    condition: str
    """The sentence without values, alike for all runs."""
    message: str
    global_step: int | None


def alerts_of(directory: Path) -> list[Alert]:
    """Return the alerts of one run, without the ends; what a crash left of a line is skipped."""
    if not os.path.exists(os.path.join(directory, ALERTS)):
        return []
    records = [record for record, _ in read_records(directory / ALERTS) if is_alert(record)]
    found = [record for record in records if record.get("state") != "resolved"]
    if any(record.get("rule") == "trainer" for record in found) and _is_complete(directory):
        # that an attempt died is over once a later one was complete
        found = [record for record in found if record.get("rule") != "trainer"]
    return [_alert(directory.name, record) for record in found]


def alert_lines(directories: Sequence[Path], *, since: float = 0.0) -> list[str]:
    """`warning: RULE: SENTENCE (2 of 6 runs: NAME at step 7, …)`, one line per sentence, the oldest first;
    the runs of a line in the order in which they are given.

    Only from `since` on (UTC epoch seconds): not what was found of attempts before that. Of one run that is
    all there is, the sentence has value, step and limit.
    """
    alerts = [alert for directory in directories for alert in alerts_of(directory) if alert.time >= since]
    same: dict[tuple[str, str, str], dict[str, Alert]] = {}
    for alert in sorted(alerts, key=lambda alert: alert.time):
        runs = same.setdefault((alert.severity, alert.rule, alert.condition), {})
        runs.setdefault(alert.run, alert)
    places = {directory.name: place for place, directory in enumerate(directories)}
    return [
        # In the runs' own order: which of two agents was the quicker says nothing.
        _line(sorted(runs.values(), key=lambda alert: places[alert.run]), len(directories))
        for runs in same.values()
    ]


def _line(alerts: Sequence[Alert], num_runs: int) -> str:
    first = alerts[0]
    severity = "note" if first.severity == "info" else first.severity
    begin = f"{severity}: {first.rule}: " if first.rule else f"{severity}: "
    if num_runs == 1:
        return begin + first.message
    named = [one.run if one.global_step is None else f"{one.run} at step {one.global_step}" for one in alerts]
    of = counted(num_runs, "run")
    return f"{begin}{first.condition} ({len(alerts)} of {of}: {cut_list(named, MOST_NAMED)})"


def _is_complete(directory: Path) -> bool:
    return (last_record(directory / JOURNAL) or {}).get("status") == COMPLETE


def _alert(run: str, record: Record) -> Alert:
    time, step = record.get("time"), record.get("global_step")
    message = str(record.get("message"))
    return Alert(
        run=run,
        time=float(time) if isinstance(time, (int, float)) else 0.0,
        severity=str(record.get("severity")),
        rule=str(record.get("rule") or ""),
        condition=str(record.get("condition") or message),
        message=message,
        global_step=step if isinstance(step, int) else None,
    )
