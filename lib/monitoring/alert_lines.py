"""Prints on the training's own terminal, its standard error: where its run is, and the alerts of its agent.

    error: nonfinite: train_loss is not a finite number: at step 120 (run mnist, node1, /home/me/mnist)
    hint: look at the samples of that step (make inspect-batch …); to stop the training: make control …

The agent outlives the training and may outlive its terminal, so it is the training that prints, from what
the agent has written to alerts.jsonl: about once a second, when it logs a record.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from monitoring.errors import moves_cursor
from monitoring.journal.alerts import alert_hint, alert_text, is_news
from monitoring.journal.files import ALERTS
from monitoring.journal.journal import say
from monitoring.journal.records import Record, last_record, read_records, seq_of

# Alerts that one look prints, and characters of a line.
MOST_ALERTS = 5
MOST_CHARACTERS = 500

# The folder that lib/ is in, where this is a checkout and no installed package.
CHECKOUT = Path(__file__).resolve().parents[2]

# Takes away what a progress bar has left on the terminal's line.
CLEAR = "\r\x1b[K"


class AlertLines:
    """Prints the warnings and errors, and their ends, that come from construction on.

    One thread at a time calls `look`.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / ALERTS
        self._seq = seq_of(last_record(self._path) or {})
        self._size = self._offset = self._path.stat().st_size if self._seq else 0

    def look(self) -> None:
        """Print what is new; raises nothing, and prints nothing that a terminal takes for a command."""
        try:
            new = [alert for alert in self._new() if is_news(alert)]
        except OSError:  # there is no file yet, or a disk that does not answer now
            return
        left_out = len(new) - MOST_ALERTS
        lines = [line for alert in new[:MOST_ALERTS] for line in _lines(alert)]
        lines += [f"warning: {left_out} more alerts, in {ALERTS}"] if left_out > 0 else []
        if lines:
            say(_clear() + "\n".join(lines))

    def _new(self) -> list[Record]:
        size = os.stat(self._path).st_size
        if size == self._size:
            return []
        offset = self._offset if size > self._offset else 0  # cut, or another file
        found = list(read_records(self._path, offset))
        new = [alert for alert, _ in found if seq_of(alert) > self._seq]
        self._size, self._offset = size, found[-1][1] if found else offset
        self._seq = max([self._seq, *map(seq_of, new)])
        return new


def _lines(alert: Record) -> list[str]:
    """Return the alert, and below it what to do."""
    begin = "resolved" if alert.get("state") == "resolved" else alert.get("severity")
    lines, hint = [f"{begin}: {alert.get('rule')}: {alert_text(alert)}"], alert_hint(alert)
    lines += [f"hint: {hint}"] if hint else []
    return [_printable(line[:MOST_CHARACTERS]) for line in lines]


def _printable(line: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in line)


def is_terminal() -> bool:
    """Whether standard error is a terminal; a log has its alerts.jsonl."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # no stderr, or a closed one
        return False


def say_place(directory: Path, name: str) -> None:
    """Print where a run is recorded, and what shows it here."""
    try:
        here = Path.cwd()
    except OSError:  # the folder that the program stands in was deleted
        here = directory
    run, folder = (
        shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
        for path in (directory, directory.parent)
    )
    if (CHECKOUT / "Makefile").is_file():
        look = f"kharness status {run}, kharness dashboard {folder}"
    else:
        look = f"python -m monitoring.web {folder}"
    say(_printable(f"run {name}: recorded in {run}; to look at it: {look}"))


def _clear() -> str:
    return CLEAR if is_terminal() and moves_cursor(sys.stderr) else ""
