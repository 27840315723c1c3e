"""A follower that is far behind catches up in a process of its own: every record once, whoever is killed."""

from __future__ import annotations

import contextlib
import random
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from monitoring.agent import delivery
from monitoring.agent.catch_up_process import Apart
from monitoring.agent.follow import catch_up
from monitoring.agent.lock import is_followed
from monitoring.agent.progress import DeliveryProgress
from monitoring.follower import RunInfo, follower_module, follower_options
from monitoring.journal.alerts import Alerts
from monitoring.journal.records import read_records
from monitoring.trackers import TrackerPoint, journal_points

from ...waiting import wait_until
from ...warm_python import WarmPython
from .conftest import MakeFollowed, new_run

TRACKERS = ("tensorboard", "trackio", "wandb")

# The agent, for which every journal is far behind.
AGENT = """
import sys
from monitoring.agent import follow as agent
from monitoring.agent import delivery
delivery.BEHIND_BYTES = 1
agent.leave(agent.main(sys.argv[1:]))
"""


def train(directory: Path, steps: int) -> RunInfo:
    with new_run(directory, directory.name, *TRACKERS) as run:
        for step in range(1, steps + 1):
            run.log_step(step, train_loss=1 / step, lr=0.1)
    return RunInfo.read(directory)


def sent(directory: Path, tracker: str) -> list[TrackerPoint]:
    points = journal_points([record for record, _ in read_records(directory / "metrics.jsonl")])
    if tracker == "tensorboard":  # its values have 32 bits
        points = [replace(it, value=struct.unpack("f", struct.pack("f", it.value))[0]) for it in points]
    return sorted(points, key=lambda point: (point.seq, point.metric))


def received(run: RunInfo, tracker: str) -> list[TrackerPoint]:
    module = follower_module(tracker)
    points: list[TrackerPoint] = module.read_back(run, follower_options(tracker, {}))
    return sorted(points, key=lambda point: (point.seq, point.metric))


def processes(directory: Path) -> Iterator[psutil.Process]:
    """Those that catch up with a run."""
    for process in psutil.process_iter():
        try:
            if (
                "monitoring.agent.catch_up_process" in process.cmdline()
                and str(directory) in process.cmdline()[-1]
            ):
                yield process
        except psutil.Error:  # gone meanwhile
            continue


def test_process_delivers_all_and_says_how_far_it_is(followed: MakeFollowed, tmp_path: Path) -> None:
    run = train(tmp_path / "apart", 3000)
    alerts, told = Alerts(run.directory), []
    apart = Apart(alerts)

    assert apart(run, "tensorboard", {}, lambda progress, count: told.append((progress, count)))
    size = (run.directory / "metrics.jsonl").stat().st_size
    assert told[-1] == (
        DeliveryProgress(offset=size, seq=3001, held=3000),
        3001,
    )  # the end record has no points
    assert [count for _, count in told] == sorted(count for _, count in told)
    assert received(run, "tensorboard") == sent(run.directory, "tensorboard")

    assert not apart(run, "tensorboard", {"strange": 1}, lambda progress, count: None)
    alerts.close()
    [alert] = [record["message"] for record, _ in read_records(run.directory / "alerts.jsonl")]
    assert alert == (
        "tensorboard: FollowerOptionsError: tensorboard has no option 'strange'; its process has ended"
    )


def test_followers_that_are_far_behind_catch_up_and_end_as_always(
    followed: MakeFollowed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(tmp_path / "behind", 1500)
    monkeypatch.setattr(delivery, "BEHIND_BYTES", 1)
    before = psutil.Process().children()
    deliveries = catch_up(run.directory)
    assert [(it.name, it.delivered, it.error) for it in deliveries] == [
        (name, 1501, None) for name in ("csv", *TRACKERS)
    ]
    assert all(it.progress.ended for it in deliveries)
    for tracker in TRACKERS:
        assert received(run, tracker) == sent(run.directory, tracker)
    assert psutil.Process().children() == before
    assert [it.delivered for it in catch_up(run.directory)] == [0] * 4


def test_killed_agents_and_killed_processes_lose_and_double_nothing(
    followed: MakeFollowed, warm_trackers: WarmPython, tmp_path: Path
) -> None:
    """Agents are killed with all their processes at work; some of these alone."""
    run = train(tmp_path / "killed", 6000)
    chance = random.Random(3)
    for life in range(6):
        agent = warm_trackers.start(["-c", AGENT, run.directory])
        deadline = time.monotonic() + 600
        while not (at_work := list(processes(run.directory))) and agent.poll() is None:
            assert time.monotonic() < deadline
        assert at_work
        time.sleep(chance.uniform(0, 1.5))
        if life % 2:
            for process in at_work[:2]:
                with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself
                    process.send_signal(signal.SIGKILL)
        agent.kill()
        agent.wait()
        if life == 0:
            psutil.wait_procs(at_work, timeout=600)
            # one that was started after these were counted has the agent's lock, too, until it ends
            wait_until(lambda: not is_followed(run.directory), "an end of its agent")
    last = warm_trackers.run(["-c", AGENT, run.directory], timeout=600)
    assert last.returncode == 0
    for tracker in TRACKERS:
        assert received(run, tracker) == sent(run.directory, tracker)
    lines = (run.directory / "metrics.csv").read_text().splitlines()
    assert [int(line.partition(",")[0]) for line in lines[1:]] == list(range(1, 6002))
