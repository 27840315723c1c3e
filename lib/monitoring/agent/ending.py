"""Tells when an agent is to end: by a signal, after its attempt, or when the process is gone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monitoring.host.name import host_name
from monitoring.host.process import is_alive
from monitoring.host.stop_signals import set_by
from monitoring.journal.records import last_record


def has_ended(journal: Path, attempt: Mapping[str, Any]) -> bool:
    """Whether a journal ends with the end of this attempt, or holds a later one."""
    last = last_record(journal) or {"attempt": 0}
    ours: int = attempt["attempt"]
    return int(str(last["attempt"])) > ours or (last["attempt"] == ours and last.get("event") == "end")


def is_running(attempt: Mapping[str, Any]) -> bool:
    """Whether the process of this attempt is still alive, as far as this host can tell."""
    return attempt["host"] == host_name() and is_alive(attempt)


def set_signals(stop: threading.Event, ending: threading.Event) -> None:
    """Ignore SIGINT and SIGHUP, which are the trainer's; SIGTERM ends the agent once all is delivered."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    set_by((signal.SIGTERM,), stop, ending)
