"""The processes of the dashboard: looking at them, choosing one, filtering, and sending it a signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from monitoring.errors import refusal
from monitoring.gpu.sample import GpuSample
from monitoring.host.process import process_started, sees_all_pids
from monitoring.terminal.display.cells import middle
from monitoring.terminal.panels.process_table import (
    COLUMNS,
    GpuProcess,
    ProcessChoice,
    ProcessTable,
    process_table,
)

if TYPE_CHECKING:
    from monitoring.host.process_facts import ProcessLooks

SIGNALS = {"T": signal.SIGTERM, "K": signal.SIGKILL, "I": signal.SIGINT}


class ProcessList:
    """The processes on the GPUs that are shown, and what a person has chosen of them."""

    def __init__(self, sort: str, *, tell: Callable[[str], None]) -> None:
        """`tell` shows what a key did."""
        self.choice = ProcessChoice(sort=sort)
        self.table = ProcessTable()
        self._tell = tell
        self._samples: Sequence[GpuSample] = ()
        self._host: str | None = None
        self._run: int | None = None
        self._looks: ProcessLooks | None = None
        self._question: SignalQuestion | None = None
        self._typed: str | None = None  # the filter, while it is typed

    # ------------------------------------------------------------- what is there

    def look(self, samples: Sequence[GpuSample], *, host: str | None) -> None:
        """Look up facts of this machine's processes, where a driver numbers them as this process does."""
        pids = {process.get("pid") for sample in samples for process in sample.processes or ()}
        if pids and self._looks is None:
            from monitoring.host.process_facts import ProcessLooks

            self._looks = ProcessLooks()
        if self._looks is not None:
            from monitoring.host.process import sees_all_pids

            here = host is None and sees_all_pids()
            self._looks.look(pid for pid in pids if here and isinstance(pid, int) and pid > 0)

    def show(self, samples: Sequence[GpuSample], *, host: str | None, run: int | None) -> None:
        """Show the processes of these samples; `host` is another machine's, `run` the run's own process."""
        self._samples, self._host, self._run = samples, host, run
        facts = self._looks.facts if self._looks is not None else {}
        self.table = process_table(samples, self.choice, facts, run)

    # ------------------------------------------------------------- what is chosen

    def _choose(self, **changes: object) -> None:
        self.choice = replace(self.choice, **changes)  # type: ignore[arg-type]  # by callers of this class
        self.show(self._samples, host=self._host, run=self._run)

    def select(self, gpu: int, pid: int) -> None:
        """Select a process, or none if it is selected."""
        self._choose(selected=None if self.choice.selected == (gpu, pid) else (gpu, pid))

    def select_next(self, by: int) -> None:
        places = [(it.gpu, it.pid) for it in self.table.processes]
        if not places:
            return
        if self.choice.selected in places:
            place = min(max(places.index(self.choice.selected) + by, 0), len(places) - 1)
        else:
            place = 0
        self._choose(selected=places[place])

    def escape(self) -> None:
        """Select nothing, then drop the filter."""
        if self.choice.selected is not None:
            self._choose(selected=None)
        else:
            self._choose(filter="")

    def sort_by(self, column: str) -> None:
        """Sort by a column; a second time in the other order."""
        self._choose(sort=column, inverted=column == self.choice.sort and not self.choice.inverted)

    def sort_beside(self, by: int) -> None:
        names = list(COLUMNS)
        name = names[(names.index(self.choice.sort) + by) % len(names)]
        self._choose(sort=name, inverted=False)
        self._tell(f"sorted by {COLUMNS[name].heading}")

    def invert(self) -> None:
        self._choose(inverted=not self.choice.inverted)

    def begin_filter(self) -> None:
        self._typed = self.choice.filter

    # ------------------------------------------------------------- questions

    @property
    def is_asking(self) -> bool:
        """Whether the next key answers a question, or belongs to the filter."""
        return self._question is not None or self._typed is not None

    def question(self, width: int) -> str:
        """Return the open question, in at most so many cells; empty if there is none."""
        if self._question is not None:
            return self._question.text(width - 2)
        return f"filter: {self._typed}▏  Enter keeps it, Esc drops it" if self._typed is not None else ""

    def answer(self, key: str) -> None:
        """Take a key while `is_asking`."""
        if self._question is None:
            self._type(key)
            return
        asked, self._question = self._question, None
        self._tell(asked.send() if key in ("y", "Y") else f"not sent: {asked.number.name} to pid {asked.pid}")

    def ask(self, key: str) -> None:
        """Ask whether the selected process is to get the signal of a key."""
        process = self._chosen()
        if process is None:
            self._tell("select a process first, with j and k or a click")
            return
        asked = question(process, SIGNALS[key], self._host)
        if isinstance(asked, str):
            self._tell(asked)
        else:
            self._question = asked

    def _chosen(self) -> GpuProcess | None:
        chosen = [it for it in self.table.processes if (it.gpu, it.pid) == self.choice.selected]
        return chosen[0] if chosen else None

    def _type(self, key: str) -> None:
        assert self._typed is not None
        if key == "enter":
            self._typed = None
            return
        if key in ("escape", "ctrl+c"):
            self._typed = None
            self._choose(filter="")
            return
        if key == "backspace":
            self._typed = self._typed[:-1]
        elif key == "ctrl+u":
            self._typed = ""
        elif len(key) == 1:
            self._typed += key
        self._choose(filter=self._typed)


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
        """Send the signal, and return the outcome in words."""
        try:
            _send(self.pid, self.started, self.number)
        except ProcessLookupError:
            return f"not sent: pid {self.pid} has ended"
        except OSError as error:
            return f"not sent: {self.number.name} to pid {self.pid} of {self.user}: {refusal(error)}"
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
