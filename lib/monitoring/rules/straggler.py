"""Alert rule: one rank of a training is slower than the others, which wait for it at every step.

Method: the ranks' own work, collectives left out (monitoring.telemetry.load_balance). The median over some
records counts, and the rank has to be the slowest in most of them: neither a hiccup of the machine nor ranks
that take turns are one. By chance a rank of two equal ones is the slower one in 15 of 20 records once in 50
times (binomial distribution).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from monitoring.journal.records import Record
from monitoring.rules import Finding, RuleDefaults, number
from monitoring.rules._measures.robust import median

EVENTS = ("start", "step")

UNIT = "%"

LOOK = "the host and the GPU of that rank, and at its share of the data"

# Share of the records in which a straggler is the slowest rank.
LEADS = 0.75

# Records of a rank that wait for those of a rank which come later, or never.
MOST_WAITING = 10_000


@dataclass(frozen=True)
class Options:
    """When a rank is a straggler."""

    limit: float
    """Percent of its own time for which the others may wait for it."""
    records: int
    """Step records of each rank that are compared at once."""


class Rule(RuleDefaults):
    """Warns of the rank and the phase that the others wait for, until a later comparison does not find it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._attempt = 0.0
        self._forget()
        self._firing: dict[str, Finding] = {}

    def update(self, record: Record) -> Sequence[Finding]:
        return self.update_rank(0, record)

    def update_rank(self, rank: int, record: Record) -> Sequence[Finding]:
        attempt = number(record, "attempt") or 0.0
        if attempt > self._attempt:
            self._attempt = attempt
            self._forget()
        if attempt < self._attempt:  # of a rank that has not come to the new one yet
            return ()
        if record.get("event") == "start":
            if rank == 0:
                self._num_ranks = int(number(record, "world_size") or 1)
            return ()
        if self._num_ranks == 1:
            return ()  # nobody to wait for
        # here, because every agent opens this rule, and few runs have several ranks
        from monitoring.telemetry.load_balance import PARTS, PHASES

        times = {name: value for name in (*PHASES, *PARTS) if (value := number(record, name)) is not None}
        step = number(record, "global_step")
        if step is None or not times.keys() & PHASES.keys():
            return ()
        steps = self._steps.setdefault(rank, {})
        steps[step] = times
        if rank == 0:
            self._shown[step] = {key: record.get(key) for key in ("time", "seq", "global_step")}
        return self._compare() if self._is_ready() else ()

    def _forget(self) -> None:
        self._num_ranks = 0
        self._steps: dict[int, dict[float, Mapping[str, float]]] = {}
        """Rank -> step -> seconds of its phases."""
        self._shown: dict[float, Record] = {}
        """Step -> the fields by which rank 0's record of it is found."""

    def _is_ready(self) -> bool:
        """Whether all ranks have a window of records; those beyond MOST_WAITING are dropped."""
        size = self._options.records
        for steps in self._steps.values():
            if len(steps) > MOST_WAITING:
                del steps[next(iter(steps))]
        while len(self._shown) > MOST_WAITING:
            del self._shown[next(iter(self._shown))]
        full = [rank for rank, steps in self._steps.items() if len(steps) >= size]
        return self._num_ranks > 1 and len(full) == self._num_ranks

    def _compare(self) -> list[Finding]:
        shared = sorted(set.intersection(*(set(steps) for steps in self._steps.values())))
        window = shared[: self._options.records]
        if len(window) < self._options.records:
            return []
        found = self._straggler(window)
        for steps in self._steps.values():
            for step in [step for step in steps if step <= window[-1]]:
                del steps[step]
        record = self._shown[window[-1]]
        for step in [step for step in self._shown if step <= window[-1]]:
            del self._shown[step]
        over = [one for subject, one in self._firing.items() if found is None or subject != found.subject]
        self._firing = {} if found is None else {found.subject: found}
        changed = [one._replace(holds=False, value=None) for one in over]
        return [one._replace(shown_by=record) for one in (*changed, *([found] if found else []))]

    def _straggler(self, window: Sequence[float]) -> Finding | None:
        from monitoring.telemetry.load_balance import PHASES, slowest_phase  # as above

        own = {
            rank: [sum(steps[step].get(phase, 0.0) for phase in PHASES) for step in window]
            for rank, steps in self._steps.items()
        }
        medians = {rank: median(times) for rank, times in own.items()}
        slow = max(medians, key=medians.__getitem__)
        others = median(value for rank, value in medians.items() if rank != slow)
        lost = 100 * (1 - others / medians[slow]) if medians[slow] > 0 else 0.0
        leads = sum(max(own, key=lambda rank: own[rank][place]) == slow for place in range(len(window)))
        if lost < self._options.limit or leads < LEADS * len(window):
            return None
        phases = {rank: self._medians(rank, window) for rank in own}
        phase = slowest_phase(phases.pop(slow), list(phases.values()))
        message = f"rank {slow} is slow in {phase}: the others wait for it"
        return Finding(True, message, f"rank {slow}, {phase}", lost, limit=self._options.limit)

    def _medians(self, rank: int, window: Sequence[float]) -> dict[str, float]:
        """Return the median of each phase that all records of all ranks have."""
        names = set.intersection(*(set(steps[step]) for steps in self._steps.values() for step in window))
        return {name: median(self._steps[rank][step][name] for step in window) for name in names}
