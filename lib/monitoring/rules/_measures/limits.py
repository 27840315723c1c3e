"""Rules that compare one value of each sample with a limit: a row each, of field, side and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, host_of, number


@dataclass(frozen=True)
class LimitOptions:
    """The limit, in the unit of the rule, and how long a value must be beyond it."""

    limit: float
    seconds: float


class LimitRule(RuleDefaults):
    """Reports each subject of which a value has been beyond the limit for some time."""

    field: str
    """Name of the value in a sample."""
    side: Literal["above", "below"] = "above"
    """Side of the limit on which the value is reported."""
    text: str
    """The condition in words; `{subject}` and `{limit}` are filled in."""

    def __init__(self, options: LimitOptions) -> None:
        self.hold = options.seconds
        self._limit = options.limit

    def update(self, record: Record) -> Sequence[Finding]:
        """Return what a sample shows of each subject that has the value."""
        found = []
        for subject, name, sample in self.samples(record):
            value = self.value(sample)
            if value is not None:
                holds = value > self._limit if self.side == "above" else value < self._limit
                message = self.text.format(subject=name, limit=f"{self._limit:g}")
                found.append(Finding(holds, message, subject, value, limit=self._limit))
        return found or ()

    def samples(self, record: Record) -> Iterable[tuple[str, str, Mapping[str, Any]]]:
        """Return the subjects of a record, each with its name in messages and its values; here the host."""
        host = host_of(record)
        return [(host, host, record)]

    def value(self, sample: Mapping[str, Any]) -> float | None:
        """Return the value that is compared with the limit, None where the sample has none."""
        return number(sample, self.field)
