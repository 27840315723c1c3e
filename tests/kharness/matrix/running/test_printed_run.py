"""A terminal shows a single training as lines above a bar, and never blocks it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TextIO, cast

import pytest

from kharness.matrix.running.journal_bar import JournalBar
from kharness.matrix.running.printed_run import ENDING, PrintedRun
from kharness.matrix.running.signals import Signals
from kharness.matrix.running.unblocked import Unblocked
from kharness.runs.journal_tail import end_offset
from monitoring import Run

from ....few_digits import environment_of
from ....terminal import Terminal
from ....waiting import wait_until
from ....warm_python import WarmPython
from ..conftest import Checkout, status

# What differs each time is left out.
TIMES = re.compile(r"\|[^|]*\| (\d+/\d+) \[[^,]*,[^,\]]*,? ?([^\]]*)\].*")


@contextmanager
def terminal_of(
    python: WarmPython, command: list[str], *, cwd: Path, environment: dict[str, str]
) -> Iterator[Terminal]:
    master, slave = os.openpty()
    termios.tcsetwinsize(master, (40, 200))
    ends = {"stdin": slave, "stdout": slave, "stderr": slave}
    environment = {**environment, "TERM": "xterm-256color"}
    process = python.start(command, cwd=cwd, env=environment, leads=True, **ends)
    name = os.ttyname(slave)
    os.close(slave)
    try:
        yield Terminal(master, process, 200, 40, name=name)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_make_train_shows_the_bar_of_each_epoch(
    few_digits: Path, tmp_path: Path, warm_few: WarmPython
) -> None:
    given = ["CONFIG_TRACKER_RUN_NAME=shown", "CONFIG_NUM_EPOCHS=2", "CONFIG_DATASET=few-digits"]
    command = ["scripts/train.py", f"O={tmp_path}", *given, "CONFIG_BATCH_SIZE=36", "CONFIG_DEVICE=cpu"]
    environment = environment_of(few_digits)
    with terminal_of(warm_few, command, cwd=few_digits, environment=environment) as terminal:
        lines = [TIMES.sub(r" \1", line) for line in terminal.read_to_end()]
        assert terminal.process.wait() == 0, lines
    printed = (tmp_path / "results/shown/output.log").read_text()
    assert not set(printed) & {"\r", "\x1b", "█"}
    expected = printed.splitlines()
    first = lines.index(expected[0])
    assert lines[first : first + len(expected)] == expected
    assert lines[first - 2 : first] == [
        "configuration: lenet5, preset default; BATCH_SIZE=36 DATASET=few-digits",
        "  DEVICE=cpu",
    ]


def test_training_ends_on_a_terminal_that_takes_nothing(checkout: Checkout, warm_python: WarmPython) -> None:
    """After Ctrl-S nothing is shown, a request to stop reaches the training, and its end is noted."""
    script = str(checkout.root / "scripts/train.py")
    command = [script, "CONFIG_TRACKER_RUN_NAME=mine", "CONFIG_BEHAVIOR=held"]
    with terminal_of(warm_python, command, cwd=checkout.root, environment=dict(os.environ)) as shown:
        [bar] = [line for line in shown.read_until(has_bar) if line.startswith("Training:")]
        assert TIMES.sub(r" \1", bar) == "Training:  33% 1/3"
        shown.hold()
        os.kill(shown.process.pid, signal.SIGTERM)
        run = checkout.root / "results/mine"
        wait_until(lambda: json.loads((run / "status.json").read_text())["status"] == "interrupted")
        assert "SIGTERM" not in shown.read_what_is_there()
        shown.hold(False)
        lines = shown.read_to_end()
        assert shown.process.wait() == 75
    assert status(run)["attempts"][0]["cause"] == "stopped"
    assert not [line for line in lines if line.startswith("Training:")]
    asked = "SIGTERM: stopping after the current step, with everything saved; a second one kills at once"
    assert [line for line in lines if line in (asked, "saving")] == [asked, "saving"]
    assert (run / "output.log").read_text().splitlines()[-1] == "saving"


def has_bar(lines: list[str]) -> bool:
    return any(line.startswith("Training:") and line.endswith("]") for line in lines)


@contextmanager
def training(
    directory: Path, *, resumed_from: dict[str, object] | None = None, **about: int
) -> Iterator[tuple[Run, Callable[[], str]]]:
    """A run that has begun, and the bar of it as it stands after what was recorded."""
    run = Run(directory, name="r", project="p", config={"LOG_LEVEL": "info"}, agent=False)
    with run, open(os.devnull, "w", encoding="utf-8") as stream:
        bar = JournalBar(directory, stream, since=end_offset(directory))
        run.start(model={"name": "m"}, training=about, resumed_from=resumed_from)

        def drawn() -> str:
            bar.read()
            return place(bar.line())

        yield run, drawn


def test_lines_of_the_runner_are_as_wide_as_the_terminal(tmp_path: Path) -> None:
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 30))
    with open(slave, "w") as terminal, PrintedRun(tmp_path, terminal, signals=Signals()) as view:
        view.say("SIGINT: stopping after the current step")
    with open(master, "rb", buffering=0) as shown:
        assert shown.read(4096) == b"SIGINT: stopping after the\r\n  current step\r\n"


@contextmanager
def shown_run(
    directory: Path, monkeypatch: pytest.MonkeyPatch, signals: Signals
) -> Iterator[tuple[PrintedRun, Callable[[], bytes]]]:
    """A run on a terminal, and what that has shown since it was asked before."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("kharness.matrix.running.printed_run.SHORT", 0.0)
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 100))
    os.set_blocking(master, False)

    def seen() -> bytes:
        with suppress(BlockingIOError):
            return os.read(master, 4096)
        return b""

    with open(slave, "w") as terminal:
        view = PrintedRun(directory, terminal, starting="starting: data is read", signals=signals)
        yield view, seen
    os.close(master)


def test_a_terminal_shows_what_is_done_until_the_training_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shown_run(tmp_path, monkeypatch, Signals()) as (view, seen):
        with view:
            view.look()
            waits = seen()
            (tmp_path / "output.log").write_text("training\n")
            view.look()
            prints = seen()
        ends = seen()
    assert (waits, prints, ends) == (b"starting: data is read\r\n", b"\r\x1b[A\x1b[Jtraining\r\n", b"")


def test_a_terminal_shows_that_a_process_has_not_ended_with_its_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shown_run(tmp_path, monkeypatch, Signals()) as (view, seen):

        def is_ending() -> bool:
            view.look()
            return seen() == f"{ENDING}\r\n".encode()

        with view:
            with training(tmp_path, num_steps=1) as (run, _):
                run.log_step(1, train_loss=2.5)
                run.finish(steps_done=1)
            (tmp_path / "output.log").write_text("test_loss 0.1\n")
            view.look()
            prints = seen()
            monkeypatch.setattr("kharness.matrix.running.printed_run.LONG", 0.0)
            monkeypatch.setattr("kharness.matrix.running.printed_run.DRAW_EVERY", 0.0)
            wait_until(is_ending, "its line")
        assert (prints, seen()) == (b"test_loss 0.1\r\n", b"\r\x1b[A\x1b[J")


def test_nothing_is_said_of_the_start_where_the_output_is_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kharness.matrix.running.printed_run.SHORT", 0.0)
    with (
        (tmp_path / "shown").open("w+") as stream,
        PrintedRun(tmp_path, stream, starting="starting: data is read", signals=Signals()) as view,
    ):
        view.look()
    assert (tmp_path / "shown").read_text() == ""


def test_the_bar_is_a_whole_line_whoever_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner, which can clear nothing then, or the training."""
    with shown_run(tmp_path, monkeypatch, Signals()) as (view, seen):
        with view, training(tmp_path, num_steps=3) as (run, _):
            run.log_step(1, train_loss=2.5)
            view.look()
            bar = seen()
        end = seen()
    assert (bar.startswith(b"Training:  33%"), bar.endswith(b"]\r\n"), end) == (True, True, b"")


@pytest.mark.parametrize(
    ("stops", "shown"),
    [
        ([signal.SIGINT], "a\nstopped before the first step\nb\n"),
        ([], "a\n\nSIGTERM: stopping after this step\n\nSIGTERM: stopped before the first step\nb\n"),
    ],
)
def test_a_request_that_the_runner_passed_on_is_said_once(
    tmp_path: Path, stops: list[int], shown: str
) -> None:
    signals = Signals()
    signals.stops = stops
    with (tmp_path / "shown").open("w+") as stream, PrintedRun(tmp_path, stream, signals=signals) as view:
        text = "a\n\nSIGTERM: stopping after this step\n\nSIGTERM: stopped before the first step\nb\n"
        (tmp_path / "output.log").write_text(text)
        view.look()
    assert (tmp_path / "shown").read_text() == shown


def test_bar_is_where_the_journal_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    with training(tmp_path, num_steps=6, num_epochs=2, steps_per_epoch=3) as (run, drawn):
        assert drawn() == ""
        run.log_step(2, train_loss=2.5, lr=0.125)
        assert drawn() == "Epoch 1/2:  67% 2/3 loss=2.5000, lr=0.125"
        run.log_step(3, train_loss=1.5)
        run.log_epoch(1, global_step=3, train_loss=2.0)
        assert drawn() == ""
        run.log_step(4, train_loss=1.25)
        assert drawn() == "Epoch 2/2:  33% 1/3 loss=1.2500"
        run.log_epoch(2, global_step=6, train_loss=1.0)
        run.finish()
        assert drawn() == ""


def test_training_without_epochs_has_one_bar_of_its_steps(tmp_path: Path) -> None:
    with training(tmp_path, num_steps=8, num_epochs=0, steps_per_epoch=3) as (run, drawn):
        run.log_step(4, train_loss=2.5)
        run.log_epoch(1, global_step=3, train_loss=2.0)
        assert drawn() == "Training:  50% 4/8 loss=2.5000"
        run.log_step(8, train_loss=1.5)
        run.log_epoch(3, global_step=8, train_loss=2.0)
        assert drawn() == ""


def test_bar_ends_with_the_last_step_that_is_trained(tmp_path: Path) -> None:
    with training(tmp_path / "one", num_steps=2, num_epochs=3, steps_per_epoch=4) as (run, drawn):
        run.log_step(1, train_loss=2.5)
        assert drawn() == "Training:  50% 1/2 loss=2.5000"
    with training(tmp_path / "two", num_steps=7, num_epochs=3, steps_per_epoch=4) as (run, drawn):
        run.log_step(4, train_loss=2.5)
        run.log_epoch(1, global_step=4, train_loss=2.0)
        run.log_step(6, train_loss=1.5)
        assert drawn() == "Epoch 2/2:  67% 2/3 loss=1.5000"


def test_resumed_training_goes_on_in_its_epoch(tmp_path: Path) -> None:
    resumed = {"checkpoint": "c", "attempt": 1, "global_step": 4, "journal_seq": 1}
    about = {"num_steps": 6, "num_epochs": 2, "steps_per_epoch": 3}
    with training(tmp_path, resumed_from=resumed, **about) as (run, drawn):
        assert drawn() == ""
        run.log_step(5, train_loss=1.0)
        assert drawn() == "Epoch 2/2:  67% 2/3 loss=1.0000"


def place(line: str) -> str:
    return TIMES.sub(r" \1 \2", line)


def test_reader_of_a_pipe_that_sleeps_is_not_waited_for() -> None:
    """And it gets all of it once it reads."""
    text = b"".join(b"%d\n" % number for number in range(50_000))  # more than a pipe holds
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        os.kill(reader.pid, signal.SIGSTOP)
        output = Unblocked(as_text(reader.stdin))
        output.write(text)
        output.flush()
        assert not output.is_free
        os.kill(reader.pid, signal.SIGCONT)
        found = os.read(reading(reader.stdout), 1)
        while len(found) < len(text):
            output.flush()
            found += os.read(reading(reader.stdout), 1 << 16)
        assert (found, output.is_free) == (text, True)


def as_text(pipe: IO[bytes] | None) -> TextIO:
    assert pipe is not None
    return cast(TextIO, open(pipe.fileno(), "w", encoding="utf-8", closefd=False))


def reading(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return pipe.fileno()
