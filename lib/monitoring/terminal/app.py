"""The terminal dashboard: its main loop, and what keys and the mouse do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from monitoring.gpu.sample import GpuSample
from monitoring.host.name import host_name
from monitoring.terminal.display.cells import Line, line_target, target_at
from monitoring.terminal.display.keys import Event, MouseEvent
from monitoring.terminal.display.numbers import span
from monitoring.terminal.display.painted import PaintedTerminal, TerminalGone
from monitoring.terminal.display.themes import THEMES, default_theme, has_many_colors, painted
from monitoring.terminal.history import WINDOWS, GraphHistory
from monitoring.terminal.panels.process_table import DEFAULT_SORT, ProcessChoice
from monitoring.terminal.process_list import ProcessList
from monitoring.terminal.screen import View, screen
from monitoring.terminal.source import GpuSource, LiveGpus, RecordedGpus

if TYPE_CHECKING:
    from monitoring.terminal.panels.host_line import HostLine
    from monitoring.terminal.run_view import RunView, RunWatch

# Seconds for which it is shown what a key did.
MESSAGE_SECONDS = 10.0

# Processes that Page Up and Page Down go past, and the wheel.
PAGE, WHEEL = 10, 3


class Dashboard:
    """The dashboard, from the opening of its terminal to `q`."""

    def __init__(
        self,
        gpu: Sequence[int] | str | None = None,
        interval: float = 0.5,
        *,
        run: Path | None = None,
        save_dir: Path = Path("gpu_logs"),
        label: str = "",
        theme: str | None = None,
        sort: str = DEFAULT_SORT,
        metric: str | None = None,
        source: LiveGpus | None = None,
    ) -> None:
        """`gpu` None: the samples that the run records, if any, else all GPUs of this machine.

        `metric` is that of the second graph; None: the usual one. `source` is those of this machine, where
        they are sampled already.
        """
        self.ended = False
        self.theme = theme or default_theme(os.environ)
        self._gpu, self._interval = gpu, interval
        self._run_directory = run
        self._runs: RunWatch | None = None
        self._save_dir, self._label = save_dir, label
        self._source: GpuSource | None = source
        self._recorded_in: Path | None = None
        self._history = GraphHistory()
        self._selected: int | None = None
        self._log_loss: bool | None = None
        self._metric = metric
        self._message, self._told = "", 0.0
        self._host_line: HostLine | None = None
        self._processes = ProcessList(sort, tell=self._tell)
        self._helps = False
        self._lines: list[Line] = []
        self._terminal: PaintedTerminal | None = None
        self._shown_at, self._shown_size = 0.0, (0, 0)

    def run(self, *, mouse: bool = True) -> int:
        """Take the terminal until `q` (0), until it is closed (0), or a signal (128 and its number)."""
        terminal = PaintedTerminal(mouse=mouse)
        self._terminal = terminal
        try:
            with terminal:
                self._follow(terminal)
        except TerminalGone:
            pass
        finally:
            self.close()
        return terminal.ending_status

    def close(self) -> None:
        """Let go of drivers and files."""
        self._history.close()
        if self._source is not None:
            self._source.close()

    # ------------------------------------------------------------- the clockwork

    def _follow(self, terminal: PaintedTerminal) -> None:
        self._show(terminal)
        self.tick()  # it takes longer than to say that it comes
        self._show(terminal)
        due = time.monotonic()
        while not self._is_ending():
            if isinstance(self._source, LiveGpus):
                # each time, as the source may have changed
                self._source.arrived = terminal.wake
            events = terminal.wait(due - time.monotonic())
            for event in events:
                self.handle(event)
            is_new = False
            if time.monotonic() >= due:
                # looks that a slow terminal or disk has missed are not made up for
                due = max(due + self._interval, time.monotonic())
                is_new = self.tick()
            # samples bring the next picture; without them there is one each interval
            is_old = time.monotonic() - self._shown_at >= self._interval
            if self._look_at_gpus() or is_new or events or is_old or terminal.size() != self._shown_size:
                self._show(terminal)

    def _show(self, terminal: PaintedTerminal) -> None:
        self._shown_at, self._shown_size = time.monotonic(), terminal.size()
        width, height = self._shown_size
        many = has_many_colors(os.environ)
        lines = self.picture(width, height)
        terminal.show([painted(line, width, self.theme, many_colors=many) for line in lines])

    def tick(self) -> bool:
        """Take in new records and samples; return whether there are new samples."""
        if self._run_directory is not None:
            from monitoring.terminal.run_view import RunWatch

            self._runs = self._runs or RunWatch(self._run_directory)
            self._runs.look()
        self._choose_source()
        self._look_at_host()
        return self._look_at_gpus()

    def picture(self, width: int, height: int) -> list[Line]:
        """Return what is known now as lines of the screen."""
        if self._helps:
            from monitoring.terminal.panels.help_text import help_screen

            return help_screen(width, height)
        self._lines = screen(self._view(width, height))
        return self._lines

    def _view(self, width: int, height: int) -> View:
        source, run, now = self._source, self._run, time.time()
        panel = None
        if run is not None:
            from monitoring.terminal.panels.run_panel import RunPanel

            place = self._runs.place() if self._runs is not None else None
            panel = RunPanel(run, now, width, place, self._log_loss, self._metric or run.usual_metric())
        return View(
            width=width,
            height=height,
            now=now,
            samples=self._gpus,
            history=self._history,
            problem=source.problem() if source is not None else "looking for GPUs …",
            run=panel,
            watched=str(self._run_directory) if self._runs is not None else "",
            processes=self._processes.table,
            selected=self._selected,
            title=_title(source),
            label=self._label,
            host=self._host_line.line(width) if self._host_line is not None else [],
            message=self._message if time.monotonic() - self._told < MESSAGE_SECONDS else "",
            question=self._processes.question(width),
        )

    def _is_ending(self) -> bool:
        return self.ended or (self._terminal is not None and self._terminal.ending is not None)

    @property
    def choice(self) -> ProcessChoice:
        """Which processes are shown, and in which order."""
        return self._processes.choice

    @property
    def _run(self) -> RunView | None:
        return self._runs.view if self._runs is not None else None

    def _choose_source(self) -> None:
        """Choose what the run records, if it does and no GPUs were requested; else this machine's GPUs."""
        run = self._run
        if run is not None and self._gpu is None and RecordedGpus.are_in(run.directory):
            if run.directory != self._recorded_in:
                self._change_source(RecordedGpus(run.directory))
                self._recorded_in = run.directory
        elif not isinstance(self._source, LiveGpus):
            indices = None if self._gpu is None or isinstance(self._gpu, str) else self._gpu
            self._change_source(LiveGpus(indices, self._interval))
            self._recorded_in = None

    def _change_source(self, source: GpuSource) -> None:
        if self._source is not None:
            self._source.close()
        self._source = source
        # a person's choice, which stays when the source changes
        zoom = self._history.zoom
        self._history.close()
        self._history = GraphHistory()
        self._history.zoom = zoom

    def _look_at_gpus(self) -> bool:
        """Take in new samples; return whether there were any."""
        assert self._source is not None
        found = self._source.look()
        for samples in found:
            self._history.add(samples.time, samples.gpus)
        latest, run = self._source.history.latest, self._run
        if latest is not None and isinstance(self._source, RecordedGpus):
            self._history.read_past(self._source.journal, None)
        elif latest is not None and run is not None and (hosts := RecordedGpus.hosts_in(run.directory)):
            self._history.read_past(hosts[0], latest.gpus)
        if found:
            self._processes.look(self._gpus, host=self._source.host)
            self._show_processes()
        return bool(found)

    def _look_at_host(self) -> None:
        journal = None
        if self._source is None or self._source.host is not None:
            journal = self._source.system_stats if isinstance(self._source, RecordedGpus) else None
            if journal is None:
                self._host_line = None
                return
        from monitoring.terminal.panels.host_line import HostLine

        if self._host_line is None or self._host_line.journal != journal:
            self._host_line = HostLine(journal)
        self._host_line.look()

    @property
    def _gpus(self) -> Sequence[GpuSample]:
        """The newest sample of each GPU."""
        latest = self._source.history.latest if self._source is not None else None
        return latest.gpus if latest is not None else ()

    def _show_processes(self) -> None:
        """Show those of the newest sample, on the chosen GPU or on all."""
        source, run = self._source, self._run
        chosen = [sample for sample in self._gpus if self._selected in (None, sample.index)]
        host = source.host if source is not None else None
        self._processes.show(chosen, host=host, run=run.pid if run is not None else None)

    # ------------------------------------------------------------- keys and the mouse

    def handle(self, event: Event) -> None:
        """Handle a key or a click, by what is open: help, a question, a filter."""
        if self._helps:
            self._helps = False
        elif isinstance(event, MouseEvent):
            self._click(event)
        elif self._processes.is_asking:
            self._processes.answer(event.name)
        else:
            self.press(event.name)

    def press(self, key: str) -> None:
        """Act on a key outside of questions and filters."""
        processes = self._processes
        actions: dict[str, Callable[[], None]] = {
            "q": self._quit,
            "ctrl+c": self._quit,
            "ctrl+z": self._stop,
            "s": self._save,
            "r": self._reset,
            "?": self._help,
            "up": lambda: self._select_gpu(-1),
            "down": lambda: self._select_gpu(1),
            "left": lambda: self._turn(-1),
            "right": lambda: self._turn(1),
            "j": lambda: processes.select_next(1),
            "k": lambda: processes.select_next(-1),
            "page_down": lambda: processes.select_next(PAGE),
            "page_up": lambda: processes.select_next(-PAGE),
            "escape": processes.escape,
            "<": lambda: processes.sort_beside(-1),
            ">": lambda: processes.sort_beside(1),
            "i": processes.invert,
            "/": processes.begin_filter,
            "+": lambda: self._zoom(-1),
            "=": lambda: self._zoom(-1),
            "-": lambda: self._zoom(1),
            "h": self._next_host,
            "l": self._toggle_log,
            "n": lambda: self._next_metric(1),
            "N": lambda: self._next_metric(-1),
            "t": self._next_theme,
            "m": self._toggle_mouse,
            **dict.fromkeys("TKI", lambda: processes.ask(key)),
        }
        if key in actions:
            actions[key]()

    def _click(self, event: MouseEvent) -> None:
        line = self._lines[event.y] if 0 <= event.y < len(self._lines) else []
        if event.what != "left":
            self._scroll(line_target(line), 1 if event.what == "wheel_down" else -1)
            return
        kind, _, which = target_at(line, event.x).partition(":")
        if kind == "gpu":
            self._selected = None if self._selected == int(which) else int(which)
            self._show_processes()
        elif kind == "process":
            gpu, pid = map(int, which.split(":"))
            self._processes.select(gpu, pid)
        elif kind == "sort":
            self._processes.sort_by(which)
        elif kind == "graph":
            self._zoom(1, around=True)
        elif kind == "loss":
            self._toggle_log()
        elif kind == "speed":
            self._next_metric(1)
        elif kind == "run":
            self._turn(1)

    def _scroll(self, target: str, by: int) -> None:
        kind = target.partition(":")[0]
        if kind == "gpu":
            self._select_gpu(by)
        elif kind in ("process", "processes", "sort"):
            self._processes.select_next(by * WHEEL)
        elif kind == "graph":
            self._zoom(by)
        elif kind in ("run", "loss", "speed"):
            self._turn(by)

    def _quit(self) -> None:
        self.ended = True

    def _stop(self) -> None:
        if self._terminal is not None:
            self._terminal.stop()

    def _help(self) -> None:
        self._helps = True

    def _tell(self, message: str) -> None:
        self._message, self._told = message, time.monotonic()

    def _reset(self) -> None:
        """Clear the graphs."""
        self._history.clear()
        if self._run is not None:
            self._run.reset()
        self._tell(f"reset at {time.strftime('%H:%M:%S', time.gmtime())}")

    def _select_gpu(self, by: int) -> None:
        """Select the next GPU; after the last one all of them."""
        places: list[int | None] = [None, *(sample.index for sample in self._gpus)]
        place = places.index(self._selected) if self._selected in places else 0
        self._selected = places[(place + by) % len(places)]
        self._show_processes()

    def _next_host(self) -> None:
        """Show the GPUs of the run's next host."""
        source, run = self._source, self._run
        if isinstance(source, RecordedGpus) and run is not None:
            self._change_source(RecordedGpus(run.directory, source.place + 1))
            self._look_at_gpus()
            self._look_at_host()

    def _turn(self, by: int) -> None:
        """Watch the next of the runs that train."""
        if self._runs is not None:
            self._runs.turn(by)
            self._choose_source()
            self._look_at_gpus()

    def _zoom(self, by: int, *, around: bool = False) -> None:
        place = self._history.zoom + by
        count = len(WINDOWS)
        self._history.zoom = place % count if around else min(max(place, 0), count - 1)
        seconds = WINDOWS[self._history.zoom]
        shown = "all that is known" if seconds == WINDOWS[-1] else f"the last {span(seconds)}"
        reading = "; still reading what the run recorded" if self._history.is_reading else ""
        self._tell(f"graphs of {shown}{reading}")

    def _toggle_log(self) -> None:
        self._log_loss = {None: True, True: False, False: None}[self._log_loss]
        axis = {None: "where it shows more", True: "log", False: "linear"}[self._log_loss]
        self._tell(f"axis of the losses: {axis}")

    def _next_metric(self, by: int) -> None:
        """Show another metric of the run in the second graph."""
        names = self._run.metrics() if self._run is not None else []
        if not names:
            self._tell("the run has no other metric yet")
            return
        place = names.index(self._metric) if self._metric in names else -1 if by > 0 else 0
        self._metric = names[(place + by) % len(names)]
        self._tell(f"{self._metric}, {names.index(self._metric) + 1} of {len(names)} metrics")

    def _next_theme(self) -> None:
        names = list(THEMES)
        self.theme = names[(names.index(self.theme) + 1) % len(names)]
        self._tell(f"theme {self.theme}")

    def _toggle_mouse(self) -> None:
        if self._terminal is not None:
            self._terminal.set_mouse(not self._terminal.mouse)
            self._tell(f"mouse {'on' if self._terminal.mouse else 'off: the terminal selects text'}")

    # ------------------------------------------------------------- saving

    def _save(self) -> None:
        """Write the newest samples into files of the documented formats."""
        from monitoring.terminal.saving import save

        samples = self._source.history.snapshots() if self._source is not None else []
        self._tell(save(self._save_dir, samples, self._run))


def _title(source: GpuSource | None) -> str:
    """Return whose GPUs are shown."""
    if not isinstance(source, RecordedGpus):
        return f"GPUs of {host_name()}"
    if source.num_hosts == 1:
        return "GPUs of the run"
    place = f"host {source.place + 1} of {source.num_hosts}"
    return f"GPUs of the run on {source.host or host_name()}, {place}"
