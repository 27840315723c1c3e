"""Real agents that sample the machine: what they write, and what goes wrong."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from monitoring import Run, read_records
from monitoring.agent.follow import catch_up, undelivered
from monitoring.agent.sample_threads.machine_sampling import SystemStats
from monitoring.errors import FollowerOptionsError
from monitoring.follower import RunInfo, follower_module, follower_options
from monitoring.gpu.options import MachineMonitorOptions
from monitoring.journal.encoding.archive import full_files
from monitoring.journal.files import HostFiles
from monitoring.journal.rotating_journal import read_rotated
from monitoring.journal.run_json import read_run_json
from monitoring.samplers.machine import MachineSample
from monitoring.trackers import journal_points

from ...waiting import wait_until
from ..conftest import wait_for_delivery

pytestmark = pytest.mark.usefixtures("forked_agents")


def opened(directory: Path, **options: Any) -> Run:
    monitor = {"interval": 0.05, **options}
    return Run(directory, name="n", project="p", config={}, machine_monitor=monitor)


def stats(directory: Path) -> list[dict[str, Any]]:
    return list(read_rotated(directory / "system_stats.jsonl"))


def test_agent_samples_the_machine_until_the_run_has_ended(run_dir: Path) -> None:
    with opened(run_dir) as run:
        run.log_step(1, train_loss=1.0)
        wait_until(lambda: stats(run_dir)[-1]["global_step"] == 1 if stats(run_dir) else False, "a sample")
        wait_until(lambda: stats(run_dir)[-1]["cpu_usage_percent"] is not None, "a second sample")
        wait_until(lambda: stats(run_dir)[-1]["trainer_processes"], "a look at this process")
    wait_for_delivery(run_dir)
    found = stats(run_dir)
    about = {"event": "system", "attempt": 1, "correlation_id": run.run_id, "host": platform.node()}
    assert [record["seq"] for record in found] == list(range(1, len(found) + 1))
    for record in found:
        assert {name: record[name] for name in about} == about
        assert set(record) == {*MachineSample._fields, *about, "time", "seq", "global_step"}
    assert found[0]["cpu_usage_percent"] is None
    assert found[-1]["memory_used_gb"] > 0
    assert list(read_records(run_dir / "alerts.jsonl")) == []


def test_second_attempt_continues_the_file(run_dir: Path) -> None:
    for attempt in (1, 2):
        with opened(run_dir):
            wait_until(lambda: stats(run_dir)[-1]["attempt"] == attempt if stats(run_dir) else False, "it")  # noqa: B023
        wait_for_delivery(run_dir)
    found = stats(run_dir)
    assert [record["seq"] for record in found] == list(range(1, len(found) + 1))
    assert sorted({record["attempt"] for record in found}) == [1, 2]


def test_full_file_moves_aside(run_dir: Path) -> None:
    with Run(run_dir, name="n", project="p", config={}, machine_monitor=True, agent=False):
        run = read_run_json(run_dir)
    samples = SystemStats(run_dir, run, file_bytes=2000, keep=3)
    for number in range(60):
        samples.append({"load_average_1m": float(number)})
    samples.close()
    names = sorted(path.name for path in run_dir.glob("system_stats.jsonl*"))
    full = [file.path.name for file in full_files(run_dir / "system_stats.jsonl")]
    assert (len(full), names) == (3, ["system_stats.jsonl", *full])
    assert [record["seq"] for record in stats(run_dir)][-1] == 60


def test_file_that_cannot_be_written_is_an_alert_until_it_can(run_dir: Path) -> None:
    (run_dir / "system_stats.jsonl").mkdir(parents=True)
    with opened(run_dir):
        wait_until(lambda: len(list(read_records(run_dir / "alerts.jsonl"))) == 1, "an alert")
        (run_dir / "system_stats.jsonl").rmdir()
        wait_until(lambda: len(list(read_records(run_dir / "alerts.jsonl"))) == 2, "its end")
    wait_for_delivery(run_dir)
    messages = [str(alert["message"]) for alert, _ in read_records(run_dir / "alerts.jsonl")]
    assert messages[0].startswith("the machine is not sampled: ")
    assert messages[0].endswith("; it is tried again")
    assert messages[1:] == ["the machine is sampled again"]


def test_run_without_it_has_no_such_file(run_dir: Path) -> None:
    with Run(run_dir, name="n", project="p", config={}, agent=False) as run:
        run.log_step(1, train_loss=1.0)
    catch_up(run_dir)
    assert not (run_dir / "system_stats.jsonl").exists()
    assert read_run_json(run_dir)["machine_monitor"] is False


def test_options_are_those_of_the_configuration() -> None:
    given = {"MACHINE_MONITOR": True, "MACHINE_MONITOR_INTERVAL": 0.5, "SYSTEM_STATS_FILES": 3}
    assert MachineMonitorOptions.configured(given) == {"interval": 0.5, "file_mb": 16, "files": 3}
    assert MachineMonitorOptions.configured({**given, "MACHINE_MONITOR": False}) is False
    options = MachineMonitorOptions.configured(given)
    assert MachineMonitorOptions.asked(options) == MachineMonitorOptions(0.5, 16, 3)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"intervall": 1.0}, "machine_monitor has no option 'intervall'"),
        ({"interval": 0.0}, "machine_monitor: interval, file_mb and files are above 0"),
    ],
)
def test_bad_options_are_refused(run_dir: Path, asked: dict[str, float], message: str) -> None:
    with pytest.raises(FollowerOptionsError) as raised:
        Run(run_dir, name="n", project="p", config={}, machine_monitor=asked)
    assert str(raised.value) == message
    assert not run_dir.exists()


@pytest.mark.parametrize("tracker", ["tensorboard", "trackio", "wandb"])
def test_trackers_hold_the_samples_of_other_hosts_by_their_names(
    run_dir: Path, tracker: str, shared_trackio: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts have names that one pattern of SQL's LIKE would match, and one begins later."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    trackers: dict[str, dict[str, object]] = {tracker: {}}
    with Run(run_dir, name="n", project=f"h-{tracker}", config={}, trackers=trackers, agent=False) as run:
        run.log_step(1, train_loss=0.5)
        for host, values in (("", (0.5, 1.5)), ("n_1", (2.5,)), ("nx1", (3.5, 4.5, 5.5))):
            samples = SystemStats(run_dir, read_run_json(run_dir), 2**20, 2, HostFiles(host))
            for value in values:
                samples.append({"cpu_usage_percent": value, "temperatures": {}})
            samples.close()
            assert [delivery.error for delivery in catch_up(run_dir)] == [None, None]
            assert undelivered(run_dir) == {}
    assert [delivery.error for delivery in catch_up(run_dir)] == [None, None]
    module = follower_module(tracker)
    held = module.read_back(RunInfo.read(run_dir), follower_options(tracker, {}))
    found = {(it.event, it.seq): it.value for it in held if it.event.startswith("system")}
    assert found == {
        ("system", 1): 0.5,
        ("system", 2): 1.5,
        ("system@n_1", 1): 2.5,
        **{("system@nx1", seq): 2.5 + seq for seq in (1, 2, 3)},
    }
    assert {it.metric for it in held if it.event.startswith("system")} == {"cpu_usage_percent"}


@pytest.mark.parametrize("tracker", ["tensorboard", "trackio", "wandb"])
def test_trackers_hold_every_sample_of_the_machine_once(
    run_dir: Path, tracker: str, shared_trackio: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivered in two lives, between other records; values are such that 32 bits hold them."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    trackers: dict[str, dict[str, object]] = {tracker: {}}
    with Run(run_dir, name="n", project=f"m-{tracker}", config={}, trackers=trackers, agent=False) as run:
        samples = SystemStats(run_dir, read_run_json(run_dir), file_bytes=2**20, keep=2)
        for number in range(1, 7):
            run.log_step(number, train_loss=0.5)
            values = {"cpu_usage_percent": number / 2, "disk_free_gb": 2.5, "cpu_temperature_celsius": None}
            samples.append({**values, "temperatures": {"a/b": 1.0}, "cgroup_limits": []})
            if number == 4:
                assert [delivery.error for delivery in catch_up(run_dir)] == [None, None]
        samples.close()
    assert [delivery.error for delivery in catch_up(run_dir)] == [None, None]
    module = follower_module(tracker)
    held = module.read_back(RunInfo.read(run_dir), follower_options(tracker, {}))
    found = [point for point in held if point.event == "system"]
    assert sorted(found, key=lambda point: (point.seq, point.metric)) == journal_points(stats(run_dir))
    assert {point.metric for point in found} == {"cpu_usage_percent", "disk_free_gb"}
    assert len(found) == 12
    assert undelivered(run_dir) == {}
