"""One module an alert rule. A rule says what a record shows; rule_watch.py makes alerts of it, once each.

A rule's module defines `Options` (a frozen dataclass, every field with a default, taken from the symbols
ALERT_NAME_FIELD) and `Rule(options)`. What a Rule finds must follow from the records alone, so that an agent
that is started again comes to the same alerts; only `tick` may look at the clock.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from monitoring.errors import FollowerOptionsError
from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record, as_number


@dataclass(frozen=True)
class Finding:
    """What a record shows about one subject of a rule."""

    holds: bool
    """Whether the condition that the rule warns of is there."""
    message: str
    """The condition in words, without the measured value, so that the alerts of several runs are one line."""
    subject: str = ""
    """What it is about where a rule watches several things, such as a GPU's UUID."""
    value: float | None = None
    """What was measured."""


class Rule(Protocol):
    """Watches one thing. Any method may raise; that becomes an alert and the rule is not asked again."""

    severity: Severity
    hold: float
    """Seconds, by the times of the records, for which a condition must hold before it fires, and must not
    before it is resolved."""

    def update(self, record: Record) -> Sequence[Finding]:
        """What the next record of metrics.jsonl or gpu_stats.jsonl shows; nothing if it does not matter."""


class TickingRule(Rule, Protocol):
    """A rule that also warns of what does not come."""

    def tick(self, now: float) -> Sequence[Finding]:
        """What holds at `now` (UTC epoch seconds), when every record that there is has been seen."""


def rule_names() -> list[str]:
    """The rules there are: the modules in this folder."""
    found = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(module.name for module in found if not module.name.startswith("_"))


def open_rule(name: str, config: Mapping[str, object]) -> Rule:
    """The rule `name` with its options in a configuration; FollowerOptionsError for a bad one."""
    module = importlib.import_module(f"monitoring.rules.{name}")
    symbols = {field.name: f"alert_{name}_{field.name}".upper() for field in fields(module.Options)}
    given: dict[str, Any] = {field: config[symbol] for field, symbol in symbols.items() if symbol in config}
    try:
        rule: Rule = module.Rule(module.Options(**given))
    except (TypeError, ValueError) as error:
        raise FollowerOptionsError(f"alert rule {name}: {error}") from error
    return rule


def enabled_rules(config: Mapping[str, object]) -> list[str]:
    """The rules that a configuration does not turn off: ALERT_NAME is true or not there."""
    return [name for name in rule_names() if config.get(f"ALERT_{name.upper()}", True)]


def number(record: Mapping[str, object], name: str) -> float | None:
    """A record's number, None where it has none of that name."""
    return as_number(record.get(name))
