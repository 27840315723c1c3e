"""Alert rule: a measured value is no finite number."""

from __future__ import annotations

from collections.abc import Sequence

from monitoring.journal.alerts import Severity
from monitoring.journal.records import Record
from monitoring.no_options import NoOptions
from monitoring.rules import Finding, RuleDefaults

LOOK = "the samples of that step{inspect}, the learning rate and the precision"

Options = NoOptions


class Rule(RuleDefaults):
    """Warns of each field that is NaN or infinite, until it is a number again."""

    severity: Severity = "error"

    def __init__(self, options: Options) -> None:
        self._lost: set[str] = set()

    def update(self, record: Record) -> Sequence[Finding]:
        marked = record.get("nonfinite")
        if marked is None and not self._lost:
            return ()
        now = {str(name) for name in marked} if isinstance(marked, list) else set()
        back = {name for name in self._lost - now if record.get(name) is not None}
        self._lost = (self._lost | now) - back
        return [Finding(name in now, f"{name} is not a finite number", name) for name in sorted(now | back)]
