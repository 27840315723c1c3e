"""Sends a signal to a process chosen on the screen, after a question, and to no other process."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from monitoring.host.process import process_started, sees_all_pids
from monitoring.terminal.display.cells import middle
from monitoring.terminal.panels.process_table import GpuProcess

SIGNALS = {"T": signal.SIGTERM, "K": signal.SIGKILL, "I": signal.SIGINT}


@dataclass(frozen=True)
class SignalQuestion:
    """A signal to be confirmed before it is sent."""

    number: signal.Signals
    pid: int
    started: float
    """process_started of the process that was chosen."""
    user: str
    command: str

    def text(self, width: int) -> str:
        """Return the question in at most so many cells, of the command what fits."""
        asked = f"send {self.number.name} to pid {self.pid} of {self.user} ("
        rest = ")? y/N"
        return asked + middle(self.command, max(8, width - len(asked) - len(rest))) + rest

    def send(self) -> str:
        """Send it, and say what became of it."""
        try:
            _send(self.pid, self.started, self.number)
        except ProcessLookupError:
            return f"not sent: pid {self.pid} has ended"
        except OSError as error:
            return f"not sent: {self.number.name} to pid {self.pid} of {self.user}: {_reason(error)}"
        return f"sent {self.number.name} to pid {self.pid}"


def question(process: GpuProcess, number: signal.Signals, host: str | None) -> SignalQuestion | str:
    """Return the question, or why that process gets no signal; `host` is its machine if not this one."""
    if host is not None:
        return f"pid {process.pid} runs on {host or 'another machine'}: no signal goes there"
    if not sees_all_pids():
        return "in a container a GPU's process numbers are not ours: no signal is sent"
    if process.facts is None:
        return f"pid {process.pid} cannot be seen here: no signal is sent"
    return SignalQuestion(number, process.pid, process.facts.started, process.user, process.command)


def _send(pid: int, started: float, number: signal.Signals) -> None:
    """Send a signal; ProcessLookupError if the process is gone, even if another one has its number."""
    if not hasattr(os, "pidfd_open"):
        _require_same(pid, started)
        os.kill(pid, number)
        return
    process = os.pidfd_open(pid)
    try:
        _require_same(pid, started)  # while it is held, its number goes to no other
        signal.pidfd_send_signal(process, number)
    finally:
        os.close(process)


def _require_same(pid: int, started: float) -> None:
    if process_started(pid) != started:
        raise ProcessLookupError


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
