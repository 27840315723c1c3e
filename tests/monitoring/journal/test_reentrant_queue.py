"""Several threads, signal handlers and forks that log at once: every record once, in one order."""

from __future__ import annotations

import contextlib
import dis
import gc
import logging
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import orjson
import pytest
import torch

from monitoring import Record, Run, read_records
from monitoring.agent.follow import catch_up
from monitoring.bridge.hook.sitecustomize import CallRecorder
from monitoring.gpu_monitor import GPUMonitor, TrainingMonitorCallback
from monitoring.gpu_monitor.metrics_log import MetricsLog
from monitoring.journal.alerts import Alerts
from monitoring.journal.structured_log import JsonLog
from monitoring.telemetry.measurements import Measurements

from ...warm_python import WarmPython

if TYPE_CHECKING:
    from _typeshed import TraceFunction

EACH = 2000


@pytest.fixture(autouse=True)
def many_switches() -> object:
    """Threads take turns far more often than usual, so that few records are enough."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def at_once(number: int, work: Callable[[int], None]) -> None:
    """Call `work(0)`, `work(1)` … on a thread each, begun together."""
    begin = threading.Barrier(number)

    def run(index: int) -> None:
        begin.wait()
        work(index)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def open_run(directory: Path) -> Run:
    return Run(directory, name="n", project="p", config={}, agent=False)


def journal(directory: Path) -> list[Record]:
    return [record for record, _ in read_records(directory / "metrics.jsonl")]


@pytest.mark.parametrize("number", [2, 8])
def test_threads_lose_no_record_in_any_file(tmp_path: Path, number: int) -> None:
    each = EACH * 2 // number
    with open_run(tmp_path) as run:
        run.log_step(0)

        def log(index: int) -> None:
            for i in range(1, each + 1):
                step = index * each + i
                if i % 10:
                    run.log_step(step, thread=index)
                else:
                    run.log_eval(step, split="val", thread=index)

        at_once(number, log)
    *steps, end = journal(tmp_path)
    assert [record["seq"] for record in (*steps, end)] == list(range(1, number * each + 3))
    assert sorted(int(str(record["global_step"])) for record in steps) == list(range(number * each + 1))
    for index in range(number):
        own = [record["global_step"] for record in steps if record.get("thread") == index]
        assert own == list(range(index * each + 1, (index + 1) * each + 1))
    catch_up(tmp_path)
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    assert [int(row.split(",")[0]) for row in rows[1:]] == list(range(1, number * each + 3))


def test_run_ended_by_one_thread_has_one_end_record_and_it_is_the_last(tmp_path: Path) -> None:
    run = open_run(tmp_path)

    def log(index: int) -> None:
        for step in range(200):
            run.log_step(step)
        run.finish("interrupted")

    at_once(4, log)
    records = journal(tmp_path)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert [record["event"] for record in records].index("end") == len(records) - 1


def test_threads_lose_no_line_of_a_monitor_a_log_or_an_alert(tmp_path: Path) -> None:
    monitor = GPUMonitor(log_dir=tmp_path, root=tmp_path, quiet=True)
    callback = TrainingMonitorCallback(monitor)
    callback.on_train_begin()
    messages = MetricsLog(tmp_path, "messages", "20250730_123456")
    logger = logging.Logger("test")
    logger.addHandler(JsonLog(messages.append, "c0ffee"))
    alerts = Alerts(tmp_path)

    def log(index: int) -> None:
        for i in range(300):
            callback.on_step_end(step=index * 300 + i, loss=0.5)
            logger.info("line %d", index * 300 + i)
            messages.append({"direct": index * 300 + i})
            alerts.add("rule", "info", f"{index * 300 + i}")

    at_once(4, log)
    callback.on_train_end()
    messages.close()
    alerts.close()
    [path] = tmp_path.glob("training_metrics_*.jsonl")
    everything = list(range(1200))
    assert sorted(orjson.loads(line)["step"] for line in path.read_bytes().splitlines()) == everything
    lines = [orjson.loads(line) for line in messages.path.read_bytes().splitlines()]
    assert sorted(line["direct"] for line in lines if "direct" in line) == everything
    assert sorted(int(line["message"].split()[1]) for line in lines if "message" in line) == everything
    found = [record for record, _ in read_records(tmp_path / "alerts.jsonl")]
    assert [record["seq"] for record in found] == list(range(1, 1201))
    assert sorted(int(str(record["message"])) for record in found) == everything


HANDLER = """
import signal, sys
from pathlib import Path
from monitoring import Run
run = Run(Path(sys.argv[1]), name="n", project="p", config={}, agent=False)
told = 0
def handle(number, frame):
    global told
    told += 1
    run.log_eval(told, split="test", handled=[None])
    signal.setitimer(signal.ITIMER_REAL, 0.0002)  # only now: a slow core would do nothing else
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0002)
step = 0
while told < 300:
    step += 1
    run.log_step(step, a=0.5) if step % 2 else run.log_step(step, a=1j)
signal.signal(signal.SIGALRM, signal.SIG_IGN)  # not setitimer(0): a pending one sets it again
run.finish(steps=step, told=told)
"""

ENDS_IN_A_HANDLER = """
import signal, sys
from pathlib import Path
from monitoring import Run
step = 0
def handle(number, frame):
    run.log_eval(step, split="val")
    raise SystemExit(3)
signal.signal(signal.SIGALRM, handle)
with Run(Path(sys.argv[1]), name="n", project="p", config={}, agent=False) as run:
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
    while True:
        step += 1
        run.log_step(step, a=0.5)
"""

FINISHES_IN_A_HANDLER = ENDS_IN_A_HANDLER.replace(
    'run.log_eval(step, split="val")', 'run.finish("interrupted")'
)


def in_a_process(program: str, *arguments: object) -> int:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, timeout=600, check=False).returncode


def test_signal_handler_that_logs_in_the_middle_of_a_call_loses_nothing(tmp_path: Path) -> None:
    assert in_a_process(HANDLER, tmp_path) == 0
    *records, end = journal(tmp_path)
    assert [record["seq"] for record in (*records, end)] == list(range(1, len(records) + 2))
    steps = [record["global_step"] for record in records if record["event"] == "step"]
    evaluations = [int(str(record["global_step"])) for record in records if record["event"] == "eval"]
    assert steps == list(range(1, int(str(end["steps"])) + 1))
    assert sorted(evaluations) == list(range(1, int(str(end["told"])) + 1))


@pytest.mark.parametrize("seconds", [0.005, 0.0113, 0.0127])
def test_signal_handler_that_logs_and_raises_leaves_whole_lines(tmp_path: Path, seconds: float) -> None:
    assert in_a_process(ENDS_IN_A_HANDLER, tmp_path / "raises", seconds) == 3
    assert in_a_process(FINISHES_IN_A_HANDLER, tmp_path / "finishes", seconds) == 3
    for name, kinds in (("raises", ["eval", "end"]), ("finishes", ["end"])):
        assert (tmp_path / name / "metrics.jsonl").read_bytes().endswith(b"}\n")
        records = journal(tmp_path / name)
        assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
        assert [r["event"] for r in records if r["event"] != "step"] == kinds


RAISES = """
import signal, sys
from pathlib import Path
import torch
from monitoring import Run
told = step = 0
def handle(number, frame):
    global told
    told += 1
    if told < 300:
        signal.setitimer(signal.ITIMER_REAL, 0.0002)  # only now: a slow core would do nothing else
    raise ERROR
signal.signal(signal.SIGALRM, handle)
run = Run(Path(sys.argv[1]), name="n", project="p", config={}, agent=False)
loss = torch.tensor(0.5)
def log():
    global step
    while told < 300:
        try:
            step += 1
            run.log_step(step, a=0.5) if step % 2 else run.log_step(step, a=loss)
        except ERROR:
            pass
while told < 300:
    try:
        if not told:
            signal.setitimer(signal.ITIMER_REAL, 0.0002)
        log()
    except ERROR:  # of a signal that came before the one above, or after it
        pass
"""


@pytest.mark.parametrize("error", ["TypeError", "OSError", "RuntimeError"])
def test_signal_handler_that_raises_what_a_value_or_the_disk_does_doubles_nothing(
    tmp_path: Path, warm_torch: WarmPython, error: str
) -> None:
    warm_torch.run(["-c", RAISES.replace("ERROR", error), tmp_path])
    records = journal(tmp_path)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    steps = [int(str(record["global_step"])) for record in records]
    assert steps == sorted(set(steps))
    assert {record["a"] for record in records} == {0.5}


def raise_at(call: Callable[[], None], after: int, error: type[BaseException]) -> int:
    """Raise an error in a call, at the n-th place where CPython runs signal handlers.

    Returns how many places are left. They are where functions begin, where calls return and the jumps back.
    """
    left = after
    before: dict[FrameType, str] = {}

    def handler(frame: FrameType, event: str, argument: object) -> TraceFunction:
        nonlocal left
        frame.f_trace_opcodes = True
        if str(frame.f_globals.get("__name__")).startswith("monitoring."):
            last = before.get(frame, "")
            before[frame] = "" if event == "call" else dis.opname[frame.f_code.co_code[frame.f_lasti]]
            # a jump back is interrupted before it is taken, where CPython may have left it out of a `try`
            jumps = before[frame].startswith("JUMP_BACKWARD")
            if event == "call" or (event == "opcode" and (jumps or last.startswith("CALL"))):
                left -= 1
                if left == 0:
                    raise error
        return handler

    gc.disable()  # what another test has left is not collected here: its finalizers would swallow the error
    sys.settrace(handler)
    try:
        call()
    finally:
        sys.settrace(None)
        gc.enable()
    return left


@pytest.mark.parametrize("value", [0.5, torch.tensor(0.5), math.nan])
@pytest.mark.parametrize("error", [TypeError, TimeoutError, RuntimeError, RecursionError])
def test_what_a_signal_handler_raises_reaches_the_training_from_wherever_it_comes(
    tmp_path: Path, value: object, error: type[Exception]
) -> None:
    run = open_run(tmp_path)
    run.log_step(0, a=value)
    step, left = 0, 0
    while left <= 0:  # 0: it was raised, and taken for an error of the value or the disk
        step += 1
        try:
            left = raise_at(lambda: run.log_step(step, a=value), step, error)  # noqa: B023
            assert left, f"swallowed at place {step}"
        except error:
            pass
    records = journal(tmp_path)
    steps = [int(str(record["global_step"])) for record in records]
    assert (steps[0], steps[-1], steps) == (0, step, sorted(set(steps)))
    assert [record["seq"] for record in records] == list(range(1, len(steps) + 1))
    assert {record["a"] for record in records} == {None if value != value else 0.5}


def raise_everywhere(call: Callable[[], None], error: type[BaseException] = TimeoutError) -> None:
    """Call again and again: an error is raised at the first such place, at the second, up to the last."""
    call()  # the first call may do more, and the places of the others are the same
    place, left = 0, 0
    while left <= 0:
        place += 1
        with contextlib.suppress(error):
            left = raise_at(call, place, error)


def test_what_a_signal_handler_raises_in_the_work_of_once_per_second_leaves_it_to_any_thread(
    tmp_path: Path,
) -> None:
    run = open_run(tmp_path)

    def look_and_log() -> None:
        run._hot.next_look = 0.0
        run.log_step(1, a=0.5)

    raise_everywhere(look_and_log)
    free: list[bool] = []
    at_once(1, lambda _: free.append(run._looking.acquire(blocking=False)))
    assert free == [True]


def test_what_a_signal_handler_raises_among_measurements_stops_none_after_it() -> None:
    measured = Measurements()

    def measure() -> None:
        measured.add(1.0)
        measured.take_in()

    raise_everywhere(measure)
    measured.add(2.0)
    assert (measured.statistics()["max"], measured.waiting) == (2.0, [])


def test_what_a_signal_handler_raises_in_a_recorded_call_ends_no_recording(tmp_path: Path) -> None:
    called: list[int] = []
    log = CallRecorder(str(tmp_path)).recorded("x", called.append, lambda step: (step, {"a": step}))
    raise_everywhere(lambda: log(1), KeyboardInterrupt)
    log(2)
    (spool,) = tmp_path.iterdir()
    last = orjson.loads(spool.read_bytes().splitlines()[-1])
    assert (called[-1], last["step"], last["values"]) == (2, 2, {"a": 2})


def test_what_a_signal_handler_raises_in_the_log_of_a_monitor_reaches_the_training(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, "log", "x")
    step, left = 0, 0
    while left <= 0:
        step += 1
        try:
            left = raise_at(lambda: log.append({"step": step}), step, TimeoutError)  # noqa: B023
            assert left, f"swallowed at place {step}"
        except TimeoutError:
            pass
    log.close()
    steps = [orjson.loads(line)["step"] for line in log.path.read_bytes().splitlines()]
    assert (steps[-1], steps, step > 10) == (step, sorted(set(steps)), True)


FORKS_WHILE_ANOTHER_LOGS = """
import os, sys, threading
from pathlib import Path
from monitoring import Run
from monitoring.gpu_monitor.metrics_log import MetricsLog
sys.setswitchinterval(1e-6)
with Run(Path(sys.argv[1]), name="n", project="p", config={}, agent=False) as run:
    log = MetricsLog(Path(sys.argv[1]), "log", "x")
    stop = threading.Event()
    def busy():
        while not stop.is_set():
            run.log_step(1)
            log.append({"a": 1})
    thread = threading.Thread(target=busy)
    thread.start()
    for i in range(20):
        run.log_step(2)
        child = os.fork()
        if child == 0:
            run.log_step(3)
            log.append({"a": 2})
            run.finish()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    thread.join()
"""


def test_forked_child_never_waits_for_a_thread_that_it_does_not_have(tmp_path: Path) -> None:
    assert in_a_process(FORKS_WHILE_ANOTHER_LOGS, tmp_path) == 0
    *steps, end = journal(tmp_path)
    assert [record["seq"] for record in (*steps, end)] == list(range(1, len(steps) + 2))
    assert {record["global_step"] for record in steps} == {1, 2}
