"""Trainers and agents that are killed at any moment: nothing is lost, nothing is doubled.

Trainers and agents here are real processes; what they did is read from their files.
"""

from __future__ import annotations

import csv
import fcntl
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

import orjson
import psutil
import pytest

from monitoring import Run
from monitoring.agent.follow import catch_up, undelivered
from monitoring.agent.lock import death, is_followed
from monitoring.agent.progress import DeliveryProgress, ProgressFile, read_progress
from monitoring.errors import RunBusyError, RunDirectoryError, UnknownFollower
from monitoring.journal.records import Record, points, read_records

from ...processes import is_gone, kill_process
from ...waiting import wait_until
from ...warm_python import StartedPython, WarmPython
from ..conftest import agent_of, wait_for_delivery

MOMENTS = 20

DIED = "its agent has died; agent.log has its last words"
KILLED = "its agent has died: killed by SIGKILL; agent.log has its last words"

# Logs steps FIRST .. LAST and tells each on stdout after its call has returned; then finishes, or waits. One
# that `awaits` goes on from the half of its steps when RUN.go is there.
TRAINER = """
import os, sys, time
from pathlib import Path
from monitoring import Run
directory, first, last, pause, agent, end = sys.argv[1:]
run = Run(Path(directory), name="n", project="p", config={}, agent=agent == "agent")
run.start(model={"name": "m"}, training={"num_steps": int(last)})
for step in range(int(first), int(last) + 1):
    run.log_step(step, train_loss=1 / step, lr=1e-3 * step, grad_norm=None)
    if step % 50 == 0:
        run.log_eval(step, split="val", **{f"metric_{step // 500}": step})
    os.write(1, b"%d\\n" % step)
    time.sleep(float(pause))
    while end == "awaits" and step == int(last) // 2 and not Path(f"{directory}.go").exists():
        time.sleep(0.01)
if end == "wait":
    time.sleep(600)
run.finish(steps_done=int(last))
"""


class Start(Protocol):
    """Starts a trainer of a run."""

    def __call__(
        self,
        directory: Path,
        first: int,
        last: int,
        *,
        pause: float = 0.0,
        agent: bool = True,
        end: str = "finish",
    ) -> StartedPython: ...


@pytest.fixture
def trainer(warm_monitoring: WarmPython) -> Start:
    def start(
        directory: Path, first: int, last: int, *, pause: float = 0.0, agent: bool = True, end: str = "finish"
    ) -> StartedPython:
        arguments = [directory, first, last, pause, "agent" if agent else "alone", end]
        with _told(directory).open("wb") as stdout:
            return warm_monitoring.start(["-c", TRAINER, *arguments], stdout=stdout)

    return start


def told(directory: Path) -> int:
    """The last step that the newest trainer told to have logged."""
    lines = _told(directory).read_bytes().splitlines()
    return int(lines[-1]) if lines else 0


def _told(directory: Path) -> Path:
    return directory.with_suffix(".told")


def kill(process: StartedPython) -> None:
    process.kill()
    process.wait()


def journal(directory: Path) -> list[Record]:
    return [record for record, _ in read_records(directory / "metrics.jsonl")]


def steps(directory: Path) -> list[int]:
    return [int(str(record["global_step"])) for record in journal(directory) if record["event"] == "step"]


def events(directory: Path) -> list[object]:
    return [record["event"] for record in journal(directory)]


def alerts(directory: Path) -> list[object]:
    return [record["message"] for record, _ in read_records(directory / "alerts.jsonl")]


def assert_csv_is_the_journal(directory: Path) -> None:
    """One row a record, in order, with exactly its points."""
    envelope = ("seq", "attempt", "event", "time", "global_step")
    with (directory / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["seq"]) for row in rows] == [record["seq"] for record in journal(directory)]
    for row, record in zip(rows, journal(directory), strict=True):
        texts = {name for name, value in record.items() if isinstance(value, str)}
        cells = {name: cell for name, cell in row.items() if cell and name not in envelope}
        assert {name: float(cell) for name, cell in cells.items() if name not in texts} == points(record)
        assert row["global_step"] == str(record.get("global_step", ""))


def test_trainer_killed_at_any_moment_loses_no_step_that_it_has_logged(run_dir: Path, trainer: Start) -> None:
    """One run, killed and taken up again at 20 moments, its agents handing over to each other."""
    moments = random.Random(1)
    last = 0
    for _ in range(MOMENTS):
        process = trainer(run_dir, last + 1, 10**9)
        if moments.random() < 0.8:  # else while it starts
            wait_until(lambda: told(run_dir), "the first step")
        time.sleep(moments.random() * 0.1)
        kill(process)
        last = max(last, told(run_dir))
        written = steps(run_dir)
        assert written == list(range(1, len(written) + 1))
        assert len(written) - last in (0, 1)  # at most the one whose call had not returned
        last = len(written)
    assert trainer(run_dir, last + 1, last + 10).wait(600) == 0
    wait_for_delivery(run_dir)
    seqs = [int(str(record["seq"])) for record in journal(run_dir)]
    assert seqs == list(range(1, len(seqs) + 1))
    attempts = [record["attempt"] for record in journal(run_dir) if record["event"] == "start"]
    assert attempts == list(range(1, len(attempts) + 1))
    assert_csv_is_the_journal(run_dir)


def test_agent_killed_at_any_moment_is_made_up_for_by_the_next(
    run_dir: Path, trainer: Start, warm_monitoring: WarmPython
) -> None:
    """One run, and agents of which 20 are killed, from their first moment on."""
    moments = random.Random(2)
    process = trainer(run_dir, 1, 10**9, pause=0.0005, agent=False)
    wait_until(lambda: (run_dir / "metrics.jsonl").exists() and journal(run_dir), "the first record")
    for _ in range(MOMENTS):
        agent = warm_monitoring.start(["-m", "monitoring.agent", run_dir])
        time.sleep(0.05 + moments.random() * 0.4)
        kill(agent)
    kill(process)
    last = warm_monitoring.run(["-m", "monitoring.agent", run_dir], timeout=600)
    assert last.returncode == 0
    assert len(steps(run_dir)) - told(run_dir) in (0, 1)
    assert undelivered(run_dir) == {}
    assert_csv_is_the_journal(run_dir)
    gone = "the training process is gone and wrote no end record"
    assert [one for one in alerts(run_dir) if one != DIED] == [gone]
    assert 0 < alerts(run_dir).count(DIED) <= MOMENTS


@pytest.mark.slow
def test_agent_killed_at_any_moment_is_started_again_by_its_run(tmp_path: Path, trainer: Start) -> None:
    """20 runs, four at a time; each loses its agent once, and trains on as if nothing had been."""
    moments = random.Random(3)
    for wave in range(MOMENTS // 4):
        directories = [tmp_path / f"run{wave}{i}" for i in range(4)]
        runs = [trainer(directory, 1, 260, pause=0.005, end="awaits") for directory in directories]
        for directory in directories:
            agent = agent_of(directory)
            time.sleep(moments.random() * 0.3)
            kill_process(agent)
            directory.with_suffix(".go").touch()
        for directory, run in zip(directories, runs, strict=True):
            assert run.wait(600) == 0
            wait_for_delivery(directory)
            assert steps(directory) == list(range(1, 261))
            assert_csv_is_the_journal(directory)
            assert set(alerts(directory)) <= {DIED, KILLED}


def test_agent_that_dies_before_the_end_is_started_again_by_finish(run_dir: Path, trainer: Start) -> None:
    process = trainer(run_dir, 1, 30, end="awaits")
    agent = agent_of(run_dir)
    kill_process(agent)
    wait_until(lambda: is_gone(agent), "its end")
    run_dir.with_suffix(".go").touch()
    assert process.wait(600) == 0
    wait_for_delivery(run_dir)
    assert_csv_is_the_journal(run_dir)
    assert alerts(run_dir) == [KILLED]


def test_agent_of_a_killed_trainer_delivers_the_rest_and_says_so(run_dir: Path, trainer: Start) -> None:
    process = trainer(run_dir, 1, 100, end="wait")
    wait_until((run_dir / "metrics.csv").exists, "the first row")
    kill(process)
    wait_for_delivery(run_dir)
    assert_csv_is_the_journal(run_dir)
    assert alerts(run_dir) == ["the training process is gone and wrote no end record"]


def test_ctrl_c_in_the_terminal_does_not_end_the_agent(run_dir: Path, trainer: Start) -> None:
    process = trainer(run_dir, 1, 100, end="wait")
    wait_until((run_dir / "followers.json").exists, "the agent's first look")
    agent = agent_of(run_dir)
    assert os.getsid(agent.pid) == agent.pid
    agent.send_signal(signal.SIGINT)
    agent.send_signal(signal.SIGHUP)
    kill(process)
    wait_for_delivery(run_dir)
    assert_csv_is_the_journal(run_dir)


def test_sigterm_ends_the_agent_when_it_has_delivered_what_there_is(
    run_dir: Path, trainer: Start, warm_monitoring: WarmPython
) -> None:
    process = trainer(run_dir, 1, 100, agent=False, end="wait")
    wait_until(lambda: (run_dir / "run.json").exists() and len(steps(run_dir)) == 100, "100 steps")
    agent = warm_monitoring.start(["-m", "monitoring.agent", run_dir])
    wait_until((run_dir / "followers.json").exists, "the agent's first look")
    agent.terminate()
    assert agent.wait(600) == 0
    assert_csv_is_the_journal(run_dir)
    kill(process)


def test_two_agents_of_one_run_work_one_after_the_other(
    run_dir: Path, trainer: Start, warm_monitoring: WarmPython
) -> None:
    process = trainer(run_dir, 1, 200, pause=0.005, agent=False)
    wait_until((run_dir / "run.json").exists, "the run")
    agents = [warm_monitoring.start(["-m", "monitoring.agent", run_dir]) for _ in range(3)]
    assert process.wait(600) == 0
    assert [agent.wait(600) for agent in agents] == [0, 0, 0]
    assert_csv_is_the_journal(run_dir)


def test_catch_up_after_trainer_and_agent_were_killed_delivers_everything(
    run_dir: Path, trainer: Start
) -> None:
    process = trainer(run_dir, 1, 3000, agent=False, end="wait")
    wait_until(lambda: (run_dir / "run.json").exists() and len(steps(run_dir)) == 3000, "3000 steps")
    kill(process)
    assert undelivered(run_dir) == {"csv": len(journal(run_dir))}
    [delivery] = catch_up(run_dir)
    assert (delivery.name, delivery.delivered, delivery.error) == ("csv", len(journal(run_dir)), None)
    assert undelivered(run_dir) == {}
    assert_csv_is_the_journal(run_dir)
    assert [delivery.delivered for delivery in catch_up(run_dir)] == [0]


def test_catch_up_rebuilds_a_csv_that_was_deleted(run_dir: Path, trainer: Start) -> None:
    assert trainer(run_dir, 1, 50, agent=False).wait(600) == 0
    catch_up(run_dir)
    (run_dir / "metrics.csv").unlink()
    catch_up(run_dir)
    assert_csv_is_the_journal(run_dir)


def test_catch_up_refuses_what_cannot_work(run_dir: Path, tmp_path: Path, trainer: Start) -> None:
    with pytest.raises(RunDirectoryError, match="is not a run directory"):
        catch_up(tmp_path)
    assert trainer(run_dir, 1, 5, agent=False).wait(600) == 0
    with pytest.raises(UnknownFollower, match="unknown tracker 'wand'"):
        catch_up(run_dir, {"wand": {}})
    with (run_dir / ".agent.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_followed(run_dir)
        with pytest.raises(RunBusyError, match="is being followed by its agent"):
            catch_up(run_dir)
    assert not is_followed(run_dir)


def test_follower_that_fails_holds_up_no_other_and_catches_up(run_dir: Path, trainer: Start) -> None:
    """A directory in the place of metrics.csv stands for any sink that cannot be opened for a while."""
    (run_dir / "metrics.csv").mkdir(parents=True)
    process = trainer(run_dir, 1, 100, agent=True, end="wait")
    wait_until(lambda: (run_dir / "alerts.jsonl").exists() and alerts(run_dir), "the alert")
    (run_dir / "metrics.csv").rmdir()
    wait_until(lambda: len(alerts(run_dir)) == 2, "the recovery")
    kill(process)
    wait_for_delivery(run_dir)
    path = run_dir / "metrics.csv"
    assert alerts(run_dir) == [
        f"csv: IsADirectoryError: [Errno 21] Is a directory: '{path}'; it is tried again",
        "csv: takes records again",
        "the training process is gone and wrote no end record",
    ]
    assert_csv_is_the_journal(run_dir)


def test_agent_on_a_full_disk_catches_up_when_there_is_room(run_dir: Path, trainer: Start) -> None:
    """RLIMIT_FSIZE, which a process can lift from another, stands for the disk."""
    process = trainer(run_dir, 1, 2000, agent=False, end="wait")
    wait_until(lambda: (run_dir / "run.json").exists() and len(steps(run_dir)) == 2000, "2000 steps")
    agent = psutil.Popen(
        [sys.executable, "-m", "monitoring.agent", run_dir],
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY)),
    )
    wait_until(lambda: (run_dir / "alerts.jsonl").exists() and alerts(run_dir), "the alert")
    agent.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
    kill(process)
    assert agent.wait(600) == 0
    assert_csv_is_the_journal(run_dir)
    assert alerts(run_dir)[0] == "csv: OSError: [Errno 27] File too large; it is tried again"


def test_followers_json_that_is_wrong_doubles_and_loses_nothing(run_dir: Path, trainer: Start) -> None:
    assert trainer(run_dir, 1, 50, agent=False).wait(600) == 0
    catch_up(run_dir)
    whole = (run_dir / "metrics.csv").read_bytes()
    rows = whole.splitlines(keepends=True)
    right = orjson.loads((run_dir / "followers.json").read_bytes())["csv"]
    for saved in (b"", b"{", b"[]", orjson.dumps({"csv": {**right, "offset": 0, "seq": 0}})):
        (run_dir / "followers.json").write_bytes(saved)
        (run_dir / "metrics.csv").write_bytes(b"".join(rows[:20]))
        catch_up(run_dir)
        assert (run_dir / "metrics.csv").read_bytes() == whole


def test_followers_json_is_written_seldom_for_places_and_promptly_for_failures(tmp_path: Path) -> None:
    saved = ProgressFile(tmp_path)
    saved.update({"csv": DeliveryProgress(seq=1)})
    assert read_progress(tmp_path) == {"csv": DeliveryProgress(seq=1)}
    saved.update({"csv": DeliveryProgress(seq=2)})
    assert read_progress(tmp_path) == {"csv": DeliveryProgress(seq=1)}
    failed = {"csv": DeliveryProgress(seq=2, error="csv: OSError")}
    saved.update(failed)
    assert read_progress(tmp_path) == failed
    saved.close({"csv": DeliveryProgress(seq=3)})
    assert read_progress(tmp_path) == {"csv": DeliveryProgress(seq=3)}


def test_gpu_monitor_without_a_gpu_is_an_alert(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        monkeypatch.setenv(variable, "")
    with Run(run_dir, name="r", project="p", config={}, gpu_monitor=True):
        pass
    wait_for_delivery(run_dir)
    [told] = map(str, alerts(run_dir))
    # on a machine with GPUs it also says that none of them is selected
    assert re.sub(r": none of \d+ \w+ GPUs is selected", "", told) == (
        "GPU_MONITOR=y, but there is no GPU; gpu_stats.jsonl is not written"
    )
    assert not (run_dir / "gpu_stats.jsonl").exists()


def test_agent_command_says_what_it_is_for_and_what_is_wrong(tmp_path: Path) -> None:
    def command(*arguments: object) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "monitoring.agent", *map(str, arguments)], capture_output=True, text=True
        )
        return done.returncode, done.stdout, done.stderr

    code, out, _ = command("--help")
    assert (code, out.splitlines()[0]) == (0, "usage: python -m monitoring.agent [-h] RUN_DIR")
    assert command(tmp_path) == (
        2,
        "",
        f"error: {tmp_path} is not a run directory: it has no run.json\n"
        "hint: name a directory that a training wrote, such as results/RUN\n",
    )


def test_an_agent_that_ended_with_its_job_has_not_died_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler starts a job again, and its agent was of the start before."""
    assert death() == DIED
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert death().startswith("its agent was ended with its job, which has been started again")
    assert death("killed by SIGKILL") == KILLED
