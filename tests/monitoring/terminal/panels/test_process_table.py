"""The table of processes: columns, order and filter; and what a person may do to a process."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitoring.host.process import process_started, sees_all_pids
from monitoring.host.process_facts import ProcessFacts, user_name
from monitoring.terminal.app import Dashboard
from monitoring.terminal.panels.process_table import COLUMNS, ProcessChoice, gpu_process, process_table
from monitoring.terminal.process_list import SignalQuestion, question

from ..test_app import LARGE, SMALL, gpu, gpu_record, look, training, write

needs_pids = pytest.mark.skipif(not sees_all_pids(), reason="this container has process numbers of its own")

FACTS = {
    11: ProcessFacts(11, 1.0, "alice", 150.0, 3725.0, 2048.0, "python train.py --lr 0.1"),
    12: ProcessFacts(12, 2.0, "bob", None, 59.0, 10.0, None),
}

SAMPLES = [
    gpu(
        0,
        processes=[
            {"pid": 11, "name": "python", "memory_mb": 100.0, "sm_percent": 70.0},
            {"pid": 12, "name": "jupyter", "memory_mb": 300.0, "sm_percent": None},
        ],
    ),
    gpu(1, processes=[{"pid": 13, "name": None, "memory_mb": None}]),
]


def shown(choice: ProcessChoice, width: int = 80, own: int | None = None) -> list[str]:
    table = process_table(SAMPLES, choice, FACTS, own)
    return ["".join(span.text for span in line).rstrip() for line in table.lines(width, 9)]


def test_what_is_shown_of_processes() -> None:
    assert shown(ProcessChoice(), own=11) == [
        " gpu      pid user     GPU MiB▾  SM%  CPU%    time  RES MiB command",
        "   0       12 bob           300    –     –     59s       10 jupyter",
        "   0       11 alice         100   70   150 1:02:05     2048 (this run) python tr",
        "   1       13 –               –    –     –       –        – –",
    ]


@pytest.mark.parametrize(
    ("sort", "pids"),
    [
        *(("gpu", [11, 12, 13]), ("pid", [11, 12, 13]), ("user", [11, 12, 13]), ("memory", [12, 11, 13])),
        *(("sm", [11, 12, 13]), ("cpu", [11, 12, 13]), ("time", [11, 12, 13]), ("host", [11, 12, 13])),
        ("command", [12, 11, 13]),
    ],
)
def test_processes_are_sorted_by_every_column(sort: str, pids: list[int]) -> None:
    assert [it.pid for it in process_table(SAMPLES, ProcessChoice(sort), FACTS).processes] == pids
    inverted = process_table(SAMPLES, ProcessChoice(sort, inverted=True), FACTS).processes
    keys = [key for it in inverted if (key := COLUMNS[sort].key(it)) is not None]
    falls = not COLUMNS[sort].largest_first
    assert keys == sorted(keys, reverse=falls)


@pytest.mark.parametrize(("text", "pids"), [("ALICE", [11]), ("12", [12]), ("--lr", [11]), ("nobody", [])])
def test_filter_is_by_user_pid_and_command(text: str, pids: list[int]) -> None:
    assert [it.pid for it in process_table(SAMPLES, ProcessChoice(filter=text), FACTS).processes] == pids


def test_filter_and_what_it_leaves_out_are_in_the_heading() -> None:
    assert shown(ProcessChoice(filter="nobody"), 100) == [
        " gpu      pid user     GPU MiB▾  SM%  CPU%    time  RES MiB command /nobody 0 of 3",
        " no process matches the filter",
    ]


# ----------------------------------------------------------------- on this machine


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def here(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> Path:
    """A run that records this machine's GPU, with two processes on it."""
    run = training(tmp_path / "run")
    pids = [sleeper.pid, os.getpid()]
    processes = [{"pid": pid, "name": "x", "memory_mb": 10.0 * pid, "sm_percent": 5.0} for pid in pids]
    record = gpu_record([gpu(0, processes=processes)], 1, time.time())
    write(run / "gpu_stats.jsonl", {**record, "host": platform.node()})
    return run


def rows(lines: list[str]) -> list[str]:
    [heading] = [place for place, line in enumerate(lines) if line.startswith(" gpu      pid user ")]
    return [line for line in lines[heading + 1 : heading + 3] if line.startswith("   0 ")]


@needs_pids
def test_processes_of_this_machine_have_user_time_and_command(here: Path) -> None:
    user = user_name(os.getuid())
    [row] = rows(look(Dashboard(run=here), LARGE, "/", *"sleep 1000", "enter"))
    assert row.split()[2] == (user if len(user) <= 8 else f"{user[:7]}+")
    assert row.endswith(" sleep 1000")


@needs_pids
@pytest.mark.parametrize(("answer", "ended"), [("y", True), ("n", False), ("enter", False)])
def test_signal_goes_out_after_a_question_alone(
    here: Path, sleeper: subprocess.Popen[bytes], answer: str, ended: bool
) -> None:
    app, pid = Dashboard(run=here), sleeper.pid
    asked: list[str] = []

    def reply() -> None:
        asked.append("".join(span.text for span in app.picture(*SMALL)[-1]).rstrip())
        app._processes.answer(answer)

    shown = look(app, SMALL, "/", *"sleep 1000", "enter", "j", "T", then=reply)
    assert asked == [f" send SIGTERM to pid {pid} of {user_name(os.getuid())} (sleep 1000)? y/N"]
    if ended:
        assert sleeper.wait() == -signal.SIGTERM
        assert shown[-1].endswith(f" sent SIGTERM to pid {pid}")
    else:
        assert sleeper.poll() is None
        assert shown[-1].endswith(f" not sent: SIGTERM to pid {pid}")


@needs_pids
def test_pid_that_became_another_process_gets_no_signal(sleeper: subprocess.Popen[bytes]) -> None:
    started = process_started(sleeper.pid)
    assert started is not None
    asked = SignalQuestion(signal.SIGTERM, sleeper.pid, started - 1, "me", "sleep")
    assert asked.send() == f"not sent: pid {sleeper.pid} has ended"
    assert sleeper.poll() is None


@needs_pids
@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_signal_that_is_refused_says_why(sleeper: subprocess.Popen[bytes]) -> None:
    """In another process, which gives up its rights."""
    code = f"""
import os, signal
from monitoring.host.process import process_started
from monitoring.terminal.process_list import SignalQuestion
asked = SignalQuestion(signal.SIGTERM, {sleeper.pid}, process_started({sleeper.pid}), "root", "sleep")
os.setuid(65534)
print(asked.send())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (f"not sent: SIGTERM to pid {sleeper.pid} of root: operation not permitted\n")


def test_process_elsewhere_or_unseen_gets_no_question() -> None:
    process = gpu_process(0, {"pid": 11, "name": "x"}, FACTS)
    unseen = gpu_process(0, {"pid": 13, "name": "x"}, FACTS)
    assert question(process, signal.SIGTERM, "far") == "pid 11 runs on far: no signal goes there"
    if sees_all_pids():
        assert question(unseen, signal.SIGTERM, None) == "pid 13 cannot be seen here: no signal is sent"


def test_signal_needs_a_selected_process(here: Path) -> None:
    assert look(Dashboard(run=here), LARGE, "K")[-1].endswith(
        " select a process first, with j and k or a click"
    )


def test_keys_sort_invert_and_unselect(here: Path) -> None:
    app = Dashboard(run=here)
    look(app, SMALL, ">", "i", "j", "/", "z", "backspace", "x", "enter")
    assert app.choice == ProcessChoice("sm", inverted=True, filter="x", selected=app.choice.selected)
    assert app.choice.selected is not None
    app.press("escape")
    assert app.choice == ProcessChoice("sm", inverted=True, filter="x")
    app.press("escape")
    assert app.choice == ProcessChoice("sm", inverted=True)
