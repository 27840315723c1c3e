"""One module per alert rule. A rule says what a record shows; rule_watch.py makes alerts of it, once each.

A rule's module defines `Options` (a frozen dataclass, whose fields and defaults are those of the symbols
ALERT_NAME_FIELD) and `Rule(options)`. It may define `EVENTS`, the events of the records that the rule reads;
`update` then gets no others; `UNIT`, that of its values and limits in messages; and `LOOK`, at what to look
when it fires, as the end of that sentence: `{directory}` is the run's, `{inspect}` the command that shows
the samples of a step, in brackets, where the run has one.
Those in `gpu/` are opened with a run's first sample of GPUs.

Beside `update` a Rule may have methods that return findings, too: `update_rank(rank, record)`, which gets the
next record of each rank's journal, `update` those of rank 0; and two that are called when every record that
there is has been seen. `tick(now)` warns of what does not come, while the training runs; `now` is in UTC
epoch seconds. `update_followers(now, delivered)` is about what takes the records: `delivered` is the `seq` of
the last record of metrics.jsonl that each tracker, CSV or exporter has. What a Rule finds must follow from
the records alone, so that an agent that is started again reports the same alerts; only these two may look at
the clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from monitoring.dropins import DropIns
from monitoring.errors import FollowerOptionsError
from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record, as_number

RULES = DropIns("alert rule", "monitoring.rules", groups=("gpu",), prefix="alert")


class Finding(NamedTuple):
    """Whether a rule's condition holds for one subject, as a record shows it."""

    holds: bool
    """Whether the condition that the rule warns of holds."""
    message: str
    """The condition in words, without the measured value, so that the alerts of several runs are one line."""
    subject: str = ""
    """The thing that it is about where a rule watches several, such as a GPU's UUID."""
    value: float | None = None
    """The measured value."""
    shown_by: Record | None = None
    """The record of metrics.jsonl that shows it, where that is not the one the rule just got."""
    limit: float | None = None
    """The limit that the value is compared with."""
    severity: Severity | None = None
    """Severity of this finding, where it is another one than the rule's."""


class Rule(Protocol):
    """Watches one thing. Any method may raise; that becomes an alert and the rule is not called again."""

    severity: Severity
    hold: float
    """Seconds, by the times of the records, for which a condition must hold before it fires, and must not
    before it is resolved."""

    def update(self, record: Record) -> Sequence[Finding]:
        """Return what the next record of metrics.jsonl, or the next sample, shows; empty if nothing."""


class RuleDefaults:
    """Severity and hold of a rule that does not say otherwise: it warns, and at once."""

    severity: Severity = "warning"
    hold = 0.0


def open_rule(name: str, config: Mapping[str, object]) -> Rule:
    """Return the rule `name` with its options in a configuration; FollowerOptionsError for a bad one."""
    options = RULES.options(name, config)
    try:
        rule: Rule = RULES.load(name).Rule(options)
    except (TypeError, ValueError) as error:
        raise FollowerOptionsError(f"alert rule {name}: {error}") from error
    return rule


def events_of(name: str) -> Collection[str] | None:
    """Return the events of the records that the rule `name` reads; None for all."""
    events: Collection[str] | None = getattr(RULES.load(name), "EVENTS", None)
    return events


def unit_of(name: str) -> str:
    """Return the unit of the values of the rule `name`, as it follows a number in a message."""
    return str(getattr(RULES.load(name), "UNIT", ""))


def look_of(name: str) -> str:
    """Return where to look when the rule `name` fires; empty if it does not say."""
    return str(getattr(RULES.load(name), "LOOK", ""))


def enabled_rules(config: Mapping[str, object]) -> list[str]:
    """Return the rules that a configuration does not turn off: ALERT_NAME is true or not there."""
    return [name for name in RULES.names if config.get(f"ALERT_{name.upper()}", True)]


def number(record: Mapping[str, object], name: str) -> float | None:
    """Return a record's number by name, or None."""
    value = record.get(name)
    # nearly all are one of these
    return value if value is None or type(value) is float else as_number(value)


def host_of(record: Record) -> str:
    """Return the machine of a sample, which is the subject of alerts about it."""
    return str(record.get("host") or "this machine")
