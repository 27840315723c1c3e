"""Output of a training: kept for its log file, never a reason to stop, with a bar on a terminal."""

from __future__ import annotations

import logging
import math
import os
import select
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO, cast

from kharness.config.options import Options
from kharness.config.output import lasting_text
from kharness.runs.bar_line import CLEAR, DRAW_EVERY, PACES, Bars, bar_line, can_have_bar
from monitoring.errors import UserError
from monitoring.journal.records import LAST_BYTES, parse

# Packages that do not follow the root logger but a variable that they read when they are imported.
HAVE_VERBOSITY = ("TRANSFORMERS", "DATASETS", "HF_HUB")


@contextmanager
def lasting_output() -> Iterator[KeptOutput]:
    """Within it, printing never fails: what cannot be written is dropped.

    The terminal may be closed, the reader of a pipe be gone (`… | head`), the disk below output.log be full:
    the journal has all that counts, and the training continues and ends as it would have.
    """
    before, kept = sys.stdout, KeptOutput()
    sys.stdout = kept.of(lasting_text(before, drop_all=True))
    # It stays: the line that says why a training ended comes after this block.
    sys.stderr = kept.of(sys.stderr)
    try:
        yield kept
    except (SystemExit, KeyboardInterrupt, UserError):
        raise
    except BaseException:
        kept.add(traceback.format_exc())
        raise
    finally:
        sys.stdout.flush()
        sys.stdout = before


class KeptOutput:
    """Printed output, held until the run directory is known, then written to a file in it."""

    def __init__(self) -> None:
        self._text: list[str] | None = []
        self._path: Path | None = None

    def of(self, stream: TextIO) -> TextIO:
        """A stream that prints to another one, and here."""
        return cast(TextIO, _Heard(stream, self.add)) if stream is not None else stream

    def keep_in(self, path: Path) -> None:
        """Append what was printed so far to a file, and all that follows."""
        text, self._text, self._path = self._text or [], None, path
        self.add("".join(text))

    def drop(self) -> None:
        """Somebody else keeps it."""
        self._text = self._path = None

    def add(self, text: str) -> None:
        """Take a text; never raises."""
        if self._text is not None:
            self._text.append(text)
        elif self._path is not None and text:
            # On a full disk the journal has all that counts.
            with suppress(OSError), self._path.open("ab", buffering=0) as file:
                file.write(text.encode(errors="backslashreplace"))


class _Heard:
    """A stream, of whose texts something hears before they are printed."""

    def __init__(self, shown: TextIO, hear: Callable[[str], None]) -> None:
        self.shown = shown
        """The stream that progress bars draw on; the file gets no bars."""
        self._hear = hear

    def write(self, text: str) -> int:
        self._hear(text)
        return self.shown.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shown, name)


@contextmanager
def printing(options: Options) -> Iterator[None]:
    """Within it, LOG_LEVEL says whether there is standard output, and from here on DEP_LOG_LEVEL what else.

    DRY_RUN and INSPECT_STEP print what they are for, at any level.
    """
    set_dependencies_level(options.DEP_LOG_LEVEL or "warning")
    if (options.LOG_LEVEL or "info") == "info" or options.DRY_RUN or options.INSPECT_STEP:
        yield
        return
    with nothing_printed():
        yield


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Within it, standard output goes nowhere."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


def set_dependencies_level(level: str) -> None:
    """Set the log level of dependencies: `debug`, `info`, `warning` or `error`."""
    if level == "warning":  # theirs, by default: what somebody has set by TORCH_LOGS stays
        return
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=number)
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and "." not in name and logger.level:
            logger.setLevel(number)
    logging.captureWarnings(True)
    for package in HAVE_VERBOSITY:
        os.environ.setdefault(f"{package}_VERBOSITY", level)


class NoBar:
    """The bar where there is no terminal: none. Lines alone are printed there."""

    @contextmanager
    def shown(self) -> Iterator[None]:
        yield

    def step(self, step: int) -> None: ...

    def end_epoch(self, step: int) -> None: ...


class EpochBar(NoBar):
    """Drawn within `shown`; a step costs a look at the clock, and what is printed takes the bar's line.

    Loss, learning rate and throughput are those that the journal has of the last step with a record: they are
    on this side of a GPU, which nothing waits for.
    """

    def __init__(self, stream: TextIO, journal: Path, bars: Bars, *, step: int) -> None:
        """Show a training of these bars; `step` steps are done."""
        self._stream, self._journal, self._bars = stream, journal, bars
        self._initial = step % bars.steps_per_epoch if bars.num_epochs else step
        self._drawn = False
        self._began = self._now = 0.0
        self._next = math.inf  # a single step that is checked is not shown

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw from now on, and leave a clean line in the end."""
        before = sys.stdout, sys.stderr
        sys.stdout = cast(TextIO, _Heard(sys.stdout, self.clear))
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr = cast(TextIO, _Heard(sys.stderr, self.clear))
        self._began = self._now = time.monotonic()
        self._next = self._began + DRAW_EVERY
        try:
            yield
        finally:
            self.clear()
            sys.stdout, sys.stderr = before

    def step(self, step: int) -> None:
        """After a step."""
        self._now = now = time.monotonic()
        if now >= self._next:
            self._next = now + DRAW_EVERY
            # After Ctrl-S, say, a terminal takes nothing: no step waits for it.
            if select.select([], [self._stream], [], 0)[1]:
                self._draw(step)

    def end_epoch(self, step: int) -> None:
        """After the last step of an epoch and its evaluation: its line takes the bar's place."""
        if self._bars.num_epochs or step == self._bars.num_steps:
            self.clear()
            self._initial, self._began = 0, time.monotonic()

    def clear(self, text: str = "") -> None:
        """Make room for a text."""
        if self._drawn:
            self._drawn = False
            self._write(CLEAR)

    def _draw(self, step: int) -> None:
        place, record = self._bars.after(step), _last_step(self._journal)
        seconds = max(0.0, self._now - self._began)
        line = bar_line(self._stream, place, initial=self._initial, seconds=seconds, record=record)
        self._write(f"{CLEAR}{line}")
        self._drawn = True

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def open_bar(journal: Path, bars: Bars, *, step: int) -> NoBar:
    """A bar where standard output is a terminal that can move its cursor, and tqdm is there."""
    stream = getattr(sys.stdout, "shown", sys.stdout)
    return EpochBar(stream, journal, bars, step=step) if can_have_bar(stream) else NoBar()


def metrics_line(metrics: Mapping[str, float]) -> str:
    """Metrics as a line of a terminal has them."""
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def epoch_block(journal: Path, *, loss: float | None, learning_rate: float, epoch: float) -> str:
    """Return a training's last numbers as trainers print their logs, with the newest pace."""
    record = _last_step(journal)
    pace = next((name for name in PACES if record.get(name) is not None), None)
    values = {
        "loss": None if loss is None else round(loss, 4),
        "learning_rate": float(f"{learning_rate:.4g}"),
        "epoch": round(epoch, 2),
        **({pace: float(f"{record[pace]:.1f}")} if pace else {}),
    }
    return "\n".join(["{", *(f"    {name!r}: {value!r}," for name, value in values.items()), "}"])


def _last_step(journal: Path) -> Mapping[str, object]:
    """The last step record, empty if the end of the journal has none."""
    try:
        with journal.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return {}
    steps = (line for line in reversed(lines) if line.startswith(b'{"event":"step"'))
    return next((record for record in map(parse, steps) if record is not None), {})
