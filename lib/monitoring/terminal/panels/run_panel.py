"""The run: how far it is, its loss and throughput as graphs, and the numbers of its last step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from monitoring.journal.end_status import COMPLETE
from monitoring.journal.series import Window
from monitoring.terminal.display.cells import Line, Span, apart, cell_len, middle, outside
from monitoring.terminal.display.graphs import axis, beside, graph, is_log_better, logarithms
from monitoring.terminal.display.numbers import duration, figure
from monitoring.terminal.run_view import SPEED, RunView
from monitoring.terminal.timeline import columns

NUMBERS = {
    "lr": "learning_rate",
    "grad norm": "gradient_norm",
    "val loss": "validation_loss",
    "val accuracy": "validation_accuracy",
}


@dataclass(frozen=True)
class RunPanel:
    """A run to be shown."""

    run: RunView
    now: float
    """UTC epoch seconds."""
    width: int
    place: tuple[int, int] | None = None
    """The watched run's place among those that train, from 1, and their number."""
    log_loss: bool | None = None
    """Whether the losses have a log axis; None: where that shows more."""
    metric: str = SPEED
    """Metric of the second graph."""

    def state(self) -> Line:
        """Return its name, and how far it is."""
        run, rank = self.run, self.run.rank
        epoch, left = rank.epoch(), run.seconds_left(self.now)
        parts = [
            run.status,
            f"step {rank.step or 0}" + (f" of {rank.num_steps}" if rank.num_steps else ""),
            f"epoch {epoch:.2f}" if epoch is not None else "",
            f"{duration(left)} left" if left is not None else "",
        ]
        which = f" ({self.place[0]} of {self.place[1]})" if self.place is not None else ""
        room = self.width - len(f" run {which}  ") - 1
        if len(run.name) > room - len(_words(parts)):
            parts[2] = ""
        state = _words(parts)
        color = {"running": "good", COMPLETE: "strong"}.get(run.status, "warn")
        name = f" run {middle(run.name, max(8, room - len(state)))}{which}"
        return apart(
            [outside(name, cell_len(name), "heading", "run")], [Span(state + " ", color, "run")], self.width
        )

    def graphs(self, rows: int) -> list[Line]:
        """Loss and throughput (or the chosen metric) side by side, the newest step on the right."""
        gauges, (losses, chosen) = self.run.rank.gauges, self._windows
        gauge, name = gauges.get("training_samples_per_second"), "samples/s"
        if self.metric != SPEED:
            name = middle(self.metric, max(8, self._half // 2))
            gauge = (float(chosen.last[-1]), int(chosen.x_last[-1])) if chosen else None
        return beside(
            [
                self._losses(losses, gauges.get("training_loss"), rows),
                self._graph(name, gauge, *_line(chosen), rows, "speed"),
            ]
        )

    def axis(self) -> Line:
        """Return the steps at the ends of the graphs."""
        if self._steps is None:
            return []
        (first, last), (left, each) = self._steps, self._columns(self._steps)
        ends = (left, left + each * (self._half // 2))
        known = [f"{step}" if step >= first else "" for step in ends]
        one = axis(known[0], known[1], f"step {last}", self._half, "loss")
        return [*one, *one]

    def numbers(self) -> Line:
        """Return the numbers of the last step."""
        gauges = self.run.rank.gauges
        known = [f"{label} {gauges[metric][0]:.4g}" for label, metric in NUMBERS.items() if metric in gauges]
        return [Span(f" {'  '.join(known) or 'no step is recorded yet'}", "", "run")]

    def alert(self) -> Line:
        """Return the newest alert that fires, and how many others do."""
        others = self.run.num_firing - 1
        more = f"  (+{others})" if others > 0 else ""
        text = middle(str(self.run.alert), max(8, self.width - 3 - len(more)))
        return [outside(f" ! {text}{more}", self.width, "bad")]

    @property
    def _half(self) -> int:
        return max(1, self.width // 2 - 2)

    @cached_property
    def _windows(self) -> tuple[Window, Window]:
        """Losses, and throughput or what was chosen."""
        return self.run.window("train_loss"), self.run.window(self.metric)

    @property
    def _steps(self) -> tuple[int, int] | None:
        """The first and the last step of the graphs."""
        known = [window for window in self._windows if window]
        if not known:
            return None
        return int(min(window.x[0] for window in known)), int(max(window.x_last[-1] for window in known))

    def _columns(self, steps: tuple[int, int]) -> tuple[int, int]:
        """Return the step that the left end of a graph stands for, and how many steps a column does.

        Whole numbers of steps since the first one, so that columns stay as they are while steps come.
        """
        first, last = steps
        each = max(1, math.ceil((last - first + 1) / self._half))
        return first + each * ((last - first) // each - self._half + 1), each

    def _by_step(self, steps: Sequence[float], values: Sequence[float | None]) -> list[float | None]:
        if self._steps is None:
            return []
        left, each = self._columns(self._steps)
        part = (steps, [math.nan if value is None else value for value in values])
        return columns([part], left, each, self._half)

    def _losses(self, losses: Window, gauge: tuple[float, int] | None, rows: int) -> list[Line]:
        steps, values = _line(losses)
        is_log = is_log_better(values) if self.log_loss is None else self.log_loss
        return self._graph("loss", gauge, steps, values, rows, "loss", is_log=is_log)

    def _graph(
        self,
        name: str,
        gauge: tuple[float, int] | None,
        steps: Sequence[float],
        values: Sequence[float | None],
        rows: int,
        style: str,
        *,
        is_log: bool = False,
    ) -> list[Line]:
        known = [value for value in values if value is not None and (value > 0 or not is_log)]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        heading = name if gauge is None else f"{name} {figure(gauge[0], 4)}"
        heading += f" ({figure(low, 3)}–{figure(high, 3)}{', log' if is_log else ''})" if known else ""
        if is_log and known:
            values, low, high = logarithms(values), math.log10(low), math.log10(high)
        top = high if high > low else low + 1.0
        return graph(heading, self._by_step(steps, values), self._half, rows, low, top, style, style)


def _line(window: Window) -> tuple[list[float], list[float | None]]:
    """Steps and values of a graph: of a bucket its lowest and its highest value; None is not finite."""
    steps: list[float] = []
    values: list[float | None] = []
    for x, x_last, low, high in zip(window.x, window.x_last, window.min, window.max, strict=True):
        found = {x: low, x_last: high}
        steps += found
        values += [value if value == value else None for value in found.values()]
    return steps, values


def _words(parts: Sequence[str]) -> str:
    return "  ".join(part for part in parts if part)
