"""The terminal dashboard as Textual shows it: keys, the clockwork, and one widget that paints lines."""

from __future__ import annotations

import platform
import time
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
from monitoring.gpu_history import metrics_line
from monitoring.gpu_monitor import GpuIndex
from monitoring.gpu_screen import LOOKING, Line, Traces, View, screen
from monitoring.gpu_source import GpuSource, LiveGpus, RecordedGpus
from monitoring.metrics_log import MetricsLog, file_stamp
from monitoring.run_view import RunView, find_run, open_run
from monitoring.structured_log import timestamp

# Seconds between two looks for a run that began later, as in a matrix.
LOOK_FOR_RUN = 2.0

# Seconds between two pictures until the first sample is there.
SOON = 0.05

HELP = """\
 q      quit
 s      save what the graphs show: gpu_metrics_*.jsonl and,
        with a run, training_metrics_*.jsonl
 r      reset the graphs
 ↑ ↓    graphs of one GPU, or of all of them
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
        self._watched = run
        self._history_size = history_size
        self._save_dir = save_dir
        self._label = label
        self._traces = Traces(history_size)
        self._run: RunView | None = None
        self._source: GpuSource | None = None
        self._next_search = 0.0
        self._selected: int | None = None
        self._message = ""

    def compose(self) -> ComposeResult:
        yield Picture()

    def on_mount(self) -> None:
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
        picture = self.query_one(Picture)
        if not picture.size.width or self._source is None:
            return
        recorded = isinstance(self._source, RecordedGpus)
        self._traces.take(self._source.history.snapshots())
        latest = self._source.history.latest
        view = View(
            width=picture.size.width,
            height=picture.size.height,
            now=time.time(),
            samples=latest.gpus if latest is not None else (),
            traces=self._traces,
            problem=self._source.problem(),
            run=self._run,
            selected=self._selected,
            title="GPUs of the run" if recorded else f"GPUs of {platform.node()}",
            label=self._label,
            system="" if recorded else _system(),
            message=self._message,
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
                written.append(str(log.path))
        except (MonitoringError, OSError) as error:
            self._message = f"not saved: {error}"
        else:
            self._message = f"saved {', '.join(written)}" if written else "nothing to save yet"
        self.draw()

    def action_reset(self) -> None:
        """Begin the graphs anew."""
        assert self._source is not None
        self._source.history.clear()
        self._traces.clear()
        if self._run is not None:
            self._run.reset()
        self._message = f"reset at {timestamp(time.time())[11:19]}"
        self.draw()

    def action_select(self, by: int) -> None:
        """The next GPU, all of them behind the last."""
        assert self._source is not None
        latest = self._source.history.latest
        places: list[int | None] = [None]
        places += [sample.index for sample in latest.gpus] if latest is not None else []
        place = places.index(self._selected) if self._selected in places else 0
        self._selected = places[(place + by) % len(places)]
        self.draw()

    def action_help(self) -> None:
        """Explain keys and colours."""
        self.push_screen(Help())

    def _tick(self) -> None:
        self._find_run()
        if self._run is not None:
            self._run.look()
        assert self._source is not None
        self._source.look()
        self.draw()

    def _until_first_sample(self) -> None:
        assert self._source is not None
        if self._source.history.latest is not None or self._source.problem() != LOOKING:
            self._soon.stop()
        self.draw()

    def _find_run(self) -> None:
        """Follow the run that is being trained, and take its samples if it records any."""
        now = time.monotonic()
        if self._source is not None and (self._watched is None or now < self._next_search):
            return
        self._next_search = now + LOOK_FOR_RUN
        if self._watched is not None:
            found = open_run(self._watched) if self._run is None or self._moved_on() else self._run
            changed = found is not self._run
            self._run = found
            if found is not None and self._gpu is None and RecordedGpus.are_in(found.directory):
                if changed or not isinstance(self._source, RecordedGpus):
                    self._change_source(RecordedGpus(found.directory, self._history_size))
                return
        if not isinstance(self._source, LiveGpus):
            gpu = "all" if self._gpu is None else self._gpu
            self._change_source(LiveGpus(gpu, self._interval, self._history_size))

    def _moved_on(self) -> bool:
        assert self._run is not None
        assert self._watched is not None
        try:
            return find_run(self._watched) != self._run.directory
        except MonitoringError:
            return False

    def _change_source(self, source: GpuSource) -> None:
        if self._source is not None:
            self._source.close()
        self._source = source
        self._traces = Traces(self._history_size)


class Picture(Widget):
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


def _system() -> str:
    """This machine's processor time since the last picture, and its memory in GiB."""
    memory = psutil.virtual_memory()
    return f"CPU {psutil.cpu_percent():.0f}% RAM {memory.used / 2**30:.1f}/{memory.total / 2**30:.1f} GiB"
