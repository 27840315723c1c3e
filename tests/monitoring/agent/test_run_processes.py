"""Real agents beside simulated GPUs: which of them they find to be the run's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from monitoring import Run, points, read_records
from monitoring.agent.follow import undelivered
from monitoring.agent.sample_threads import run_processes
from monitoring.agent.sample_threads.gpu_sampling import GpuSampling
from monitoring.agent.sample_threads.run_processes import RunProcesses
from monitoring.gpu import energy, masks
from monitoring.gpu.run_devices import RunDevices, Said, Shares
from monitoring.gpu.sample import DeviceInfo
from monitoring.journal.alerts import Alerts
from monitoring.journal.rotating_journal import read_rotated
from monitoring.journal.run_json import read_run_json
from monitoring.terminal.run_view import RunView

from ...simulated_nvml.simulated_nvml import SimulatedNvml
from ...waiting import wait_until
from ..conftest import agent_of, agents_of, wait_for_delivery

pytestmark = pytest.mark.usefixtures("forked_agents")

# Opens a run, says so, and trains until standard input ends.
TRAINING = """
import sys
from pathlib import Path
from monitoring import Run
with Run(Path(sys.argv[1]), name="n", project="p", config={}, gpu_monitor={"interval": 0.05}) as run:
    run.start(model={}, training={"device": "cuda:0"})
    print(flush=True)
    sys.stdin.read()
"""


def opened(directory: Path, **more: Any) -> Run:
    options = {"interval": 0.05, "hour_price": 3600.0}
    return Run(directory, name="n", project="p", config={}, gpu_monitor=options, **more)


def stats(directory: Path) -> list[dict[str, Any]]:
    return list(read_rotated(directory / "gpu_stats.jsonl"))


def wait_for(directory: Path, devices: list[int] | None) -> dict[str, Any]:
    """The first sample of which these are the run's devices."""

    def found() -> list[dict[str, Any]]:
        rows = [row["aggregate_stats"] for row in stats(directory)]
        return [row for row in rows if row["devices"] == devices]

    return wait_until(found, f"devices {devices}")[0]


@pytest.fixture
def other() -> int:
    """The id of a process that is none of ours: the parent of this one."""
    return os.getppid()


def test_cpu_training_beside_busy_gpus_has_no_sums_of_them(
    visible_nvml: SimulatedNvml, run_dir: Path, other: int
) -> None:
    visible_nvml.write("gpus 4", "all power 400", "all utilization 99", f"all process {other} 5000")
    with opened(run_dir, identity={"device": "cpu (requested)"}, trackers={"tensorboard": {}}) as run:
        run.log_step(1, train_loss=0.5)
        wait_until(lambda: len(stats(run_dir)) > 3, "samples")
    wait_for_delivery(run_dir)
    records = stats(run_dir)
    assert [points(record) for record in records] == [{}] * len(records)
    assert len(records[-1]["multi_gpu_data"]) == 4
    assert records[-1]["multi_gpu_data"][3]["energy_joules"] > 0
    together = records[-1]["aggregate_stats"]
    assert (together["devices"], together["devices_source"]) == ([], "device")
    sums = (
        "energy_joules",
        "energy_source",
        "gpu_hours",
        "cost",
        "total_power_watts",
        "total_memory_used_mb",
    )
    assert [together[name] for name in sums] == [None] * len(sums)
    assert undelivered(run_dir) == {}


def test_run_on_one_of_eight_gpus_has_its_sums(
    visible_nvml: SimulatedNvml, run_dir: Path, other: int
) -> None:
    processes = [f"gpu 5 process {os.getpid()} 900", f"gpu 0 process {other} 900"]
    visible_nvml.write("gpus 8", "all power 100", "gpu 5 power 300", *processes)
    with opened(run_dir):
        wait_for(run_dir, [5])
    wait_for_delivery(run_dir)
    last = stats(run_dir)[-1]
    together = last["aggregate_stats"]
    assert (together["devices_source"], together["gpu_count"], together["total_power_watts"]) == (
        "processes",
        1,
        300,
    )
    assert together["load_balance"]["power"] == {"cv": None, "quality": None}
    run = read_run_json(run_dir)
    # measured by another clock, which is not set with that of the records: by half a thousandth at most
    assert together["cost"] == pytest.approx(last["time"] - run["attempts"][0]["started"], rel=1e-3)
    assert {name for name in points(last) if name[4:5].isdigit()} == {
        *("gpu_5_memory_used", "gpu_5_utilization", "gpu_5_temperature", "gpu_5_power"),
    }


def test_run_whose_processes_move_takes_its_sums_along(visible_nvml: SimulatedNvml, run_dir: Path) -> None:
    """Its ranks are children, and a second agent continues where the first was killed."""
    ranks = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    try:
        visible_nvml.write(
            "gpus 3", *(f"gpu {index} process {rank.pid} 9" for index, rank in enumerate(ranks))
        )
        run = opened(run_dir)
        wait_for(run_dir, [0, 1])
        agent = agent_of(run_dir)
        agent.kill()
        visible_nvml.write("gpus 3", f"gpu 2 process {ranks[0].pid} 9")
        while agents_of(run_dir) in ([], [agent]):
            run.log_step(1)  # which starts the next one
        wait_for(run_dir, [2])
        run.finish()
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    wait_for_delivery(run_dir)
    sums = [record["aggregate_stats"] for record in stats(run_dir)]
    for name in ("energy_joules", "gpu_hours"):
        values = [row[name] for row in sums if row[name] is not None]
        assert values == sorted(values)
    assert {tuple(row["devices"]) for row in sums if row["devices"] is not None} == {(0, 1), (2,)}


def test_run_pays_for_its_work_on_a_gpu_that_it_shares(
    visible_nvml: SimulatedNvml, run_dir: Path, other: int
) -> None:
    """Both are counted by the work that the driver tells of each; its GPUs use 100 W."""
    both = [f"gpu 0 process {os.getpid()} 900 99", f"gpu 0 process {other} 900 1"]
    visible_nvml.write("gpus 2", "all power 100", "gpu 1 state lost", *both)
    with opened(run_dir):
        wait_until(lambda: len(stats(run_dir)) > 3, "samples")
    wait_for_delivery(run_dir)
    last = stats(run_dir)[-1]
    assert [gpu["run_share"] for gpu in last["multi_gpu_data"]] == [0.99, None]
    together, used = last["aggregate_stats"], last["multi_gpu_data"][0]["energy_joules"]
    assert together["devices"] == [0]
    assert together["energy_joules"] == pytest.approx(0.99 * used)


def test_two_runs_at_once_share_the_gpu_that_both_are_on(visible_nvml: SimulatedNvml, results: Path) -> None:
    """GPU 0 is the first one's, GPU 1 is shared."""
    directories = [results / "a", results / "b"]
    visible_nvml.write("gpus 2")  # before an agent counts them
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for directory in directories
    ]
    for run in runs:
        assert run.stdout is not None
        run.stdout.readline()
    first, second = (run.pid for run in runs)
    processes = [f"gpu 0 process {first} 9", f"gpu 1 process {first} 9", f"gpu 1 process {second} 9"]
    visible_nvml.write("gpus 2", *processes)
    wait_for(directories[0], [0, 1])
    wait_for(directories[1], [1])
    for run in runs:
        run.communicate()
    for directory in directories:
        wait_for_delivery(directory)
    shares = [
        {tuple(gpu["run_share"] for gpu in record["multi_gpu_data"]) for record in stats(directory)}
        for directory in directories
    ]
    assert (1.0, 0.5) in shares[0]
    assert (None, 0.5) in shares[1]


@pytest.mark.parametrize(
    ("count", "who"),
    [
        (1, "GPU 0 (GPU-0) draws power, but its energy counter stands"),
        (8, "all 8 nvidia GPUs draw power, but their energy counters stand"),
    ],
)
def test_standing_counters_of_a_driver_are_one_alert_until_they_move(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, count: int, who: str
) -> None:
    monkeypatch.setattr(energy, "STANDSTILL_SECONDS", 0.02)
    devices = [DeviceInfo(index, f"GPU-{index}", "H100", "nvidia") for index in range(count)]
    samples = [it.sample()._replace(power_draw_watts=300.0, energy_counter_joules=12345.0) for it in devices]
    with (
        opened(run_dir, agent=False, identity={"device": "cpu"}) as run,
        closing(Alerts(run_dir, shared={"correlation_id": run.run_id})) as alerts,
    ):
        sampling = GpuSampling(run_dir, read_run_json(run_dir), alerts)
        sampling.found(devices, [])
        told = run_dir / "alerts.jsonl"
        while not list(read_records(told)):
            sampling.take(samples, [])
        sampling.take(samples, [])
        sampling.found(devices, [])  # another process samples
        sampling.take(samples, [])
        assert stats(run_dir)[-1]["multi_gpu_data"][0]["energy_source"] == "integrated"
        for moving in range(1, count + 1):  # one after the other
            joules = [20000.0 + moving] * moving + [12345.0] * (count - moving)
            assert len(list(read_records(told))) == 1
            sampling.take(
                [it._replace(energy_counter_joules=its) for it, its in zip(samples, joules, strict=True)], []
            )
    found = [alert for alert, _ in read_records(told)]
    assert [(alert["rule"], alert["state"], alert["subject"], alert["message"]) for alert in found] == [
        ("gpu_energy", "firing", "nvidia", f"{who} still: power is integrated"),
        ("gpu_energy", "resolved", "nvidia", "the energy counters of the nvidia driver move again"),
    ]
    view = RunView(run_dir)
    view.look()
    assert view.alert is None


def test_ranks_are_found_by_their_start_records(run_dir: Path) -> None:
    """Those of this attempt on this machine, each journal read until it has one."""
    with Run(run_dir, name="n", project="p", config={}, agent=False):
        attempt = read_run_json(run_dir)["attempts"][-1]
        processes = RunProcesses(run_dir, {**attempt, "pid_started": None})
        assert processes.said_devices() == []
        with Run(run_dir, name="n", project="p", config={}, rank=1) as rank:
            rank.start(model={}, training={"device": "cuda:1"})
        journal = run_dir / "metrics.rank0002.jsonl"
        start = {"event": "start", "attempt": 1, "pid": 1, "pid_started": 1.0, "device": "cuda:2"}
        lines = [{**start, "attempt": 7}, {**start, "host": "elsewhere"}]
        journal.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        found = RunProcesses(run_dir, {**attempt, "pid_started": None})
        assert found.said_devices() == [Said("cuda:1")]
        assert found.is_own(os.getpid())  # as rank 1


def test_rank_with_a_mask_of_its_own_says_which_gpus_it_may_use(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in masks.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    ours = {"CUDA_VISIBLE_DEVICES": "0"}
    monkeypatch.setenv(*next(iter(ours.items())))
    with Run(run_dir, name="n", project="p", config={}, agent=False):
        attempt = read_run_json(run_dir)["attempts"][-1]
        assert attempt["visible_devices"] == ours
        for rank, (mask, device) in enumerate([("0", "cuda:0"), ("1", "cuda:0"), ("1", "cpu")], start=1):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
            with Run(run_dir, name="n", project="p", config={}, rank=rank) as further:
                further.start(model={}, training={"device": device})
        monkeypatch.setenv(*next(iter(ours.items())))
        found = RunProcesses(run_dir, attempt)
        other = {"CUDA_VISIBLE_DEVICES": "1"}
        assert found.masks() == [other]
        assert found.said_devices() == [Said("cuda:0"), Said("cuda:0", other), Said("cpu", other)]
        gpus = [
            DeviceInfo(place, f"GPU-{place}", "x", "nvidia", visible_index=number)
            for place, number in enumerate([0, None, None])
        ]
        shares = RunDevices(gpus, found).look([gpu.sample() for gpu in gpus])
        assert shares == Shares({0: 1.0, 1: 1.0}, "device")


def test_start_record_is_found_once_it_is_complete(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of a journal are read once: a run without a start record may be long."""
    monkeypatch.setattr(run_processes, "LOOK_EVERY", 0.0)
    run_dir.mkdir(parents=True)
    journal = run_dir / "metrics.jsonl"
    start = b'{"event":"start","attempt":1,"device":"cuda:1"}\n'
    processes = RunProcesses(run_dir, {"attempt": 1})
    said = []
    for text in (b'{"event":"step","attempt":1}\n', start[:20], start[20:], start.replace(b":1,", b":2,")):
        with journal.open("ab") as file:
            file.write(text)
        said.append(list(processes.said_devices()))
    assert said == [[], [], [Said("cuda:1")], [Said("cuda:1")]]
