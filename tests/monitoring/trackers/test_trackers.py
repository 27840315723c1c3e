"""Every tracker has each point of the journal once, through restarts, SIGKILLs and late starts."""

from __future__ import annotations

import contextlib
import csv
import itertools
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monitoring import Run, read_records
from monitoring.agent.follow import catch_up
from monitoring.agent.lock import is_followed
from monitoring.agent.sample_threads.gpu_stats import GpuStats
from monitoring.follower import RunInfo
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.gpu.sample import GpuSample
from monitoring.journal.files import GPU_STATS
from monitoring.trackers import TrackerPoint, journal_points

from ...warm_python import StartedPython, WarmPython
from .conftest import MakeFollowed, new_run

TRACKERS = ["tensorboard", "trackio", "wandb"]

LIVES, STEPS, SAMPLES = 26, 2000, 700

# Seconds within which a delivering process is killed, and the most records it delivers at once.
LIFE = {"tensorboard": (0.015, 20), "trackio": (0.03, 40), "wandb": (0.015, 20)}

# Delivers a run and its GPU samples when it is told to, in portions of random size: so many records, or all.
DELIVER = """
import heapq, random, sys
from pathlib import Path
from typing import Any
from monitoring.journal.files import GPU_STATS, JOURNAL
from monitoring.follower import RunInfo, follower_module, follower_options
from monitoring.journal.records import read_records

run, module = RunInfo.read(Path(sys.argv[1])), follower_module(sys.argv[2])
most, chance, count = int(sys.argv[3]), random.Random(sys.argv[4]), int(sys.argv[5])
records = {journal: [it for it, _ in read_records(run.directory / journal)] for journal in module.JOURNALS}
module.open_follower(run, follower_options(sys.argv[2], {})).close(None)  # so that the packages are imported
print("warm", flush=True)
sys.stdin.readline()
follower = module.open_follower(run, follower_options(sys.argv[2], {}))
held = {journal: follower.last_seq(journal) for journal in records}
lacking = [[it for it in found if it["seq"] > held[journal]] for journal, found in records.items()]
left = list(heapq.merge(*lacking, key=lambda record: record["time"]))
print("delivering", flush=True)
until = len(left) - count if count else 0
while len(left) > until:
    portion = chance.randint(1, most)
    follower.deliver(left[:portion])
    follower.flush()
    del left[:portion]
if count:
    sys.stdin.readline()
follower.close("complete")
"""


def shown(tracker: str, points: list[TrackerPoint]) -> list[TrackerPoint]:
    """The points as the tracker can hold them: TensorBoard's values have 32 bits."""
    if tracker == "tensorboard":
        points = [replace(p, value=struct.unpack("f", struct.pack("f", p.value))[0]) for p in points]
    return sorted(points, key=lambda point: (point.seq, point.metric))


def ordered(points: list[TrackerPoint]) -> list[TrackerPoint]:
    """Points in their order, sorted by metric within a record, whose order no tracker keeps."""
    assert [point.seq for point in points] == sorted(point.seq for point in points)
    return sorted(points, key=lambda point: (point.seq, point.metric))


@pytest.mark.parametrize("tracker", TRACKERS)
def test_tracker_holds_every_point_once_after_a_restart_of_the_run(
    followed: MakeFollowed, tracker: str
) -> None:
    run = followed(tracker)
    run.train(30, status="interrupted")
    assert (run.follow().returncode, run.alerts()) == (0, [])
    run.train(20, first=25)
    assert (run.follow().returncode, run.alerts()) == (0, [])

    assert {point.event for point in run.sent()} == {"step", "eval", "epoch", "end"}
    assert ordered(run.received()) == shown(tracker, run.sent())


@pytest.mark.parametrize("tracker", TRACKERS)
def test_tracker_that_is_added_later_gets_everything(followed: MakeFollowed, tracker: str) -> None:
    run = followed("tensorboard" if tracker == "trackio" else "trackio")
    run.train(10)
    assert run.follow().returncode == 0

    late = replace(run, tracker=tracker)
    deliveries = catch_up(run.directory, {tracker: {}})

    assert [(delivery.name, delivery.error) for delivery in deliveries] == [("csv", None), (tracker, None)]
    assert ordered(late.received()) == shown(tracker, run.sent())


@pytest.mark.parametrize("tracker", TRACKERS)
def test_delivery_loses_and_doubles_nothing_when_killed_at_random_moments(
    followed: MakeFollowed, warm_trackers: WarmPython, tracker: str
) -> None:
    run = followed(tracker)
    began = time.time()
    run.train(STEPS)
    samples = add_gpu_samples(run.directory, began, time.time(), SAMPLES)
    longest, most = LIFE[tracker]
    chance = random.Random(11)
    command = ["-c", DELIVER, run.directory, tracker, most]
    # However late one is killed, there is something left to deliver for the next.
    share = (STEPS + SAMPLES) // (LIVES + 1) - most
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    lives = [*(share for _ in range(LIVES)), 0, 0]
    to_come = iter([*command, life, count] for life, count in enumerate(lives))
    warm = deque(warm_trackers.start(one, **pipes) for one in itertools.islice(to_come, 2))
    for one in to_come:
        warm.append(warm_trackers.start(one, **pipes))
        with warm.popleft() as process:
            begin(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, longest))
            process.kill()
        assert process.returncode == -signal.SIGKILL
    for process in warm:
        with process:
            begin(process)
        assert process.returncode == 0

    received = run.received()
    assert ordered([point for point in received if point.event != "gpu"]) == shown(tracker, run.sent())
    assert ordered([point for point in received if point.event == "gpu"]) == shown(tracker, samples)


def add_gpu_samples(directory: Path, began: float, ended: float, count: int) -> list[TrackerPoint]:
    """Samples between two moments, as the agent writes them; returns what trackers are to hold of them."""
    options, run_id = GpuMonitorOptions(), RunInfo.read(directory).run_id
    stats = GpuStats(directory, options, run_id=run_id, attempt=1, started=began, host="h")
    for number in range(count):
        sample = GpuSample(0, "GPU-0", "simulated", "nvidia", "ok", utilization_percent=number % 101)
        at = began + (ended - began) * number / count
        stats.append([sample._replace(power_draw_watts=100.5)], time=at, global_step=3 * number)
    stats.close()
    return journal_points([record for record, _ in read_records(directory / GPU_STATS)])


def begin(process: StartedPython) -> None:
    """Return when the process delivers."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "warm\n"
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "delivering\n"


def test_all_trackers_hold_the_same_when_the_agent_is_killed_while_the_run_goes_on(
    followed: MakeFollowed,
) -> None:
    directory = followed("all").directory
    run = Run(directory, name="all", project="digits", config={}, trackers={name: {} for name in TRACKERS})
    chance = random.Random(5)
    step = kills = 0
    next_kill = time.monotonic() + 2
    while kills < 3:
        step += 1
        run.log_step(step, train_loss=1 / step)
        time.sleep(0.002)
        if time.monotonic() > next_kill and is_followed(directory):
            os.kill(lock_holder(directory), signal.SIGKILL)
            kills += 1
            next_kill = time.monotonic() + chance.uniform(0.5, 2)
    run.finish()
    catch_up(directory, wait=600)

    for tracker in TRACKERS:
        all_points = replace(followed("all"), tracker=tracker)
        assert ordered(all_points.received()) == shown(tracker, all_points.sent())


# Logs steps from FIRST on, for ever, and tells each on stdout after its call has returned.
TRAIN = """
import os, sys, time
from pathlib import Path
from typing import Any
from monitoring import Run

trackers = {"trackio": {}, "wandb": {}}
run = Run(Path(sys.argv[1]), name="n", project="digits", config={}, trackers=trackers)
for step in range(int(sys.argv[2]), 10**9):
    run.log_step(step, train_loss=1 / step, lr=1e-3 * step)
    os.write(1, b"%d\\n" % step)
    time.sleep(0.0005)
"""


def test_trainer_killed_at_any_moment_has_every_logged_step_in_csv_and_trackers(
    followed: MakeFollowed, warm_trackers: WarmPython
) -> None:
    """One run, killed and taken up again at 20 moments, its agents handing over to each other."""
    directory = followed("all").directory
    chance = random.Random(7)
    last = 0
    for _ in range(20):
        command = ["-c", TRAIN, directory, last + 1]
        with warm_trackers.start(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            time.sleep(chance.uniform(0, 0.2))
            process.kill()
            told = [first, *process.stdout.read().splitlines()]
        records = [record for record, _ in read_records(directory / "metrics.jsonl")]
        logged = [int(str(record["global_step"])) for record in records]
        assert logged[: int(told[-1])] == list(range(1, int(told[-1]) + 1))
        assert len(logged) - int(told[-1]) in (0, 1)  # at most the one whose call had not returned
        last = logged[-1]
    catch_up(directory, wait=600)

    with (directory / "metrics.csv").open(newline="") as file:
        rows = [(int(row["seq"]), float(row["train_loss"]), float(row["lr"])) for row in csv.DictReader(file)]
    assert rows == [(record["seq"], record["train_loss"], record["lr"]) for record in records]
    for tracker in ("trackio", "wandb"):
        everything = replace(followed("all"), tracker=tracker)
        assert ordered(everything.received()) == shown(tracker, everything.sent())


def lock_holder(directory: Path) -> int:
    """The process number of the run's agent."""
    inode = (directory / ".agent.lock").stat().st_ino
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    [pid] = {int(lock[4]) for lock in locks if lock[1] == "FLOCK" and lock[5].endswith(f":{inode}")}
    return pid


@pytest.mark.parametrize("tracker", TRACKERS)
def test_value_that_is_not_a_number_is_no_point_and_is_flagged(followed: MakeFollowed, tracker: str) -> None:
    run = followed(tracker)
    with new_run(run.directory, "digits", tracker) as training:
        training.log_step(1, train_loss=float("nan"), lr=0.5)
    run.follow()

    held = {(point.metric, point.value) for point in run.received() if point.metric != "cpu_mem_rss_mb"}
    assert held == {("lr", 0.5), ("nan_inf_detected", 1)}


@pytest.mark.parametrize("tracker", [*TRACKERS, "mlflow"])
def test_missing_package_is_an_error_that_names_the_command(
    tracker: str, bare_python: Callable[[str], str]
) -> None:
    code = f"""
from monitoring import Run, MonitoringError
from pathlib import Path
from typing import Any
try:
    Run(Path("run"), name="n", project="p", config={{}}, trackers={{"{tracker}": {{}}}})
except MonitoringError as error:
    print(type(error).__name__, error, error.hint, sep="|")
"""
    install = {
        "mlflow": "mlflow-skinny sqlalchemy alembic",
        "trackio": "'trackio>=0.43,<0.44'",
        "wandb": "'wandb>=0.31,<0.32'",
    }.get(tracker, tracker)
    assert bare_python(code) == f"MissingPackage|{tracker} is not installed|pip install {install}\n"


def test_following_imports_no_framework_and_says_nothing(followed: MakeFollowed, tmp_path: Path) -> None:
    run = followed("all")
    with new_run(run.directory, "digits", *TRACKERS) as training:
        training.log_step(1, train_loss=0.5)
    code = """
import sys
from pathlib import Path
from typing import Any
from monitoring.agent.follow import catch_up
catch_up(Path("run"))
print([name for name in ("torch", "tensorflow") if name in sys.modules])
"""
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert (said.stdout, said.stderr) == ("[]\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
