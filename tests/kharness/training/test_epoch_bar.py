"""The bar of an epoch on a real terminal, as pyte shows it, and what a training prints without one."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import pyte
import pytest

from kharness.runs.bar_line import Bars
from kharness.training.console import EpochBar, NoBar, open_bar
from monitoring import Run

COLUMNS = 100
TIMES = re.compile(r"\[\d\d:\d\d<[\d:?]+, +[\d.?]+(it/s|s/it)")


@dataclass(frozen=True)
class Terminal:
    """A pseudo-terminal: what is printed within it is on `lines()`."""

    stream: TextIO
    main: int
    screen: pyte.Screen

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        with contextlib.redirect_stdout(self.stream), contextlib.redirect_stderr(self.stream):
            yield
            assert (sys.stdout, sys.stderr) == (self.stream, self.stream)

    def lines(self) -> list[str]:
        """Lines on the terminal, with the times of steps replaced by `[TIME`."""
        mark = f"\x1b]2;{time.monotonic_ns()}\x07"  # a title: the kernel brings it after all before
        self.stream.write(mark)
        self.stream.flush()
        found = b""
        while not found.endswith(mark.encode()):
            found += os.read(self.main, 1 << 16)
        pyte.ByteStream(self.screen).feed(found)
        return [TIMES.sub("[TIME", line).rstrip() for line in self.screen.display if line.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    main, other = os.openpty()
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("TERM", "xterm")
    with open(other, "w", encoding="utf-8") as stream:
        yield Terminal(stream, main, pyte.Screen(COLUMNS, 10))
    os.close(main)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    with Run(tmp_path, name="r", project="p", config={}, agent=False) as run:
        run.log_step(1, train_loss=2.12341, lr=5e-5, samples_per_sec=9.0, tokens_per_second=156.72)
        run.log_eval(1, split="val", val_loss=3.0)
    return tmp_path / "metrics.jsonl"


@contextlib.contextmanager
def shown(
    terminal: Terminal, journal: Path, *, num_epochs: int = 3, num_steps: int = 12
) -> Iterator[EpochBar]:
    """A bar of epochs of four steps."""
    with terminal.attached():
        bars = Bars.of(num_epochs=num_epochs, steps_per_epoch=4, num_steps=num_steps)
        bar = open_bar(journal, bars, step=0)
        assert isinstance(bar, EpochBar)
        with bar.shown():
            yield bar


def test_bar_has_the_place_of_the_epoch_and_what_was_recorded_last(journal: Path, terminal: Terminal) -> None:
    with shown(terminal, journal) as bar:
        for step in range(1, 4):
            bar._next = 0.0  # the time has come
            bar.step(step)
            [line] = terminal.lines()
        assert re.fullmatch(
            r"Epoch 1/3:  75%\|█+[^|]*\| 3/4 \[TIME, loss=2\.1234, lr=5e-05, tokens/s=156\.7\]", line
        )
        print("a line")
        print("a warning", file=sys.stderr)
        assert terminal.lines() == ["a line", "a warning"]
        bar._next = math.inf  # not yet
        bar.step(3)
        assert terminal.lines() == ["a line", "a warning"]
        bar.end_epoch(4)
        print("epoch 1 is over")
        bar._next = 0.0
        bar.step(5)
        *before, last = terminal.lines()
    assert before == ["a line", "a warning", "epoch 1 is over"]
    assert (last[:15], " 1/4 [TIME" in last) == ("Epoch 2/3:  25%", True)
    assert terminal.lines() == before


def test_step_outside_of_a_training_draws_nothing(journal: Path, terminal: Terminal) -> None:
    """`make check-model` takes such a step; its pace would be measured from the clock's zero."""
    with terminal.attached():
        bar = open_bar(journal, Bars(3, 4, 12), step=0)
        bar.step(1)
    assert (type(bar), terminal.lines()) == (EpochBar, [])


def test_training_without_a_number_of_epochs_is_one_bar(tmp_path: Path, terminal: Terminal) -> None:
    with shown(terminal, tmp_path / "no.jsonl", num_epochs=0) as bar:
        bar._next = 0.0
        bar.step(12)
        bar.end_epoch(4)
        [line] = terminal.lines()
        assert (line[:15], line.endswith("12/12 [TIME]")) == ("Training: 100%|", True)
        bar.end_epoch(12)
        assert terminal.lines() == []


@pytest.mark.parametrize(
    ("num_steps", "places"),
    [
        (3, ["Training:  33%  1/3", "Training: 100%  3/3"]),
        (4, ["Epoch 1/1:  25%  1/4", "Epoch 1/1:  75%  3/4", "Epoch 1/1: 100%  4/4"]),
        (6, ["Epoch 1/2:  25%  1/4", "Epoch 1/2: 100%  4/4", "Epoch 2/2:  50%  1/2", "Epoch 2/2: 100%  2/2"]),
    ],
)
def test_bar_ends_with_the_last_step_that_is_trained(
    journal: Path, terminal: Terminal, num_steps: int, places: list[str]
) -> None:
    """MAX_STEPS may come before the end of the epochs, and within one."""
    found = []
    with shown(terminal, journal, num_steps=num_steps) as bar:
        for step in range(1, num_steps + 1):
            bar._next = 0.0
            bar.step(step)
            [line] = terminal.lines()
            found.append(re.sub(r"\|[^|]*\|", " ", line).partition(" [")[0])
            if step % 4 == 0:
                bar.end_epoch(step)
    assert [place for place in places if place in found] == places
    assert found[-1] == places[-1]


@pytest.mark.parametrize(
    ("columns", "values"),
    [(100, ", loss=2.1234, lr=5e-05, tokens/s=156.7]"), (80, ", loss=2.1234, lr=5e-05]"), (50, "]")],
)
def test_value_that_does_not_fit_is_left_out(
    journal: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: int, values: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with shown(terminal, journal) as bar:
        bar._next = 0.0
        bar.step(0)
        [line] = terminal.lines()
    assert line.partition("[TIME")[2] == values


def test_terminal_that_takes_nothing_is_not_waited_for(journal: Path, terminal: Terminal) -> None:
    with shown(terminal, journal) as bar:
        termios.tcflow(terminal.stream.fileno(), termios.TCOOFF)  # Ctrl-S
        bar._next = 0.0
        bar.step(1)
        assert not bar._drawn
        termios.tcflow(terminal.stream.fileno(), termios.TCOON)
        bar._next = 0.0
        bar.step(1)
        assert len(terminal.lines()) == 1


@pytest.mark.parametrize("term", ["dumb", ""])
def test_terminal_that_moves_no_cursor_has_no_bar(
    tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    with terminal.attached():
        bar = open_bar(tmp_path, Bars(0, 4, 1), step=0)
    assert type(bar) is NoBar
    with terminal.attached(), bar.shown():
        bar.step(1)
        bar.end_epoch(1)
    assert terminal.lines() == []
