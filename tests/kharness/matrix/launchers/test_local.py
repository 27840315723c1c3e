"""The local launcher from outside: real scripts, real signals, real deaths."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from kharness.matrix.launchers import STARTS_NO_SERVERS, Guarded, _forking, open_launcher
from kharness.runs.errors import MatrixError
from kharness.runs.launch import Exit, Job, Slot
from monitoring.host.process import process_started

from ....waiting import wait_until
from ....warm_python import WarmPython
from .conftest import OpenRuns, Runs

HANG = "import time\nprint('up', flush=True)\ntime.sleep(600)"
# A signal that comes just before a sleep has its handler called when the sleep is over, so these are short.
STOPS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
print("up", flush=True)
while True:
    time.sleep(0.01)
"""
WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
if "wait" in sys.argv:
    time.sleep(600)
"""

InAFork = Callable[[Callable[[OpenRuns], None]], str]


def pid_of(job: Job) -> int:
    assert job.pid is not None
    return job.pid


def gone(pid: int) -> bool:
    return process_started(pid) is None


def fork_server_of(pid: int, runner: int) -> psutil.Process:
    """The process between a forked run and its runner."""
    found = psutil.Process(pid).parent()
    assert found is not None
    assert (found.pid != runner, found.ppid()) == (True, runner)
    return found


def test_many_short_runs_end_with_their_own_exit_codes(forked: Runs) -> None:
    """Each is reported by waitpid itself; multiprocessing's fork server got 49 of 200 wrong.

    That it would get none of 64 wrong has a chance of one in sixty million.
    """
    expected, found, waiting = [], [], []
    for number in range(64):
        expected.append(number)
        waiting.append(forked.start(f"import sys; sys.exit({number})"))
        if len(waiting) == 8:
            found.append(forked.end(waiting.pop(0)).exit_code)
    found += [forked.end(job).exit_code for job in waiting]
    assert found == expected


def test_the_end_of_a_forked_run_can_be_waited_for(forked: Runs) -> None:
    job = forked.start("pass")
    while (ended := forked.launcher.poll(job)) is None:
        assert select.select(forked.launcher.filenos(), [], [], 600)[0] != []
    assert ended.exit_code == 0


def test_what_a_run_leaves_in_its_group_is_killed(runs: Runs) -> None:
    ended, output = runs.run(WITH_CHILD)
    assert ended.exit_code == 0
    wait_until(lambda: gone(int(output)))


def test_a_request_to_stop_reaches_the_script_only(runs: Runs) -> None:
    job = runs.start(STOPS)
    wait_until(lambda: runs.output() == "up\n")
    runs.launcher.cancel(job, kill=False)
    assert replace(runs.end(job), ended=0) == Exit(75, None, 0)


def test_a_kill_takes_the_whole_group(runs: Runs) -> None:
    job = runs.start(WITH_CHILD, "wait")
    wait_until(lambda: runs.output().endswith("\n"))
    runs.launcher.cancel(job, kill=True)
    assert replace(runs.end(job), ended=0) == Exit(None, signal.SIGKILL, 0)
    wait_until(lambda: gone(int(runs.output())))


def test_a_run_that_cannot_start_is_an_error(runs: Runs) -> None:
    launch = runs.launch("")
    launch.directory.rmdir()
    with pytest.raises(MatrixError, match=f"{launch.name} cannot be started: .*no such file or directory"):
        runs.launcher.submit(launch, Slot())


def test_a_job_is_alive_until_it_has_ended(runs: Runs) -> None:
    job = runs.start(HANG)
    assert runs.launcher.alive(job)
    assert not runs.launcher.alive(replace(job, host="elsewhere"))
    assert not runs.launcher.alive(replace(job, process_started=1.0))
    runs.launcher.cancel(job, kill=True)
    runs.end(job)
    assert not runs.launcher.alive(job)


def test_asking_about_a_job_starts_no_process(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork server imports torch: seconds of a core, for each cell that `make status` asks about."""
    job = runs.start(HANG)
    monkeypatch.setattr(subprocess, "Popen", None)
    with contextlib.closing(open_launcher(job.launcher, STARTS_NO_SERVERS)) as launcher:
        assert launcher.alive(job)
    monkeypatch.undo()
    runs.launcher.cancel(job, kill=True)
    runs.end(job)


def test_closing_ends_all_runs(in_a_fork: InAFork) -> None:
    assert in_a_fork(closing_ends_all_runs) == ""


def closing_ends_all_runs(open_runs: OpenRuns) -> None:
    for fork_server in (True, False):
        runs, said = open_runs(fork_server=fork_server)
        jobs = [runs.start(HANG) for _ in range(3)]
        runs.launcher.close()
        assert [gone(pid_of(job)) for job in jobs] == [True] * 3
        assert said == []


RUNNER = """
import json, sys, time
from pathlib import Path
from kharness.runs.launch import Launch, Slot
from kharness.matrix.launchers import open_launcher

root = Path(sys.argv[1])
launcher = open_launcher("local", {"LAUNCHER_LOCAL_FORK_SERVER": True}, print)
launches = [Launch(name, root / name, root, "model", {}) for name in ("a", "b")]
print(json.dumps([launcher.submit(launch, Slot()).pid for launch in launches]), flush=True)
time.sleep(600)
"""


def test_a_runner_that_is_killed_takes_fork_server_and_runs_along(
    tmp_path: Path, warm_torch: WarmPython
) -> None:
    for name in ("a", "b", "model"):
        (tmp_path / name).mkdir()
    (tmp_path / "model" / "train.py").write_text(HANG)
    runner = warm_torch.start(["-c", RUNNER, tmp_path], stdout=subprocess.PIPE)
    assert runner.stdout is not None
    pids = json.loads(runner.stdout.readline())
    pids.append(fork_server_of(pids[0], runner.pid).pid)
    runner.kill()
    runner.communicate()
    wait_until(lambda: all(map(gone, pids)))


def test_a_lost_fork_server_ends_its_runs_and_another_goes_on(in_a_fork: InAFork) -> None:
    assert in_a_fork(a_lost_fork_server_ends_its_runs_and_another_goes_on) == ""


def a_lost_fork_server_ends_its_runs_and_another_goes_on(open_runs: OpenRuns) -> None:
    runs, said = open_runs()
    jobs = [runs.start(HANG), runs.start(WITH_CHILD, "wait")]
    wait_until(lambda: runs.output().endswith("\n"))
    first = fork_server_of(pid_of(jobs[0]), os.getpid())
    first.kill()
    how = "the process that runs are forked from ended with SIGKILL"
    for job in jobs:
        assert replace(runs.end(job), ended=0) == Exit(None, None, 0, "runner_died", how)
    wait_until(lambda: all(map(gone, [*map(pid_of, jobs), int(runs.output())])))
    ended, _ = runs.run("import sys; sys.exit(9)")
    assert ended.exit_code == 9
    assert said == [f"note: {how}; starting another"]


def test_a_fork_server_that_is_lost_again_and_again_is_done_without(in_a_fork: InAFork) -> None:
    assert in_a_fork(a_fork_server_that_is_lost_again_and_again_is_done_without) == ""


def a_fork_server_that_is_lost_again_and_again_is_done_without(open_runs: OpenRuns) -> None:
    runs, said = open_runs()
    for _ in range(3):
        job = runs.start(HANG)
        fork_server_of(pid_of(job), os.getpid()).kill()
        assert runs.end(job).cause == "runner_died"
    assert runs.run("print(1)")[1] == "1\n"
    assert len(said) == 3
    assert said[2].startswith("note: runs start as fresh processes, which takes longer: the process that")


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        (
            "sitecustomize.py",
            "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
            "the process that has imported torch has 2 threads",
        ),
        (
            "torch.py",
            "raise ImportError('no torch here')",
            "the process that runs are forked from ended with exit code 1: ImportError: no torch here",
        ),
    ],
    ids=["a thread", "no torch"],
)
def test_where_forking_is_not_safe_runs_start_fresh(
    open_runs: OpenRuns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    text: str,
    reason: str,
) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / file).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    runs, said = open_runs()
    for _ in range(2):
        assert runs.run("print('ran')")[1] == "ran\n"
    assert said == [f"note: runs start as fresh processes, which takes longer: {reason}"]


def test_imports_that_take_long_are_told_of(
    open_runs: OpenRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_forking, "QUIET_SECONDS", 0.0)
    go_on = slow_torch(tmp_path / "path", monkeypatch)
    runs, said = open_runs()
    assert isinstance(runs.launcher, Guarded)
    launch = runs.launch("print('ran')")
    assert [runs.launcher.is_ready(launch) for _ in range(3)] == [False, False, False]
    assert said == ["importing torch, which takes longer the first time"]
    go_on.touch()
    wait_until(partial(runs.launcher.is_ready, launch))
    runs.end(runs.launcher.submit(launch, Slot()))
    assert runs.output() == "ran\n"


def slow_torch(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that ends the import of a torch of runs, which then fails."""
    path.mkdir()
    waits = "import os, time\nwhile not os.path.exists({!r}):\n    time.sleep(0.01)\nraise ImportError"
    (path / "torch.py").write_text(waits.format(str(path / "go on")))
    monkeypatch.setenv("PYTHONPATH", str(path))
    return path / "go on"


def test_without_the_fork_servers_runs_start_fresh(
    open_runs: OpenRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No feature depends on their folder: here it is as if it had been deleted."""
    (tmp_path / "path" / "kharness" / "training").mkdir(parents=True)
    for package in ("kharness", "kharness/training"):
        (tmp_path / "path" / package / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    runs, said = open_runs()
    assert runs.run("print('ran')")[1] == "ran\n"
    (note,) = said
    assert note.startswith("note: runs start as fresh processes, which takes longer: ")
    assert note.endswith("No module named 'kharness.training.forkserver')")


def test_variables_that_only_a_fresh_process_reads(
    open_runs: OpenRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    runs, said = open_runs()
    assert runs.run("print('ran')")[1] == "ran\n"
    assert said == [
        "note: runs start as fresh processes, which takes longer: "
        "OMP_PROC_BIND is set, which only a fresh process reads"
    ]


def test_what_a_run_does_is_not_seen_by_the_next(forked: Runs) -> None:
    """Modules, environment and threads that a forked run changes do not reach the next run."""
    busy = "import os, threading, torch\nos.environ['LEFT'] = 'x'\ntorch.left = 1\n"
    busy += "torch.ones(500, 500) @ torch.ones(500, 500)\nfile = open(os.devnull)\n"
    assert forked.run(busy)[0].exit_code == 0
    look = "import os, torch\nprint('LEFT' in os.environ, hasattr(torch, 'left'))"
    assert forked.run(look)[1] == "False False\n"
