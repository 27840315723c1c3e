"""The processes on the GPUs: whose they are and what they use, sorted and filtered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from monitoring.gpu.sample import GpuSample
from monitoring.host.process_facts import ProcessFacts
from monitoring.terminal.display.cells import Line, Span, cell_len, outside
from monitoring.terminal.display.numbers import NONE, age, number


class GpuProcess(NamedTuple):
    """One process on one GPU."""

    gpu: int
    pid: int
    name: str
    memory_mb: float | None
    sm_percent: float | None
    facts: ProcessFacts | None
    """This machine's facts about it; None for a process elsewhere, or one that is gone."""

    @property
    def command(self) -> str:
        return (self.facts and self.facts.command) or self.name

    @property
    def user(self) -> str:
        return (self.facts and self.facts.user) or NONE

    @property
    def target(self) -> str:
        return f"process:{self.gpu}:{self.pid}"


@dataclass(frozen=True)
class ProcessColumn:
    """A column that the table can be sorted by."""

    heading: str
    width: int
    """Cells; negative: to the left."""
    text: Callable[[GpuProcess], str]
    key: Callable[[GpuProcess], float | str | None]
    """The value to sort by; None comes last."""
    largest_first: bool = True


def _fact(name: str) -> Callable[[GpuProcess], Any]:
    return lambda process: getattr(process.facts, name, None)


COLUMNS: dict[str, ProcessColumn] = {
    "gpu": ProcessColumn("gpu", 4, lambda it: str(it.gpu), lambda it: it.gpu, largest_first=False),
    "pid": ProcessColumn("pid", 8, lambda it: str(it.pid), lambda it: it.pid, largest_first=False),
    "user": ProcessColumn("user", -8, lambda it: it.user, _fact("user"), largest_first=False),
    "memory": ProcessColumn("GPU MiB", 8, lambda it: number(it.memory_mb), lambda it: it.memory_mb),
    "sm": ProcessColumn("SM%", 4, lambda it: number(it.sm_percent), lambda it: it.sm_percent),
    "cpu": ProcessColumn("CPU%", 5, lambda it: number(_fact("cpu_percent")(it)), _fact("cpu_percent")),
    "time": ProcessColumn("time", 7, lambda it: age(_fact("seconds")(it)), _fact("seconds")),
    "host": ProcessColumn("RES MiB", 8, lambda it: number(_fact("memory_mb")(it)), _fact("memory_mb")),
    "command": ProcessColumn(
        "command", 0, lambda it: it.command, lambda it: it.command.lower(), largest_first=False
    ),
}

DEFAULT_SORT = "memory"


@dataclass(frozen=True)
class ProcessChoice:
    """Which processes are shown, and in which order."""

    sort: str = DEFAULT_SORT
    inverted: bool = False
    filter: str = ""
    selected: tuple[int, int] | None = None
    """GPU and pid."""


@dataclass(frozen=True)
class ProcessTable:
    """The processes that are shown."""

    processes: Sequence[GpuProcess] = ()
    num_all: int = 0
    """Number of processes with those that the filter leaves out."""
    choice: ProcessChoice = field(default_factory=ProcessChoice)
    own_pid: int | None = None
    """The process id of the run."""
    is_reported: bool = True
    """Whether the driver reports processes."""

    def lines(self, width: int, rows: int) -> list[Line]:
        """Return a heading, and at most so many processes, the selected one among them."""
        first = self._first(rows)
        lines = [self._heading(width, len(self.processes) - rows)]
        if not self.processes:
            reason = "no process matches the filter" if self.num_all else "no compute processes"
            lines.append([Span(f" {reason if self.is_reported else 'not reported by the driver'}", "dim")])
        for process in self.processes[first : first + rows]:
            lines.append(self._line(process, width))
        return lines

    def _first(self, rows: int) -> int:
        places = [(process.gpu, process.pid) for process in self.processes]
        place = places.index(self.choice.selected) if self.choice.selected in places else 0
        return max(0, min(place - rows // 2, len(places) - rows))

    def _heading(self, width: int, hidden: int) -> Line:
        line: Line = []
        for name, column in COLUMNS.items():
            is_sorted = name == self.choice.sort
            falls = column.largest_first != self.choice.inverted
            text = column.heading + ("▾" if falls else "▴") * is_sorted
            text = text.rjust(column.width) if column.width > 0 else text.ljust(-column.width)
            line += [Span(text, "heading", f"sort:{name}"), Span(" ", "", "processes")]
        told = [f"+{hidden}"] if hidden > 0 else []
        told += (
            [f"/{self.choice.filter} {len(self.processes)} of {self.num_all}"] if self.choice.filter else []
        )
        used = sum(cell_len(span.text) for span in line)
        return [*line, outside(" ".join(told), min(width - used, len(" ".join(told))), "warn")]

    def _line(self, process: GpuProcess, width: int) -> Line:
        is_own = process.pid == self.own_pid
        texts = [_cell(column, process) for name, column in COLUMNS.items() if name != "command"]
        line = "".join(f"{text} " for text in texts)
        command = f"(this run) {process.command}" if is_own else process.command
        style = "good" if is_own else ""
        if (process.gpu, process.pid) == self.choice.selected:
            style = "selected"
        return [
            Span(line, style if style == "selected" else "", process.target),
            outside(command, width - cell_len(line), style, process.target),
        ]


def _cell(column: ProcessColumn, process: GpuProcess) -> str:
    text = column.text(process)
    if column.width > 0:
        return text.rjust(column.width)
    if cell_len(text) > -column.width:  # as ps does: a name that is cut says so
        return outside(text, -column.width - 1).text + "+"
    return outside(text, -column.width).text


def process_table(
    samples: Sequence[GpuSample],
    choice: ProcessChoice,
    facts: Mapping[int, ProcessFacts],
    own_pid: int | None = None,
) -> ProcessTable:
    """Return the processes of some GPUs that match the filter by user, pid or command, sorted."""
    found = [
        gpu_process(sample.index, process, facts) for sample in samples for process in sample.processes or []
    ]
    wanted = choice.filter.lower()
    shown = [it for it in found if wanted in f"{it.user} {it.pid} {it.command}".lower()]
    return ProcessTable(
        _sorted(shown, choice),
        len(found),
        choice,
        own_pid,
        is_reported=any(sample.processes is not None for sample in samples),
    )


def gpu_process(gpu: int, process: Mapping[str, object], facts: Mapping[int, ProcessFacts]) -> GpuProcess:
    """Return a process of a sample, with the facts about it."""
    pid, memory, busy = process.get("pid"), process.get("memory_mb"), process.get("sm_percent")
    return GpuProcess(
        gpu,
        pid if isinstance(pid, int) else 0,
        str(process.get("name") or NONE),
        float(memory) if isinstance(memory, (int, float)) else None,
        float(busy) if isinstance(busy, (int, float)) else None,
        facts.get(pid) if isinstance(pid, int) else None,
    )


def _sorted(processes: list[GpuProcess], choice: ProcessChoice) -> list[GpuProcess]:
    column = COLUMNS[choice.sort]
    known = [it for it in processes if column.key(it) is not None]
    unknown = [it for it in processes if column.key(it) is None]
    # sorts are stable: equal processes keep one order from picture to picture
    known.sort(key=lambda it: (it.gpu, it.pid))
    known.sort(key=column.key, reverse=column.largest_first != choice.inverted)  # type: ignore[arg-type]  # of one type, and not None
    return known + unknown
