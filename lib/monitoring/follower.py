"""Trackers and exporters: sinks that follow the journal of a run, and how one is found by its name.

A follower's module defines `Options` (a frozen dataclass, whose defaults are in Kconfig) and
`open_follower(run: RunInfo, options: Options) -> Follower`. It may define `check(options: Options) -> None`,
which the trainer calls before step 0: it raises a MonitoringError for what the user can fix (a missing
package), is quick and imports nothing outside the standard library. It may define `LIVE = True`: it shows
a run while it runs and keeps nothing, so that there is nothing to deliver later; `deliver` is then also
called without records, about once a second, and a LiveFollower's `linger` before the last `close`. And it may
define `JOURNALS`, the journals that it takes: `(JOURNAL, *ALL_SAMPLES, ALERTS)` adds the samples of GPUs and
machines of all hosts, and the alerts. And `OPTIONS_APART`, the options that are others while it catches up in
a process of its own (see catch_up_process). And `upload_command(directory: Path, options: Options) -> str |
None`, the command that uploads what it keeps of a run offline, which the trainer prints in the end: None
where nothing waits for that. It is as quick as `check`. And `note(options: Options) -> str | None`, a
sentence about something that is not as usual, which the trainer prints and the agent records; as quick, too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from monitoring.dropins import DropIns
from monitoring.errors import MonitoringError
from monitoring.journal.files import JOURNAL
from monitoring.journal.journal import say
from monitoring.journal.records import Record
from monitoring.journal.run_json import read_run_json

# Followers of every run, whatever its trackers are.
ALWAYS = ("csv",)

TRACKERS = DropIns(
    "tracker",
    "monitoring.trackers",
    symbols={
        "mlflow_tracking_uri": "MLFLOW_TRACKING_URI",
        "wandb_entity": "WANDB_ENTITY",
        "wandb_offline": "WANDB_OFFLINE",
    },
)
EXPORTERS = DropIns(
    "exporter",
    "monitoring.exporters",
    symbols={
        **{f"prometheus_{option}": f"PROMETHEUS_{option.upper()}" for option in ("host", "linger", "port")},
        "verbose_log_level": "VERBOSITY_LEVEL",
    },
)

# Exporters whose documented switch is not called NAME_EXPORTER.
SWITCHES = {"verbose_log": "USE_VERBOSE_LOGGING"}


@dataclass(frozen=True)
class RunInfo:
    """A run as a follower sees it."""

    directory: Path
    run_id: str
    """16 hexadecimal digits, the same for all attempts, of no other run."""
    project: str
    name: str
    group: str | None
    """The matrix that the run is a cell of, if any."""
    config: Mapping[str, object]

    @classmethod
    def read(cls, directory: Path) -> RunInfo:
        """Return the run in `directory`, from its run.json; RunDirectoryError if it is none."""
        run = read_run_json(directory)
        tracking = run["tracking"]
        return cls(
            directory, run["run_id"], tracking["project"], tracking["name"], tracking["group"], run["config"]
        )


class Follower(Protocol):
    """A sink of records, used by one thread from opening to close.

    Any method may raise; the follower is then closed, and opened again later.
    """

    def last_seq(self, journal: str = JOURNAL) -> int:
        """Return the `seq` of the last record of a journal that the sink durably holds, 0 if none.

        Read from the sink itself, so that a SIGKILL at any moment neither doubles nor loses a record. It is
        called for the journals that the module names in JOURNALS.
        """

    def deliver(self, records: Sequence[Record]) -> None:
        """Take complete records, each with a `seq` above `last_seq()` of its journal.

        Those of one journal come in its order, those of several about in that of their times; the records
        of the agent have the events in OF_AGENT, samples of another host `gpu@HOST` and `system@HOST`. One of
        refused_records.CONTENT_ERRORS says that a record's content is refused, and that nothing of these
        records was taken: they come again in smaller parts.
        """

    def flush(self) -> None:
        """Return when everything delivered survives a SIGKILL of this process."""

    def close(self, status: str | None) -> None:
        """Let go of the sink; `status` is that of the end record, None if the run has not ended."""


class LiveFollower(Follower, Protocol):
    """A follower that shows a run while it runs, from a module with `LIVE = True`."""

    def linger(self, stop: threading.Event) -> None:
        """Keep showing the end until it was seen, for a bounded time or until `stop`.

        Called once, when all followers have everything and the next agent may begin.
        """


def exporter_names() -> list[str]:
    """Return the exporters that can be turned on, so without those of every run."""
    return [name for name in EXPORTERS.names if name not in ALWAYS]


def exporter_switch(name: str) -> str:
    """Return the symbol that turns an exporter on."""
    return SWITCHES.get(name, f"{name.upper()}_EXPORTER")


def follower_kind(name: str) -> DropIns:
    """Return the exporters if one is called `name`, else the trackers, which refuse an unknown name."""
    return EXPORTERS if name in EXPORTERS.names else TRACKERS


def follower_module(name: str) -> ModuleType:
    """Return the module of the follower `name`; UnknownFollower lists the known trackers."""
    return follower_kind(name).load(name)


def journals_of(name: str) -> tuple[str, ...]:
    """Return the journals whose records the follower `name` takes; metrics.jsonl if it does not say."""
    try:
        journals: tuple[str, ...] = getattr(follower_module(name), "JOURNALS", (JOURNAL,))
    except MonitoringError:  # unknown here, or broken: its opening says so
        return (JOURNAL,)
    return journals


def is_live(name: str) -> bool:
    """Whether the follower `name` stores nothing of a run; False for an unknown one."""
    try:
        return bool(getattr(follower_module(name), "LIVE", False))
    except MonitoringError:  # unknown here, or broken: its opening says so
        return False


def follower_options(name: str, values: Mapping[str, object]) -> Any:
    """The `Options` of the follower `name`; FollowerOptionsError for a value it does not have or take."""
    return follower_kind(name).made(name, values)


def checked_follower(name: str, values: Mapping[str, object]) -> Any:
    """Return `follower_options` of one that could be opened here; MissingPackage without its package."""
    options = follower_options(name, values)
    check = getattr(follower_module(name), "check", None)
    if check is not None:
        check(options)
    return options


def check_followers(given: Mapping[str, Mapping[str, object]]) -> None:
    """Check all followers of a run by their options, as `checked_follower`; print what is not as usual."""
    for name, values in given.items():
        if (note := follower_note(name, checked_follower(name, values))) is not None:
            import textwrap  # here: hardly any run has a note

            say(textwrap.fill(f"note: {note}", 79, subsequent_indent="  ", break_on_hyphens=False))


def follower_note(name: str, options: Any) -> str | None:
    """Return a note on anything unusual about the follower `name`, or None."""
    told = getattr(follower_module(name), "note", None)
    note: str | None = told(options) if told is not None else None
    return note


def upload_commands(
    directory: Path, trackers: Mapping[str, Mapping[str, object]] | None = None
) -> dict[str, str]:
    """Tracker -> the command that uploads what it has of a run; of those `trackers` that keep it offline.

    Without `trackers` those that the run was begun with.
    """
    found: dict[str, str] = {}
    if trackers is None:
        trackers = read_run_json(directory)["tracking"]["trackers"]
    for name, values in trackers.items():
        command = getattr(follower_module(name), "upload_command", None)
        with contextlib.suppress(Exception):  # the training is complete, and stays so whatever a tracker does
            said = command(directory, follower_options(name, values)) if command is not None else None
            found |= {name: said} if said is not None else {}
    return found


def configured_options(name: str, config: Mapping[str, object]) -> dict[str, object]:
    """Return the options that a configuration has for the follower `name`."""
    return follower_kind(name).configured(name, config)


def enabled_followers(values: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """The trackers that ENABLE_NAME turns on and the exporters of `exporter_switch`, with their options."""
    enabled = [name for name in TRACKERS.names if values.get(f"ENABLE_{name.upper()}")]
    enabled += [name for name in exporter_names() if values.get(exporter_switch(name))]
    return {name: configured_options(name, values) for name in enabled}
