"""Sends a run's alerts to people: by a command, and by apprise to chats, mail, phones and webhooks.

A thread of the agent sends, so neither the training nor the trackers wait for a server. The first alert
goes at once; what comes within INTERVAL seconds of a message goes together in the next. Addresses hold
passwords and tokens: they come from the environment variable NOTIFY_SECRET_URLS or from a file, and stand
in no configuration, log or alert.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from monitoring.errors import FollowerOptionsError
from monitoring.journal.alerts import Alerts, alert_hint, alert_text, is_news
from monitoring.journal.files import ALERTS
from monitoring.journal.records import Record
from monitoring.journal.tail import RecordTail

# Addresses for apprise, separated by blanks or line breaks.
URLS = "NOTIFY_SECRET_URLS"

# Rule of this module's own alerts, which are not sent: a server that fails would get the news of it.
OWN = "notify"

# Seconds that a command may take, and that the end of a run waits for the last message.
COMMAND_SECONDS = 30.0
LAST_SECONDS = 30.0

# Alerts that one message lists.
MOST = 20

# Seconds between looks for alerts.
LOOK_EVERY = 0.5


class NotifyOptions(NamedTuple):
    """Options of notifications."""

    command: str = ""
    urls_file: str = ""
    errors_only: bool = False
    interval: float = 60.0

    @classmethod
    def of(cls, config: Mapping[str, object]) -> NotifyOptions:
        """Return the options in the configuration's symbols NOTIFY_…."""
        given = {name: config.get(f"NOTIFY_{name.upper()}") for name in cls._fields}
        return cls(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


class Notifications:
    """Sends what is added to a run's alerts.jsonl from construction to `close`."""

    def __init__(self, directory: Path, name: str, options: NotifyOptions, alerts: Alerts) -> None:
        """`name` is the run's, `alerts` gets what goes wrong here, once each."""
        self._directory, self._name, self._options, self._alerts = directory, name, options, alerts
        self._tail = RecordTail(directory / ALERTS)
        for _ in self._tail.new():  # what an earlier agent has seen
            pass
        self._ending = threading.Event()
        self._waiting: list[Record] = []
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="notifications", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send pending notifications, in a bounded time."""
        self._ending.set()
        self._thread.join(LAST_SECONDS)

    def _run(self) -> None:
        due = 0.0
        while True:
            is_last = self._ending.is_set()
            self._waiting += [record for record in self._tail.new() if self._is_wanted(record)]
            if self._waiting and (is_last or time.monotonic() >= due):
                due = time.monotonic() + self._options.interval
                sent, self._waiting = self._waiting, []
                self._send(sent)
            if is_last:
                return
            self._ending.wait(LOOK_EVERY)

    def _is_wanted(self, record: Record) -> bool:
        """Whether an alert is sent: errors, warnings, and the end of either."""
        if record.get("rule") == OWN:
            return False
        if self._options.errors_only:
            return record.get("severity") == "error"
        return is_news(record)

    def _send(self, found: Sequence[Record]) -> None:
        self._failed = False
        for send in (self._run_command, self._send_to_urls):
            try:
                send(found)
            except Exception as error:  # noqa: BLE001 - a command and a library are called here; it becomes an alert
                self._fire(f"alerts were not sent: {_reason(error)}")
        if not self._failed:
            self._alerts.resolve(OWN, "alerts are sent again")

    def _run_command(self, found: Sequence[Record]) -> None:
        if not self._options.command:
            return
        import shlex  # here: most runs have no command
        import subprocess

        about = {"run": self._name, "directory": str(self._directory), "alerts": list(found)}
        environment = {name: value for name, value in os.environ.items() if name != URLS}
        subprocess.run(
            shlex.split(self._options.command),
            input=orjson.dumps(about),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_SECONDS,
            check=True,
        )

    def _send_to_urls(self, found: Sequence[Record]) -> None:
        urls = addresses(self._options.urls_file)
        if not urls:
            return
        try:
            import apprise
        except ImportError:
            raise FollowerOptionsError("apprise is not installed: pip install apprise") from None
        import logging

        logging.getLogger("apprise").disabled = True  # its messages may hold addresses
        service = apprise.Apprise()
        known = [service.add(url) for url in urls]
        if not all(known):
            self._fire(f"apprise does not know one of the addresses in {URLS} or the file")
        lines = [line for record in found[:MOST] for line in (alert_text(record), alert_hint(record)) if line]
        lines += [f"and {len(found) - MOST} more, in {ALERTS}"] if len(found) > MOST else []
        worst = "failure" if any(record.get("severity") == "error" for record in found) else "warning"
        kind = worst if any(record.get("state") != "resolved" for record in found) else "success"
        if len(service) and not service.notify(
            body="\n".join(lines), title=f"{self._name}: {_count(found)}", notify_type=kind
        ):
            self._fire("alerts were not sent: a server did not take them")

    def _fire(self, message: str) -> None:
        self._failed = True
        self._alerts.fire(OWN, "warning", message)


def notifications(directory: Path, run: Mapping[str, object], alerts: Alerts) -> Notifications | None:
    """Return the sender that configuration and environment request, None if they request none."""
    config, tracking = run["config"], run["tracking"]
    assert isinstance(config, dict)
    assert isinstance(tracking, dict)
    options = NotifyOptions.of(config)
    if not (options.command or options.urls_file or os.environ.get(URLS)):
        return None
    return Notifications(directory, str(tracking["name"]), options, alerts)


def addresses(file: str) -> list[str]:
    """Return the addresses in the environment and in the file, whose lines with `#` are comments."""
    lines = Path(file).expanduser().read_text().splitlines() if file else []
    found = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    return [*os.environ.get(URLS, "").split(), *found]


def _count(found: Sequence[Record]) -> str:
    return f"{len(found)} alert{'' if len(found) == 1 else 's'}"


def _reason(error: Exception) -> str:
    """Return why sending failed, without arguments or messages that may hold secrets."""
    import subprocess

    if isinstance(error, subprocess.CalledProcessError):
        return f"NOTIFY_COMMAND exited with {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"NOTIFY_COMMAND took longer than {COMMAND_SECONDS:g} s"
    if isinstance(error, OSError):
        return f"{error.strerror}: {error.filename}"
    return str(error) if isinstance(error, FollowerOptionsError | ValueError) else type(error).__name__
