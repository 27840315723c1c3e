"""Real agents that sample simulated GPUs: what they write, what trackers get, and what goes wrong."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from monitoring import Run, read_records
from monitoring.agent.follow import catch_up, undelivered
from monitoring.agent.sample_threads.gpu_sampling import merged
from monitoring.errors import FollowerOptionsError
from monitoring.follower import RunInfo, follower_module, follower_options
from monitoring.gpu.device_states import DeviceStates
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.gpu.sample import GpuEvent, GpuSample, State
from monitoring.journal.records import Record
from monitoring.journal.rotating_journal import read_rotated
from monitoring.journal.run_json import read_run_json
from monitoring.trackers import TrackerPoint, journal_points

from ...processes import kill_process
from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...waiting import wait_until
from ..conftest import agents_of, wait_for_delivery

pytestmark = pytest.mark.usefixtures("forked_agents")

TRACKERS = ["tensorboard", "trackio", "wandb"]

UUID = "GPU-51a10001-0000-4000-8000-000000000001"


@pytest.fixture
def gpus(visible_nvml: SimulatedNvml, shared_trackio: None, monkeypatch: pytest.MonkeyPatch) -> SimulatedNvml:
    """Two simulated GPUs, and trackers that agents share with this process."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    memory = ("all memory_used 60000", "gpu 1 memory_used 50000")
    visible_nvml.write("gpus 2", "all utilization 90", *memory, f"all process {os.getpid()} 500")
    return visible_nvml


def alive(directory: Path, killed: set[int]) -> list[psutil.Process]:
    return [agent for agent in agents_of(directory) if agent.pid not in killed]


def opened(directory: Path, *, trackers: list[str] | None = None, **options: Any) -> Run:
    return Run(
        directory,
        name="n",
        project="digits",
        config={},
        trackers={name: {} for name in trackers or ()},
        gpu_monitor={"interval": 0.05, **options},
    )


def stats(directory: Path) -> list[dict[str, Any]]:
    """The samples so far, none before the first."""
    return list(read_rotated(directory / "gpu_stats.jsonl"))


def alerts(directory: Path) -> list[tuple[object, object]]:
    return [(alert["rule"], alert["message"]) for alert, _ in read_records(directory / "alerts.jsonl")]


def sent(directory: Path, journal: str, tracker: str) -> list[TrackerPoint]:
    records: list[Record] = [record for record, _ in read_records(directory / "metrics.jsonl")]
    found = journal_points(list(read_rotated(directory / "gpu_stats.jsonl")) if journal == "gpu" else records)
    if tracker == "tensorboard":  # its values have 32 bits
        found = [replace(it, value=struct.unpack("f", struct.pack("f", it.value))[0]) for it in found]
    return sorted(found, key=_place)


def received(directory: Path, journal: str, tracker: str) -> list[TrackerPoint]:
    module = follower_module(tracker)
    found = module.read_back(RunInfo.read(directory), follower_options(tracker, {}))
    return sorted((it for it in found if (it.event == "gpu") == (journal == "gpu")), key=_place)


def _place(point: TrackerPoint) -> tuple[int, str]:
    return point.seq, point.metric


def test_run_has_samples_from_its_start_to_its_end(gpus: SimulatedNvml, run_dir: Path) -> None:
    begun = time.monotonic()
    with opened(run_dir, hour_price=3.6) as run:
        for step in range(1, 21):
            run.log_step(step, train_loss=1 / step)
            time.sleep(0.02)
        wait_until(lambda: stats(run_dir), "the first sample")
        run.log_step(21, train_loss=0.1)
    wait_for_delivery(run_dir)

    records = stats(run_dir)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert {record["correlation_id"] for record in records} == {run.run_id}
    steps = [record["global_step"] for record in records]
    assert steps == sorted(steps)
    assert steps[-1] == 21  # the last sample is taken behind the end of the training
    [end] = [it for it, _ in read_records(run_dir / "metrics.jsonl") if it["event"] == "end"]
    assert records[-1]["time"] >= end["time"]
    last = records[-1]["aggregate_stats"]
    assert (last["gpu_count"], last["total_memory_used_mb"], last["average_utilization"]) == (2, 110000, 90)
    # two GPUs of 70 W, by their counters, which are read some time before or after the clock is
    assert 0 < last["energy_joules"] <= 2 * 70 * (time.monotonic() - begun)
    assert last["cost"] == pytest.approx(3.6 * last["gpu_hours"])
    options = {"interval": 0.05, "hour_price": 3.6, "file_mb": 64, "files": 16}
    assert read_run_json(run_dir)["gpu_monitor"] == options
    assert (alerts(run_dir), (run_dir / "agent.log").read_text()) == ([], "")


def test_agent_compresses_what_an_earlier_one_moved_aside(gpus: SimulatedNvml, run_dir: Path) -> None:
    with opened(run_dir):
        wait_until(lambda: len(stats(run_dir)) > 3, "four samples")
    wait_for_delivery(run_dir)
    before = stats(run_dir)
    full = run_dir / f"gpu_stats.jsonl.000000001-{len(before):09d}"
    (run_dir / "gpu_stats.jsonl").rename(full)
    archive = run_dir / f"{full.name}.xz"
    with opened(run_dir):
        wait_until(archive.exists, "the archive")
    wait_for_delivery(run_dir)
    full.unlink()
    after = stats(run_dir)
    assert after[: len(before)] == before
    assert [record["seq"] for record in after] == list(range(1, len(after) + 1))


def test_gpus_of_ranks_with_a_mask_each_are_sampled_once_each(
    gpus: SimulatedNvml, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm and torchrun launchers set such masks; rank 2 shares the GPU of rank 1."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with opened(run_dir) as run:
        run.log_step(1, train_loss=1.0)
        wait_until(lambda: stats(run_dir), "a sample of rank 0's GPU")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        for rank in (1, 2):
            with Run(run_dir, name="n", project="p", config={}, rank=rank) as further:
                further.start(model={}, training={"device": "cuda:0"})
        wait_until(lambda: len(stats(run_dir)[-1]["multi_gpu_data"]) == 2, "both GPUs")
    wait_for_delivery(run_dir)
    records = stats(run_dir)
    assert [gpu["index"] for gpu in records[0]["multi_gpu_data"]] == [0]
    assert [gpu["index"] for gpu in records[-1]["multi_gpu_data"]] == [0, 1]
    assert records[-1]["aggregate_stats"]["devices"] == [0, 1]
    energies = [record["aggregate_stats"]["energy_joules"] for record in records]
    assert energies == sorted(energies)
    assert alerts(run_dir) == []


def test_run_that_is_shorter_than_the_interval_has_a_sample_of_its_end(
    gpus: SimulatedNvml, run_dir: Path
) -> None:
    with opened(run_dir, interval=600.0) as run:
        wait_until(lambda: stats(run_dir), "the first sample")
        run.log_step(1, train_loss=0.5)
    wait_for_delivery(run_dir)
    assert [record["global_step"] for record in stats(run_dir)] == [0, 1]


def test_trackers_get_each_sample_once_though_the_agent_is_killed(gpus: SimulatedNvml, run_dir: Path) -> None:
    """Three agents in a row, in the midst of deliveries; then a tracker that the run did not have."""
    run = opened(run_dir, trackers=["trackio", "wandb"])
    killed: set[int] = set()
    step = seen = 0
    while len(killed) < 2 or not alive(run_dir, killed):
        step += 1
        run.log_step(step, train_loss=1 / step)
        time.sleep(0.005)
        agents = alive(run_dir, killed)
        if len(killed) < 2 and agents and len(stats(run_dir)) > seen + 8:
            kill_process(agents[0])
            killed.add(agents[0].pid)
            seen = len(stats(run_dir))
    run.finish()
    wait_for_delivery(run_dir)
    catch_up(run_dir, {"tensorboard": {}}, wait=600)

    records = stats(run_dir)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    energies = [record["aggregate_stats"]["energy_joules"] for record in records]
    assert energies == sorted(energies)
    for tracker in TRACKERS:
        for journal in ("metrics", "gpu"):
            assert received(run_dir, journal, tracker) == sent(run_dir, journal, tracker)
    metrics = {point.metric for point in received(run_dir, "gpu", "trackio")}
    assert {"gpu_total_memory_used", "gpu_1_temperature", "gpu_load_balance_cv"} < metrics


def test_quality_of_the_balance_is_shown_as_text(gpus: SimulatedNvml, run_dir: Path) -> None:
    with opened(run_dir, trackers=["trackio"]):
        wait_until(lambda: stats(run_dir), "the first sample")
    wait_for_delivery(run_dir)
    from trackio.sqlite_storage import SQLiteStorage

    logs = SQLiteStorage.get_logs("digits", "n", run_id=read_run_json(run_dir)["run_id"])
    assert {row.get("gpu_load_balance_quality") for row in logs} == {"Good"}


def test_further_attempt_goes_on_with_energy_and_numbers(gpus: SimulatedNvml, run_dir: Path) -> None:
    for attempt in (1, 2):
        with opened(run_dir):
            wait_until(
                lambda attempt=attempt: [it["attempt"] for it in stats(run_dir)].count(attempt) > 5,  # type: ignore[misc]
                "six samples",
            )
        wait_for_delivery(run_dir)
        with (run_dir / "gpu_stats.jsonl").open("ab") as file:
            file.write(b'{"event":"gpu","time":17')  # a torn line, as a loss of power leaves it
    records = stats(run_dir)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert sorted({record["attempt"] for record in records}) == [1, 2]
    energies = [record["aggregate_stats"]["energy_joules"] for record in records]
    assert energies == sorted(energies)
    assert energies[-1] > energies[0] == 0


def test_gpu_that_is_lost_is_an_alert_and_the_others_are_sampled_on(
    gpus: SimulatedNvml, run_dir: Path
) -> None:
    with opened(run_dir):
        wait_until(lambda: stats(run_dir), "the first sample")
        gpus.add("gpu 1 state lost", "xid 0 31 1")
        wait_until(lambda: len(alerts(run_dir)) == 2, "the alerts")
        seen = len(stats(run_dir))
        wait_until(lambda: len(stats(run_dir)) > seen + 3, "three more samples")
        lost = stats(run_dir)[-1]
        gpus.write("gpus 2", "all utilization 90")
        wait_until(lambda: len(alerts(run_dir)) == 4, "both alerts of its end")
    wait_for_delivery(run_dir)
    assert [gpu["state"] for gpu in lost["multi_gpu_data"]] == ["ok", "lost"]
    assert lost["aggregate_stats"]["lost"] == [1]
    assert [gpu["utilization_percent"] for gpu in lost["multi_gpu_data"]] == [90, None]
    xid = "Xid 31: memory page fault, often an illegal access of the program"
    assert sorted(map(str, alerts(run_dir))) == [
        str(("gpu_back", f"GPU 1 ({UUID}) answers again")),
        str(("gpu_lost", f"GPU 1 ({UUID}) is lost: GPU is lost")),
        str(("gpu_lost", f"no longer: GPU 1 ({UUID}) is lost")),
        str(("gpu_xid", f"GPU 0 ({UUID.replace('1-', '0-', 1)[:-1]}0): {xid}")),
    ]


@pytest.mark.parametrize("by_uuid", [False, True])
def test_gpu_that_is_lost_before_the_first_sample_comes_back(
    gpus: SimulatedNvml, run_dir: Path, monkeypatch: pytest.MonkeyPatch, by_uuid: bool
) -> None:
    """Selected by its UUID, it could not be recognized before it answered."""
    if by_uuid:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{UUID.replace('1-', '0-', 1)[:-1]}0,{UUID}")
    gpus.add("gpu 1 state lost")
    with opened(run_dir):
        wait_until(lambda: stats(run_dir), "the first sample")
        gpus.add("gpu 1 state 0")
        wait_until(
            lambda: [gpu["state"] for gpu in stats(run_dir)[-1]["multi_gpu_data"]] == ["ok", "ok"],
            "a sample of both",
        )
    wait_for_delivery(run_dir)
    first, last = (stats(run_dir)[place]["multi_gpu_data"] for place in (0, -1))
    assert [gpu["state"] for gpu in first] == (["ok"] if by_uuid else ["ok", "lost"])
    assert [gpu["uuid"] for gpu in last] == [f"{UUID.replace('1-', '0-', 1)[:-1]}0", UUID]
    lost = [
        ("gpu_lost", "GPU 1 (nvidia) is lost: GPU is lost"),
        ("gpu_back", f"GPU 1 ({UUID}) answers again"),
        ("gpu_lost", f"no longer: GPU 1 ({UUID}) is lost"),
    ]
    assert sorted(map(str, alerts(run_dir))) == ([] if by_uuid else sorted(map(str, lost)))


def test_change_of_a_gpu_is_told_once_over_several_agents() -> None:
    def look(*states: State) -> list[GpuSample]:
        return [
            GpuSample(index, f"GPU-{index}", "H100", "nvidia", state, "GPU is lost")
            for index, state in enumerate(states)
        ]

    def told(states: DeviceStates, samples: list[GpuSample]) -> list[tuple[str, int]]:
        return [(event.kind, event.index) for event in states.changes(samples, 0.0)]

    first = DeviceStates(None)
    assert told(first, look("ok", "lost")) == [("lost", 1)]
    assert told(first, look("ok", "lost")) == []
    second = DeviceStates({"multi_gpu_data": [sample._asdict() for sample in look("ok", "lost")]})
    assert told(second, look("ok", "lost")) == []
    assert told(second, look("error", "ok")) == [("error", 0), ("back", 1)]


def test_events_that_are_alike_are_one_alert_a_look() -> None:
    def xid(time: float, index: int, code: int) -> GpuEvent:
        return GpuEvent(time, index, f"GPU-{index}", "xid", code, f"GPU {index}: Xid {code}")

    events = [xid(1.0, 0, 31), xid(1.1, 1, 31), xid(1.2, 0, 31), xid(1.3, 0, 79), xid(1.4, 0, 31)]
    assert merged(events) == [
        xid(1.0, 0, 31)._replace(message="GPU 0: Xid 31 (3 times)"),
        xid(1.1, 1, 31),
        xid(1.3, 0, 79),
    ]


# Follows a run with a short patience for drivers.
FOLLOW = """
import sys
from pathlib import Path
from monitoring.agent import follow as agent
from monitoring.sampler_process import process

process.SAMPLE_SECONDS = 1.0
done = agent.follow(Path(sys.argv[1]))
print(done, sorted({"torch", "tensorflow"} & set(sys.modules)))
"""


def test_driver_that_hangs_holds_up_no_follower_and_not_the_end(gpus: SimulatedNvml, run_dir: Path) -> None:
    gpus.write("gpus 2", "gpu 1 utilization hang")
    trackers: dict[str, dict[str, object]] = {"tensorboard": {}}
    run = Run(
        run_dir, name="n", project="digits", config={}, trackers=trackers, gpu_monitor=True, agent=False
    )
    command = [sys.executable, "-c", FOLLOW, str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        run.log_step(1, train_loss=0.5)
        wait_until(lambda: (run_dir / "alerts.jsonl").exists() and alerts(run_dir), "an alert")
        run.log_step(2, train_loss=0.5)
        everything = ("metrics", "tensorboard")
        wait_until(lambda: received(run_dir, *everything) == sent(run_dir, *everything), "delivery")
        run.finish()
        output, _ = agent.communicate(timeout=600)
    assert output == "True []\n"
    hung = (
        "GPU sampling has hung in nvmlDeviceGetUtilizationRates of GPU 1 for 1 s and was killed; restarting"
    )
    assert alerts(run_dir)[0] == ("gpu_monitor", hung)
    assert undelivered(run_dir) == {}


def test_sampler_that_fails_is_an_alert_and_tried_again(gpus: SimulatedNvml, run_dir: Path) -> None:
    """A directory in the place of gpu_stats.jsonl stands for a file that cannot be written for a while."""
    (run_dir / "gpu_stats.jsonl").mkdir(parents=True)
    with opened(run_dir) as run:
        run.log_step(1, train_loss=0.5)
        wait_until(lambda: (run_dir / "alerts.jsonl").exists() and alerts(run_dir), "an alert")
        (run_dir / "gpu_stats.jsonl").rmdir()
        wait_until(lambda: len(alerts(run_dir)) == 2, "the alerts")
    wait_for_delivery(run_dir)
    path = run_dir / "gpu_stats.jsonl"
    cannot = f"GPUs cannot be sampled: IsADirectoryError: [Errno 21] Is a directory: '{path}'"
    assert alerts(run_dir) == [
        ("gpu_monitor", f"{cannot}; it is tried again"),
        ("gpu_monitor", "GPUs are sampled again"),
    ]
    assert stats(run_dir) != []


def test_run_without_gpu_monitor_has_no_samples(gpus: SimulatedNvml, run_dir: Path) -> None:
    with Run(run_dir, name="n", project="digits", config={}):
        pass
    wait_for_delivery(run_dir)
    assert not (run_dir / "gpu_stats.jsonl").exists()
    assert read_run_json(run_dir)["gpu_monitor"] is False


# Follows a run to its end, and tells what it has loaded of what samples GPUs.
LOADED = """
import sys
from pathlib import Path
from monitoring.agent import follow as agent

agent.follow(Path(sys.argv[1]))
names = {"ctypes", "psutil", "pynvml"}
names |= {"monitoring.agent.sample_threads.gpu_sampling", "monitoring.sampler_process.process"}
names |= {"monitoring.samplers"}
print(sorted(names & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("gpu_monitor", "loaded"),
    [
        (False, []),
        # drivers are its child's
        (True, ["monitoring.agent.sample_threads.gpu_sampling", "monitoring.sampler_process.process"]),
    ],
)
def test_agent_loads_what_samples_gpus_where_that_is_asked(
    gpus: SimulatedNvml, run_dir: Path, gpu_monitor: bool, loaded: list[str]
) -> None:
    """An agent is started for every run; one that samples nothing pays nothing for it."""
    with Run(run_dir, name="n", project="p", config={}, gpu_monitor=gpu_monitor, agent=False):
        pass
    command = [sys.executable, "-c", LOADED, str(run_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{loaded}\n"


def test_options_are_those_of_the_configuration() -> None:
    assert GpuMonitorOptions.configured({"GPU_MONITOR": False, "GPU_HOUR_PRICE": 2.5}) is False
    assert GpuMonitorOptions.configured({}) is False
    given = {"GPU_MONITOR": True, "GPU_HOUR_PRICE": 2.5, "GPU_MONITOR_INTERVAL": 0.5, "GPU_STATS_FILES": 3}
    options = {"interval": 0.5, "hour_price": 2.5, "file_mb": 64, "files": 3}
    assert GpuMonitorOptions.configured(given) == options
    assert GpuMonitorOptions.asked(options) == GpuMonitorOptions(interval=0.5, hour_price=2.5, files=3)


def test_option_that_gpu_monitor_does_not_have_is_refused(run_dir: Path) -> None:
    with pytest.raises(FollowerOptionsError, match="gpu_monitor has no option 'intervall'"):
        Run(run_dir, name="n", project="p", config={}, gpu_monitor={"intervall": 1.0})
    assert not run_dir.exists()
