"""The live view: a table on a real terminal, plain lines off it."""

from __future__ import annotations

import io
import os
import re
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from kharness.matrix.launchers import Guarded
from kharness.matrix.running.execute import ActiveRun
from kharness.matrix.running.progress import MatrixProgress
from kharness.matrix.running.table import duration
from kharness.runs.launch import Exit, Job, JobStart, JobState, Launch, Slot

from ....terminal import Terminal
from ....waiting import wait_until
from ..conftest import Checkout

HANGING = ("CONFIG_BEHAVIOR=hang", "CONFIG_NUM_STEPS=120")
AXES = "CONFIG_MATRIX_AXES=SEED=1|2|3|4|5|6|7|8|9|10|11|12"

OnTerminal = Callable[..., AbstractContextManager[Terminal]]


@pytest.fixture
def on_terminal(checkout: Checkout) -> OnTerminal:
    @contextmanager
    def start(*arguments: str, columns: int = 100, rows: int = 24, **env: str) -> Iterator[Terminal]:
        environment = {**os.environ, "TERM": "xterm-256color", **env}
        master, slave = os.openpty()
        termios.tcsetwinsize(master, (rows, columns))
        ends = {"stdin": slave, "stdout": slave, "stderr": slave}
        process = checkout.start("test_matrix", *arguments, env=environment, leads=True, **ends)
        name = os.ttyname(slave)
        os.close(slave)
        try:
            yield Terminal(master, process, columns, rows, name=name)
        finally:
            process.kill()
            process.wait()
            os.close(master)

    return start


def running(lines: list[str]) -> list[str]:
    """The rows of the table with a step in them."""
    return [line for line in lines if re.match(r"seed-\d+ +1/120", line)]


def test_a_table_shows_the_running_ones_over_the_totals(on_terminal: OnTerminal) -> None:
    with on_terminal("JOBS=3", *HANGING, AXES) as terminal:
        total = "0/12 done  3 running  9 waiting"
        lines = terminal.read_until(lambda lines: len(running(lines)) == 3 and lines[-1] == total)
        table = lines[lines.index(running(lines)[0]) - 1 :]
        assert re.fullmatch(r"cell +step +loss +ETA +steps/s +on", table[0]), table
        rows = [re.sub(r"(cpu \S+|\d+ threads)$", "PLACE", re.sub(" +", " ", line)) for line in table[1:]]
        assert rows == [
            "seed-1 1/120 1.0100 PLACE",
            "seed-2 1/120 1.0200 PLACE",
            "seed-3 1/120 1.0300 PLACE",
            "0/12 done 3 running 9 waiting",
        ]
        terminal.interrupt()
        lines = terminal.read_to_end()
    # Lines that stay are above; the table is gone; what the trainings print is nowhere.
    everything = "\n".join([*terminal.scrolled, *lines])
    assert re.search(r"\[1/12\] seed-\d: interrupted: stopped on request after step 1 \(", everything)
    assert "steps/s" not in everything
    assert "training with" not in terminal.raw


def test_speed_and_time_left_come_when_they_are_measured(on_terminal: OnTerminal) -> None:
    slow = ("CONFIG_BEHAVIOR=slow", "CONFIG_NUM_STEPS=100000")
    with on_terminal(*slow, "CONFIG_MATRIX_AXES=SEED=1|2") as terminal:
        time = r"(\d\.\d s|\d+ s|\d+(:\d\d)+)"
        row = rf"seed-1 +\d+/100000 +\d\.\d{{4}} +{time} +[\d.]+( .*)?"
        total = rf"0/2 done  1 running  1 waiting  ETA {time}"
        *_, cell, whole = terminal.read_until(
            lambda lines: bool(lines[1:] and re.fullmatch(row, lines[-2]) and re.fullmatch(total, lines[-1]))
        )
        assert (re.fullmatch(row, cell) is not None, re.fullmatch(total, whole) is not None) == (True, True)


@pytest.mark.parametrize(("columns", "shown"), [(80, "cell step loss ETA steps/s on"), (40, "cell step")])
def test_a_narrow_terminal_gets_fewer_columns(on_terminal: OnTerminal, columns: int, shown: str) -> None:
    with on_terminal("JOBS=2", *HANGING, AXES, columns=columns) as terminal:
        total = "0/12 done  2 running  10 waiting"
        lines = terminal.read_until(lambda lines: len(running(lines)) == 2 and lines[-1] == total)
        header = lines[lines.index(running(lines)[0]) - 1]
        assert header.split() == shown.split()
        assert max(map(len, lines[lines.index(header) :])) < columns


def test_what_is_printed_after_a_kill_begins_on_a_line_of_its_own(on_terminal: OnTerminal) -> None:
    """Output after the runner was killed, such as make's message, starts on a new line below the table."""
    with on_terminal("JOBS=2", *HANGING, AXES) as terminal:
        total = "0/12 done  2 running  10 waiting"
        terminal.read_until(lambda lines: len(running(lines)) == 2 and terminal.raw.endswith(f"{total}\r\n"))
        make = os.open(terminal.name, os.O_WRONLY | os.O_NOCTTY)
        terminal.process.kill()
        terminal.process.wait()
        os.write(make, b"make: *** Killed\n")
        lines = terminal.read_until(lambda lines: "Killed" in lines[-1])
        os.close(make)
    assert lines[-2:] == [total, "make: *** Killed"]


def test_more_cells_than_rows_never_scroll(on_terminal: OnTerminal) -> None:
    with on_terminal("JOBS=12", *HANGING, AXES, rows=10) as terminal:
        done = "0/12 done  12 running"
        bottom = ["… and 7 more", done]
        terminal.read_until(
            lambda lines: len(running(lines)) == 5 and lines[-2:] == bottom and terminal.raw.endswith("\r\n")
        )
        before = terminal.scrolled
        # Drawn again for each new width, it stays where it is: no line of it goes out at the top.
        for columns in (90, 80, 70):
            terminal.resize(columns, 10)
            assert len(running(terminal.drawn_again(lambda lines: lines[-2:] == bottom))) == 5
        assert terminal.scrolled == before


def test_a_window_that_is_resized_gets_a_table_that_fits(on_terminal: OnTerminal) -> None:
    with on_terminal("JOBS=2", *HANGING, AXES) as terminal:
        total = "0/12 done  2 running  10 waiting"
        terminal.read_until(lambda lines: len(running(lines)) == 2 and lines[-1] == total)
        terminal.resize(60, 24)
        lines = terminal.drawn_again(lambda lines: lines[-1] == total)
        assert [line.split() for line in lines if line.startswith("cell ")] == [
            ["cell", "step", "loss", "ETA"]
        ]
        assert len(running(lines)) == 2


def test_matrix_gets_on_while_its_terminal_takes_nothing(checkout: Checkout, on_terminal: OnTerminal) -> None:
    axes = "CONFIG_MATRIX_AXES=SEED=1|2|3"
    with on_terminal("CONFIG_BEHAVIOR=slow", "CONFIG_NUM_STEPS=60", axes) as terminal:
        terminal.read_until(lambda lines: "0/3 done  1 running  2 waiting" in lines[-1:])
        terminal.hold()  # Ctrl-S
        wait_until(lambda: list(checkout.statuses().values()) == ["complete"] * 3)
        assert "[3/3]" not in terminal.read_what_is_there()
        terminal.hold(False)
        assert "[3/3] seed-3: complete: 60 steps in " in "\n".join(terminal.read_to_end())


def test_a_terminal_that_cannot_move_its_cursor_gets_lines_that_fit(on_terminal: OnTerminal) -> None:
    with on_terminal("CONFIG_MATRIX_AXES=SEED=1", TERM="dumb", columns=60) as terminal:
        terminal.read_to_end()
    assert "\x1b" not in terminal.raw
    assert "[1/1] seed-1\r\n" in terminal.raw
    assert [line for line in terminal.raw.split("\r\n") if len(line) > 60 and " " in line.strip()] == []
    assert "\r\nno room for " in terminal.raw


def test_a_file_gets_no_line_a_step_and_no_control_characters(checkout: Checkout) -> None:
    _, output = checkout.run(
        "test_matrix", "CONFIG_MATRIX_AXES=SEED=1|2", "CONFIG_BEHAVIOR=slow", "CONFIG_NUM_STEPS=60"
    )
    assert "\r" not in output
    assert "\x1b" not in output
    assert " step 1" not in output


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (65, "1:05"), (3599.9, "1:00:00"), (7325, "2:02:05")],
)
def test_durations_as_people_read_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


class Queueing:
    """A scheduler that has started the runs whose name begins with `begun`."""

    name = "queueing"

    def submit(self, launch: Launch, slot: Slot) -> Job:
        return Job(self.name, launch.name, "", None, time.time())

    def state(self, job: Job) -> JobState:
        starts = [JobStart("7", 0, "node1", time.time(), 0)] if job.id.startswith("begun") else []
        return JobState(not starts, "" if starts else "Priority", starts)

    def adopt(self, launch: Launch, job: Job) -> None:
        raise NotImplementedError

    def running(self, pairs: Sequence[tuple[Launch, Job]], *, claim: bool) -> dict[str, str]:
        return {}

    def poll(self, job: Job) -> Exit | None:
        return None

    def cancel(self, job: Job, *, kill: bool) -> None:
        """Nothing is ended."""

    def alive(self, job: Job) -> bool:
        return True

    def flush(self) -> bool:
        return True

    def filenos(self) -> Sequence[int]:
        return ()

    def close(self) -> None:
        """Nothing is open."""


def test_a_run_that_waits_in_a_queue_is_not_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kharness.matrix.running.progress.PLAIN_EVERY", 0.0)
    launcher, runs = Guarded(Queueing(), print), []
    for name in ("begun", "a", "b", "c"):
        (tmp_path / name).mkdir()
        launch = Launch(name, tmp_path / name, tmp_path, "m", {})
        runs.append(ActiveRun(launch, launcher, Slot()))
        assert runs[-1].poll() is None
    printed = io.StringIO()
    progress = MatrixProgress(printed, 6, expected={"a": 60.0})
    progress.update(runs, 2)
    progress.update(runs[1:], 2)
    assert printed.getvalue().splitlines() == [
        "0/6 done  1 running  5 waiting  begun starting  a queued: Priority  b queued: Priority",
        "0/6 done  0 running  5 waiting  a queued: Priority  b queued: Priority  c queued: Priority",
    ]
