"""The terminal dashboard as Textual shows it: keys, the clockwork, and one widget that paints lines."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import psutil
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from monitoring.errors import MonitoringError
from monitoring.gpu_monitor import GpuIndex
from monitoring.gpu_monitor.history import metrics_line
from monitoring.gpu_monitor.metrics_log import MetricsLog, file_stamp
from monitoring.journal.structured_log import timestamp
from monitoring.terminal.run_view import RunView
from monitoring.terminal.run_watch import RunWatch
from monitoring.terminal.screen import LOOKING, Line, Traces, View, screen
from monitoring.terminal.source import GpuSource, LiveGpus, RecordedGpus

# Seconds between two pictures until the first sample is there.
SOON = 0.05

# Seconds for which it is shown what a key did.
MESSAGE_SECONDS = 10.0

HELP = """\
 q      quit
 s      save what the graphs show: gpu_metrics_*.jsonl and,
        with a run, training_metrics_*.jsonl
 r      reset the graphs
 ↑ ↓    graphs of one GPU, or of all of them
 ← →    another run of those that wrote lately
 ?      this help; any key closes it

 Yellow and red with a !: memory from 75 and above 90 %,
 temperature from 70 and above 80 °C, power from 95 and above
 105 % of its limit. – is what the device does not report.
 busy: share of the time in which any kernel ran; a rank that
 waits for the others is 100 % busy, too."""


class Dashboard(App[None]):
    """The dashboard, from the opening of its terminal to `q`."""

    CSS = """
    Picture { width: 100%; height: 100%; }
    Help { align: center middle; }
    Help Static { width: 70; height: auto; border: round; padding: 1 2; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit", priority=True),
        Binding("s", "save", "save"),
        Binding("r", "reset", "reset"),
        Binding("question_mark", "help", "help"),
        Binding("up", "select(-1)", "GPU before"),
        Binding("down", "select(1)", "next GPU"),
        Binding("left", "turn(-1)", "run before"),
        Binding("right", "turn(1)", "next run"),
    ]

    def __init__(
        self,
        gpu: GpuIndex | None = None,
        interval: float = 0.5,
        *,
        run: Path | None = None,
        history_size: int = 300,
        save_dir: Path = Path("gpu_logs"),
        label: str = "",
    ) -> None:
        """`gpu` None: the samples that the run records, if any, else all GPUs of this machine."""
        super().__init__(ansi_color=True)
        self._gpu = gpu
        self._interval = interval
        self._picture = Frame()
        self._runs = RunWatch(run) if run is not None else None
        self._watched = run
        self._history_size = history_size
        self._save_dir = save_dir
        self._label = label
        self._traces = Traces(history_size)
        self._source: GpuSource | None = None
        self._recorded_in: Path | None = None
        self._selected: int | None = None
        self._message, self._told = "", 0.0
        self._machine = ""
        self._terminal = _stdin_is_a_terminal()

    def compose(self) -> ComposeResult:
        yield self._picture

    @property
    def _run(self) -> RunView | None:
        return self._runs.view if self._runs is not None else None

    def on_mount(self) -> None:
        psutil.cpu_percent()  # the first one says nothing: there is no picture before it
        self._tick()
        self._soon = self.set_interval(SOON, self._until_first_sample)
        self.set_interval(self._interval, self._tick)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def on_unmount(self) -> None:
        if self._source is not None:
            self._source.close()

    def draw(self) -> None:
        """Show what is known now."""
        picture = self._picture
        if not picture.is_attached or not picture.size.width or self._source is None:
            return  # it is not yet there, or no more: timers run until the end
        recorded = isinstance(self._source, RecordedGpus)
        self._traces.take(self._source.history.snapshots())
        latest = self._source.history.latest
        now = time.time()
        view = View(
            width=picture.size.width,
            height=picture.size.height,
            now=now,
            samples=latest.gpus if latest is not None else (),
            traces=self._traces,
            problem=self._source.problem(),
            run=self._run,
            place=self._runs.place() if self._runs is not None else None,
            watched=str(self._watched or ""),
            selected=self._selected,
            title="GPUs of the run" if recorded else f"GPUs of {platform.node()}",
            label=self._label,
            system="" if recorded else self._machine,
            message=self._message if now - self._told < MESSAGE_SECONDS else "",
        )
        picture.show(screen(view))

    def action_save(self) -> None:
        """Write the history into files of the documented formats."""
        assert self._source is not None
        stamp, written = file_stamp(time.time()), []
        correlation_id = self._run.run_id if self._run is not None else ""
        gpus = [
            metrics_line(sample, snapshot.time, correlation_id)
            for snapshot in self._source.history.snapshots()
            for sample in snapshot.gpus
        ]
        steps = self._run.training_lines() if self._run is not None else []
        try:
            for prefix, lines in (("gpu_metrics", gpus), ("training_metrics", steps)):
                if not lines:
                    continue
                log = MetricsLog(self._save_dir, prefix, stamp)
                for line in lines:
                    log.append(line)
                log.close()
                if log.failure is not None:
                    raise log.failure
                written.append(log.path)
        except (MonitoringError, OSError) as error:
            self._tell(f"not saved: {error}")
        else:
            self._tell(f"saved {_names(written)}" if written else "nothing to save yet")

    def action_reset(self) -> None:
        """Clear the graphs."""
        assert self._source is not None
        self._source.history.clear()
        self._traces.clear()
        if self._run is not None:
            self._run.reset()
        self._tell(f"reset at {timestamp(time.time())[11:19]}")

    def action_select(self, by: int) -> None:
        """Select the next GPU, after the last one all of them."""
        assert self._source is not None
        latest = self._source.history.latest
        places: list[int | None] = [None]
        places += [sample.index for sample in latest.gpus] if latest is not None else []
        place = places.index(self._selected) if self._selected in places else 0
        self._selected = places[(place + by) % len(places)]
        self.draw()

    def action_turn(self, by: int) -> None:
        """The next run of those that train."""
        if self._runs is not None:
            self._runs.turn(by)
            self._choose_source()
            self.draw()

    def action_help(self) -> None:
        """Explain keys and colours."""
        self.push_screen(Help())

    def _tick(self) -> None:
        if self._terminal and not _stdin_is_a_terminal():
            self.exit()  # it was closed and nobody sent us a signal
            return
        self._machine = _machine(first=not self._machine)
        if self._runs is not None:
            self._runs.look()
        self._choose_source()
        assert self._source is not None
        self._source.look()
        self.draw()

    def _until_first_sample(self) -> None:
        assert self._source is not None
        if self._source.history.latest is not None or self._source.problem() != LOOKING:
            self._soon.stop()
        self.draw()

    def _tell(self, message: str) -> None:
        self._message, self._told = message, time.time()
        self.draw()

    def _choose_source(self) -> None:
        """What the run records, if it does and no GPUs were requested; else this machine's GPUs."""
        run = self._run
        if run is not None and self._gpu is None and RecordedGpus.are_in(run.directory):
            if run.directory != self._recorded_in:
                self._change_source(RecordedGpus(run.directory, self._history_size))
                self._recorded_in = run.directory
        elif not isinstance(self._source, LiveGpus):
            gpu = "all" if self._gpu is None else self._gpu
            self._change_source(LiveGpus(gpu, self._interval, self._history_size))
            self._recorded_in = None

    def _change_source(self, source: GpuSource) -> None:
        if self._source is not None:
            self._source.close()
        self._source = source
        source.look()
        self._traces = Traces(self._history_size)


class Frame(Widget):
    """Lines of styled text; only those that changed are painted again."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Line] = []

    def show(self, lines: list[Line]) -> None:
        """Paint what differs from the last picture."""
        before, self._lines = self._lines, lines
        if len(before) != len(lines):
            self.refresh()
            return
        width = self.size.width
        changed = [Region(0, y, width, 1) for y, line in enumerate(lines) if line != before[y]]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else []
        strip = Strip([Segment(span.text, _style(span.style)) for span in line])
        return strip.adjust_cell_length(self.size.width)


class Help(ModalScreen[None]):
    """What the keys do; any key closes it."""

    def compose(self) -> ComposeResult:
        yield Static(HELP, markup=False)

    def on_key(self, event: Key) -> None:
        event.stop()
        if self.is_current:  # a second key may come before the first has closed it
            self.dismiss()


@lru_cache(maxsize=64)
def _style(text: str) -> Style:
    return Style.parse(text)


def _machine(*, first: bool) -> str:
    """This machine's processor time since the last picture, unknown at the first, and its memory in GiB."""
    memory = psutil.virtual_memory()
    processor = "" if first else f"CPU {psutil.cpu_percent():.0f}% "
    return f"{processor}RAM {memory.used / 2**30:.1f}/{memory.total / 2**30:.1f} GiB"


def _stdin_is_a_terminal() -> bool:
    try:
        return os.isatty(sys.__stdin__.fileno()) if sys.__stdin__ is not None else False
    except ValueError:  # it was closed
        return False


def _names(paths: Sequence[Path]) -> str:
    """Short for a line, and as a shell takes it: DIR/{gpu,training}_metrics_STAMP.jsonl."""
    kinds, stamps = zip(*(path.name.split("_", 1) for path in paths), strict=True)
    if len(paths) > 1 and len(set(stamps)) == 1:
        return f"{paths[0].parent}/{{{','.join(kinds)}}}_{stamps[0]}"
    return ", ".join(map(str, paths))
