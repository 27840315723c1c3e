"""Records that a sink refuses: they alone are skipped, wherever they stand, and each kind is told once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monitoring.errors import MonitoringError
from monitoring.journal.alerts import Alerts
from monitoring.journal.files import FOLLOWERS_JSON
from monitoring.journal.records import Record, points

# Errors that a record's content raises. A sink that is down raises others: an OSError, an error of its
# database or of its network client, or one of ours, which says what the user can do.
CONTENT_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def is_refusal(error: Exception) -> bool:
    """Whether `deliver` failed because of a record's content, not because of the sink."""
    return isinstance(error, CONTENT_ERRORS) and not isinstance(error, (OSError, MonitoringError))


class RefusedRecords:
    """The records that one follower's sink has refused in this process."""

    def __init__(self, name: str, alerts: Alerts) -> None:
        self._name, self._alerts = name, alerts
        self._known: set[tuple[object, object]] = set()  # event and seq
        self._told: set[type[Exception]] = set()

    def note(self, record: Record, error: Exception) -> str:
        """Return which record is refused and why; empty for one that is known, as it was read again."""
        which = record.get("event"), record.get("seq")
        # read again, because the sink holds nothing after it yet
        if which in self._known:
            return ""
        self._known.add(which)
        reason = reason_of(record, error)
        if type(error) not in self._told:
            self._told.add(type(error))
            self._alerts.add(
                "follower",
                "warning",
                f"{self._name}: refuses {reason}; it is skipped, {FOLLOWERS_JSON} counts",
            )
        return reason


def deliver_apart(
    deliver: Callable[[Sequence[Record]], None],
    records: Sequence[Record],
    put_aside: Callable[[Record, Exception], None],
) -> None:
    """Deliver the records that the sink takes, and skip each that it refuses.

    A sink that refuses every record with points is not judged by them: it may be broken itself (a library
    of another version), and what was skipped would be lost to it. The refusal is then raised, and
    nothing skipped. Any other error is raised as it comes.
    """
    refused: list[tuple[Record, Exception]] = []
    taken = False
    parts = [list(records)]
    try:
        while parts:
            part = parts.pop()
            try:
                deliver(part)
            except Exception as error:
                if not is_refusal(error):
                    raise
                if len(part) > 1:
                    middle = len(part) // 2
                    # the first half on top, so that records are delivered in their order
                    parts += [part[middle:], part[:middle]]
                else:
                    refused.append((part[0], error))
            else:
                taken = taken or any(_has_points(record) for record in part)
    finally:  # the sink holds later records, so that these are never delivered again
        for record, reason in refused if taken else ():
            put_aside(record, reason)
    if refused and not taken:
        raise refused[0][1]


def reason_of(record: Record, error: Exception) -> str:
    """Return in words which record was refused, and why."""
    place = f" at step {step}" if (step := record.get("global_step")) is not None else ""
    return f"record {record.get('seq')} ({record.get('event')}{place}): {type(error).__name__}: {error}"


def _has_points(record: Record) -> bool:
    try:
        return bool(points(record))
    except CONTENT_ERRORS:  # a record of GPU samples that is none
        return False
