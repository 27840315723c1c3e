"""Applies alert rules to a run's records: each alert fires once, is resolved once, and outlives the agent.

The rules see every record of metrics.jsonl and of the journals of samples in order, and those that compare
ranks the journals of all. What was reported is in
alerts.jsonl with the `seq` of the record that showed it; an agent that is started again reads that and shows
the rules all records again, without reporting anything twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from monitoring.errors import FollowerOptionsError
from monitoring.journal.alerts import Alerts, Episode, command_path, episode_of
from monitoring.journal.files import ALERTS, JOURNAL, SAMPLES, journal_name
from monitoring.journal.ranks import rank_journals, sample_journals
from monitoring.journal.records import Record, read_records
from monitoring.journal.tail import RecordTail
from monitoring.rules import (
    RULES,
    Finding,
    Rule,
    enabled_rules,
    events_of,
    look_of,
    number,
    open_rule,
    unit_of,
)

# Records of each file that one look takes: a long journal must not keep the agent from its other work.
RECORDS_A_LOOK = 5000

# Seconds between looks for the samples of other hosts.
LOOK_FOR_HOSTS = 5.0

# Stands for all events that no rule names.
ANY = ""


@dataclass
class _Subject:
    """The last reported state of one subject of a rule."""

    fires: bool = False
    last_seq: int = 0
    """`seq` of the record that showed the last alert; up to it nothing is reported again."""
    contrary_since: float | None = None
    """Time of the record since which its records show the opposite of what was reported."""


class RuleWatch:
    """Watches one run by the rules of its configuration; one thread calls it."""

    def __init__(
        self, directory: Path, config: Mapping[str, object], alerts: Alerts, *, is_controlled: bool = False
    ) -> None:
        """`is_controlled` says whether `make` commands are for this run."""
        self._alerts, self._is_controlled = alerts, is_controlled
        self._rules: dict[str, Rule] = {}
        self._config, self._unopened = config, defaultdict[str, list[str]](list)
        for name in enabled_rules(config):
            self._unopened[RULES.group(name)].append(name)
        self._tails = {source: RecordTail(directory / source) for source in (JOURNAL, *SAMPLES.values())}
        self._seen = dict.fromkeys(self._tails, 0)  # the seq of the last record of each
        self._directory = directory
        self._hosts: dict[str, str] = {}  # journal of samples -> the other host that writes it
        self._next_look = 0.0
        self._of_ranks: dict[int, RecordTail] = {}
        self._num_ranks = 1
        self._subjects = defaultdict(_Subject, _told(directory / ALERTS))
        self._step: object = None  # the newest of the journal
        self._readers: dict[str, list[tuple[str, Rule]]] = {}
        self._open("")

    def look(self, now: float, *, running: bool, delivered: Mapping[str, int] | None = None) -> bool:
        """Take in new records and report what they show; True if there are more.

        `now` is in UTC epoch seconds; `running` says whether records can still come. `delivered` is the `seq`
        of the last record of metrics.jsonl that each follower has.
        """
        more = False
        try:
            self._look_for_hosts(now)
            for source, tail in self._tails.items():
                taken = 0
                for record in islice(tail.new(), RECORDS_A_LOOK):
                    taken += 1
                    self._take(record, source)
                more = more or taken == RECORDS_A_LOOK
            more = self._look_at_ranks() or more
        except OSError:  # a disk that does not answer now; the next look continues where this one stopped
            return False
        # while records are left to read, the present is not known: all would look stalled, and followers late
        if running and not more:
            self._judge_now(now, "tick")
        if delivered and not more:
            self._judge_now(now, "update_followers", delivered)
        return more

    def _look_for_hosts(self, now: float) -> None:
        """Other hosts' samples begin when the first rank there does."""
        if self._next_look - LOOK_FOR_HOSTS <= now < self._next_look:  # the clock may be set back
            return
        self._next_look = now + LOOK_FOR_HOSTS
        for kind in SAMPLES.values():
            for host, path in sample_journals(self._directory, kind).items():
                if path.name not in self._tails:
                    self._tails[path.name], self._seen[path.name] = RecordTail(path), 0
                    self._hosts[path.name] = host

    def _take(self, record: Record, source: str) -> None:
        time, seq = number(record, "time"), number(record, "seq")
        if time is None or seq is None:
            return
        self._seen[source] = int(seq)
        if record.get("event") == "start":
            self._num_ranks = int(number(record, "world_size") or 1)
        if source == JOURNAL:
            self._step = record.get("global_step", self._step)
        event = str(record.get("event"))
        if event in self._unopened:
            self._open(event)
        for name, rule in self._readers.get(event, self._readers[ANY]):
            self._judge(name, rule.update, record, source)

    def _judge(
        self, name: str, update: Callable[[Record], Sequence[Finding]], record: Record, source: str
    ) -> None:
        """Report what a record shows by a rule, and did not show before."""
        try:
            findings = update(record)
        except Exception as error:  # noqa: BLE001 - a rule is called here; its failure becomes an alert
            self._give_up(name, error)
            return
        try:
            for finding in findings:
                subject = self._subjects[name, finding.subject]
                # nearly all findings are as those before them
                if finding.holds == subject.fires and subject.contrary_since is None:
                    continue
                shown = finding.shown_by or record
                time, seq = number(shown, "time"), number(shown, "seq")
                if time is not None and seq is not None and seq > subject.last_seq:
                    of = JOURNAL if finding.shown_by else source
                    self._weigh(name, finding, time, of, int(seq), shown.get("global_step"))
        except OSError:  # of alerts.jsonl
            raise
        except Exception as error:  # noqa: BLE001 - no findings, or a value that is no number
            self._give_up(name, error)

    def _look_at_ranks(self) -> bool:
        """Take in what ranks above 0 have recorded, for rules that compare them; True if there is more."""
        updates = {
            name: update
            for name, rule in self._rules.items()
            if (update := getattr(rule, "update_rank", None))
        }
        if not updates or self._num_ranks < 2:
            return False
        if len(self._of_ranks) < self._num_ranks - 1:
            for rank, path in rank_journals(self._directory).items():
                if rank and rank not in self._of_ranks:
                    self._of_ranks[rank] = RecordTail(path)
        more = False
        for rank, tail in self._of_ranks.items():
            taken = 0
            for record in islice(tail.new(), RECORDS_A_LOOK):
                taken += 1
                for name, update in updates.items():
                    # a rule that failed at an earlier record was removed
                    if name in self._rules:
                        self._judge(name, partial(update, rank), record, journal_name(rank))
            more = more or taken == RECORDS_A_LOOK
        return more

    def _open(self, group: str) -> None:
        """Open the rules of a group: most runs have no sample of a GPU, and import nothing about them."""
        for name in self._unopened.pop(group, ()):
            try:
                self._rules[name] = open_rule(name, self._config)
            except FollowerOptionsError as error:
                self._alerts.add("rule", "error", str(error))
            except Exception as error:  # noqa: BLE001 - a rule is opened here; the others watch without it
                self._alerts.add("rule", "error", _failed(name, error))
        self._readers = self._by_event()

    def _by_event(self) -> dict[str, list[tuple[str, Rule]]]:
        """Return the rules that read the records of each event that one of them names, and of ANY other."""
        events = {name: events_of(name) for name in self._rules}
        known = {event for of_rule in events.values() for event in of_rule or ()}
        return {
            event: [(name, rule) for name, rule in self._rules.items() if event in (events[name] or (event,))]
            for event in (ANY, *known)
        }

    def _judge_now(self, now: float, method: str, *known: object) -> None:
        """Report what rules with this method say of the present, which no record shows."""
        for name, rule in list(self._rules.items()):
            judge = getattr(rule, method, None)
            if judge is None:
                continue
            try:
                findings = judge(now, *known)
            except Exception as error:  # noqa: BLE001 - a rule is called here; its failure becomes an alert
                self._give_up(name, error)
                continue
            try:
                for finding in findings:
                    self._weigh(name, finding, now, JOURNAL, self._seen[JOURNAL], None)
            except OSError:  # of alerts.jsonl
                raise
            except Exception as error:  # noqa: BLE001 - as in _judge
                self._give_up(name, error)

    def _weigh(self, name: str, finding: Finding, time: float, source: str, seq: int, step: object) -> None:
        """Report a finding that is new and has lasted."""
        subject, rule = self._subjects[name, finding.subject], self._rules[name]
        if finding.holds == subject.fires:
            subject.contrary_since = None
            return
        if subject.contrary_since is None or time < subject.contrary_since:  # the clock was set back
            subject.contrary_since = time
        if time - subject.contrary_since < rule.hold:
            return
        subject.fires, subject.last_seq, subject.contrary_since = finding.holds, seq, None
        condition, host = finding.message, self._hosts.get(source, "")
        if not condition.startswith(f"{host}:"):  # rules about machines say it themselves
            condition = f"{host}: {condition}" if host else condition
        condition = condition if finding.holds else f"no longer: {condition}"
        severity = finding.severity or rule.severity
        self._alerts.add(
            name,
            severity if finding.holds else "info",
            condition + self._measured(name, finding, step),
            state="firing" if finding.holds else "resolved",
            subject=finding.subject or None,
            value=finding.value,
            limit=finding.limit,
            global_step=step,
            condition=condition,
            **({"host": host} if host else {}),
            **({} if finding.holds or severity != "info" else {"resolves": severity}),
            **self._look_at(name, finding, step),
            source=source,
            source_seq=seq,
        )

    def _measured(self, name: str, finding: Finding, step: object) -> str:
        """Return `: 12.5 at step 2, limit 10`, as far as these are known."""
        unit, value, limit = unit_of(name), finding.value, finding.limit
        number = "" if value is None else f"{value:.4g}{unit}"
        # what a sample shows is of no step, but in the middle of a training
        at = f"at step {step}" if step else f"after step {self._step}" if self._step else ""
        told = " ".join(part for part in (number, at) if part)
        told += f", limit {limit:.4g}{unit}" if limit is not None and number else ""
        return f": {told}" if told else ""

    def _look_at(self, name: str, finding: Finding, step: object) -> dict[str, str]:
        look = look_of(name) if finding.holds else ""
        if not look:
            return {}
        run = command_path(self._directory)
        inspect = f" (make inspect-batch RUN={run} STEP={step})" if self._is_controlled else ""
        return {"look_at": look.format(directory=run, inspect=inspect)}

    def _give_up(self, name: str, error: Exception) -> None:
        self._rules.pop(name, None)
        self._readers = self._by_event()
        self._alerts.add("rule", "error", _failed(name, error))


def _failed(name: str, error: Exception) -> str:
    return f"alert rule {name} failed: {type(error).__name__}: {error}"


def _told(path: Path) -> dict[Episode, _Subject]:
    """Return the last reported state of each subject of each rule, from alerts.jsonl."""
    told: dict[Episode, _Subject] = {}
    for alert, _ in read_records(path):
        if alert.get("state") in ("firing", "resolved"):
            fires, seq = alert["state"] == "firing", int(str(alert.get("source_seq") or 0))
            told[episode_of(alert)] = _Subject(fires, seq)
    return told
