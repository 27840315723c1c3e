"""Alerts as trackers show them: a title, a text, and an identity of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from monitoring.journal.alerts import alert_hint, alert_text, is_news
from monitoring.journal.files import ALERTS
from monitoring.journal.records import Record, seq_of
from monitoring.trackers import journal_of, step_of

Level = Literal["info", "warn", "error"]

LEVELS: dict[object, Level] = {"info": "info", "warning": "warn", "error": "error"}


@dataclass(frozen=True)
class TrackerAlert:
    """One alert that a tracker shows."""

    seq: int
    """`seq` of its record in alerts.jsonl."""
    title: str
    """Its rule, with `resolved` where it is over."""
    text: str
    level: Level
    step: int | None


def is_alert(record: Record) -> bool:
    """Whether a record is one of alerts.jsonl."""
    return journal_of(record) == ALERTS


def tracker_alert(record: Record) -> TrackerAlert | None:
    """Return how a tracker shows a record of alerts.jsonl; None for one that is no news to anybody.

    Nor of one about a follower: a tracker that has failed and is brought up to date would never be.
    """
    if not is_news(record) or record.get("rule") == "follower":
        return None
    over = " resolved" if record.get("state") == "resolved" else ""
    hint, level = alert_hint(record), LEVELS.get(record.get("severity"), "warn")
    text = alert_text(record) + (f"\n{hint}" if hint else "")
    return TrackerAlert(seq_of(record), f"{record.get('rule')}{over}", text, level, step_of(record))
